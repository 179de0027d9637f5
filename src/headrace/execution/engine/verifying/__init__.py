"""Compares views with Spark batch over canonical history; shares no operator with maintenance."""
