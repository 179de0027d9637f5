"""Statements that list and describe: SHOW, DESCRIBE, EXPLAIN, and the information schema."""
