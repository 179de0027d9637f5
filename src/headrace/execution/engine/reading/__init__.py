"""Answering a SELECT: by key, by DuckDB or by a job."""
