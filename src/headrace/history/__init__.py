"""Keeps views equal to their logs: dirty slices, the change classifier, replays, reconciliation."""
