"""Spark batch over canonical history, which views are compared with; it shares no operator."""
