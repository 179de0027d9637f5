"""Epochs: what is done, in which order, and what it means for it to be done."""
