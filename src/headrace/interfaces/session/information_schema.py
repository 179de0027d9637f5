"""The rows of ``information_schema``: the state of the database at one epoch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headrace.lifecycle.facts.freshness import view_freshness
from headrace.lifecycle.history.amending import amended_events
from headrace.lifecycle.history.comparing import rounds_of
from headrace.lifecycle.history.dirty_slices import dirty_slices
from headrace.lifecycle.states.swapping import same_contents
from headrace.lifecycle.states.system_relations import (
    ACTIVITIES,
    COUNTERS,
    fan_out_words,
    jobs,
    system_relations,
)
from headrace.planning.catalog import (
    Declaration,
    PlainView,
    Relation,
    Sink,
    Stream,
    Table,
    View,
    key_of,
)
from headrace.planning.catalog.naming import (
    DEFAULT_SCHEMA,
    HIDDEN,
    SYSTEM_SCHEMA,
    is_candidate,
    schema_of,
)
from headrace.types import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headrace.execution.runtime.deliveries import Deliveries
    from headrace.execution.runtime.published import Published
    from headrace.lifecycle.definitions.filling import Fills
    from headrace.lifecycle.history.amending import PendingVersions
    from headrace.lifecycle.inputs.admission import Admission
    from headrace.lifecycle.states.declarations import Schemas
    from headrace.lifecycle.states.reader import Reader
    from headrace.storage.ledger import Ledger
    from headrace.types import Epoch, RelationId


_MOST_EPOCHS = 1000
_MOST_REJECTS = 10_000
_MOST_CORRECTIONS = 10_000
_TYPES = {
    Stream: "STREAM",
    Table: "BASE TABLE",
    View: "MATERIALIZED VIEW",
    PlainView: "VIEW",
    Sink: "SINK",
}


@dataclass(frozen=True, slots=True)
class InformationSchema:
    """Computes the rows of these relations."""

    reader: Reader
    schemas: Schemas
    deliveries: Deliveries
    admission: Admission
    versions: PendingVersions
    fills: Fills

    def named(
        self, state: Published, names: Iterable[RelationId], sees: Callable[[str], bool]
    ) -> list[tuple[Stream, pa.Table]]:
        """Return the relations of the schema that a query names, with their rows in a state.

        ``sees`` returns whether rows may show a relation, by its name.
        """
        asked = frozenset(names)
        found = [relation for relation in system_relations() if relation.id in asked]
        return [(relation, self.rows(state, relation, sees)) for relation in found]

    def rows(self, state: Published, relation: Stream, sees: Callable[[str], bool]) -> pa.Table:
        """Return the rows of one of these relations, in a published state.

        ``sees`` returns whether rows may show a relation, by its name.
        """
        rows = self._gathered(relation, state, sees)
        arrays = [
            pa.array([row[i] for row in rows], field.type)
            for i, field in enumerate(relation.schema.arrow)
        ]
        return pa.Table.from_arrays(arrays, schema=relation.schema.arrow)

    def listed(
        self, name: str, state: Published, sees: Callable[[str], bool]
    ) -> list[dict[str, Any]]:
        """Return the rows of the relation of a name in the schema, as values by column."""
        (relation,) = [r for r in system_relations() if r.name == f"{SYSTEM_SCHEMA}.{name}"]
        columns = [column.name for column in relation.schema.columns]
        rows = self._gathered(relation, state, sees)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def _gathered(
        self, relation: Stream, state: Published, sees: Callable[[str], bool]
    ) -> list[tuple[Any, ...]]:
        return _GATHERED[relation.name.partition(".")[2]](_Moment(self, state, sees))


# -- what is gathered --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Moment:
    of: InformationSchema
    state: Published
    sees: Callable[[str], bool]

    @property
    def reader(self) -> Reader:
        return self.of.reader

    @property
    def ledger(self) -> Ledger:
        return self.reader.ledger


def _listed(at: _Moment) -> list[Relation]:
    return [r for r in at.state.catalog if not r.name.startswith(HIDDEN) and at.sees(r.name)]


def _place(relation: Relation) -> tuple[str, str]:
    return _named_place(relation.name)


def _named_place(name: str) -> tuple[str, str]:
    return schema_of(name), name.rpartition(".")[2]


def _schemata(at: _Moment) -> list[tuple[Any, ...]]:
    known = (DEFAULT_SCHEMA, *at.of.schemas.names(at.state.catalog))
    return [(name,) for name in known if at.sees(f"{name}.")]


def _tables(at: _Moment) -> list[tuple[Any, ...]]:
    since = at.ledger.spines.oldest()
    return [
        (
            *_place(relation),
            _TYPES[type(relation)],
            ", ".join(key_of(relation)) or None,
            at.state.word_for(relation),
            *_readable(*since.get(rows_of(relation.id), (None, None))),
        )
        for relation in _listed(at)
        if not isinstance(relation, Sink)
    ]


def _readable(epoch: Epoch | None, at: float | None) -> tuple[Epoch | None, datetime | None]:
    """Return an epoch and its time as columns; what is not stored has neither."""
    return epoch, None if at is None else _time(at)


def _streams(at: _Moment) -> list[tuple[Any, ...]]:
    return [
        (*_place(r), r.declaration.connector, at.ledger.head.log_end(r.id))
        for r in _listed(at)
        if isinstance(r, Stream)
    ]


def _views(at: _Moment) -> list[tuple[Any, ...]]:
    return [
        (
            *_place(r),
            r.query if at.state.catalog.sees_all(at.sees, r.id) else None,
            isinstance(r, View),
        )
        for r in _listed(at)
        if isinstance(r, View | PlainView)
    ]


def _columns(at: _Moment) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for r in _listed(at):
        if isinstance(r, Sink):
            continue
        declaration = r.declaration if isinstance(r, Stream | Table) else Declaration()
        computed, key = dict(declaration.computed), key_of(r)
        rows += [
            (
                *_place(r),
                c.name,
                position,
                c.sql,
                c.nullable,
                c.name in key,
                c.name in declaration.message_key,
                computed.get(c.name),
            )
            for position, c in enumerate(r.schema.columns, 1)
        ]
    return rows


def _epochs(at: _Moment) -> list[tuple[Any, ...]]:
    return [
        (
            e.epoch,
            _time(e.committed_at),
            *(e.counters.get(name) for name in (*COUNTERS, "seconds", "width", *ACTIVITIES)),
            fan_out_words(e.counters, at.state.catalog, at.sees),
        )
        for e in at.ledger.epochs.newest(_MOST_EPOCHS)
        if e.epoch <= at.state.epoch
    ]


def _freshness(at: _Moment) -> list[tuple[Any, ...]]:
    return [
        (
            *_place(found.view),
            found.epoch,
            _time(found.shown_at),
            found.pending,
            found.state,
            found.seconds,
            None if found.watermark is None else _time(found.watermark / 1_000_000),
            None if found.dirty_since is None else _time(found.dirty_since),
            str(found.view.refresh),
            None if found.next_refresh is None else _time(found.next_refresh),
            found.quarantined,
            found.waits_for,
        )
        for found in view_freshness(at.reader, at.of.admission, at.state)
        if at.sees(found.view.name)
    ]


def _dirty(at: _Moment) -> list[tuple[Any, ...]]:
    return [
        (
            *_place(found.relation),
            found.entry.cause,
            found.entry.slice.where or None,
            None if found.entry.slice.since is None else _time(found.entry.slice.since / 1_000_000),
            _time(found.entry.since),
            found.seconds,
            found.origin,
            found.entry.repair.value,
            found.entry.cost,
            found.entry.whole,
            found.entry.state.value,
            found.detail,
        )
        for found in dirty_slices(at.ledger, at.of.versions, at.state, at.sees)
    ]


def _corrections(at: _Moment) -> list[tuple[Any, ...]]:
    directory = at.reader.directory / "log"
    return [
        (
            *_place(r),
            offset,
            before,
            after,
            _time(record.at),
            record.correction.origin.get("by"),
            record.correction.origin.get("reason"),
        )
        for r in _listed(at)
        if isinstance(r, Stream) and r.corrected
        for record, offset, before, after in amended_events(
            at.ledger, directory, r, _MOST_CORRECTIONS
        )
    ]


def _dependencies(at: _Moment) -> list[tuple[Any, ...]]:
    by_id = at.state.catalog.by_id
    return [
        (r.name, _TYPES[type(r)], by_id[id_].name, _TYPES[type(by_id[id_])])
        for r in at.state.catalog
        if isinstance(r, View | PlainView | Sink) and at.sees(r.name)
        for id_ in r.inputs
        if at.sees(by_id[id_].name)
    ]


def _arrangements(at: _Moment) -> list[tuple[Any, ...]]:
    by_id, spines = at.state.catalog.by_id, at.state.spines
    dead = at.ledger.files.dead_bytes()
    kept = at.ledger.spines.arrangements()
    records = [
        r for r in kept if r.owner in by_id and r.id in spines and at.sees(by_id[r.owner].name)
    ]
    return [
        (
            record.id,
            by_id[record.owner].name,
            record.id == rows_of(record.owner),
            sum(run.file.rows for run in spines[record.id]),
            sum(run.file.bytes for run in spines[record.id]),
            dead.get(record.id, 0),
            len(spines[record.id]),
            record.since,
        )
        for record in records
    ]


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _sinks(at: _Moment) -> list[tuple[Any, ...]]:
    return jobs(at.of.deliveries, at.state, at.sees)


def _rejects(at: _Moment) -> list[tuple[Any, ...]]:
    return [
        (
            *_place(r),
            each.file,
            each.line,
            each.column,
            each.reason,
            each.raw,
            _time(record.at),
            record.id,
            None if record.acknowledged_at is None else _time(record.acknowledged_at),
        )
        for r in _listed(at)
        if isinstance(r, Stream | Table)
        for record in at.ledger.rejects.newest(r.id, _MOST_REJECTS)
        for each in (record.reject,)
    ]


def _reconciliation(at: _Moment) -> list[tuple[Any, ...]]:
    by_id = at.state.catalog.by_id
    return [
        (
            *_place(by_id[id_]),
            made.samples,
            made.total.units,
            made.total.wrong,
            made.complete,
            made.covered,
            made.bound,
            None if made.at is None else _time(made.at),
        )
        for id_, made in rounds_of(at.ledger).items()
        if id_ in by_id and not by_id[id_].name.startswith(HIDDEN) and at.sees(by_id[id_].name)
    ]


def _candidates(at: _Moment) -> list[tuple[Any, ...]]:
    catalog = at.state.catalog
    by_id = catalog.by_id
    found: list[tuple[Any, ...]] = []
    for each in catalog.views_in_order():
        of = None if each.candidate_of is None else by_id[each.candidate_of]
        if not isinstance(of, View) or of.name.startswith(HIDDEN) or not at.sees(of.name):
            continue
        below = [by_id[id_] for id_ in each.depends_on if is_candidate(by_id[id_])]
        names = [
            by_id[b.candidate_of].name for b in below if isinstance(b, View) and b.candidate_of
        ]
        state = "being filled" if each.temporary else "waits"
        shown = catalog.sees_all(at.sees, of.id)
        found.append(
            (
                *_place(of),
                "served before" if each.has_served else state,
                same_contents(at.state, of, each),
                ", ".join(names) or None,
                (each.by_name or each.query) if shown else None,
                None if each.kept_until is None else _time(each.kept_until),
            )
        )
    return found


def _fills(at: _Moment) -> list[tuple[Any, ...]]:
    return [
        (
            *_named_place(fill.name),
            fill.kind,
            fill.state,
            fill.done,
            fill.total,
            fill.pace.rate,
            fill.pace.seconds_left(fill.total),
            _time(fill.began_at),
        )
        for fill in at.of.fills.listed()
        if at.sees(fill.name)
    ]


_GATHERED: Final[Mapping[str, Callable[[_Moment], list[tuple[Any, ...]]]]] = {
    "schemata": _schemata,
    "tables": _tables,
    "rejects": _rejects,
    "streams": _streams,
    "views": _views,
    "columns": _columns,
    "sinks": _sinks,
    "jobs": _sinks,
    "epochs": _epochs,
    "freshness": _freshness,
    "dirty": _dirty,
    "reconciliation": _reconciliation,
    "corrections": _corrections,
    "dependencies": _dependencies,
    "arrangements": _arrangements,
    "candidates": _candidates,
    "fills": _fills,
}
