"""Statements that change the catalog: CREATE and DROP."""
