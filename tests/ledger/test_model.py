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
from headrace.ledger import EpochCommit, Files, Ledger, Merge, Mode, NewObject, Read, Run, RunKind
from headrace.types import ArrangementId, Epoch, Offset, RelationId
from ledger.building import postgres, relation, run, segment

if TYPE_CHECKING:
    from collections.abc import Mapping


def _names(spines: Mapping[ArrangementId, tuple[Run, ...]]) -> dict[ArrangementId, list[str]]:
    return {id_: [run.name for run in runs] for id_, runs in spines.items()}


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

    def place(self) -> str | Path:
        return Path(self.directory.name) / "ledger.db"

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
        reads, runs = [], []
        for owner, arrangement in self.live.items():
            first, end = self.consumed[owner], self.ends[owner]
            to = end if data is None else data.draw(st.integers(first, end))
            reads.append(Read(owner, Offset(first), Offset(to)))
            self.consumed[owner] = to
            if data is not None and data.draw(st.booleans()):
                delta = run(arrangement, f"d{next(self.names)}")
                self.content[delta.name] = frozenset({delta.name})
                contents[arrangement] |= self.content[delta.name]
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

    @rule(data=st.data(), rows=st.integers(1, 5))
    def append(self, data: Any, rows: int) -> None:
        owner = data.draw(st.sampled_from(sorted(self.live)))
        got = self.ledger.append(owner, segment(rows))
        assert (got.first, got.end) == (self.ends[owner], self.ends[owner] + rows)
        self.ends[owner] += rows

    @rule(data=st.data())
    def compact(self, data: Any) -> None:
        arrangement = data.draw(st.sampled_from(sorted(self.live.values())))
        inputs = [found.name for found in self.ledger.spine(arrangement)]
        chosen = [name for name in inputs if data.draw(st.booleans())]
        output = run(arrangement, f"m{next(self.names)}", RunKind.MERGED)
        self.content[output.name] = frozenset().union(*(self.content[name] for name in chosen))
        self.ledger.compact([Merge(arrangement, tuple(chosen), output)])

    @rule(data=st.data())
    def retain(self, data: Any) -> None:
        arrangement = data.draw(st.sampled_from(sorted(self.since)))
        epoch = data.draw(st.integers(0, len(self.history) - 1))
        self.ledger.advance_since({arrangement: Epoch(epoch)})
        self.since[arrangement] = max(self.since[arrangement], epoch)

    @rule(named=st.booleans())
    def collect(self, *, named: bool) -> None:
        files = self.ledger.garbage()
        self.ledger.forget(files if named else Files())

    @rule()
    def restart(self) -> None:
        self.ledger.close()
        self.ledger = Ledger.open(self.path)
        self.ledger.acquire()

    @rule()
    def reopen_beside(self) -> None:
        stale = self.ledger
        self.ledger = Ledger.open(self.path)
        self.ledger.acquire()
        with pytest.raises(HeadraceError, match="took over"):
            stale.commit(EpochCommit(stale.last_epoch(), "stale"))
        stale.close()

    @precondition(lambda self: self.live)
    @invariant()
    def the_head_is_what_the_database_says(self) -> None:
        with Ledger.open(self.path, Mode.READ) as reader:
            stored, kept = reader.head, self.ledger.head
        for name in ("epoch", "committed_at", "clock", "ends", "positions", "arrangements"):
            assert getattr(kept, name) == getattr(stored, name), name
        for name in ("spines", "next_spines"):
            assert _names(getattr(kept, name)) == _names(getattr(stored, name)), name

    @invariant()
    def logs_agree(self) -> None:
        assert self.ledger.log_ends() == self.ends
        assert self.ledger.positions() == self.consumed
        assert self.ledger.last_epoch() == len(self.history) - 1

    @invariant()
    def every_readable_epoch_holds_what_it_held(self) -> None:
        for arrangement, since in self.since.items():
            for epoch in range(since, len(self.history)):
                if arrangement not in self.history[epoch]:
                    continue
                found = self.ledger.spine(arrangement, Epoch(epoch))
                parts = [self.content[one.name] for one in found]
                assert sum(map(len, parts)) == len(frozenset().union(*parts)), "counted once"
                assert frozenset().union(*parts) == self.history[epoch][arrangement]
            if arrangement in self.history[-1]:
                live = [self.content[one.name] for one in self.ledger.spine(arrangement)]
                assert frozenset().union(*live) == self.history[-1][arrangement]

    @invariant()
    def changes_are_differences(self) -> None:
        last = len(self.history) - 1
        for arrangement, since in self.since.items():
            if arrangement in self.history[-1]:
                found = self.ledger.delta_runs(arrangement, Epoch(since), Epoch(last))
                gained = self.history[-1][arrangement] - self.history[since][arrangement]
                assert {one.name for one in found} == gained


class PostgresMachine(LedgerMachine):
    """The same in PostgreSQL."""

    def place(self) -> str:
        return postgres()


def test_a_ledger_in_postgresql_agrees_with_its_model() -> None:
    postgres()
    few = settings(max_examples=10, stateful_step_count=20, deadline=None)
    run_state_machine_as_test(PostgresMachine, settings=few)


TestLedgerAgreesWithItsModel = LedgerMachine.TestCase
TestLedgerAgreesWithItsModel.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None
)
