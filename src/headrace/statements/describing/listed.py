"""The rows of SHOW: column types shared by all listings, and filters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.parts.naming import HIDDEN
from headrace.statements.results import Listed, shown_time

if TYPE_CHECKING:
    from headrace.catalog import Relation
    from headrace.parts.access import Principal
    from headrace.sql import Name

_WHOLE = (
    "epoch", "epochs_behind", "rows_behind", "changes_behind", "behind", "rejected", "refused",
    "duplicates", "late", "line", "id",
    "changes", "jobs", "operators", "rows_in", "rows_out", "rows_read", "bytes_written",
    "files", "fallbacks", "cost", "rebuild_cost", "rows", "changed", "rebuild_rows", "quarantined",
    "retired", "segments", "bytes", "rows_done", "rows_total", "distance",
)  # fmt: skip
_TYPES = {
    **dict.fromkeys(_WHOLE, pa.int64()),
    **dict.fromkeys(("seconds", "seconds_behind", "age_seconds"), pa.float64()),
    "deterministic": pa.bool_(),
}
"""The types of the columns other than text, by name, in all listings."""


def listed(names: tuple[str, ...], rows: list[Any]) -> Listed:
    """Return rows as a listing."""
    return Listed(names, rows, _TYPES)


def filtered(listing: Listed, like: str | None, schema: Name | None = None) -> Listed:
    """Return the rows whose first column matches a pattern, in one schema if it is given."""
    if like is None and schema is None:
        return listing
    pattern = _like("%" if like is None else like)
    within = "" if schema is None else f"{schema.dotted}."
    rows = [
        row
        for row in listing.rows
        if row[0].startswith(within) and pattern.fullmatch(row[0], len(within)) is not None
    ]
    return Listed(listing.names, rows, listing.types)


def is_shown(relation: Relation, principal: Principal) -> bool:
    """Whether a listing includes a relation: it is not hidden, and the client may see it."""
    return not relation.name.startswith(HIDDEN) and principal.sees(relation.name)


def moment(micros: int | None) -> str | None:
    """Return a time in microseconds as text for a listing."""
    return None if micros is None else shown_time(micros / 1_000_000)


def _like(pattern: str) -> re.Pattern[str]:
    r"""Return a regular expression for an SQL pattern with ``%``, ``_`` and ``\\``."""
    pieces = re.findall(r"\\.|.", pattern, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    parts = [wild.get(piece) or re.escape(piece[-1]) for piece in pieces]
    return re.compile("".join(parts), re.DOTALL | re.IGNORECASE)
