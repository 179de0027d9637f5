"""What the ledger keeps of relations: builds, deliveries, and how the database did.

Builds of views, and frontiers: how far the builds that move together have read their inputs.

A view's contents are its own, and so is its changelog. A build is one program that computes them,
with the state of its operators. One build *serves*: its deltas are the view's. Another may be
maintained beside it, over arrangements of its own, until it takes over or is retired.

The relations of the catalog, now and at earlier epochs.

How far each sink has been given changes.

How the database did in spans of time: a bounded number of rows, written by its server.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from headrace.storage.ledger import schema
from headrace.storage.ledger.driver_statement import DriverStatement
from headrace.storage.ledger.log import append
from headrace.storage.ledger.records import (
    LIVE,
    AppendRecord,
    Build,
    DeliveryRecord,
    DeliveryState,
    EpochCommit,
    Frontier,
    ObjectRecord,
)
from headrace.types import BuildId, Epoch, FrontierId, Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from headrace.storage.ledger.records import NewObject, Read, Reject
    from headrace.storage.ledger.transactions import Transactions


_CONSUME: Final = DriverStatement(
    schema.positions.update()
    .where(
        schema.positions.c.frontier == sa.bindparam("frontier_"),
        schema.positions.c.relation == sa.bindparam("relation_"),
    )
    .values(consumed=sa.bindparam("to"))
)
_INSERT_READ: Final = DriverStatement(schema.reads.insert())
_LIVE: Final = schema.builds.c.retired_epoch.is_(None)


@dataclass(frozen=True, slots=True)
class Builds:
    """Changes of builds between epochs."""

    _transactions: Transactions

    def begin(self, relation: RelationId, start: Offset, ids: Collection[BuildId]) -> None:
        """Record that builds need no change of a log before an offset, though they have read it."""
        with self._transactions.writing() as writing:
            for id_ in ids:
                known = writing.head.builds.get(id_)
                if known is not None:
                    begins = {**known.begins, relation: start}
                    _set_begins(writing.connection, id_, begins)
                    there = {**writing.head.builds, id_: replace(known, begins=begins)}
                    writing.head = replace(writing.head, builds=there)


def builds(connection: sa.Connection) -> tuple[Build, ...]:
    """Return every build that is not retired, by id."""
    now = set(serving(connection, None).values())
    query = sa.select(schema.builds).where(_LIVE).order_by(schema.builds.c.id)
    return tuple(
        Build(
            BuildId(row.id),
            RelationId(row.view),
            FrontierId(row.frontier),
            row.definition,
            tuple(RelationId(id_) for id_ in row.inputs),
            Epoch(row.created_epoch),
            Epoch(row.joined_epoch),
            row.id in now,
            {RelationId(int(id_)): Offset(at) for id_, at in row.begins.items()},
        )
        for row in connection.execute(query)
    )


def definitions(connection: sa.Connection, epoch: Epoch | None) -> dict[int, Any]:
    """Return the definitions by which views are computed at an epoch (None: now), by view."""
    served = serving(connection, epoch)
    if not served:
        return {}
    query = sa.select(schema.builds.c.id, schema.builds.c.definition)
    known = {row.id: row.definition for row in connection.execute(query)}
    return {view: known[build] for view, build in served.items()}


def frontiers(connection: sa.Connection) -> dict[FrontierId, Frontier]:
    """Return every frontier, with its offsets in the logs of live relations."""
    objects, positions = schema.objects.c, schema.positions
    query = (
        sa.select(positions)
        .join(schema.objects, objects.relation == positions.c.relation)
        .where(objects.dropped_epoch.is_(None))
    )
    offsets: dict[int, dict[RelationId, Offset]] = {}
    for row in connection.execute(query):
        offsets.setdefault(row.frontier, {})[RelationId(row.relation)] = Offset(row.consumed)
    return {
        FrontierId(row.id): Frontier(
            None if row.epoch is None else Epoch(row.epoch),
            offsets.get(row.id, {}),
            row.at or 0.0,
        )
        for row in connection.execute(sa.select(schema.frontiers))
    }


def create_positions(connection: sa.Connection, created: Iterable[NewObject]) -> None:
    """Put the live frontier at the beginning of the logs of new relations."""
    rows = [{"frontier": LIVE, "relation": new.relation, "consumed": 0} for new in created]
    if rows:
        connection.execute(schema.positions.insert(), rows)


def advance(connection: sa.Connection, commit: EpochCommit) -> None:
    """Move frontiers in the logs by what an epoch reads."""
    moved = [read for read in commit.reads if read.to_offset > read.from_offset]
    if moved:
        rows = [{**_place(read), "epoch": commit.epoch, **_range(read)} for read in moved]
        _INSERT_READ.run(connection, *rows)
    live = [read for read in moved if read.frontier == LIVE]
    if live:
        _CONSUME.run(connection, *(_moved(read) for read in live))
    for read in moved:
        if read.frontier != LIVE:
            _move(connection, read)


def _move(connection: sa.Connection, read: Read) -> None:
    """Move a frontier that may not have read the relation before."""
    if not _CONSUME.run(connection, _moved(read)):
        row = {**_place(read), "consumed": read.to_offset}
        connection.execute(schema.positions.insert(), row)


def change(connection: sa.Connection, commit: EpochCommit, committed_at: float) -> None:
    """Create, regroup and retire builds, choose those that serve, and create or move frontiers."""
    table, frontiers = schema.builds, schema.frontiers
    for id_ in commit.caught_up:
        there = {"epoch": commit.epoch, "at": committed_at}
        later = frontiers.update().where(frontiers.c.id == id_).values(there)
        if not connection.execute(later).rowcount:
            connection.execute(frontiers.insert(), {"id": id_, **there})
    for new in commit.builds:
        row = {
            "id": new.id,
            "view": new.view,
            "frontier": new.frontier,
            "definition": dict(new.definition),
            "inputs": list(new.inputs),
            "begins": {str(id_): at for id_, at in new.begins.items()},
            "created_epoch": commit.epoch,
            "joined_epoch": commit.epoch,
        }
        connection.execute(table.insert(), row)
    begun = [new.id for new in commit.builds if new.serving]
    for build in (*begun, *commit.serve):
        view = connection.execute(sa.select(table.c.view).where(table.c.id == build)).scalar_one()
        row = {"view": view, "epoch": commit.epoch, "build": build}
        connection.execute(schema.serving.insert(), row)
    for build, view in commit.exchanged.items():
        its = table.c.id == build
        connection.execute(table.update().where(its).values(view=view))
        state = schema.arrangements.update().where(schema.arrangements.c.build == build)
        connection.execute(state.values(owner=view))
        row = {"view": view, "epoch": commit.epoch, "build": build}
        connection.execute(schema.serving.insert(), row)
    for build, frontier in commit.regrouped.items():
        moved = {"frontier": frontier, "joined_epoch": commit.epoch}
        connection.execute(table.update().where(table.c.id == build).values(moved))
    served = serving(connection, None) if commit.redefined or commit.reading else {}
    for relation in commit.redefined.keys() & served.keys():
        its, definition = table.c.id == served[relation], dict(commit.redefined[relation])
        connection.execute(table.update().where(its).values(definition=definition))
    for relation in commit.reading.keys() & served.keys():
        its, inputs = table.c.id == served[relation], list(commit.reading[relation])
        connection.execute(table.update().where(its).values(inputs=inputs))
    if commit.retired:
        _retire(connection, commit.retired, commit.epoch)
    _depend(connection, commit)


def _set_begins(
    connection: sa.Connection, build: BuildId, begins: Mapping[RelationId, Offset]
) -> None:
    """Set the offsets from which on a build needs logs."""
    its, value = schema.builds.c.id == build, {str(id_): at for id_, at in begins.items()}
    connection.execute(schema.builds.update().where(its).values(begins=value))


def _retire(connection: sa.Connection, ids: Sequence[BuildId], epoch: Epoch) -> None:
    """Retire builds, and drop the state of their operators."""
    arrangements, runs = schema.arrangements, schema.runs
    mine = arrangements.c.build.in_(ids)
    state = sa.select(arrangements.c.id).where(mine)
    for made in (
        runs.update()
        .where(runs.c.arrangement.in_(state), runs.c.removed == schema.NEVER)
        .values(removed=epoch),
        arrangements.update().where(mine).values(dropped_epoch=epoch),
        schema.builds.update().where(schema.builds.c.id.in_(ids)).values(retired_epoch=epoch),
    ):
        connection.execute(made)


def _depend(connection: sa.Connection, commit: EpochCommit) -> None:
    """Store what views whose builds changed depend on: all that their live builds read."""
    table, needs = schema.builds.c, schema.dependencies
    ids = [*(new.id for new in commit.builds), *commit.retired, *commit.exchanged]
    if not ids:
        return
    changed = sa.select(table.view).where(table.id.in_(ids))
    inputs: dict[int, set[int]] = {
        view: set() for view in connection.execute(changed.distinct()).scalars()
    }
    live = sa.select(table.view, table.inputs).where(table.view.in_(list(inputs)), _LIVE)
    for view, used in connection.execute(live):
        inputs[view] |= set(used)
    connection.execute(needs.delete().where(needs.c.relation.in_(list(inputs))))
    rows = [{"relation": view, "input": used} for view, all_ in inputs.items() for used in all_]
    if rows:
        connection.execute(needs.insert(), rows)
    defined, objects = definitions(connection, None), schema.objects
    for view in inputs.keys() & defined.keys():
        redefined = objects.update().where(objects.c.relation == view)
        connection.execute(redefined.values(definition=defined[view]))


def serving(connection: sa.Connection, epoch: Epoch | None) -> dict[int, int]:
    """Return the build that served each view at an epoch (None: now), dropped views too."""
    table = schema.serving.c
    query = sa.select(schema.serving).order_by(table.epoch)
    if epoch is not None:
        query = query.where(table.epoch <= epoch)
    return {row.view: row.build for row in connection.execute(query)}


def _moved(read: Read) -> dict[str, int]:
    return {"frontier_": read.frontier, "relation_": read.relation, "to": read.to_offset}


def _place(read: Read) -> dict[str, int]:
    return {"frontier": read.frontier, "relation": read.relation}


def _range(read: Read) -> dict[str, int]:
    return {"from_offset": read.from_offset, "to_offset": read.to_offset}


@dataclass(frozen=True, slots=True)
class Relations:
    """Every relation that exists or has existed."""

    _transactions: Transactions

    def existing(self, epoch: Epoch | None = None) -> tuple[ObjectRecord, ...]:
        """Return the relations that exist at an epoch (None: now), by id."""
        table, needs = schema.objects, schema.dependencies.c
        alive: sa.ColumnElement[bool] = table.c.dropped_epoch.is_(None)
        if epoch is not None:
            alive = (table.c.created_epoch <= epoch) & (alive | (table.c.dropped_epoch > epoch))
        inputs: dict[int, list[RelationId]] = {}
        with self._transactions.reading() as connection:
            dependencies = sa.select(schema.dependencies).order_by(needs.input)
            for relation, used in connection.execute(dependencies):
                inputs.setdefault(relation, []).append(RelationId(used))
            query = sa.select(table).where(alive).order_by(table.c.relation)
            rows = connection.execute(query).all()
            # What a view was at an earlier epoch is what the build computed that served it then.
            served = {} if epoch is None else definitions(connection, epoch)
        return tuple(
            ObjectRecord(
                RelationId(row.relation),
                row.name,
                row.kind,
                served.get(row.relation, row.definition),
                Epoch(row.created_epoch),
                None if row.dropped_epoch is None else Epoch(row.dropped_epoch),
                tuple(inputs.get(row.relation, ())),
            )
            for row in rows
        )


@dataclass(frozen=True, slots=True)
class DeliveryRecords:
    """The record of each sink that exists."""

    _transactions: Transactions

    def all(self) -> Mapping[RelationId, DeliveryRecord]:
        """Return how far each sink has been given changes."""
        objects, table = schema.objects.c, schema.deliveries.c
        query = (
            sa.select(objects.relation, objects.created_epoch, schema.deliveries)
            .join_from(
                schema.objects, schema.deliveries, table.sink == objects.relation, isouter=True
            )
            .where(objects.kind == "sink", objects.dropped_epoch.is_(None))
        )
        with self._transactions.reading() as connection:
            found = (_record(row) for row in connection.execute(query))
            return {record.sink: record for record in found}

    def put(
        self, record: DeliveryRecord, refused: Sequence[Reject] = (), *, forgets: bool = False
    ) -> None:
        """Store how far a sink has been given changes, with rows that were refused meanwhile.

        Rows that were refused before are deleted where the sink starts over, or if it ``forgets``
        them.

        Raises:
            HeadraceError: CONFLICT if the sink was dropped, or another process took over.
        """
        now = self._transactions.clock
        with self._transactions.writing() as writing:
            if record.clears or forgets:
                _forget_refused(writing.connection, record.sink)
            stored = AppendRecord(record.sink, None, rejects=refused, delivered=record)
            append(writing, stored, now())


def _forget_refused(connection: sa.Connection, sink: RelationId) -> None:
    """Delete the rows that a sink's target has refused, and their count."""
    connection.execute(schema.rejects.delete().where(schema.rejects.c.relation == sink))
    mine = schema.logs.c.relation == sink
    connection.execute(schema.logs.update().where(mine).values(rejected=0, acknowledged=0))


