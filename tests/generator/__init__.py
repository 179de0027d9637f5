"""Random queries over random histories, from a seed, against Spark batch; failures are shrunk."""
