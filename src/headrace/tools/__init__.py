"""Tools: the command line, and deployments of definitions."""
