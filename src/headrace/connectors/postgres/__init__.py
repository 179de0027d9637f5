"""PostgreSQL: captured tables, followed by transaction, and sinks into tables."""
