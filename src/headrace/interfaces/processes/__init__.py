"""Processes beside the one that makes epochs, and their messages."""
