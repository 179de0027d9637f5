"""DynamoDB as the target of sinks."""
