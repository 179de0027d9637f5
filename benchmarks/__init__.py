"""Benchmarks of Headrace, and of other systems beside it on the same files."""
