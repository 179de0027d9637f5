"""What is kept: the record of epochs, and the log of each stream and table."""
