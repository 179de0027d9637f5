"""Builds of views, and frontiers: how far the builds that move together have read their inputs.

A view's contents are its own, and so is its changelog. A build is one program that computes them,
with the state of its operators. One build *serves*: its deltas are the view's. Another may be
maintained beside it, over arrangements of its own, until it takes over or is retired.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from headrace.ledger import schema
from headrace.ledger.driver_statement import DriverStatement
from headrace.ledger.records import LIVE, Build, EpochCommit, Frontier
from headrace.types import BuildId, Epoch, FrontierId, Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from headrace.ledger.records import NewObject, Read
    from headrace.ledger.transactions import Transactions

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
