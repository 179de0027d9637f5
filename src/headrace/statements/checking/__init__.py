"""VERIFY and REPAIR: whether stored rows are right, and what is done if they are not."""
