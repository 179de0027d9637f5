"""Statements that write rows: INSERT, UPDATE, DELETE, TRUNCATE and COPY."""
