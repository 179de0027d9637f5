"""Real servers for tests, and for people who try connectors (``make services``)."""
