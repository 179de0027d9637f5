"""Statements that read rows: SELECT, and queries that are followed."""
