"""The runs of each arrangement, by epoch, and the oldest epoch that can still be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from headrace.algebra.spine import RunFile
from headrace.errors import Code, HeadraceError
from headrace.storage.ledger import commit, schema
from headrace.storage.ledger.driver_statement import DriverStatement
from headrace.storage.ledger.files import naming
from headrace.storage.ledger.heads import age
from headrace.storage.ledger.records import ArrangementRecord, RunKind, RunRecord
from headrace.types import ArrangementId, BuildId, Epoch, RelationId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.storage.ledger.records import Merge
    from headrace.storage.ledger.transactions import Transactions, WriteTransaction


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
_REPLACED: Final = sa.select(schema.arrangements.c.id).where(
    schema.arrangements.c.dropped_epoch.is_(None),
    sa.exists().where(
        schema.runs.c.arrangement == schema.arrangements.c.id,
        schema.runs.c.removed > schema.arrangements.c.since,
        schema.runs.c.removed < schema.NEVER,
    ),
)
# These are asked for each sink and follower in every epoch.
_SINCE: Final = DriverStatement(
    sa.select(schema.arrangements.c.since).where(schema.arrangements.c.id == sa.bindparam("its_id"))
)
_COLUMNS: Final = tuple(schema.runs.columns.keys())
_DELTAS: Final = DriverStatement(
    sa.select(schema.runs)
    .where(
        schema.runs.c.arrangement == sa.bindparam("its_arrangement"),
        schema.runs.c.added > sa.bindparam("after"),
        schema.runs.c.added <= sa.bindparam("upto"),
        schema.runs.c.kind == RunKind.DELTA.value,
    )
    .order_by(schema.runs.c.added, schema.runs.c.pack, schema.runs.c.position)
)


@dataclass(frozen=True, slots=True)
class Spines:
    """The arrangements, and the runs that sum to them."""

    _transactions: Transactions

    def arrangements(self) -> tuple[ArrangementRecord, ...]:
        """Return every live arrangement, by id."""
        return tuple(record for _, record in sorted(self._transactions.head.arrangements.items()))

    def runs(self, arrangement: ArrangementId, epoch: Epoch | None = None) -> tuple[RunRecord, ...]:
        """Return the runs that sum to one arrangement; see :meth:`of`."""
        return self.of((arrangement,), epoch)[arrangement]

    def of(
        self, arrangements: Iterable[ArrangementId], epoch: Epoch | None = None
    ) -> dict[ArrangementId, tuple[RunRecord, ...]]:
        """Return the runs that sum to each arrangement at an epoch, oldest first.

        None means the runs that the next epoch builds on: the contents of the last epoch, with
        every compaction applied.

        Raises:
            HeadraceError: INVALID if an arrangement cannot be read at this epoch.
        """
        wanted, head = tuple(arrangements), self._transactions.head
        kept = {None: head.next_spines, head.epoch: head.spines}.get(epoch)
        if kept is not None and all(id_ in kept for id_ in wanted):
            return {id_: kept[id_] for id_ in wanted}
        with self._transactions.reading() as connection:
            return spines(connection, wanted, epoch)

    def delta_runs(
        self, arrangement: ArrangementId, after: Epoch, upto: Epoch
    ) -> tuple[RunRecord, ...]:
        """Return the runs that are the deltas of the epochs ``(after, upto]``, by epoch.

        Raises:
            HeadraceError: INVALID if ``after`` is older than the arrangement's ``since``: some of
                the deltas may have been deleted.
        """
        known = self._transactions.head.deltas(arrangement, after, upto)
        if known is not None:
            return known
        wanted = {"its_arrangement": arrangement, "after": after, "upto": upto}
        with self._transactions.reading() as connection:
            since = _since(connection, arrangement)
            if after < since:
                raise _too_old(arrangement, after, since)
            rows = _DELTAS.rows(connection, **wanted)
        return tuple(_run(dict(zip(_COLUMNS, row, strict=True))) for row in rows)

    def delta_rows(self, arrangement: ArrangementId, after: Epoch, upto: Epoch) -> int:
        """Return how many rows the deltas of the epochs ``(after, upto]`` have."""
        known = self._transactions.head.deltas(arrangement, after, upto)
        if known is not None:
            return sum(run.file.rows for run in known)
        query = sa.select(sa.func.sum(schema.runs.c.rows)).where(_deltas(arrangement, after, upto))
        with self._transactions.reading() as connection:
            return connection.execute(query).scalar() or 0

    def compact(self, merges: Sequence[Merge]) -> Epoch:
        """Replace runs by their sums from the first uncommitted epoch on, and return that epoch.

        Readers at committed epochs still see the original runs.

        Raises:
            HeadraceError: CONFLICT if an arrangement was dropped meanwhile, or another process
                took over; INTERNAL if an invariant is violated.
        """

        def change(writing: WriteTransaction) -> Epoch:
            epoch = commit.compact(writing, merges, self._transactions.fault)
            writing.head = writing.head.after_merges(merges)
            return epoch

        return self._transactions.write(change, naming((), merges))

    def since(self, arrangement: ArrangementId) -> Epoch:
        """Return the oldest epoch at which an arrangement can be read."""
        with self._transactions.reading() as connection:
            return _since(connection, arrangement)

    def oldest(self) -> dict[ArrangementId, tuple[Epoch, float]]:
        """Return the oldest epoch at which each live arrangement can be read, and its commit time.

        The time is in Unix seconds.
        """
        owners, epochs = schema.arrangements.c, schema.epochs.c
        query = (
            sa.select(owners.id, epochs.epoch, epochs.committed_at)
            .join(schema.epochs, epochs.epoch == owners.since)
            .where(owners.dropped_epoch.is_(None))
        )
        with self._transactions.reading() as connection:
            found = connection.execute(query).all()
        return {ArrangementId(row.id): (Epoch(row.epoch), row.committed_at) for row in found}

    def replaced(self) -> frozenset[ArrangementId]:
        """Return the arrangements with runs that only older epochs need."""
        with self._transactions.reading() as connection:
            return frozenset(map(ArrangementId, connection.execute(_REPLACED).scalars()))

    def advance_since(self, since: Mapping[ArrangementId, Epoch]) -> None:
        """Stop keeping the epochs before ``since``; a value that would move back is ignored.

        Raises:
            HeadraceError: INTERNAL if a value is past the last epoch, which must stay readable.
        """
        with self._transactions.writing() as writing:
            _advance_since(writing.connection, since)
            writing.head = writing.head.after_since(since)

    def release_dropped(self, contents: Epoch, state: Epoch) -> None:
        """Stop keeping dropped arrangements that no reader needs any more.

        Contents are needed by readers after the epoch ``contents``, the state of operators by those
        after ``state``.
        """
        table = schema.arrangements
        limit = sa.case((table.c.build.is_(None), contents), else_=state)
        droppable = (table.c.dropped_epoch <= limit) & (table.c.since < table.c.dropped_epoch)
        with self._transactions.reading() as connection:
            found = connection.execute(sa.select(table.c.id).where(droppable).limit(1)).scalar()
        if found is None:
            return
        released = table.update().where(droppable).values(since=table.c.dropped_epoch)
        with self._transactions.writing() as writing:
            writing.connection.execute(released)


def spines(
    connection: sa.Connection, arrangements: Iterable[ArrangementId], epoch: Epoch | None
) -> dict[ArrangementId, tuple[RunRecord, ...]]:
    """Return the runs that sum to each arrangement at an epoch, oldest first, in one query.

    None means the runs that the next epoch builds on: the contents of the last epoch, with every
    compaction applied.

    Raises:
        HeadraceError: INVALID if an arrangement cannot be read at this epoch.
    """
    wanted = tuple(arrangements)
    query, values = (_LIVE, {}) if epoch is None else (_AS_OF, {"epoch": epoch})
    found: dict[ArrangementId, list[RunRecord]] = {}
    for row in connection.execute(query, {"wanted": wanted, **values}):
        if row.id not in found:
            found[row.id] = []
            _require_readable(row, epoch)
        if row.pack is not None:
            found[row.id].append(_run(dict(row._mapping)))  # noqa: SLF001 (its documented name)
    for arrangement in wanted:
        if arrangement not in found:
            raise _unknown(arrangement)
    return {key: tuple(sorted(found[key], key=age)) for key in wanted}


def _deltas(arrangement: ArrangementId, after: Epoch, upto: Epoch) -> sa.ColumnElement[bool]:
    runs = schema.runs.c
    return sa.and_(
        runs.arrangement == arrangement,
        runs.added > after,
        runs.added <= upto,
        runs.kind == RunKind.DELTA.value,
    )


def arrangements(connection: sa.Connection) -> tuple[ArrangementRecord, ...]:
    """Return every live arrangement, by id."""
    table = schema.arrangements
    query = sa.select(table).where(table.c.dropped_epoch.is_(None)).order_by(table.c.id)
    return tuple(_arrangement(row) for row in connection.execute(query))


def _advance_since(connection: sa.Connection, since: Mapping[ArrangementId, Epoch]) -> None:
    last = commit.last_epoch(connection)
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


def _since(connection: sa.Connection, arrangement: ArrangementId) -> Epoch:
    """Return the oldest epoch of an arrangement; raise INVALID if it does not exist."""
    for (since,) in _SINCE.rows(connection, its_id=arrangement):
        return Epoch(since)
    raise _unknown(arrangement)


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


def _run(row: Mapping[str, Any]) -> RunRecord:
    removed = row["removed"]
    return RunRecord(
        RunFile(
            row["pack"],
            row["position"],
            row["rows"],
            row["bytes"],
            row["checksum"],
            row["low"],
            row["high"],
        ),
        ArrangementId(row["arrangement"]),
        RunKind(row["kind"]),
        Epoch(row["added"]),
        None if removed == schema.NEVER else Epoch(removed),
    )
