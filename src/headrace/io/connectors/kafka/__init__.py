"""Kafka: topics as sources, and sinks that write one transaction per epoch."""
