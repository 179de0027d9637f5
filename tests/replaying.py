"""Emptying slices of views as a defect might, and replaying them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.algebra.spine import Spine
from headrace.algebra.zset import ZSet
from headrace.execution.runtime.attempt import Attempt
from headrace.execution.runtime.step import Clock, Step, StepArrangement
from headrace.planning.catalog import View
from headrace.planning.circuit import own_arrangements
from headrace.storage.ledger import EpochCommit, RunKind, Slice
from headrace.types import BuildId, rows_of

if TYPE_CHECKING:
    import headrace
    from headrace.algebra.zset import Layout
    from headrace.lifecycle.history.replaying import Replayed
    from headrace.types import ArrangementId, Epoch


def view_named(db: headrace.Database, name: str) -> View:
    found = db.parts.reader.catalog.resolve(name)
    assert isinstance(found, View)
    return found


def replay(db: headrace.Database, name: str, where: str = "") -> Replayed:
    """Replay a slice of a view."""
    return db.parts.replays.replay(view_named(db, name), Slice(where), lambda _done, _total: None)


def layouts_of(db: headrace.Database, name: str) -> dict[ArrangementId, Layout]:
    """Return the arrangements of a view's build and its contents."""
    circuit = db.parts.engine.circuit(view_named(db, name))
    found: dict[ArrangementId, Layout] = {}
    for node in circuit.stateful():
        found |= own_arrangements(node)
    return found


def stored(db: headrace.Database, name: str) -> dict[ArrangementId, ZSet]:
    """Return all rows of the arrangements of a view, consolidated."""
    found = {}
    runs = db.parts.loop.directory / "runs"
    for id_, layout in layouts_of(db, name).items():
        files = [run.file for run in db.parts.ledger.spines.runs(id_)]
        parts = list(Spine.open(runs, layout, files).scan(1 << 20))
        found[id_] = ZSet.sum_of(layout, parts).consolidated()
    return found


def emptied(db: headrace.Database, name: str, where: str = "") -> int:
    """Take a slice out of every arrangement of a view; what reads it follows.

    Return the number of rows that are gone.
    """
    parts, view = db.parts, view_named(db, name)
    loop, known_as = parts.loop, BuildId(-(10**9))
    with loop.exclusive():
        parts.engine.begin_replay(known_as, parts.engine.sliced(view, where))
        try:
            layouts = layouts_of(db, name)
            runs = parts.ledger.spines.of(list(layouts))
            before = {
                id_: StepArrangement(layout, tuple(run.file for run in runs.get(id_, ())))
                for id_, layout in layouts.items()
            }
            clock = Clock(parts.ledger.epochs.clock(), parts.ledger.epochs.clock())
            step = Step(uuid4().hex, loop.directory, loop.partitions, {}, before, clock=clock)
            attempt = Attempt(loop.runs)
            attempt.take(parts.engine.run_difference(step, known_as))
        finally:
            parts.engine.end_replay(known_as)
        above = loop.follow({view.id: attempt.written(rows_of(view.id))}, clock.after)
        commit(db, (*attempt.new_runs(RunKind.DELTA), *above.new_runs(RunKind.DELTA)))
    return sum(report.rows_out for report in attempt.reports)


def commit(db: headrace.Database, runs) -> Epoch:
    ledger = db.parts.ledger
    return ledger.commit(EpochCommit(ledger.head.epoch, uuid4().hex, runs=tuple(runs)))


def require_as_before(before: dict[ArrangementId, ZSet], after: dict[ArrangementId, ZSet]) -> None:
    """Assert that all arrangements have the same rows."""
    assert before.keys() == after.keys()
    for id_, rows in before.items():
        assert rows.equals(after[id_]), (id_, rows.table.to_pylist(), after[id_].table.to_pylist())
