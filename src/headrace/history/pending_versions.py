"""Versions that are logged but not yet read by views, shown as dirty slices of these views.

A version may change rows of any age. The next epoch carries the change by deltas, so nothing is
stored: an entry is shown from the commit of the statement until an epoch that has read the table's
log up to there is published.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.catalog import Table
from headrace.history.changed_since import is_among, is_literal
from headrace.history.marking import THROUGH, with_above
from headrace.ledger import Dirty, RepairPath, Slice
from headrace.log import EmbeddedLog
from headrace.runtime.shares import log_share
from headrace.types import Offset, Schema
from headrace.zset import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.engine.engine import Engine
    from headrace.parts.reader import Reader
    from headrace.runtime.published import Published

VERSION: Final = "version"
"""The cause of entries for pending versions."""

_MOST_VERSIONS: Final = 1000
"""With more changes of a table, the slice is not restricted to their keys."""


@dataclass(frozen=True, slots=True)
class PendingVersions:
    """Finds the slices of views that versions are about to change."""

    reader: Reader
    engine: Engine

    def entries(self, state: Published) -> Iterator[Dirty]:
        """Yield an entry for each view over a table with versions that a state does not show.

        Views that have stopped or are refreshed on a schedule are left out: the next epoch does not
        change them.
        """
        ends = self.reader.ledger.head.ends
        for table in state.catalog:
            if not isinstance(table, Table) or table.effective_from is None:
                continue
            first, end = state.positions.get(table.id, Offset(0)), ends.get(table.id, Offset(0))
            above = [v.id for v in state.catalog.dependants(table.id)]
            if first < end and above:
                root = self._of(table, first, end)
                found = with_above(self.engine, state.catalog, {table.id: root})
                for id_ in above:
                    if id_ in found and id_ not in state.stopped and not state.lags(id_):
                        yield _named(found[id_], table)

    def _of(self, table: Table, first: Offset, end: Offset) -> Dirty:
        """Return the slice of a table that changes in a range of its log."""
        share = log_share(self.reader.ledger, table.id, first, end)
        origin = {"table": table.name}
        slice_ = Slice()
        if end - first <= _MOST_VERSIONS:
            key = [c for c in table.schema.columns if c.name in table.primary_key]
            columns = Schema(tuple(key))
            read = EmbeddedLog().read(
                self.reader.directory / "log", share, columns.stored, offsets=False
            )
            rows = pa.Table.from_batches(read).rename_columns([*columns.names, WEIGHT])
            keys = {name: rows[name].combine_chunks() for name in table.versioned_key}
            since = pc.min(rows[table.effective_from]).as_py()
            known = all(is_literal(values.type) for values in keys.values())
            where = " AND ".join(is_among(*each) for each in keys.items()) if known else ""
            slice_ = Slice(where)
            origin["versions"] = f"{where} from {since} on".lstrip()
        return Dirty(
            table.id,
            VERSION,
            min(segment.appended_at for segment in share.segments),
            slice=slice_,
            origin=origin,
            repair=RepairPath.DELTAS,
        )


def _named(entry: Dirty, table: Table) -> Dirty:
    """Remove the table's own name from an entry's origin; the name of a view below stays."""
    if entry.origin.get(THROUGH) != table.name:
        return entry
    origin = {key: value for key, value in entry.origin.items() if key != THROUGH}
    return replace(entry, origin=origin)
