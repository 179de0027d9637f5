"""Every crash point of epochs, fills, deliveries and compaction, in any order, without a JVM.

A model in plain Python holds what was acknowledged. After each step, crashed or not, the database
is what the model says of the changes that its last epoch has read: its table, its views, their
changelogs, every epoch that can still be read, and what a sink has written outside.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

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

from headrace.catalog import RefreshKind, RefreshPolicy, View
from length import choose
from runtime.pure import QUERIES, Change, Outside, PureDatabase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.runtime.fill import Fill

EPOCH_STAGES = ["step", "stepped", "commit", "before commit", "after commit", "publish"]
FILL_STAGES = ["fill", "catch up", "before commit", "after commit"]
SWAP_STAGES = ["fill", "catch up", "take over", "before commit", "after commit"]
REFRESH_STAGES = ["refresh", "refreshed", "refresh follows", "before commit", "after commit"]
SINK_STAGES = ["sink", "sink written"]

changes = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 2), st.sampled_from([1, 1, -1])),
    min_size=1,
    max_size=6,
)


REPLAY_STAGES = ["fill", "catch up", "replace", "replaced", "before commit", "after commit"]
MANUAL = RefreshPolicy(RefreshKind.MANUAL)


class Crash(BaseException):
    """The process has ended here."""


class Faults:
    """Ends the process at the next time that a stage is reached."""

    def __init__(self) -> None:
        self.stage: str | None = None

    def __call__(self, reached: str) -> None:
        if reached == self.stage:
            self.stage = None
            raise Crash(reached)


def table_after(log: list[Change]) -> dict[int, int]:
    rows: dict[int, int] = {}
    for key, group, weight in log:
        rows.pop(key, None)
        if weight > 0:
            rows[key] = group
    return rows


def counted(groups: Iterable[int], first: int = 0) -> Counter[tuple[int, int]]:
    """Return how often each group occurs, from the first one on: one row each."""
    found = Counter(group for group in groups if group >= first)
    return Counter(dict.fromkeys(found.items(), 1))


class Crashing(RuleBasedStateMachine):
    """One data directory under writes, epochs, fills, deliveries, compaction and crashes."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.faults = Faults()
        self.outside = Outside()
        self.log: list[Change] = []
        self.views = 0
        self.filling: list[Fill] = []

    def teardown(self) -> None:
        self.db.close()
        self.folder.cleanup()

    @initialize()
    def begin(self) -> None:
        self.open()
        self.table = self.db.create_table()
        self.view = self.db.create_view("counts", self.table)
        self.above = self.db.create_view("above", self.view)
        self.late = self.db.create_view("late", self.table, MANUAL)
        self.later = self.db.create_view("later", self.late, MANUAL)
        self.over_late = self.db.create_view("over_late", self.late)
        self.top = self.db.create_view("top", self.over_late, MANUAL)
        self.sink = self.db.create_sink(self.view)
        self.delivery = self.db.delivery(self.sink, self.outside)
        self.watched = self.db.ledger.head.epoch

    def open(self) -> None:
        self.db = PureDatabase(Path(self.folder.name), self.faults)

    @rule()
    def restart(self) -> None:
        self.filling.clear()
        self.db.close()
        self.open()
        self.delivery = self.db.delivery(self.sink, self.outside)

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

    @rule(stage=st.sampled_from([None, *SINK_STAGES]))
    def deliver(self, stage: str | None) -> None:
        self.until(stage, self.delivery.advance)

    @precondition(lambda self: self.views < 3)
    @rule(stage=st.sampled_from([None, *FILL_STAGES]))
    def fill(self, stage: str | None) -> None:
        self.views += 1
        self.until(stage, lambda: self.db.create_view(f"v{self.views}", self.table))

    @precondition(lambda self: self.views < 3)
    @rule()
    def begin_to_fill(self) -> None:
        """Two fills may be under way at once."""
        self.views += 1
        self.filling.append(self.db.begin_view(f"v{self.views}", self.table))

    @precondition(lambda self: self.filling)
    @rule(index=st.integers(0, 2), stage=st.sampled_from([None, "fill", "catch up"]))
    def catch_up(self, index: int, stage: str | None) -> None:
        fill, published = self.filling[index % len(self.filling)], self.db.loop.published
        self.until(stage, lambda: fill.catch_up(published.current))

    @precondition(lambda self: self.filling)
    @rule(stage=st.sampled_from([None, *FILL_STAGES]))
    def finish(self, stage: str | None) -> None:
        fill = self.filling.pop(0)
        self.until(stage, lambda: self.db.finish_view(fill))

    @rule(stage=st.sampled_from([None, *SWAP_STAGES]), given=changes)
    def replace(self, stage: str | None, given: list[Change]) -> None:
        """Fill another build of a view beside the one that serves, and have it take over."""

        def swap() -> None:
            former = self.db.loop.catalog.by_id[self.view.id]
            assert isinstance(former, View)
            fill = self.db.begin_view(former.name, self.table, former)
            self.write(given)
            self.db.loop.advance()
            self.db.finish_view(fill, former)

        self.until(stage, swap)

    @rule(stage=st.sampled_from([None, *REFRESH_STAGES]), which=st.integers(1, 7))
    def refresh(self, stage: str | None, which: int) -> None:
        """Refresh some of the views that lag behind."""
        lagging = ((1, self.late), (2, self.later), (4, self.top))
        views = [view for bit, view in lagging if which & bit]
        self.until(stage, lambda: self.db.refresh(*views))

    @rule(
        stage=st.sampled_from([None, *REPLAY_STAGES]),
        which=st.integers(0, 2),
        groups=st.sets(st.integers(0, 4), min_size=1),
        given=changes,
    )
    def replay(self, stage: str | None, which: int, groups: set[int], given: list[Change]) -> None:
        """Recompute groups of a view that is right, or has been damaged, while epochs go on."""

        def replayed() -> None:
            known = (self.view, self.late, self.later)[which]
            view = self.db.loop.catalog.by_id[known.id]
            assert isinstance(view, View)
            fill = self.db.begin_replay(view, groups)
            self.write(given)
            self.db.loop.advance()
            done = self.db.finish_replay(fill)
            assert done.changed == 0

        self.until(stage, replayed)

    @rule()
    def compact(self) -> None:
        self.db.compaction.run()

    @rule()
    def settle(self) -> None:
        while self.db.loop.pending():
            self.db.loop.advance()
        self.delivery.advance()
        assert self.outside.rows() == self.db.rows(self.view.id)

    @invariant()
    def everything_is_what_was_read(self) -> None:
        if not hasattr(self, "watched"):
            return
        read = self.db.ledger.head.positions.get(self.table.id, 0)
        rows = table_after(self.log[:read])
        assert self.db.rows(self.table.id) == Counter(rows.items())
        apart = {self.above.id, self.late.id, self.later.id, self.over_late.id, self.top.id}
        for view in self.db.loop.catalog.views_in_order():
            if view.id not in apart:
                counts = counted(rows.values(), QUERIES[view.query])
                assert self.db.rows(view.id) == counts, (view.name, view.query)
        view = self.db.loop.catalog.by_id[self.view.id]
        assert isinstance(view, View)
        numbers = [n for _, n in counted(rows.values(), QUERIES[view.query])]
        assert self.db.rows(self.above.id) == counted(numbers)
        served = self.db.ledger.head.serving(view.id)
        assert (served.id, served.definition) == (view.build, view.to_json())
        for key in (0, 3):
            wanted = Counter([(key, rows[key])] if key in rows else [])
            assert self.db.by_key(self.table.id, key) == wanted

    @invariant()
    def what_lags_is_its_query_where_it_stands(self) -> None:
        if not hasattr(self, "watched"):
            return
        lagging = self.db.loop.published.current.lagging
        late, later = lagging[self.late.id], lagging[self.later.id]
        rows = table_after(self.log[: late.offsets.get(self.table.id, 0)])
        counts = counted(rows.values())
        assert self.db.rows(self.late.id) == counts
        assert self.db.rows(self.over_late.id) == counted(n for _, n in counts)
        below = self.db.rows(self.late.id, later.epoch)
        assert self.db.rows(self.later.id) == counted(n for _, n in below)
        between = self.db.rows(self.over_late.id, lagging[self.top.id].epoch)
        assert self.db.rows(self.top.id) == counted(n for _, n in between)

    @invariant()
    def a_sink_has_whole_epochs(self) -> None:
        if not hasattr(self, "watched") or not self.outside.epochs:
            return
        last = max(self.outside.epochs)
        since = {a.id: a.since for a in self.db.ledger.spines.arrangements()}
        contents = self.db.history(self.view.id)
        if since[contents.id] <= last:
            assert self.outside.rows() == self.db.rows(self.view.id, last)


