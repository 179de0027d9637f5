"""The ledger against a model that keeps every epoch's contents in full."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headrace.errors import HeadraceError
from headrace.storage.ledger import (
    Dirty,
    DirtyState,
    EpochCommit,
    Files,
    Ledger,
    Mode,
    NewBuild,
    NewObject,
    Read,
    RunKind,
    RunRecord,
    Slice,
)
from headrace.types import ArrangementId, BuildId, DirtyId, Epoch, Offset, RelationId
from ledger.building import merge, relation, run, segment
from length import choose

if TYPE_CHECKING:
    from collections.abc import Mapping

    from servers.postgres import Postgres


def _names(spines: Mapping[ArrangementId, tuple[RunRecord, ...]]) -> dict[ArrangementId, list[str]]:
    return {id_: [run.file.pack for run in runs] for id_, runs in spines.items()}


class LedgerMachine(RuleBasedStateMachine):
    """Appends, epochs, merges, drops, retention and restarts, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.path = self.place()
        self.ledger = Ledger.open(self.path)
        self.ledger.acquire()
        self.names = itertools.count()
        # A run stands for the delta names it sums: merging must not change what an epoch holds.
        self.content: dict[str, frozenset[str]] = {}
        self.history: list[dict[ArrangementId, frozenset[str]]] = [{}]
        self.live: dict[RelationId, ArrangementId] = {}
        self.since: dict[ArrangementId, int] = {}
        self.ends: dict[RelationId, int] = {}
        self.consumed: dict[RelationId, int] = {}
        # By build: its view, and whether it serves. Builds have no runs here.
        self.builds: dict[BuildId, tuple[RelationId, bool]] = {}
        # By entry: its view, the condition of its slice, its state.
        self.dirty: dict[DirtyId, tuple[RelationId, str, str, DirtyState]] = {}

    def place(self) -> str | Path:
        return Path(self.directory.name) / "ledger.db"

    def beside(self) -> None:
        """Have the ledger opened by another writer: a lock of the directory is not taken here."""

    def teardown(self) -> None:
        self.ledger.close()
        self.directory.cleanup()

    @initialize()
    def begin(self) -> None:
        self.epoch(created=1, data=None, drop=False)

    def epoch(self, created: int, data: Any, *, drop: bool) -> None:
        made: list[NewObject] = [
            relation(self.ledger, f"r{next(self.names)}") for _ in range(created)
        ]
        dropped = [min(self.live)] if drop and len(self.live) > 1 else []
        contents = dict(self.history[-1])
        for gone in dropped:
            del contents[self.live.pop(gone)]
            del self.ends[gone], self.consumed[gone]
            self.builds = {b: of for b, of in self.builds.items() if of[0] != gone}
            self.dirty = {d: of for d, of in self.dirty.items() if of[0] != gone}
        reads, runs = [], []
        for owner, arrangement in self.live.items():
            first, end = self.consumed[owner], self.ends[owner]
            to = end if data is None else data.draw(st.integers(first, end))
            reads.append(Read(owner, Offset(first), Offset(to)))
            self.consumed[owner] = to
            if data is not None and data.draw(st.booleans()):
                delta = run(arrangement, f"d{next(self.names)}")
                self.content[delta.file.pack] = frozenset({delta.file.pack})
                contents[arrangement] |= self.content[delta.file.pack]
                runs.append(delta)
        previous = Epoch(len(self.history) - 1)
        self.ledger.commit(
            EpochCommit(previous, "a", tuple(reads), tuple(runs), tuple(made), tuple(dropped))
        )
        for new in made:
            arrangement = new.arrangements[0].id
            self.live[new.relation] = arrangement
            contents[arrangement] = frozenset()
            self.since[arrangement] = previous + 1
            self.ends[new.relation] = self.consumed[new.relation] = 0
        self.history.append(contents)

    @rule(created=st.integers(0, 1), data=st.data(), drop=st.booleans())
    def commit(self, created: int, data: Any, *, drop: bool) -> None:
        self.epoch(created, data, drop=drop)

    @rule(data=st.data(), takes_over=st.booleans(), retires=st.booleans())
    def rebuild(self, data: Any, *, takes_over: bool, retires: bool) -> None:
        """Begin another build of a relation, or have one that is there serve."""
        view = data.draw(st.sampled_from(sorted(self.live)))
        there = [b for b, (of, _) in self.builds.items() if of == view]
        serving = [b for b in there if self.builds[b][1]]
        waiting = [b for b in there if not self.builds[b][1]]
        new: list[NewBuild] = []
        if not waiting or not data.draw(st.booleans()):
            id_ = self.ledger.ids.build()
            new = [NewBuild(id_, view, {"build": id_}, serving=takes_over or not there)]
            self.builds[id_] = (view, new[0].serving)
        serve = waiting[:1] if takes_over and not new else []
        changed = bool(serve) or any(each.serving for each in new)
        retired = serving if changed and retires else []
        for id_ in serving if changed else []:
            self.builds[id_] = (view, False)
        for id_ in retired:
            del self.builds[id_]
        for id_ in serve:
            self.builds[id_] = (view, True)
        change = EpochCommit(
            Epoch(len(self.history) - 1),
            "b",
            builds=tuple(new),
            serve=tuple(serve),
            retired=tuple(retired),
        )
        self.ledger.commit(change)
        self.history.append(dict(self.history[-1]))

    @rule(data=st.data(), slices=st.lists(st.sampled_from(["", "a = 1", "a = 2"]), max_size=3))
    def mark(self, data: Any, slices: list[str]) -> None:
        """Mark slices dirty: equal ones of one cause once, unless they are being repaired."""
        view = data.draw(st.sampled_from(sorted(self.live)))
        marked = self.ledger.dirty.mark(
            *(Dirty(view, "late", 1.0, "", slice=Slice(w)) for w in slices)
        )
        for entry in marked:
            assert entry.id is not None
            self.dirty.setdefault(entry.id, (view, "late", entry.slice.where, DirtyState.OPEN))
        open_ = [of for of in self.dirty.values() if of[-1] is DirtyState.OPEN]
        assert len(set(open_)) == len(open_)

    @precondition(lambda self: self.dirty)
    @rule(data=st.data(), another=st.booleans())
    def repair(self, data: Any, *, another: bool) -> None:
        """Begin the repair of an entry, or end it, in an epoch that may find another."""
        id_ = data.draw(st.sampled_from(sorted(self.dirty)))
        view, cause, where, state = self.dirty[id_]
        if state is DirtyState.OPEN:
            self.ledger.dirty.change(id_, state=DirtyState.REPAIRING)
            self.dirty[id_] = (view, cause, where, DirtyState.REPAIRING)
            return
        del self.dirty[id_]
        found = (Dirty(view, "found", float(id_)),) if another else ()
        previous = Epoch(len(self.history) - 1)
        self.ledger.commit(EpochCommit(previous, "r", cleaned=(id_,), dirtied=found))
        self.history.append(dict(self.history[-1]))
        for entry in self.ledger.head.dirty:
            if another and entry.id is not None:
                self.dirty.setdefault(entry.id, (view, "found", "", DirtyState.OPEN))

    @invariant()
    def no_dirty_entry_is_lost(self) -> None:
        found = {e.id: (e.view, e.cause, e.slice.where, e.state) for e in self.ledger.head.dirty}
        assert found == self.dirty

    @rule(data=st.data(), rows=st.integers(1, 5))
    def append(self, data: Any, rows: int) -> None:
        owner = data.draw(st.sampled_from(sorted(self.live)))
        got = self.ledger.log.append(owner, segment(rows))
        assert (got.first, got.end) == (self.ends[owner], self.ends[owner] + rows)
        self.ends[owner] += rows

    @rule(data=st.data())
    def compact(self, data: Any) -> None:
        arrangement = data.draw(st.sampled_from(sorted(self.live.values())))
        inputs = [found.file.pack for found in self.ledger.spines.runs(arrangement)]
        chosen = [name for name in inputs if data.draw(st.booleans())]
        output = run(arrangement, f"m{next(self.names)}", RunKind.MERGED)
        self.content[output.file.pack] = frozenset().union(*(self.content[name] for name in chosen))
        self.ledger.spines.compact([merge(arrangement, chosen, output)])

    @rule(data=st.data())
    def retain(self, data: Any) -> None:
        arrangement = data.draw(st.sampled_from(sorted(self.since)))
        epoch = data.draw(st.integers(0, len(self.history) - 1))
        self.ledger.spines.advance_since({arrangement: Epoch(epoch)})
        self.since[arrangement] = max(self.since[arrangement], epoch)

    @rule(named=st.booleans())
    def collect(self, *, named: bool) -> None:
        files = self.ledger.files.garbage()
        self.ledger.files.forget(files if named else Files())

    @rule()
    def restart(self) -> None:
        self.ledger.close()
        self.ledger = Ledger.open(self.path)
        self.ledger.acquire()

    @rule()
    def reopen_beside(self) -> None:
        stale = self.ledger
        self.beside()
        self.ledger = Ledger.open(self.path)
        self.ledger.acquire()
        with pytest.raises(HeadraceError, match="took over"):
            stale.commit(EpochCommit(stale.head.epoch, "stale"))
        stale.close()

    @precondition(lambda self: self.live)
    @invariant()
    def the_head_is_what_the_database_says(self) -> None:
        with Ledger.open(self.path, Mode.READ) as reader:
            assert reader.violations() == {}
            stored, kept = reader.head, self.ledger.head
            for id_, tail in kept.tails.items():
                if tail:
                    upto = reader.log.segments(id_, tail[0].range.first, kept.ends[id_])
                    assert upto == tail
        names = ("epoch", "committed_at", "clock", "starts", "ends", "frontiers", "builds")
        for name in (*names, "arrangements", "dirty"):
            assert getattr(kept, name) == getattr(stored, name), name
        for name in ("spines", "next_spines"):
            assert _names(getattr(kept, name)) == _names(getattr(stored, name)), name

    @invariant()
    def builds_agree(self) -> None:
        found = {id_: (b.view, b.serving) for id_, b in self.ledger.head.builds.items()}
        assert found == self.builds

    @invariant()
    def logs_agree(self) -> None:
        assert self.ledger.head.ends == self.ends
        assert self.ledger.head.positions == self.consumed
        assert self.ledger.head.epoch == len(self.history) - 1

    @invariant()
    def every_readable_epoch_holds_what_it_held(self) -> None:
        for arrangement, since in self.since.items():
            for epoch in range(since, len(self.history)):
                if arrangement not in self.history[epoch]:
                    continue
                found = self.ledger.spines.runs(arrangement, Epoch(epoch))
                parts = [self.content[one.file.pack] for one in found]
                assert sum(map(len, parts)) == len(frozenset().union(*parts)), "counted once"
                assert frozenset().union(*parts) == self.history[epoch][arrangement]
            if arrangement in self.history[-1]:
                live = [self.content[one.file.pack] for one in self.ledger.spines.runs(arrangement)]
                assert frozenset().union(*live) == self.history[-1][arrangement]

    @invariant()
    def changes_are_differences(self) -> None:
        last = len(self.history) - 1
        for arrangement, since in self.since.items():
            if arrangement in self.history[-1]:
                found = self.ledger.spines.delta_runs(arrangement, Epoch(since), Epoch(last))
                gained = self.history[-1][arrangement] - self.history[since][arrangement]
                assert {one.file.pack for one in found} == gained


@pytest.mark.long
def test_a_ledger_in_postgresql_agrees_with_its_model(postgres_server: Postgres) -> None:
    class PostgresMachine(LedgerMachine):
        """The same in PostgreSQL."""

        def place(self) -> str:
            return postgres_server.empty()

        def beside(self) -> None:
            """Nothing takes the fence of a writer that is alive: its lock is released first."""
            self.ledger._transactions.store.database.release()

    steps = settings(max_examples=choose(3, 30), stateful_step_count=20, deadline=None)
    run_state_machine_as_test(PostgresMachine, settings=steps)


TestLedgerAgreesWithItsModel = LedgerMachine.TestCase
TestLedgerAgreesWithItsModel.settings = settings(
    max_examples=choose(2, 100), stateful_step_count=25, deadline=None
)
