"""Other systems on the same files; each in an environment of its own."""
