"""Views that quarantine rows, without a JVM: epochs, fills, replacements, and every crash point.

Each row of a poison group makes the queries of views fail. After each step, crashed or not, a view
is its query over the other rows that epochs have read, and those are in its quarantine.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

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
from headrace.execution.runtime.fill import Fill
from headrace.planning.catalog import View
from length import choose
from runtime.crashing import Crash, Faults, counted, table_after
from runtime.pure import QUERIES, Change, PureDatabase

POISON = frozenset({3, 4})
EPOCH_STAGES = ["step", "isolate", "stepped", "commit", "before commit", "after commit", "publish"]
FILL_STAGES = ["fill", "isolate", "catch up", "take over", "before commit", "after commit"]

changes = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 4), st.sampled_from([1, 1, 1, -1])),
    min_size=1,
    max_size=6,
)


class Poisoned(RuleBasedStateMachine):
    """One data directory under writes of good and bad rows, epochs, fills and crashes."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.faults = Faults()
        self.log: list[Change] = []
        self.views = 0

    def teardown(self) -> None:
        self.db.close()
        self.folder.cleanup()

    @initialize()
    def begin(self) -> None:
        self.open()
        self.table = self.db.create_table()
        self.view = self.db.create_view("counts", self.table, quarantines=True)
        self.above = self.db.create_view("above", self.view)

    def open(self) -> None:
        self.db = PureDatabase(Path(self.folder.name), self.faults)
        self.db.runner.poison = POISON

    @rule()
    def restart(self) -> None:
        self.db.close()
        self.open()

    def until(self, stage: str | None, work) -> None:
        """Do some work; where it reaches the stage, the process ends there and starts again."""
        self.faults.stage = stage
        try:
            work()
        except Crash:
            self.restart()
        self.faults.stage = None

    @rule(given=changes)
    def write(self, given: list[Change]) -> None:
        armed, self.faults.stage = self.faults.stage, None  # whether it was written is known
        assert self.db.append(self.table, given) == len(self.log) + len(given)
        self.log += given
        self.faults.stage = armed

    @rule(stage=st.sampled_from([None, *EPOCH_STAGES]))
    def epoch(self, stage: str | None) -> None:
        self.until(stage, self.db.loop.advance)

    @precondition(lambda self: self.views < 2)
    @rule(stage=st.sampled_from([None, *FILL_STAGES]), given=changes)
    def fill(self, stage: str | None, given: list[Change]) -> None:
        """Fill a view over rows of which some are bad; more come meanwhile."""
        self.views += 1

        def filled() -> None:
            fill = self.db.begin_view(f"v{self.views}", self.table, quarantines=True)
            self.write(given)
            self.db.loop.advance()
            self.db.finish_view(fill)

        self.until(stage, filled)

    @rule(stage=st.sampled_from([None, *FILL_STAGES]), given=changes)
    def replace(self, stage: str | None, given: list[Change]) -> None:
        """Fill another build beside the one that serves: every row is tried again."""

        def swap() -> None:
            former = self.db.loop.catalog.by_id[self.view.id]
            assert isinstance(former, View)
            fill = self.db.begin_view(former.name, self.table, former)
            self.write(given)
            self.db.loop.advance()
            self.db.finish_view(fill, former)

        self.until(stage, swap)

    @rule(groups=st.sets(st.integers(0, 4), min_size=1), given=changes)
    def replay(self, groups: set[int], given: list[Change]) -> None:
        """Recompute groups of the view: what is in quarantine stays there."""
        view = self.db.loop.catalog.by_id[self.view.id]
        assert isinstance(view, View)
        fill = self.db.begin_replay(view, groups)
        fill.keeps = True
        self.write(given)
        self.db.loop.advance()
        assert self.db.finish_replay(fill).changed == 0

    @rule()
    def compact(self) -> None:
        self.db.compaction.run()

    @invariant()
    def views_are_their_queries_over_the_other_rows(self) -> None:
        if not hasattr(self, "above"):
            return
        read = self.db.ledger.head.positions.get(self.table.id, 0)
        rows = table_after(self.log[:read])
        good = [group for group in rows.values() if group not in POISON]
        bad = Counter({(k, g): 1 for k, g in rows.items() if g in POISON})
        for view in self.db.loop.catalog.views_in_order():
            if view.id == self.above.id:
                continue
            counts = counted(good, QUERIES[view.query])
            assert self.db.rows(view.id) == counts, view.name
            assert self.db.quarantined(view) == bad, view.name
            if view.id == self.view.id:
                assert self.db.rows(self.above.id) == counted(n for _, n in counts)
        assert not self.db.loop.stopped()


