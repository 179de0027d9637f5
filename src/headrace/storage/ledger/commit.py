"""Write epochs to the ledger, and compactions between epochs.

The order of statements inside a transaction does not matter: readers see all of them or none.
``stage`` is called between them, with a name, so that a test can crash at each.

When epochs were committed, and what each one read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import sqlalchemy as sa

from headrace.errors import Code, HeadraceError
from headrace.storage.ledger import builds, dirty, invariants, schema
from headrace.storage.ledger.driver_statement import DriverStatement
from headrace.storage.ledger.records import (
    CLOCK,
    REDEFINED,
    EpochCommit,
    EpochRecord,
    Fence,
    Merge,
    NewArrangement,
    NewRun,
    Read,
    RunKind,
)
from headrace.types import Epoch, FrontierId, Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.algebra.zset.order import Ints
    from headrace.storage.ledger.transactions import Transactions, WriteTransaction


Stage = Callable[[str], None]

# Statements of every epoch are built once: building them costs more than running them.
_FIRST_EPOCH: Final = sa.select(sa.func.min(schema.epochs.c.epoch))
_LAST_EPOCH: Final = DriverStatement(sa.select(sa.func.max(schema.epochs.c.epoch)))
_INSERT: Final = {table: DriverStatement(table.insert()) for table in schema.metadata.sorted_tables}


def last_epoch(connection: sa.Connection) -> Epoch:
    """Return the newest committed epoch."""
    ((last,),) = _LAST_EPOCH.rows(connection)
    return Epoch(last)


def first_epoch(connection: sa.Connection) -> Epoch:
    """Return the oldest epoch that is still recorded."""
    return Epoch(connection.execute(_FIRST_EPOCH).scalar_one())


class OutdatedEpochError(HeadraceError):
    """An epoch was built on one that is no longer the last."""


def commit_epoch(writing: WriteTransaction, commit: EpochCommit, now: float, stage: Stage) -> float:
    """Write one epoch; return its commit time in Unix seconds.

    Raises ``conflict`` if it does not follow the last epoch, or what it was built on has changed
    (:class:`OutdatedEpochError`), ``internal`` if an invariant fails.
    """
    connection, last = writing.connection, writing.head.epoch
    if last != commit.previous:
        raise OutdatedEpochError(
            Code.CONFLICT,
            f"epoch {commit.epoch} did not follow the last one",
            f"It was built on epoch {commit.previous}; the last is {last}.",
            "Build it again on the last epoch.",
        )
    if commit.began is not None and commit.began != last:
        _require_unchanged(connection, commit, commit.began)
    invariants.check(connection, commit, invariants.EVERY_EPOCH)
    stage("checked")
    committed_at = _insert_epoch(writing, commit, now)
    stage("epoch")
    drop(connection, commit.dropped, commit.epoch)
    stage("dropped")
    _create(connection, commit)
    _redefine(connection, commit)
    stage("created")
    builds.change(connection, commit, committed_at)
    stage("builds")
    _arrange(connection, commit)
    stage("arranged")
    builds.advance(connection, commit)
    stage("reads")
    _insert_runs(connection, commit.runs, commit.epoch)
    stage("runs")
    _apply(connection, commit.merges, commit.epoch)
    stage("merges")
    _forget(connection, commit)
    _repair(connection, commit)
    stage("repaired")
    return committed_at


def _require_unchanged(connection: sa.Connection, commit: EpochCommit, began: Epoch) -> None:
    """Check that epochs after ``began`` have changed nothing of a commit's members.

    Merges may have replaced runs: the sums are the same. What epochs have changed that are not
    recorded any longer is not known.
    """
    objects, owners, runs, reads = schema.objects, schema.arrangements, schema.runs, schema.reads
    redefined = sa.select(schema.epochs.c.counters).where(schema.epochs.c.epoch > began)
    members = set(commit.members)
    changed = first_epoch(connection) > began + 1 or any(
        not members.isdisjoint(counters.get(REDEFINED, ()))
        for counters in connection.execute(redefined).scalars()
    )
    for query in (
        sa.select(objects.c.relation).where(
            objects.c.relation.in_(members), objects.c.dropped_epoch > began
        ),
        sa.select(reads.c.relation).where(reads.c.relation.in_(members), reads.c.epoch > began),
        sa.select(owners.c.id)
        .join(runs, runs.c.arrangement == owners.c.id)
        .where(
            owners.c.owner.in_(members),
            runs.c.added > began,
            runs.c.kind == RunKind.DELTA.value,
        ),
        sa.select(owners.c.id).where(owners.c.owner.in_(members), owners.c.dropped_epoch > began),
    ):
        changed = changed or connection.execute(query.limit(1)).first() is not None
    if changed:
        raise OutdatedEpochError(
            Code.CONFLICT,
            f"epoch {commit.epoch} was built on what has changed since epoch {began}",
            hint="Build it again on the last epoch.",
        )


def _forget(connection: sa.Connection, commit: EpochCommit) -> None:
    if commit.forgets:
        table = schema.arrangements
        these = table.update().where(table.c.id.in_(commit.forgets))
        connection.execute(these.values(since=commit.epoch))


def _repair(connection: sa.Connection, commit: EpochCommit) -> None:
    for each in commit.repaired:
        dirty.clear(connection, each.view, each.cause)
        if each.after + 1 < commit.epoch:
            row = {"view": each.view, "until": commit.epoch, "after": each.after}
            _INSERT[schema.gaps].run(connection, row)
    dirty.clean(connection, commit.cleaned)
    for entry in commit.dirtied:
        dirty.mark(connection, entry)


def compact(writing: WriteTransaction, merges: Sequence[Merge], stage: Stage) -> Epoch:
    """Replace runs by their sums from the first uncommitted epoch on; return that epoch."""
    connection, head = writing.connection, writing.head
    commit = EpochCommit(head.epoch, "compaction", merges=tuple(merges))
    _require_live(writing, merges)
    invariants.check(connection, commit, invariants.EVERY_CHANGE_OF_RUNS)
    stage("checked")
    _apply(connection, merges, commit.epoch)
    stage("merges")
    return commit.epoch


def _insert_epoch(writing: WriteTransaction, commit: EpochCommit, now: float) -> float:
    before = writing.head  # the head of the epoch before: no other has been committed since
    # Commit times never decrease, even if the system clock does: a time identifies one epoch.
    committed_at = max(now, before.committed_at)
    row = {
        "epoch": commit.epoch,
        "committed_at": committed_at,
        "attempt": commit.attempt,
        "fence": writing.fence,
        "counters": {
            **commit.counters,
            **_redefined(commit),
            **_clock(commit, before.clock),
        },
    }
    _INSERT[schema.epochs].run(writing.connection, row)
    return committed_at


def _redefined(commit: EpochCommit) -> dict[str, list[int]]:
    """Return the relations whose definitions an epoch replaces: how they were is not recorded."""
    changed = {*commit.redefined, *commit.renamed, *commit.reading, *commit.exchanged.values()}
    return {REDEFINED: sorted(changed)} if changed else {}


def _clock(commit: EpochCommit, known: int) -> dict[str, int]:
    """Return the clock of an epoch: its own, or that ``known`` of the epoch before, 0 if none."""
    clock = known if commit.clock is None else commit.clock
    if not clock:
        return {}
    if clock < known:
        raise HeadraceError(
            Code.INTERNAL,
            f"the clock of epoch {commit.epoch} went back",
            detail=f"It was {known} in the epoch before, and would be {clock}.",
        )
    return {CLOCK: clock}


def drop(connection: sa.Connection, relations: Sequence[RelationId], epoch: Epoch) -> None:
    """Drop relations in an epoch."""
    if not relations:
        return
    objects, arrangements, runs = schema.objects, schema.arrangements, schema.runs
    for change in (
        objects.update().where(objects.c.relation.in_(relations)).values(dropped_epoch=epoch),
        runs.update()
        .where(
            runs.c.arrangement.in_(
                sa.select(arrangements.c.id).where(arrangements.c.owner.in_(relations))
            ),
            runs.c.removed == schema.NEVER,
        )
        .values(removed=epoch),
        arrangements.update()
        .where(arrangements.c.owner.in_(relations), arrangements.c.dropped_epoch.is_(None))
        .values(dropped_epoch=epoch),
        schema.builds.update()
        .where(schema.builds.c.view.in_(relations), schema.builds.c.retired_epoch.is_(None))
        .values(retired_epoch=epoch),
        schema.dirty.delete().where(schema.dirty.c.view.in_(relations)),
        schema.reconciled.delete().where(schema.reconciled.c.view.in_(relations)),
        schema.evidence.delete().where(schema.evidence.c.view.in_(relations)),
    ):
        connection.execute(change)


def _redefine(connection: sa.Connection, commit: EpochCommit) -> None:
    for relation, definition in commit.redefined.items():
        its = schema.objects.c.relation == relation
        connection.execute(schema.objects.update().where(its).values(definition=dict(definition)))
    for relation, name in commit.renamed.items():
        its = schema.objects.c.relation == relation
        connection.execute(schema.objects.update().where(its).values(name=name))
    for relation, inputs in commit.reading.items():
        needs = schema.dependencies
        connection.execute(needs.delete().where(needs.c.relation == relation))
        rows = ({"relation": relation, "input": used} for used in dict.fromkeys(inputs))
        _insert(connection, needs, rows)


def _create(connection: sa.Connection, commit: EpochCommit) -> None:
    created, epoch = commit.created, commit.epoch
    _insert(
        connection,
        schema.objects,
        (
            {
                "relation": new.relation,
                "name": new.name,
                "kind": new.kind,
                "definition": dict(new.definition),
                "created_epoch": epoch,
            }
            for new in created
        ),
    )
    empty = {"since": 0, "log_end": 0, "rejected": 0, "acknowledged": 0}
    _insert(connection, schema.logs, ({"relation": new.relation, **empty} for new in created))
    builds.create_positions(connection, created)
    _insert(
        connection,
        schema.dependencies,
        (
            {"relation": new.relation, "input": used}
            for new in created
            for used in dict.fromkeys(new.inputs)
        ),
    )


def _arrange(connection: sa.Connection, commit: EpochCommit) -> None:
    contents = [
        _arrangement(a, new.relation, None) for new in commit.created for a in new.arrangements
    ]
    state = [_arrangement(a, new.view, new.id) for new in commit.builds for a in new.arrangements]
    rows = ({**row, "since": commit.epoch} for row in (*contents, *state))
    _insert(connection, schema.arrangements, rows)
    table = schema.arrangements
    for id_, layout in commit.arranged.items():
        connection.execute(table.update().where(table.c.id == id_).values(layout=dict(layout)))


def _arrangement(new: NewArrangement, owner: RelationId, build: int | None) -> dict[str, Any]:
    return {"id": new.id, "owner": owner, "build": build, "layout": dict(new.layout)}


def _insert_runs(connection: sa.Connection, runs: Iterable[NewRun], epoch: Epoch) -> None:
    _insert(
        connection,
        schema.runs,
        (
            {
                **run.file.to_json(),
                "arrangement": run.arrangement,
                "added": epoch,
                "removed": schema.NEVER,
                "kind": run.kind.value,
            }
            for run in runs
        ),
    )


def _apply(connection: sa.Connection, merges: Sequence[Merge], epoch: Epoch) -> None:
    removed = [place for merge in merges for place in merge.inputs]
    if removed:
        change = schema.runs.update().where(schema.RUN_PLACE.in_(removed))
        connection.execute(change.values(removed=epoch))
    outputs = [merge.output for merge in merges if merge.output is not None]
    _insert_runs(connection, outputs, epoch)


def _require_live(writing: WriteTransaction, merges: Sequence[Merge]) -> None:
    """Raise ``conflict`` if an arrangement was dropped while its runs were merged.

    That is no defect: the merge was only unnecessary.
    """
    table = schema.arrangements.c
    for merge in merges:
        if merge.arrangement in writing.head.arrangements:
            continue
        dropped = sa.select(table.dropped_epoch).where(table.id == merge.arrangement)
        epoch = writing.connection.execute(dropped).scalar()
        raise HeadraceError(
            Code.CONFLICT,
            f'arrangement "{merge.arrangement}" was dropped in epoch {epoch} while it was merged',
            "Nothing was compacted.",
            "Discard the merged run.",
        )


def _insert(connection: sa.Connection, table: sa.Table, rows: Iterable[dict[str, Any]]) -> None:
    listed = list(rows)
    if listed:
        _INSERT[table].run(connection, *listed)


_MICROS: Final = 1_000_000
_FIRST: Final = Epoch(0)

_KEPT: Final = 1000
"""The number of epochs whose counters are kept that were known only after the commit."""
_LEAST: Final = 1000
"""The number of epochs whose record is kept in any case: listings show them."""
_AT_ONCE: Final = 4096
"""How many rows of a table are deleted in one transaction: others that write wait for it."""
_NEXT_READ: Final = sa.select(schema.reads.c.epoch).order_by(schema.reads.c.epoch).limit(1)


@dataclass(frozen=True, slots=True)
class Epochs:
    """The committed epochs."""

    _transactions: Transactions
    _afterwards: dict[Epoch, Mapping[str, Any]] = field(default_factory=dict)

    def add_counters(self, epoch: Epoch, counters: Mapping[str, Any]) -> None:
        """Add counters to the record of an epoch, in memory only: until the database is closed.

        Such are known only after the commit, like the time that it took.
        """
        self._afterwards[epoch] = counters
        if len(self._afterwards) > _KEPT:
            del self._afterwards[next(iter(self._afterwards))]

    def last(self) -> Epoch:
        """Return the newest epoch."""
        with self._transactions.reading() as connection:
            return last_epoch(connection)

    def newest(self, limit: int = 100) -> tuple[EpochRecord, ...]:
        """Return the newest epochs with what each one read, newest first."""
        table = schema.epochs
        query = sa.select(table).where(table.c.epoch > 0).order_by(table.c.epoch.desc())
        with self._transactions.reading() as connection:
            rows = connection.execute(query.limit(limit)).all()
            lineage = _lineage(connection, Epoch(rows[-1].epoch)) if rows else {}
        return tuple(
            EpochRecord(
                Epoch(row.epoch),
                row.committed_at,
                row.attempt,
                Fence(row.fence),
                {**row.counters, **self._afterwards.get(Epoch(row.epoch), {})},
                tuple(lineage.get(row.epoch, ())),
            )
            for row in rows
        )

    def at(self, timestamp: float, first: Epoch = _FIRST) -> Epoch:
        """Return the last epoch committed at or before a time in Unix seconds.

        It is ``first`` if there is none after that.
        """
        table = schema.epochs.c
        query = (
            sa.select(table.epoch)
            .where(table.committed_at <= timestamp, table.epoch > first)
            .order_by(table.committed_at.desc(), table.epoch.desc())
        )
        with self._transactions.reading() as connection:
            found = connection.execute(query.limit(1)).scalar()
        return first if found is None else Epoch(found)

    def forget(self, before: Epoch) -> int:
        """Delete some of the record of epochs that nothing refers to, the oldest; return how many.

        One ``before`` and the newest stay: an epoch is committed after two that follow each other,
        also in a branch that begins there.
        """
        reads, epochs, gaps = schema.reads, schema.epochs, schema.gaps
        last = min(before - 1, self._transactions.head.epoch - _LEAST)
        with self._transactions.reading() as connection:
            first = first_epoch(connection)
            later = connection.execute(_NEXT_READ.offset(_AT_ONCE)).scalar()
        upto = min(first + _AT_ONCE, last)
        if later is not None:
            upto = min(upto, max(later, first + 1))
        if first >= upto:
            return 0
        with self._transactions.writing() as writing:
            for table, past in (
                (reads, reads.c.epoch < upto),
                (epochs, epochs.c.epoch < upto),
                (gaps, gaps.c.until <= upto),
            ):
                writing.connection.execute(table.delete().where(past))
        return upto - first

    def commit_times(self, first: Epoch, last: Epoch) -> tuple[Ints, Ints]:
        """Return the epochs in ``[first, last]`` and when each was committed, in microseconds UTC.

        Both ascend.
        """
        table = schema.epochs.c
        query = sa.select(table.epoch, table.committed_at).order_by(table.epoch)
        with self._transactions.reading() as connection:
            rows = connection.execute(query.where(table.epoch.between(first, last))).all()
        epochs = np.array([row[0] for row in rows], np.int64)
        return epochs, np.round(np.array([row[1] for row in rows]) * _MICROS).astype(np.int64)

    def committed_at(self, epoch: Epoch) -> float:
        """Return when an epoch was committed, in Unix seconds."""
        with self._transactions.reading() as connection:
            return committed(connection, epoch)[0]

    def counters(self, epoch: Epoch) -> Mapping[str, Any]:
        """Return the counters that were committed with an epoch."""
        table = schema.epochs.c
        with self._transactions.reading() as connection:
            counters: Mapping[str, Any] = connection.execute(
                sa.select(table.counters).where(table.epoch == epoch)
            ).scalar_one()
        return counters

    def clock(self, epoch: Epoch | None = None) -> int:
        """Return ``now()`` of an epoch (None: the last one) in microseconds UTC; 0 if never set."""
        head = self._transactions.head
        if epoch is None or epoch == head.epoch:
            return head.clock
        with self._transactions.reading() as connection:
            return committed(connection, epoch)[1]


def committed(connection: sa.Connection, epoch: Epoch) -> tuple[float, int]:
    """Return when an epoch was committed, in Unix seconds, and its clock in microseconds UTC."""
    table = schema.epochs.c
    query = sa.select(table.committed_at, table.counters).where(table.epoch == epoch)
    row = connection.execute(query).one()
    return float(row.committed_at), int(row.counters.get(CLOCK, 0))


def _lineage(connection: sa.Connection, oldest: Epoch) -> dict[int, list[Read]]:
    """Return what epochs have read from one epoch on, by epoch."""
    reads = schema.reads
    query = sa.select(reads).where(reads.c.epoch >= oldest)
    lineage: dict[int, list[Read]] = {}
    for row in connection.execute(query.order_by(reads.c.frontier, reads.c.relation)):
        read = Read(
            RelationId(row.relation),
            Offset(row.from_offset),
            Offset(row.to_offset),
            FrontierId(row.frontier),
        )
        lineage.setdefault(row.epoch, []).append(read)
    return lineage
