"""SHOW ERRORS FOR name: rows on which a view's query failed, or that a sink's target refused."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.catalog import Relation, Sink, Stream, Table, View, title
from headrace.errors import Code, HeadraceError
from headrace.parts.naming import shown_name
from headrace.parts.quarantined import quarantined_rows
from headrace.runtime.published import STOPPED
from headrace.serving.values import json_text
from headrace.statements.results import Result, shown_time

if TYPE_CHECKING:
    from headrace.parts.reader import Reader
    from headrace.sql import Show

_COLUMNS = ("relation", "row", "copies", "error", "since")
_MOST_ROWS = 1000
_TYPES = {"copies": pa.int64()}


@dataclass(frozen=True, slots=True)
class Errors:
    """Lists the errors of a view, a sink or a relation with rejects."""

    reader: Reader

    def show(self, statement: Show) -> Result:
        """List the newest failed rows: relation, row, copies, error and time.

        Errors of a view include all writes so far. The error that stopped a view has a row on which
        its query fails, if one was found; the error that stopped a sink has none.

        Raises:
            HeadraceError: ``invalid`` for relations without errors.
        """
        name = statement.relation
        if name is None:
            raise HeadraceError(Code.INTERNAL, "SHOW ERRORS names no relation", span=statement.span)
        relation = self.reader.catalog.resolve(name.dotted, name.span)
        match relation:
            case View():
                self.reader.pump.settle()
                return self._of_view(relation)
            case Sink():
                return self._of_sink(relation)
            case _:
                raise HeadraceError(
                    Code.INVALID,
                    f"{title(relation)} keeps no errors",
                    hint=_hint(relation),
                    span=name.span,
                )

    def _of_sink(self, sink: Sink) -> Result:
        """Return the changes that a sink's target refused, as lines of JSON."""
        ledger, state = self.reader.ledger, self.reader.published
        source = shown_name(state.catalog.by_id[sink.source], state.catalog)
        rows: list[Any] = []
        record = ledger.deliveries.all()[sink.id]
        if record.why is not None:
            rows.append((None, None, None, record.why, None))
        rows += [
            (source, kept.reject.raw, None, kept.reject.reason, shown_time(kept.at))
            for kept in ledger.rejects.newest(sink.id, _MOST_ROWS)
        ]
        return Result.of(_COLUMNS, rows, state.epoch, _TYPES)

    def _of_view(self, view: View) -> Result:
        reader, state = self.reader, self.reader.published
        rows: list[Any] = [
            (
                entry.origin.get("relation"),
                entry.origin.get("row"),
                None,
                entry.detail,
                shown_time(entry.since),
            )
            for entry in reader.ledger.head.dirty
            if (entry.view, entry.cause) == (view.id, STOPPED)
        ]
        kept = quarantined_rows(reader.ledger, reader.directory, state, view)
        newest = nlargest(_MOST_ROWS, kept, key=lambda each: each.since)
        rows += [
            (
                each.relation.name,
                json_text(each.row),
                each.copies,
                each.error,
                shown_time(each.since / 1_000_000),
            )
            for each in newest
        ]
        return Result.of(_COLUMNS, rows, state.epoch, _TYPES)


def _hint(relation: Relation) -> str:
    if isinstance(relation, Stream | Table):
        return f"SHOW REJECTS FOR {relation.name} lists the rows that it did not accept."
    return "Name a materialized view or a sink."
