"""Kinesis: streams as sources, shard by shard."""
