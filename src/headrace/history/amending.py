"""Corrections of streams: earlier events are amended by later changes of the log.

A correction is a segment of the stream's log: for each event, its row as it was with the weight -1,
and the row in its place with +1, both with the offset of the event. So whoever sums the log up to
some offset has the stream as it was then, and views change by an ordinary delta.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.catalog import View
from headrace.circuit.digest import digest
from headrace.circuit.fingerprint import stamped
from headrace.errors import Code, HeadraceError
from headrace.log import AMENDED, blocks
from headrace.parts.written_rows import weighted
from headrace.serving.python_values import python_rows
from headrace.types import Offset

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.catalog import Stream
    from headrace.engine.engine import Engine
    from headrace.ledger import CorrectionRecord, Ledger
    from headrace.parts.definer import Definer
    from headrace.parts.reader import Reader
    from headrace.runtime.fill import Progress

_READ_ROWS = 65_536
"""So many changes before a correction, of its segment, are read with it."""
_ATTEMPTS = 5
"""The number of rounds in which views that were created meanwhile are prepared."""


@dataclass(frozen=True, slots=True)
class Amending:
    """Prepares views for the corrections of a stream, before its first one.

    Some operators keep less state while no row is ever retracted. A view with such an operator over
    the stream gets a second build, filled beside the serving one, whose state can apply
    corrections. The rows of the view do not change: a lagging view is not refreshed by this, and a
    stopped one is filled when it is repaired.
    """

    reader: Reader
    ledger: Ledger
    engine: Engine
    definer: Definer

    def prepared(self, stream: Stream, progress: Progress) -> tuple[Stream, tuple[View, ...]]:
        """Return the stream marked as correctable, and the views that were rebuilt for it.

        From then on its views, present and later ones, follow corrections.

        Raises:
            HeadraceError: if a view that has to be rebuilt cannot be.
        """
        rebuilt: list[View] = []
        for left in reversed(range(_ATTEMPTS)):
            if stream.corrected:
                break
            for view in self.relying(stream):
                self._rebuild(view, stream, progress)
                rebuilt.append(view)
            prepared = replace(stream, corrected=True)
            try:
                self.definer.redefine(prepared)
            except HeadraceError as error:
                # A view may have been created meanwhile.
                if error.code is not Code.CONFLICT or not left:
                    raise
                found = self.reader.catalog.resolve(stream.name)
                stream = found if isinstance(found, type(stream)) else stream
            else:
                stream = prepared
        return stream, tuple(rebuilt)

    def relying(self, stream: Stream) -> Iterator[View]:
        """Yield the views whose circuits assume that events of the stream never change."""
        for view in self.reader.catalog.dependants(stream.id):
            if isinstance(view, View) and stream.id in view.depends_on:
                with self.engine.planning:
                    now = digest(self.engine.circuit(view))
                    then = digest(self.engine.circuit(self._amendable(view, stream)))
                if now != then:
                    yield view

    def _amendable(self, view: View, stream: Stream) -> View:
        amendable = (*view.amendable, stream.id)
        return replace(view, replacement=self.ledger.ids.build(), amendable=amendable)

    def _rebuild(self, view: View, stream: Stream, progress: Progress) -> None:
        another = self._amendable(view, stream)
        planned = self.engine.planned(another)
        planned = replace(planned, view=stamped(another, planned.circuit))
        if view.id in self.reader.published.stopped:
            self.definer.replace_stopped(view, planned)
        else:
            self.definer.replace_view(view, planned, progress, stays=True)


def amendments(old: pa.Table, offsets: pa.ChunkedArray, new: pa.Table | None) -> pa.Table:
    """Return the log entries that correct events: ``old`` with -1, ``new`` with +1 at ``offsets``.

    Without ``new`` the events are deleted.
    """
    rows = weighted(old, -1).append_column(AMENDED, offsets)
    if new is None:
        return rows
    return pa.concat_tables([rows, weighted(new, 1).append_column(AMENDED, offsets)])


def amended_events(
    ledger: Ledger, directory: Path, stream: Stream, most: int
) -> Iterator[tuple[CorrectionRecord, int, str, str | None]]:
    """Yield the newest corrected events: the correction, the offset, the row before and after.

    Rows are JSON text; the row after is None if the event was deleted. ``directory`` is that of the
    log.
    """
    read, first = pa.table({}), Offset(0)  # the last part of the log that was read
    for record in ledger.log.corrections(stream.id, most):
        if most <= 0:
            return
        place = record.range
        if place.end <= ledger.head.starts[stream.id]:
            return
        if not first <= place.first < place.end <= first + read.num_rows:
            segments = ledger.log.segments(stream.id, place.first, place.end)
            first = max(segments[0].range.first, min(place.first, Offset(place.end - _READ_ROWS)))
            parts = blocks(directory, segments, first, place.end)
            tables = [pa.Table.from_batches([each.read()]) for each in parts]
            read = pa.concat_tables(tables, promote_options="default")
        rows = read.slice(place.first - first, place.rows)
        events, shown = record.correction.events, min(record.correction.events, most)
        most -= shown
        columns = [c for c in stream.schema.columns if c.stored_name in rows.schema.names]
        offsets = rows[AMENDED].to_pylist()[:shown]
        values = rows.select([c.stored_name for c in columns])
        values = values.rename_columns([c.name for c in columns])
        after = python_rows(values.slice(events, shown))
        given = zip(offsets, python_rows(values.slice(0, shown)), strict=True)
        for number, (offset, row) in enumerate(given):
            yield record, offset, _json(row), _json(after[number]) if after else None


def _json(row: dict[str, Any]) -> str:
    return json.dumps(row, default=str, ensure_ascii=False)
