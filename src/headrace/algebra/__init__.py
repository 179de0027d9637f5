"""What a change does to a view: rows with weights, sorted runs of them, and stateful operators."""
