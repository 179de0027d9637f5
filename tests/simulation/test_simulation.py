"""The simulation holds, repeats itself, and finds what is wrong; ``make simulate`` plays more of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from length import choose, each
from runtime.pure import PureRunner
from simulation.defects import DEFECTS, Defect
from simulation.histories import History, Step, failure_of, play, shrunk
from simulation.points import (
    BEGIN,
    COMMIT,
    IS_LOST_AND_AWAY,
    IS_SLOW,
    REQUESTS,
    STAGES,
    Trouble,
)
from simulation.runner import PlainRunner
from simulation.systematic import pairs, reached, singles
from simulation.world import BUNDLES, DISK, STORE, Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHORT = Step("write", {"given": [(1, 0, 1), (2, 1, 1)]})


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    logging.disable(logging.WARNING)
    with Site().used() as used:
        yield used
    logging.disable(logging.NOTSET)


def test_what_holds_holds_whatever_goes_wrong(site: Site) -> None:
    for seed in range(1, choose(9, 2000)):
        play(site, History.of(seed))


@pytest.mark.parametrize("storage", [STORE, BUNDLES, DISK])
@pytest.mark.parametrize("listed", [singles, pairs])
def test_a_standard_history_holds_with_every_trouble_and_every_pair_of_ends(
    site: Site, listed: Callable[[Site, str], Iterator[History]], storage: str
) -> None:
    for history in each(1201, list(listed(site, storage))):
        play(site, history)


def test_the_standard_history_reaches_every_point(site: Site) -> None:
    found = {point for trace in reached(site, "store") for point in trace}
    assert found >= {*STAGES, *REQUESTS, BEGIN, COMMIT}


def test_a_seed_is_one_history(site: Site) -> None:
    for seed in (3, 4, 5):
        history = History.of(seed)
        first, second = (play(site, history) for _ in range(2))
        assert first.points.trace == second.points.trace
        assert first.log == second.log
        assert first.outside.epochs == second.outside.epochs
        assert eval(history.text()) == history  # noqa: S307  (a failure's text can be played)


def test_the_same_holds_with_operators_over_arrow_and_a_ledger_that_is_a_file(site: Site) -> None:
    site.runner, site.server.is_file = PureRunner, True
    try:
        for seed in range(1, choose(4, 200)):
            play(site, History.of(seed))
    finally:
        site.runner, site.server.is_file = PlainRunner, False


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda each: each.name)
def test_a_planted_defect_is_found(
    site: Site, defect: Defect, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(site, defect.history)
    defect.plant(monkeypatch)
    with pytest.raises(Exception):  # noqa: B017, PT011  (an assertion, or an error of what is missing)
        play(site, defect.history)


@pytest.mark.long
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda each: each.name)
def test_a_planted_defect_is_found_by_chance(
    site: Site, defect: Defect, monkeypatch: pytest.MonkeyPatch
) -> None:
    defect.plant(monkeypatch)
    assert any(failure_of(site, History.of(seed)) for seed in range(1, 2000))


def test_a_history_that_fails_is_made_smaller(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    defect = DEFECTS[0]
    defect.plant(monkeypatch)
    seed = next(seed for seed in range(1, 100) if failure_of(site, History.of(seed)))
    small = shrunk(History.of(seed), lambda smaller: failure_of(site, smaller) is not None)
    assert failure_of(site, small) is not None
    assert len(small.steps) <= 4


def test_an_epoch_is_made_after_a_commit_in_doubt_that_was_made(site: Site) -> None:
    epoch = Step("epoch", {})
    lost = epoch._replace(troubles=(Trouble(COMMIT, 1, IS_LOST_AND_AWAY),))
    play(site, History(0, "small", "disk", (SHORT, lost, epoch, SHORT, epoch)))


def test_a_view_is_not_filled_from_the_state_before_a_commit_in_doubt_that_was_made(
    site: Site,
) -> None:
    away = Trouble(COMMIT, 1, IS_LOST_AND_AWAY)
    for step in (
        Step("fill", {}),
        Step("replace", {"given": [(3, 1, 1)]}),
        Step("replay", {"which": 0, "groups": [0], "given": [(3, 1, 1)]}),
    ):
        lost = Step("epoch", {}, (away,))
        play(site, History(0, "small", "disk", (SHORT, lost, step, step)))
        late = Step("catch_up", {"index": 0}), SHORT, lost, Step("finish", {})
        play(site, History(0, "small", "disk", (SHORT, Step("begin_to_fill", {}), *late)))


def test_a_process_that_is_overtaken_while_it_opens_deletes_no_file_of_the_other(
    site: Site,
) -> None:
    slow = Trouble("list", 1, IS_SLOW, "another_takes_over_and_goes_on")
    for step in ("take_over", "restart"):
        play(site, History(0, "small", "store", (SHORT, Step(step, {}, (slow,)))))
