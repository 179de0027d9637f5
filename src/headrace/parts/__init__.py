"""The parts of one open database that statements use; each makes one promise."""
