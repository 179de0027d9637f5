"""Corrections of streams: earlier events are amended by later changes of the log.

A correction is a segment of the stream's log: for each event, its row as it was with the weight -1,
and the row in its place with +1, both with the offset of the event. So whoever sums the log up to
some offset has the stream as it was then, and views change by an ordinary delta.

Compiles "changed by events since a time" to a condition on a view's columns.

Versions that are logged but not yet read by views, shown as dirty slices of these views.

A version may change rows of any age. The next epoch carries the change by deltas, so nothing is
stored: an entry is shown from the commit of the statement until an epoch that has read the table's
log up to there is published.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.zset import WEIGHT, Restriction, Test
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.retirement import known_of, newest_time
from headrace.execution.runtime.step import log_share, whole_log
from headrace.execution.serving.values import python_rows
from headrace.lifecycle.history.slices import THROUGH, with_above
from headrace.lifecycle.inputs.rows import weighted
from headrace.planning.catalog import Stream, Table, View
from headrace.planning.circuit.digest import digest, stamped
from headrace.planning.sql import quote, quoted
from headrace.storage.ledger import Dirty, RepairPath, Slice
from headrace.storage.log import AMENDED, EmbeddedLog, blocks
from headrace.types import Offset, Schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.execution.engine.conditions import Touched
    from headrace.execution.engine.engine import Engine
    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.fill import Progress
    from headrace.execution.runtime.published import Published
    from headrace.lifecycle.definitions.definer import Definer
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Catalog
    from headrace.storage.ledger import CorrectionRecord, Ledger


_TIMES: Final = frozenset({"timestamp", "timestamp_ntz", "date"})
MOST_KEYS: Final = 2_000
"""The most keys of events that a condition lists."""


def changed_since(engine: Engine, loop: EpochLoop, view: View, since: int) -> str | None:
    """Return a condition that every row of the view changed by events since a time meets.

    ``since`` is in microseconds UTC. None if no such condition can be derived; see
    :func:`why_unknown`.
    """
    found = engine.touched(view, since)
    if found is None:
        return None
    conditions = [each.bound or _of_keys(loop, each, since) for each in found]
    return " OR ".join(f"({c})" for c in conditions) if all(conditions) else None


def why_unknown(view: View, catalog: Catalog) -> str:
    """Return why no condition can be derived, and what to declare so that one can be."""
    below = [catalog.by_id[id_] for id_ in view.depends_on]
    for relation in below:
        if isinstance(relation, Stream) and relation.event_time is None:
            columns = relation.schema.columns
            column = next((c.name for c in columns if c.sql in _TIMES), "column")
            return (
                f"stream {relation.name} has no event time; it is declared by"
                f" WATERMARK FOR {column} AS {column} when the stream is created"
            )
    for relation in below:
        if isinstance(relation, View):
            return f"rows of view {relation.name} have no event time"
    return "the rows that events since then have changed are unknown"


def _of_keys(loop: EpochLoop, touched: Touched, since: int) -> str:
    """Return a condition on the view's keys that events since a time have; "" if unknown."""
    stream = loop.catalog.by_id[touched.stream]
    if not isinstance(stream, Stream) or not touched.keys:
        return ""
    places = [stream.schema.names.index(name) for name in touched.keys.values()]
    fields = [stream.schema.stored.field(place) for place in places]
    if not all(is_literal(field.type) for field in fields):
        return ""
    retired = known_of(loop.ledger, loop.directory / "log", stream)
    if retired is not None and newest_time(stream, retired) >= since:
        return ""
    time = stream.schema.stored.field(stream.schema.names.index(touched.event_time))
    later = Test(time.name, low=pa.scalar(since, pa.int64()).cast(time.type))
    state = loop.published.current
    share = whole_log(loop.ledger, state, stream.id, state.shown().get(stream.id, Offset(0)))
    read = EmbeddedLog().read(
        loop.directory / "log",
        share,
        pa.schema(fields),
        offsets=False,
        restriction=Restriction((later,)),
    )
    names = list(touched.keys.values())
    pairs = zip(names, fields, strict=True)
    known = pa.table({name: pa.array([], field.type) for name, field in pairs})
    for batch in read:
        read_now = [batch.column(field.name) for field in fields]
        both = [known, pa.table(read_now, names=names)]
        known = pa.concat_tables(both).group_by(names).aggregate([])
        if known.num_rows > MOST_KEYS:
            return ""
    return " AND ".join(
        is_among(name, known[column].combine_chunks()) for name, column in touched.keys.items()
    )


def is_among(name: str, values: pa.Array) -> str:
    """Return a condition that a column equals one of some values, which may include NULL."""
    column, given = quote(name), values.unique()
    found = []
    if given.null_count:
        found.append(f"{column} IS NULL")
    present = given.drop_null().to_pylist()
    if present:
        found.append(f"{column} IN ({', '.join(map(_literal, present))})")
    return f"({' OR '.join(found) or 'false'})"


def is_literal(type_: pa.DataType) -> bool:
    """Whether :func:`is_among` supports values of a type."""
    return bool(pa.types.is_integer(type_) or pa.types.is_string(type_))


def _literal(value: int | str) -> str:
    return quoted(value) if isinstance(value, str) else str(value)


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
