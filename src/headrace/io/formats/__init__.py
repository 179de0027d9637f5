"""Decoders of external formats: bytes to rows of a schema, and rejects; rows to Avro."""
