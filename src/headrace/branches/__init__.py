"""Branches: databases of their own that begin as another one was, and share its files."""

from headrace.branches.branching import Branch, Branches, Created

__all__ = ["Branch", "Branches", "Created"]