def test_no_crash_loses_a_row_in_quarantine_or_lets_it_through() -> None:
    run_state_machine_as_test(
        Poisoned,
        settings=settings(
            max_examples=choose(2, 400), stateful_step_count=20, deadline=None, derandomize=True
        ),
    )


@pytest.mark.parametrize("stage", EPOCH_STAGES)
def test_an_epoch_that_quarantines_rows_is_made_whole_or_not_at_all(
    tmp_path: Path, stage: str
) -> None:
    faults = Faults()
    db = PureDatabase(tmp_path, faults)
    db.runner.poison = POISON
    table = db.create_table()
    view = db.create_view("counts", table, quarantines=True)
    db.append(table, [(1, 0, 1), (2, 3, 1), (3, 4, 1), (4, 0, 1)])
    faults.stage = stage
    with pytest.raises(Crash):
        db.loop.advance()
    db.close()
    again = PureDatabase(tmp_path)
    again.runner.poison = POISON
    assert {path.name for path in (tmp_path / "runs").iterdir()} == again.ledger.files.known().packs
    if stage not in ("after commit", "publish"):
        assert not again.quarantined(view)
        again.loop.advance()
    assert again.rows(view.id) == Counter([(0, 2)])
    assert again.quarantined(view) == Counter([(2, 3), (3, 4)])
    again.append(table, [(2, 1, 1), (3, 0, -1)])
    again.loop.advance()
    assert again.rows(view.id) == Counter([(0, 2), (1, 1)])
    assert not again.quarantined(view)
    again.close()


def test_an_equal_row_of_one_in_quarantine_takes_no_trial(tmp_path: Path) -> None:
    db = PureDatabase(tmp_path)
    db.runner.poison = POISON
    table = db.create_table()
    view = db.create_view("counts", table, quarantines=True)
    db.append(table, [(1, 0, 1), (2, 3, 1)])
    db.loop.advance()
    tried = db.runner.trials
    db.append(table, [(2, 3, 1), (5, 1, 1)])
    db.loop.advance()
    assert db.runner.trials == tried + 1
    assert db.quarantined(view) == Counter([(2, 3)])
    db.close()


def test_too_many_rows_stop_the_view_which_says_so(tmp_path: Path) -> None:
    db = PureDatabase(tmp_path)
    db.loop.settings = replace(db.loop.settings, quarantine_rows=2)
    db.runner.poison = POISON
    table = db.create_table()
    view = db.create_view("counts", table, quarantines=True)
    db.append(table, [(n, 3, 1) for n in range(4)])
    db.loop.advance()
    assert db.loop.stopped() == {view.id}
    (entry,) = db.ledger.head.dirty
    assert "More than 2 rows of one step fail" in entry.detail
    db.close()


def test_a_replay_that_fails_on_a_row_that_was_read_keeps_everything(tmp_path: Path) -> None:
    db = PureDatabase(tmp_path)
    db.runner.poison = POISON
    table = db.create_table()
    db.append(table, [(1, 0, 1), (2, 3, 1)])
    db.loop.advance()
    view = db.create_view("counts", table, quarantines=True)
    db.runner.poison = POISON | {0}
    fill = Fill(db.loop, view, lambda _done, _total: None, keeps=True)
    db.runner.filling[view.build] = view
    with pytest.raises(HeadraceError, match="group 0 is poison"):
        fill.begin(db.loop.published.current)
    assert db.rows(view.id) == Counter([(0, 1)])
    assert db.quarantined(view) == Counter([(2, 3)])
    db.close()
