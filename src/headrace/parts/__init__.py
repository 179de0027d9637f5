"""What statements work on: the parts of one open database, each of which promises one thing."""
