"""Tables of files: Delta Lake, Iceberg, snapshots, and changes staged for a warehouse."""
