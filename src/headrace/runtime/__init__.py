"""Epochs: planning, running and committing them; backfill, compaction and deliveries."""
