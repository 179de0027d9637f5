"""Inputs: what is landed in the log, and what is fed from or written to other relations."""
