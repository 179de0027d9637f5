"""Spark: its session, the tasks in its Python workers, their reports and failures."""
