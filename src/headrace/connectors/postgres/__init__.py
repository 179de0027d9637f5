"""PostgreSQL: tables that follow those of a database, transaction by transaction."""
