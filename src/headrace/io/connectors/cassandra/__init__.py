"""Apache Cassandra as the target of sinks."""
