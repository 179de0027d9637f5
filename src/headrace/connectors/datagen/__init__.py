"""Made-up rows: a source for experiments and tests."""
