"""Names that are Headrace's own."""

from __future__ import annotations

from typing import Final

SYSTEM_SCHEMA: Final = "information_schema"
"""The schema of what can be asked about the database itself."""

SCHEMAS: Final = "schemas"
"""The setting of the ledger that lists schemas that were created."""

HIDDEN: Final = "__"
"""How the names of ephemeral views begin."""
