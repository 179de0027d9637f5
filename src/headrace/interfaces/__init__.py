"""Doors to a database: statements and sessions, in this process and over HTTP."""
