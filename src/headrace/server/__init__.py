"""The HTTP server of one open database."""
