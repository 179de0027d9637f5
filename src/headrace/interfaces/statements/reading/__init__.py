"""Statements that read rows: SELECT, and queries whose changes are followed."""
