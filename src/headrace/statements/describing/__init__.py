"""Statements that list and describe: SHOW, DESCRIBE and EXPLAIN."""