def test_no_crash_loses_doubles_or_tears_anything() -> None:
    run_state_machine_as_test(
        Crashing,
        settings=settings(
            max_examples=choose(4, 400), stateful_step_count=25, deadline=None, derandomize=True
        ),
    )


@pytest.mark.parametrize("stage", EPOCH_STAGES)
def test_an_epoch_that_crashes_is_made_whole_or_not_at_all(tmp_path: Path, stage: str) -> None:
    faults = Faults()
    db = PureDatabase(tmp_path, faults)
    table = db.create_table()
    view = db.create_view("counts", table)
    db.append(table, [(1, 0, 1), (2, 0, 1)])
    db.loop.advance()
    before, runs = db.ledger.head.epoch, db.ledger.files.known().packs
    db.append(table, [(1, 1, 1), (2, 0, -1), (3, 1, 1)])
    faults.stage = stage
    with pytest.raises(Crash):
        db.loop.advance()
    db.close()
    again = PureDatabase(tmp_path)
    committed = stage in ("after commit", "publish")
    assert again.ledger.head.epoch == before + committed
    on_disk = {path.name for path in (tmp_path / "runs").iterdir()}
    assert on_disk == again.ledger.files.known().packs
    assert (on_disk == runs) is not committed
    again.loop.advance()
    assert again.rows(view.id) == Counter([(1, 2)])
    assert again.changelog(view.id, before) == Counter({(0, 2): -1, (1, 2): 1})
    again.close()


