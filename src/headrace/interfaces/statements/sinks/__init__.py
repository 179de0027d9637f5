"""CREATE SINK, and INSERT ... SELECT that runs continuously."""
