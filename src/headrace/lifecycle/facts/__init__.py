"""Facts: what is known of relations, epochs and columns, for people and for other systems."""
