"""Names that are reserved for Headrace."""

from __future__ import annotations

from typing import Final

SYSTEM_SCHEMA: Final = "information_schema"
"""The schema of relations that describe the database itself."""

HIDDEN: Final = "__"
"""The prefix of the names of hidden views."""

DEFAULT_SCHEMA: Final = "default"
"""The schema of relations whose names have no other."""


def schema_of(name: str) -> str:
    """Return the schema of a relation's dotted name."""
    return name.rpartition(".")[0].lower() or DEFAULT_SCHEMA
