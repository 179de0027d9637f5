"""The runs of each epoch, the oldest readable epoch, and the files that no epoch needs.

A file is deleted in this order: take its name from :func:`garbage`, delete the file, then
:func:`forget` the name. ``since`` never moves back, so garbage stays garbage. A crash in between
leaves a name whose file is missing: no reader uses it, and the next round returns it as garbage
again (deleting a missing file is not an error). In the other order, a crash would leave a file
that the ledger does not name, which only the sweep at the next start would find.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from headrace.errors import Code, HeadraceError
from headrace.ledger import schema
from headrace.ledger.commit import last_epoch
from headrace.ledger.records import ArrangementRecord, Files, Run, RunKind
from headrace.types import ArrangementId, BuildId, Epoch, Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_BATCH: Final = 10_000


def _arrangements_with(visible: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Return the query for wanted arrangements and their visible runs; NULLs if it has none."""
    arranged, runs = schema.arrangements, schema.runs
    last = sa.select(sa.func.max(schema.epochs.c.epoch)).scalar_subquery().label("last_epoch")
    return (
        sa.select(arranged.c.id, arranged.c.since, arranged.c.dropped_epoch, last, runs)
        .outerjoin(runs, (runs.c.arrangement == arranged.c.id) & visible)
        .where(arranged.c.id.in_(sa.bindparam("wanted", expanding=True)))
    )


_LIVE: Final = _arrangements_with(schema.runs.c.removed == schema.NEVER)
# `added + 0` prevents the use of the index by addition: nearly all runs were added before the epoch
# that is read, while few are not removed yet.
_AS_OF: Final = _arrangements_with(
    (schema.runs.c.removed > sa.bindparam("epoch"))
    & (schema.runs.c.added + 0 <= sa.bindparam("epoch"))
)


def spines(
    connection: sa.Connection, arrangements: Iterable[ArrangementId], epoch: Epoch | None
) -> dict[ArrangementId, tuple[Run, ...]]:
    """Return the runs that sum to each arrangement at an epoch, oldest first, in one query.

    None means the runs that the next epoch builds on: the contents of the last epoch, with every
    compaction applied.

    Raises:
        HeadraceError: INVALID if an arrangement cannot be read at this epoch.
    """
    wanted = tuple(arrangements)
    query, values = (_LIVE, {}) if epoch is None else (_AS_OF, {"epoch": epoch})
    found: dict[ArrangementId, list[Run]] = {}
    for row in connection.execute(query, {"wanted": wanted, **values}):
        if row.id not in found:
            found[row.id] = []
            _require_readable(row, epoch)
        if row.name is not None:
            found[row.id].append(_run(row))
    for arrangement in wanted:
        if arrangement not in found:
            raise _unknown(arrangement)
    return {key: tuple(sorted(found[key], key=age)) for key in wanted}


def delta_runs(
    connection: sa.Connection, arrangement: ArrangementId, after: Epoch, upto: Epoch
) -> tuple[Run, ...]:
    """Return the runs that are the deltas of the epochs ``(after, upto]``, by epoch.

    Raises:
        HeadraceError: INVALID if ``after`` is older than the arrangement's ``since``: some of
            the deltas may have been deleted.
    """
    record = arrangement_of(connection, arrangement)
    if after < record.since:
        raise _too_old(arrangement, after, record.since)
    runs = schema.runs.c
    query = sa.select(schema.runs).where(_deltas(arrangement, after, upto))
    ordered = connection.execute(query.order_by(runs.added, runs.name))
    return tuple(_run(row) for row in ordered)


def delta_rows(
    connection: sa.Connection, arrangement: ArrangementId, after: Epoch, upto: Epoch
) -> int:
    """Return how many rows the deltas of the epochs ``(after, upto]`` have."""
    query = sa.select(sa.func.sum(schema.runs.c.rows)).where(_deltas(arrangement, after, upto))
    return connection.execute(query).scalar() or 0


def _deltas(arrangement: ArrangementId, after: Epoch, upto: Epoch) -> sa.ColumnElement[bool]:
    runs = schema.runs.c
    return sa.and_(
        runs.arrangement == arrangement,
        runs.added > after,
        runs.added <= upto,
        runs.kind == RunKind.DELTA.value,
    )


def arrangement_of(connection: sa.Connection, arrangement: ArrangementId) -> ArrangementRecord:
    """Return the record of an arrangement; raise INVALID if it does not exist."""
    query = sa.select(schema.arrangements).where(schema.arrangements.c.id == arrangement)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise _unknown(arrangement)
    return _arrangement(row)


def arrangements(connection: sa.Connection) -> tuple[ArrangementRecord, ...]:
    """Return every live arrangement, by id."""
    table = schema.arrangements
    query = sa.select(table).where(table.c.dropped_epoch.is_(None)).order_by(table.c.id)
    return tuple(_arrangement(row) for row in connection.execute(query))


def advance_since(connection: sa.Connection, since: Mapping[ArrangementId, Epoch]) -> None:
    """Stop keeping the epochs before ``since``; a value that would move back is ignored.

    Raises:
        HeadraceError: INTERNAL if a value is past the last epoch, which must stay readable.
    """
    last = last_epoch(connection)
    late = sorted(arrangement for arrangement, epoch in since.items() if epoch > last)
    if late:
        raise HeadraceError(
            Code.INTERNAL,
            "since would pass the last epoch",
            f"The last epoch is {last}; arrangements: {', '.join(late)}.",
        )
    table = schema.arrangements
    change = (
        table.update()
        .where(table.c.id == sa.bindparam("of"), table.c.since < sa.bindparam("to"))
        .values(since=sa.bindparam("to"))
    )
    rows = [{"of": arrangement, "to": epoch} for arrangement, epoch in since.items()]
    if rows:
        connection.execute(change, rows)


