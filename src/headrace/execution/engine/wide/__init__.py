"""Wide steps whose stages are one Python task each: rows stay Arrow columns, also on their way."""
