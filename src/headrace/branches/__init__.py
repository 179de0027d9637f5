"""Branches: databases of their own that begin as another one was, and share its files."""

from headrace.branches.branching import Branches, Created
from headrace.branches.in_directory import InDirectory
from headrace.branches.in_store import InStore
from headrace.branches.places import Branch, Places

__all__ = ["Branch", "Branches", "Created", "InDirectory", "InStore", "Places"]
