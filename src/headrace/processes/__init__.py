"""Processes beside the one that makes epochs, and what they are sent."""
