"""Decoders of external forms: bytes to rows of a schema, and the rows that do not fit it."""
