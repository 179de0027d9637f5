"""What keeps views true to canonical history: dirty slices, changes, replays and reconciliation."""
