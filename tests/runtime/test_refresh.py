"""Views that are refreshed apart from the epochs: each is its query where its frontier stands."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime import refresh
from headrace.execution.runtime.fill import Fill
from headrace.execution.runtime.published import STOPPED
from headrace.execution.runtime.refresh import ViewRefresh
from headrace.execution.runtime.refreshing import Refreshes
from headrace.planning.catalog import RefreshKind, RefreshPolicy
from headrace.storage.ledger import LIVE
from headrace.types import rows_of
from runtime.pure import PureDatabase

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.planning.catalog import View

MANUAL = RefreshPolicy(RefreshKind.MANUAL)
HOUR = 3600


def every(seconds: int) -> RefreshPolicy:
    return RefreshPolicy(RefreshKind.EVERY, seconds)


class Now:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 1_000_000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def pure(tmp_path: Path) -> Iterator[PureDatabase]:
    db = PureDatabase(tmp_path)
    yield db
    db.close()


def settle(db: PureDatabase) -> None:
    while db.loop.pending():
        db.loop.advance()


def test_a_view_that_lags_shows_its_inputs_as_of_its_last_refresh(pure: PureDatabase) -> None:
    table = pure.create_table()
    late, live = pure.create_view("late", table, MANUAL), pure.create_view("live", table)
    pure.append(table, [(1, 0, 1), (2, 0, 1)])
    settle(pure)
    assert (pure.rows(late.id), pure.rows(live.id)) == (Counter(), Counter([(0, 2)]))
    begun = pure.ledger.head.epoch
    assert pure.refresh(late) == begun + 1
    assert pure.rows(late.id) == Counter([(0, 2)])
    pure.append(table, [(1, 1, 1), (3, 1, 1)])
    settle(pure)
    pure.append(table, [(2, 0, -1)])
    settle(pure)
    assert pure.rows(late.id) == Counter([(0, 2)])
    state = pure.loop.published.current
    assert state.behind(pure.ledger.head.ends, late.id) == 3
    later = pure.create_view("later", table, MANUAL)
    assert pure.ledger.head.lagging[later.id].offsets == {table.id: 5}
    assert state.behind(pure.ledger.head.ends, live.id) == 0
    pure.refresh(late)
    assert pure.rows(late.id) == Counter([(1, 2)])
    assert pure.changelog(late.id, begun) == Counter([(1, 2)])
    assert pure.loop.published.current.behind(pure.ledger.head.ends, late.id) == 0


def test_refreshing_again_changes_nothing_but_the_frontier(pure: PureDatabase) -> None:
    table = pure.create_table()
    late = pure.create_view("late", table, MANUAL)
    pure.append(table, [(1, 0, 1)])
    settle(pure)
    first = pure.refresh(late)
    second = pure.refresh(late)
    assert pure.ledger.head.lagging[late.id].epoch == second == first + 1
    assert pure.changelog(late.id, first) == Counter()


def test_views_of_one_refresh_are_one_step_from_then_on(pure: PureDatabase) -> None:
    table = pure.create_table()
    views = []
    for number in range(5):
        pure.append(table, [(number, 0, 1)])
        settle(pure)
        views.append(pure.create_view(f"v{number}", table, MANUAL))
    pure.append(table, [(7, 1, 1)])
    settle(pure)
    pure.refresh(*views)
    pure.append(table, [(8, 1, 1)])
    settle(pure)
    begun = pure.ledger.head.epoch
    assert pure.refresh(*views) == begun + 1
    (made,) = pure.ledger.epochs.newest(1)
    assert (made.counters["refreshed"], made.counters["jobs"]) == (5, 0)
    assert all(pure.rows(view.id) == Counter([(0, 5), (1, 2)]) for view in views)


def test_a_view_that_was_made_when_nothing_changed_since_shares_the_step(
    pure: PureDatabase,
) -> None:
    table = pure.create_table()
    views = [pure.create_view(f"v{number}", table, MANUAL) for number in range(3)]
    pure.append(table, [(1, 1, 1)])
    settle(pure)
    pure.refresh(*views)
    assert pure.ledger.epochs.newest(1)[0].counters["width"] == "narrow"


def test_chains_of_views_agree_after_one_refresh(pure: PureDatabase) -> None:
    table = pure.create_table()
    below = pure.create_view("below", table, MANUAL)
    above = pure.create_view("above", below, MANUAL)
    top = pure.create_view("top", above)
    pure.append(table, [(1, 0, 1), (2, 0, 1), (3, 1, 1)])
    settle(pure)
    pure.refresh(below)
    assert pure.rows(below.id) == Counter([(0, 2), (1, 1)])
    assert pure.rows(above.id) == Counter()
    pure.append(table, [(4, 1, 1)])
    settle(pure)
    pure.refresh(below, above)  # the one has older changes of the other to read
    assert pure.rows(below.id) == Counter([(0, 2), (1, 2)])
    assert pure.rows(above.id) == Counter([(2, 2)])
    assert pure.rows(top.id) == Counter([(2, 1)])
    pure.append(table, [(4, 0, 1), (5, 3, 1)])
    settle(pure)
    pure.refresh(below, above)
    assert pure.rows(above.id) == Counter([(3, 1), (1, 2)])
    assert pure.rows(top.id) == Counter([(1, 1), (2, 1)])


def test_a_maintained_view_over_one_that_lags_follows_each_refresh(pure: PureDatabase) -> None:
    table = pure.create_table()
    late = pure.create_view("late", table, MANUAL)
    above = pure.create_view("above", late)
    pure.append(table, [(1, 0, 1), (2, 0, 1)])
    settle(pure)
    assert pure.rows(above.id) == Counter()
    epoch = pure.refresh(late)
    assert pure.rows(above.id) == pure.rows(above.id, epoch) == Counter([(2, 1)])


def recounted(db: PureDatabase, view: View) -> Counter[tuple[int, int]]:
    """Return how often each number is among the rows of a view: what a view over it shows."""
    return Counter(Counter(n for _, n in db.rows(view.id).elements()).items())


@pytest.mark.parametrize("changes", [3, pytest.param(60, marks=pytest.mark.long)])
def test_views_that_read_each_other_through_maintained_ones_agree_after_one_refresh(
    pure: PureDatabase, changes: int
) -> None:
    table = pure.create_table()
    late = pure.create_view("late", table, MANUAL)
    live = pure.create_view("live", late)
    over = pure.create_view("over", live, MANUAL)
    beside = pure.create_view("beside", late, MANUAL)
    between = pure.create_view("between", over)
    top = pure.create_view("top", between, MANUAL)
    for first in (0, changes):  # once from nothing, and once from where the first left them
        for key in range(first, first + changes):
            pure.append(table, [(key, key % 4, 1)])
            settle(pure)
        begun = pure.ledger.head.epoch
        assert pure.refresh(late, over, beside, top) == begun + 3
        assert pure.rows(late.id).total() == min(4, first + changes)
        assert pure.rows(live.id) == recounted(pure, late) == pure.rows(beside.id)
        assert pure.rows(over.id) == recounted(pure, live)
        assert pure.rows(between.id) == recounted(pure, over)
        assert pure.rows(top.id) == recounted(pure, between)
    made = [each.counters["refreshed"] for each in pure.ledger.epochs.newest(3)]
    assert sorted(made) == [1, 1, 2]


def test_all_levels_of_a_refresh_read_up_to_one_point(pure: PureDatabase) -> None:
    """No epoch is made between the commits of one refresh, whatever is appended meanwhile."""
    table = pure.create_table()
    late = pure.create_view("late", table, MANUAL)
    over = pure.create_view("over", pure.create_view("live", late), MANUAL)
    pure.append(table, [(1, 0, 1)])
    settle(pure)

    def append(stage: str) -> None:
        if stage == "refresh follows":
            pure.append(table, [(2, 0, 1), (3, 1, 1)])

    pure.loop.fault = append
    pure.refresh(late, over)
    pure.loop.fault = lambda _stage: None
    stands = pure.ledger.head.lagging
    assert stands[late.id].offsets == stands[over.id].offsets == {table.id: 1}
    assert pure.loop.pending() > 0


def test_a_view_does_not_pass_over_changes_that_its_refresh_has_not_read(
    pure: PureDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pure.create_table()
    late = pure.create_view("late", table, MANUAL)
    over = pure.create_view("over", pure.create_view("live", late), MANUAL)
    pure.append(table, [(1, 0, 1)])
    settle(pure)
    monkeypatch.setattr(refresh, "_in_levels", lambda views, _state: [list(views)])
    before, runs = pure.ledger.head.epoch, set((pure.directory / "runs").iterdir())
    with pytest.raises(HeadraceError, match='"over" would miss changes of view "live"') as caught:
        pure.refresh(late, over)
    assert caught.value.code is Code.INTERNAL
    assert pure.ledger.head.epoch == before
    assert set((pure.directory / "runs").iterdir()) == runs
    monkeypatch.undo()
    pure.refresh(late, over)
    assert pure.rows(over.id) == Counter([(1, 1)])


def test_what_a_later_level_fails_on_leaves_the_levels_before_refreshed(
    timed: PureDatabase, now: Now
) -> None:
    table = timed.create_table()
    late = timed.create_view("late", table, every(HOUR))
    live = timed.create_view("live", late)
    over = timed.create_view("over", live, every(HOUR))
    timed.append(table, [(1, 0, 1)])
    settle(timed)
    timed.runner.failing.add(over.id)
    now.seconds += HOUR
    refreshes = Refreshes(timed.loop)
    while refreshes.run_due() is not None:
        pass
    assert timed.rows(late.id) == Counter([(0, 1)])
    assert timed.rows(live.id) == Counter([(1, 1)])
    assert timed.rows(over.id) == Counter()
    assert [entry.view for entry in timed.ledger.head.dirty] == [over.id]


def test_many_changes_are_read_in_parts(pure: PureDatabase) -> None:
    table = pure.create_table()
    late = pure.create_view("late", table, MANUAL)
    above = pure.create_view("above", late, MANUAL)
    for start in range(0, 60, 3):
        pure.append(table, [(key, key % 7, 1) for key in range(start, start + 3)])
        settle(pure)
    steps: list[str] = []
    pure.loop.fault = steps.append
    pure.refresh(late, above)
    assert steps.count("refresh") > 60 / pure.loop.settings.epoch_rows
    groups = Counter(key % 7 for key in range(60))
    assert pure.rows(late.id) == Counter(dict.fromkeys(groups.items(), 1))
    counts = Counter(groups.values())
    assert pure.rows(above.id) == Counter(dict.fromkeys(counts.items(), 1))


def test_what_a_view_has_not_read_is_kept(pure: PureDatabase) -> None:
    table = pure.create_table()
    late = pure.create_view("late", table, MANUAL)
    for key in range(40):  # beyond the history that is kept, and beyond what is merged
        pure.append(table, [(key % 9, key % 2, 1)])
        settle(pure)
        pure.compaction.run()
    pure.refresh(late)
    rows = {key % 9: key % 2 for key in range(40)}
    assert pure.rows(late.id) == Counter(dict.fromkeys(Counter(rows.values()).items(), 1))


def test_a_dropped_view_keeps_nothing(pure: PureDatabase) -> None:
    table = pure.create_table()
    late = pure.create_view("late", table, MANUAL)
    with pure.loop.kept() as (of_contents, _):
        assert of_contents == pure.ledger.head.lagging[late.id].epoch
    pure.drop(late)
    for key in range(5):
        pure.append(table, [(key, 0, 1)])
        settle(pure)
    with pure.loop.kept() as (of_contents, _):
        assert of_contents == pure.ledger.head.epoch


def test_a_view_that_was_replaced_meanwhile_is_refused(pure: PureDatabase) -> None:

    table = pure.create_table()
    late = pure.create_view("late", table, MANUAL)
    pure.append(table, [(1, 0, 1)])
    settle(pure)
    refresh = ViewRefresh(pure.loop, (late,))
    pure.refresh(late)
    with pytest.raises(HeadraceError) as caught:
        refresh.run()
    assert caught.value.code is Code.CONFLICT


def test_another_query_of_a_view_that_lags_takes_its_place_at_a_frontier_of_its_own(
    pure: PureDatabase,
) -> None:
    table = pure.create_table()
    late = pure.create_view("late", table, MANUAL)
    pure.append(table, [(1, 0, 1), (2, 1, 1)])
    settle(pure)
    replaced = pure.finish_view(pure.begin_view("late", table, late), late)
    assert pure.rows(late.id) == Counter([(1, 1)])
    pure.append(table, [(3, 1, 1)])
    settle(pure)
    assert pure.rows(late.id) == Counter([(1, 1)])
    pure.refresh(replaced)
    assert pure.rows(late.id) == Counter([(1, 2)])
    assert pure.ledger.head.serving(late.id).frontier != LIVE


def test_another_build_of_a_view_that_lags_goes_on_from_where_that_stands(
    pure: PureDatabase,
) -> None:
    table = pure.create_table()
    late = pure.create_view("late", table, MANUAL)
    above = pure.create_view("above", late)
    pure.append(table, [(1, 0, 1), (2, 1, 1)])
    settle(pure)
    pure.refresh(late)
    pure.append(table, [(3, 0, 1)])
    settle(pure)
    stands, shown, over = pure.ledger.head.lagging, pure.rows(late.id), pure.rows(above.id)
    clock, last = pure.ledger.epochs.clock(), pure.ledger.head.epoch
    another = replace(late, replacement=pure.ledger.ids.build())
    pure.runner.filling[another.build] = another
    fill = Fill(pure.loop, another, lambda _done, _total: None)
    fill.begin(pure.loop.published.at_frontier(another))
    pure.append(table, [(4, 1, 1)])
    settle(pure)
    pure.take_over(fill, late, stays=True)
    assert pure.ledger.head.lagging == stands
    assert (pure.rows(late.id), pure.rows(above.id)) == (shown, over)
    assert not pure.changelog(late.id, last)
    assert pure.ledger.epochs.clock() >= clock
    pure.refresh(another)
    assert pure.rows(late.id) == Counter([(0, 2), (1, 2)])
    assert pure.rows(above.id) == Counter([(2, 2)])


def test_a_restart_finds_the_frontier(tmp_path: Path) -> None:
    db = PureDatabase(tmp_path)
    table = db.create_table()
    late = db.create_view("late", table, MANUAL)
    db.append(table, [(1, 0, 1)])
    settle(db)
    db.refresh(late)
    stands = db.ledger.head.lagging[late.id]
    db.append(table, [(2, 0, 1)])
    settle(db)
    db.close()
    again = PureDatabase(tmp_path)
    assert again.loop.published.current.lagging[late.id] == stands
    assert again.rows(late.id) == Counter([(0, 1)])
    again.refresh(late)
    assert again.rows(late.id) == Counter([(0, 2)])
    again.close()


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def timed(tmp_path: Path, now: Now) -> Iterator[PureDatabase]:
    db = PureDatabase(tmp_path, clock=now)
    yield db
    db.close()


def refreshed(db: PureDatabase) -> int:
    """Return how many views the last epoch refreshed."""
    return db.ledger.epochs.newest(1)[0].counters.get("refreshed", 0)


def test_a_view_is_due_an_interval_after_its_last_refresh(timed: PureDatabase, now: Now) -> None:
    table = timed.create_table()
    hourly = timed.create_view("hourly", table, every(HOUR))
    timed.create_view("manual", table, MANUAL)
    refreshes = Refreshes(timed.loop)
    assert refreshes.due_times() == {hourly.id: now() + HOUR}
    timed.append(table, [(1, 0, 1)])
    settle(timed)
    now.seconds += HOUR - 1
    assert (refreshes.run_due(), refreshes.seconds_until_due()) == (None, 1.0)
    now.seconds += 1
    assert refreshes.run_due() == timed.ledger.head.epoch
    assert timed.rows(hourly.id) == Counter([(0, 1)])
    assert refreshed(timed) == 1
    assert refreshes.run_due() is None
    timed.refresh(hourly)
    assert refreshes.seconds_until_due() == HOUR


def test_a_refresh_that_was_missed_is_made_after_a_restart(tmp_path: Path, now: Now) -> None:
    db = PureDatabase(tmp_path, clock=now)
    table = db.create_table()
    hourly = db.create_view("hourly", table, every(HOUR))
    db.append(table, [(1, 0, 1)])
    settle(db)
    db.close()
    now.seconds += 5 * HOUR
    again = PureDatabase(tmp_path, clock=now)
    refreshes = Refreshes(again.loop)
    assert refreshes.seconds_until_due() == 0
    refreshes.run_due()
    assert again.rows(hourly.id) == Counter([(0, 1)])
    assert refreshes.seconds_until_due() == HOUR
    again.close()


def test_views_that_began_at_different_times_come_to_share_one_refresh(
    timed: PureDatabase, now: Now
) -> None:
    table = timed.create_table()
    views = []
    for number in range(6):
        views.append(timed.create_view(f"v{number}", table, every(HOUR)))
        now.seconds += HOUR / 6
    refreshes, made = Refreshes(timed.loop), []
    for _ in range(4 * 6):
        timed.append(table, [(1, int(now()) % 5, 1)])
        settle(timed)
        now.seconds += HOUR / 6
        while refreshes.run_due() is not None:
            made.append(refreshed(timed))
        late = [now() - due for due in refreshes.due_times().values()]
        assert max(late) <= 0
    assert made[-3:] == [6, 6, 6]


def test_of_many_views_that_are_due_the_one_due_longest_is_first_and_none_is_left_out(
    timed: PureDatabase, now: Now
) -> None:
    table = timed.create_table()
    most = 3
    timed.loop.settings = replace(timed.loop.settings, refresh_views=most)
    views = []
    for number in range(2 * most + 1):
        views.append(timed.create_view(f"v{number}", table, every(HOUR)))
        now.seconds += 1
    now.seconds += 2 * HOUR
    refreshes, order = Refreshes(timed.loop), []
    while (epoch := refreshes.run_due()) is not None:
        lagging = timed.ledger.head.lagging
        order.append([v.id for v in views if lagging[v.id].epoch == epoch])
    assert order == [[v.id for v in views[i : i + most]] for i in range(0, len(views), most)]


def test_views_over_other_tables_and_of_longer_intervals_wait_for_their_own_time(
    timed: PureDatabase, now: Now
) -> None:
    table, other = timed.create_table(), timed.create_table("u")
    timed.create_view("hourly", table, every(HOUR))
    daily = timed.create_view("daily", table, every(24 * HOUR))
    elsewhere = timed.create_view("elsewhere", other, every(HOUR + 60))
    begun = {id_: stands.at for id_, stands in timed.ledger.head.lagging.items()}
    now.seconds += HOUR
    refreshes = Refreshes(timed.loop)
    assert refreshes.run_due() is not None
    assert refreshed(timed) == 1
    stands = timed.ledger.head.lagging
    assert all(stands[id_].at == begun[id_] for id_ in (daily.id, elsewhere.id))


def test_a_view_that_fails_on_its_data_stops_and_the_others_go_on(
    timed: PureDatabase, now: Now
) -> None:
    table = timed.create_table()
    good, bad = (timed.create_view(name, table, every(HOUR)) for name in ("good", "bad"))
    timed.runner.failing.add(bad.id)
    timed.append(table, [(1, 0, 1)])
    settle(timed)
    stands = timed.ledger.head.lagging[bad.id]
    now.seconds += HOUR
    refreshes = Refreshes(timed.loop)
    while refreshes.run_due() is not None:
        pass
    assert timed.rows(good.id) == Counter([(0, 1)])
    (entry,) = timed.ledger.head.dirty
    assert (entry.view, entry.cause, entry.after) == (bad.id, STOPPED, stands.epoch)
    assert timed.ledger.head.lagging[bad.id] == stands
    assert 'view "bad" fails' in entry.detail
    assert not refreshes.failed
    assert set(refreshes.due_times()) == {good.id}


def test_what_may_pass_is_tried_again_later(timed: PureDatabase, now: Now) -> None:
    table = timed.create_table()
    hourly = timed.create_view("hourly", table, every(HOUR))
    now.seconds += HOUR
    refreshes = Refreshes(timed.loop)
    timed.runner.failing.add(hourly.id)
    timed.runner.failure = Code.UNAVAILABLE
    timed.append(table, [(1, 0, 1)])
    settle(timed)
    assert refreshes.run_due() is None
    assert not timed.ledger.head.dirty
    wait = refreshes.seconds_until_due()
    assert wait is not None
    assert 0 < wait < HOUR
    timed.runner.failing.clear()
    now.seconds += wait
    refreshes.run_due()
    assert timed.rows(hourly.id) == Counter([(0, 1)])
    assert not refreshes.failed


def test_a_table_that_was_rebuilt_since_is_refused_in_words(pure: PureDatabase) -> None:
    table = pure.create_table()
    late = pure.create_view("late", table, MANUAL)
    pure.append(table, [(1, 0, 1)])
    settle(pure)
    pure.ledger.spines.advance_since({rows_of(table.id): pure.ledger.head.epoch})
    with pytest.raises(HeadraceError, match='changed in table "t"') as caught:
        pure.refresh(late)
    assert caught.value.code is Code.INVALID
    again = pure.finish_view(pure.begin_view("late", table, late), late)
    assert pure.refresh(again) == pure.ledger.head.epoch


def test_epochs_go_on_while_a_refresh_reads(pure: PureDatabase) -> None:
    """Much is read beside the epochs, and what they change meanwhile is read at the end."""
    table = pure.create_table()
    late = pure.create_view("late", table, MANUAL)
    above = pure.create_view("above", late, MANUAL)
    live = pure.create_view("live", late)
    keys = iter(range(1000))

    def write(count: int) -> None:
        for _ in range(count):
            pure.append(table, [(key := next(keys), key % 5, 1)])
            settle(pure)

    write(30)
    left = [3, 2, 1]

    def during(stage: str) -> None:
        if stage == "refresh" and left:
            write(left.pop(0))
            pure.compaction.run()

    pure.loop.fault = during
    begun = pure.ledger.head.epoch
    assert pure.refresh(late, above) == begun + 6 + 1
    assert not left
    counts = Counter(key % 5 for key in range(36))
    assert pure.rows(late.id) == Counter(dict.fromkeys(counts.items(), 1))
    numbers = Counter(dict.fromkeys(Counter(counts.values()).items(), 1))
    assert pure.rows(above.id) == pure.rows(live.id) == numbers
    assert pure.changelog(late.id, begun) == pure.rows(late.id)
