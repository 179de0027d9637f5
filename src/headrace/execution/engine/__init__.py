"""Spark: the session, the lowering of circuits, and what runs in its workers."""
