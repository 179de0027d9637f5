"""VERIFY, REPAIR and related statements: check stored rows and recompute wrong ones."""
