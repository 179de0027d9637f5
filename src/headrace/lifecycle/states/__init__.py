"""Published states as statements see them: reading, evaluating, following, and rights."""
