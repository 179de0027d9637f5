"""What becomes of relations: definitions, inputs, facts, history, copies."""
