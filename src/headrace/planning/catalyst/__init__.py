"""The only door to Spark's planner."""
