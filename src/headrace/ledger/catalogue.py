"""The ledger's relations, settings, gaps of views and list of epochs."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from headrace.ledger import builds, schema
from headrace.ledger.records import CLOCK, EpochRecord, Fence, Gap, ObjectRecord, Read
from headrace.types import Epoch, FrontierId, Offset, RelationId

_RESERVED = frozenset({"format", "identity"})


def reserve(connection: sa.Connection) -> int:
    """Return a new id, of whatever it is; none is returned twice."""
    reserved: int = connection.execute(sa.select(schema.fence.c.next_id)).scalar_one()
    connection.execute(schema.fence.update().values(next_id=reserved + 1))
    return reserved


def objects(connection: sa.Connection, epoch: Epoch | None) -> tuple[ObjectRecord, ...]:
    """Return the relations that exist at an epoch (None: now), by id."""
    table = schema.objects
    alive: sa.ColumnElement[bool] = table.c.dropped_epoch.is_(None)
    if epoch is not None:
        alive = (table.c.created_epoch <= epoch) & (alive | (table.c.dropped_epoch > epoch))
    inputs: dict[int, list[RelationId]] = {}
    for relation, used in connection.execute(
        sa.select(schema.dependencies).order_by(schema.dependencies.c.input)
    ):
        inputs.setdefault(relation, []).append(RelationId(used))
    query = sa.select(table).where(alive).order_by(table.c.relation)
    # What a view was at an earlier epoch is what the build computed that served it then.
    served = {} if epoch is None else builds.definitions(connection, epoch)
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
        for row in connection.execute(query)
    )


def epochs(connection: sa.Connection, limit: int) -> tuple[EpochRecord, ...]:
    """Return the newest epochs with what each one read, newest first."""
    table, reads = schema.epochs, schema.reads
    query = sa.select(table).where(table.c.epoch > 0).order_by(table.c.epoch.desc()).limit(limit)
    rows = connection.execute(query).all()
    lineage: dict[int, list[Read]] = {}
    if rows:
        oldest = rows[-1].epoch
        found = sa.select(reads).where(reads.c.epoch >= oldest)
        for row in connection.execute(found.order_by(reads.c.frontier, reads.c.relation)):
            read = Read(
                RelationId(row.relation),
                Offset(row.from_offset),
                Offset(row.to_offset),
                FrontierId(row.frontier),
            )
            lineage.setdefault(row.epoch, []).append(read)
    return tuple(
        EpochRecord(
            Epoch(row.epoch),
            row.committed_at,
            row.attempt,
            Fence(row.fence),
            row.counters,
            tuple(lineage.get(row.epoch, ())),
        )
        for row in rows
    )


def epoch_at(connection: sa.Connection, timestamp: float) -> Epoch:
    """Return the last epoch committed at or before a time in Unix seconds; 0 before the first."""
    table = schema.epochs.c
    query = sa.select(sa.func.max(table.epoch)).where(table.committed_at <= timestamp)
    return Epoch(connection.execute(query).scalar() or 0)


def committed_at(connection: sa.Connection, epoch: Epoch) -> float:
    """Return when an epoch was committed, in Unix seconds."""
    query = sa.select(schema.epochs.c.committed_at).where(schema.epochs.c.epoch == epoch)
    return float(connection.execute(query).scalar_one())


def clock(connection: sa.Connection, epoch: Epoch | None) -> int:
    """Return the clock of an epoch (None: the last one); 0 if it was never set."""
    table = schema.epochs.c
    query = sa.select(table.counters).order_by(table.epoch.desc()).limit(1)
    if epoch is not None:
        query = query.where(table.epoch == epoch)
    counters = connection.execute(query).scalar()
    return int((counters or {}).get(CLOCK, 0))


def get_setting(connection: sa.Connection, key: str) -> Any:
    """Return a setting's value; None if it was never set."""
    query = sa.select(schema.meta.c.value).where(schema.meta.c.key == key)
    return connection.execute(query).scalar()


def set_setting(connection: sa.Connection, key: str, value: Any) -> None:
    """Set a setting to a value that ``json`` can write."""
    if key in _RESERVED:
        raise ValueError(key)
    mine = schema.meta.c.key == key
    connection.execute(schema.meta.delete().where(mine))
    connection.execute(schema.meta.insert(), {"key": key, "value": value})


def gap_at(connection: sa.Connection, view: RelationId, epoch: Epoch) -> Gap | None:
    """Return the gap in which an epoch of a view lies, or None."""
    table = schema.gaps.c
    query = sa.select(schema.gaps).where(
        table.view == view, table.after < epoch, table.until > epoch
    )
    row = connection.execute(query.limit(1)).one_or_none()
    return None if row is None else Gap(Epoch(row.after), Epoch(row.until))
