"""Bytes and systems: formats, and connectors."""
