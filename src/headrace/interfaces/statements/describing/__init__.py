"""Statements that list, describe and explain: SHOW, DESCRIBE and EXPLAIN."""