@pytest.mark.parametrize("stage", ["take over", "before commit", "after commit"])
def test_a_query_that_is_replaced_is_replaced_whole_or_not_at_all(
    tmp_path: Path, stage: str
) -> None:
    faults = Faults()
    db = PureDatabase(tmp_path, faults)
    table = db.create_table()
    view = db.create_view("counts", table)
    above = db.create_view("above", view)
    db.append(table, [(1, 0, 1), (2, 0, 1), (3, 1, 1)])
    db.loop.advance()
    before = db.ledger.head.epoch
    fill = db.begin_view("counts", table, view)
    faults.stage = stage
    with pytest.raises(Crash):
        db.finish_view(fill, view)
    db.close()
    again = PureDatabase(tmp_path)
    committed = stage == "after commit"
    assert again.ledger.head.epoch == before + committed
    assert {path.name for path in (tmp_path / "runs").iterdir()} == again.ledger.files.known().packs
    assert len(again.ledger.head.builds) == 2
    old, new = Counter({(0, 2): 1, (1, 1): 1}), Counter({(1, 1): 1})
    assert again.rows(view.id) == (new if committed else old)
    assert again.rows(view.id, before) == old
    assert again.rows(above.id) == Counter({(1, 1): 1} if committed else {(1, 1): 1, (2, 1): 1})
    if committed:
        assert again.changelog(view.id, before) == Counter({(0, 2): -1})
        assert again.changelog(above.id, before) == Counter({(2, 1): -1})
    again.append(table, [(4, 1, 1)])
    again.loop.advance()
    assert again.rows(view.id) == Counter({(1, 2): 1} if committed else {(0, 2): 1, (1, 2): 1})
    again.close()


@pytest.mark.parametrize("stage", REFRESH_STAGES)
def test_a_refresh_that_crashes_is_made_whole_or_not_at_all(tmp_path: Path, stage: str) -> None:
    faults = Faults()
    db = PureDatabase(tmp_path, faults)
    table = db.create_table()
    late = db.create_view("late", table, MANUAL)
    later = db.create_view("later", late, MANUAL)
    above = db.create_view("above", late)
    db.append(table, [(1, 0, 1), (2, 0, 1)])
    db.loop.advance()
    before, stands = db.ledger.head.epoch, db.ledger.head.lagging
    faults.stage = stage
    with pytest.raises(Crash):
        db.refresh(late, later)
    db.close()
    again = PureDatabase(tmp_path)
    committed = stage == "after commit"
    assert again.ledger.head.epoch == before + committed
    assert (again.ledger.head.lagging == stands) is not committed
    assert {path.name for path in (tmp_path / "runs").iterdir()} == again.ledger.files.known().packs
    for view, rows in ((late, [(0, 2)]), (later, [(2, 1)]), (above, [(2, 1)])):
        assert again.rows(view.id) == Counter(rows if committed else [])
    again.refresh(late, later)
    assert again.rows(later.id) == again.rows(above.id) == Counter([(2, 1)])
    again.close()
