"""Names that are reserved for Headrace."""

from __future__ import annotations

from typing import Final

SYSTEM_SCHEMA: Final = "information_schema"
"""The schema of relations that describe the database itself."""

SCHEMAS: Final = "schemas"
"""The setting of the ledger with the names of created schemas."""

HIDDEN: Final = "__"
"""The prefix of the names of hidden views."""
