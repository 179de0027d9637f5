"""Redis as the target of sinks."""
