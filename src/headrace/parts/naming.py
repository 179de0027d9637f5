"""Names that are reserved for Headrace."""

from __future__ import annotations

from typing import Final

SYSTEM_SCHEMA: Final = "information_schema"
"""The schema of relations that describe the database itself."""

HIDDEN: Final = "__"
"""The prefix of the names of hidden views."""