def _record(row: sa.Row[tuple[object, ...]]) -> DeliveryRecord:
    """Return a sink's record; the first one of a sink that has been given nothing."""
    sink = RelationId(row.relation)
    if row.sink is None:
        return DeliveryRecord(sink, Epoch(row.created_epoch))
    return DeliveryRecord(
        sink,
        Epoch(row.begins),
        _epoch(row.delivered),
        DeliveryState(row.state),
        row.why,
        row.clears,
        _epoch(row.writing),
        _epoch(row.written),
    )


def _epoch(number: int | None) -> Epoch | None:
    return None if number is None else Epoch(number)


@dataclass(frozen=True, slots=True)
class StatusSpan:
    """How the database did in ``seconds`` from ``at`` on, in Unix seconds."""

    seconds: int
    at: int
    figures: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans by their length and begin; those that are too old are deleted as others are stored."""

    _transactions: Transactions

    def since(self, seconds: int, at: float) -> tuple[StatusSpan, ...]:
        """Return the spans of so many seconds that end after a time, oldest first."""
        its = schema.spans.c
        query = (
            sa.select(schema.spans)
            .where(its.seconds == seconds, its.at > at - seconds)
            .order_by(its.at)
        )
        with self._transactions.reading() as connection:
            return tuple(
                StatusSpan(row.seconds, row.at, row.figures) for row in connection.execute(query)
            )

    def put(self, spans: Sequence[StatusSpan], oldest: Mapping[int, float]) -> None:
        """Store spans, in place of those that are known by the same length and begin.

        Those of each length that ended before its ``oldest`` time are deleted.

        Raises:
            HeadraceError: CONFLICT if another process has taken over; UNAVAILABLE.
        """
        its = schema.spans.c
        with self._transactions.writing() as writing:
            connection = writing.connection
            for each in spans:
                known = (its.seconds == each.seconds) & (its.at == each.at)
                connection.execute(schema.spans.delete().where(known))
            rows = [{"seconds": s.seconds, "at": s.at, "figures": dict(s.figures)} for s in spans]
            if rows:
                connection.execute(schema.spans.insert(), rows)
            for seconds, at in oldest.items():
                past = (its.seconds == seconds) & (its.at < at - seconds)
                connection.execute(schema.spans.delete().where(past))
