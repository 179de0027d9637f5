"""Sources of rows: the embedded log, files, and external systems."""
