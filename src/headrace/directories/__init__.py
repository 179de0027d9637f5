"""Data directories: their paths, and the lock of the process that has one open."""
