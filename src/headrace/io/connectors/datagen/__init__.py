"""Generated rows: a source for experiments and tests."""
