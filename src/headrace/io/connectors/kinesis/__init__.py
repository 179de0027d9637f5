"""Kinesis: streams as sources, read by shard."""