def droppable(contents: Epoch, state: Epoch) -> sa.ColumnElement[bool]:
    """Return the condition on dropped arrangements that no reader needs any more.

    Those with contents are read up to ``contents``, those with operators' state up to ``state``.
    """
    table = schema.arrangements.c
    limit = sa.case((table.build.is_(None), contents), else_=state)
    return (table.dropped_epoch <= limit) & (table.since < table.dropped_epoch)


def any_droppable(connection: sa.Connection, contents: Epoch, state: Epoch) -> bool:
    """Return whether any dropped arrangement is not needed any more."""
    query = sa.select(schema.arrangements.c.id).where(droppable(contents, state)).limit(1)
    return connection.execute(query).scalar() is not None


def release_dropped(connection: sa.Connection, contents: Epoch, state: Epoch) -> None:
    """Stop keeping dropped arrangements that no reader needs any more."""
    table = schema.arrangements
    change = table.update().where(droppable(contents, state))
    connection.execute(change.values(since=table.c.dropped_epoch))


def garbage(connection: sa.Connection, held: Mapping[RelationId, Offset]) -> Files:
    """Return the files that no readable epoch needs, now or later.

    A run that was removed at or before its arrangement's ``since`` is garbage, and so is a run
    that was merged before any epoch contained it. A segment is garbage if its relation's log
    starts after it and it is not ``held``, or if the relation was dropped and none of its
    arrangements can be read; a file is, if all segments in it are.
    """
    runs, owners, objects = schema.runs.c, schema.arrangements.c, schema.objects.c
    segments, logs = schema.segments.c, schema.logs.c
    dead_runs = (
        sa.select(runs.name)
        .join(schema.arrangements, owners.id == runs.arrangement)
        .where((runs.removed <= owners.since) | (runs.removed <= runs.added))
    )
    readable = sa.exists().where(
        owners.owner == objects.relation, owners.since < objects.dropped_epoch
    )
    named = (
        sa.select(segments.file)
        .join(schema.objects, objects.relation == segments.relation)
        .join(schema.logs, logs.relation == segments.relation)
    )
    end = segments.first_offset + segments.rows
    retired = end <= logs.since
    for relation, first in held.items():
        retired &= (segments.relation != relation) | (end <= first)
    dead = (objects.dropped_epoch.is_not(None) & ~readable) | retired
    dead_files = named.where(dead).except_(named.where(~dead))
    return Files(
        frozenset(connection.execute(dead_runs).scalars()),
        frozenset(connection.execute(dead_files).scalars()),
    )


def known_files(connection: sa.Connection) -> Files:
    """Return every file that the ledger names; any other file is left over from a crash."""
    return Files(
        frozenset(connection.execute(sa.select(schema.runs.c.name)).scalars()),
        frozenset(connection.execute(sa.select(schema.segments.c.file)).scalars()),
    )


def forget(connection: sa.Connection, files: Files) -> None:
    """Remove the names of deleted files; names that are not garbage stay."""
    now_garbage = garbage(connection, {})
    for table, column, names in (
        (schema.runs, schema.runs.c.name, files.runs & now_garbage.runs),
        (schema.segments, schema.segments.c.file, files.segments & now_garbage.segments),
    ):
        listed = sorted(names)
        for start in range(0, len(listed), _BATCH):
            chosen: Sequence[str] = listed[start : start + _BATCH]
            connection.execute(table.delete().where(column.in_(chosen)))


def _require_readable(row: sa.Row[tuple[object, ...]], epoch: Epoch | None) -> None:
    if row.dropped_epoch is not None and (epoch is None or epoch >= row.dropped_epoch):
        raise HeadraceError(
            Code.INVALID, f'arrangement "{row.id}" was dropped in epoch {row.dropped_epoch}'
        )
    if epoch is None:
        return
    if epoch < row.since:
        raise _too_old(row.id, epoch, row.since)
    if epoch > row.last_epoch:
        raise HeadraceError(
            Code.INVALID,
            f"epoch {epoch} does not exist yet",
            f"The last epoch is {row.last_epoch}.",
        )


def _too_old(arrangement: str, epoch: int, since: int) -> HeadraceError:
    return HeadraceError(
        Code.INVALID,
        f'epoch {epoch} of arrangement "{arrangement}" can no longer be read',
        f"Its oldest readable epoch is {since}.",
        "Read a newer epoch, or keep more history from now on.",
    )


def _unknown(arrangement: str) -> HeadraceError:
    return HeadraceError(Code.INVALID, f'arrangement "{arrangement}" does not exist')


def _arrangement(row: sa.Row[tuple[object, ...]]) -> ArrangementRecord:
    dropped = row.dropped_epoch
    return ArrangementRecord(
        ArrangementId(row.id),
        RelationId(row.owner),
        None if row.build is None else BuildId(row.build),
        row.layout,
        Epoch(row.since),
        None if dropped is None else Epoch(dropped),
    )


def age(run: Run) -> tuple[int, str]:
    """Return the sort key of a spine's runs: oldest first."""
    return run.added, run.name


def _run(row: sa.Row[tuple[object, ...]]) -> Run:
    return Run(
        row.name,
        ArrangementId(row.arrangement),
        row.rows,
        row.bytes,
        row.checksum,
        row.low,
        row.high,
        RunKind(row.kind),
        Epoch(row.added),
        None if row.removed == schema.NEVER else Epoch(row.removed),
    )
