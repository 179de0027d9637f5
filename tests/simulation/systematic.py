"""Every trouble alone, and every pair of points at which processes end, over one history.

The history has every step. It is played once without trouble, to see which points each step
reaches; the others follow from that, so they are the same on every machine.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from simulation.histories import History, Step, effects_at, perform
from simulation.points import (
    BEGIN,
    COMMIT,
    CRASHES,
    CRASHES_AFTERWARDS,
    IS_LOST,
    IS_SLOW,
    REQUESTS,
    STAGES,
    Trouble,
)
from simulation.rules import HAPPENINGS, RULES
from simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulation.world import Site

_TIMES: Final = 2
"""How often a point is reached in a step, of which each time has its troubles."""

_FIRST: Final = [(0, 0, 1), (1, 1, 1), (2, 0, 1), (3, 2, 1)]
_MORE: Final = [(1, 0, 1), (2, 0, -1), (4, 1, 1)]
_FEW: Final = [(5, 2, 1), (0, 1, 1)]

STANDARD: Final = (
    Step("write", {"given": _FIRST}),
    Step("epoch", {}),
    Step("deliver", {}),
    Step("upload", {}),
    Step("refresh", {"which": 7}),
    Step("write", {"given": _MORE}),
    Step("settle", {}),
    Step("fill", {}),
    Step("begin_to_fill", {}),
    Step("write", {"given": _FEW}),
    Step("epoch", {}),
    Step("catch_up", {"index": 0}),
    Step("finish", {}),
    Step("replace", {"given": _MORE}),
    Step("deliver", {}),
    Step("replay", {"which": 0, "groups": [0, 1], "given": _FEW}),
    Step("refresh", {"which": 7}),
    Step("write", {"given": _FIRST}),
    Step("epoch", {}),
    Step("begin_to_read", {}),
    Step("compact", {}),
    Step("go_on", {"number": 4, "given": _MORE}),
    Step("upload", {}),
    Step("compact", {}),
    Step("upload_for_a_job", {"given": _FEW}),
    Step("take_over", {}),
    Step("a_zombie_goes_on", {"given": _FEW, "index": 0, "what": "write"}),
    Step("write", {"given": _FEW}),
    Step("epoch", {}),
    Step("a_zombie_goes_on", {"given": _FEW, "index": 0, "what": "epoch"}),
    Step("upload", {}),
    Step("a_zombie_goes_on", {"given": _FEW, "index": 0, "what": "upload"}),
    Step("lose_the_machine", {}),
    Step("write", {"given": _MORE}),
    Step("epoch", {}),
    Step("compact", {}),
    Step("restart", {}),
    Step("deliver", {}),
)


class Place(NamedTuple):
    """A point that a step of the history reaches, from 1 for the first time in the step."""

    step: int
    point: str
    count: int


def history(storage: str, *steps: Step) -> History:
    """Return some steps as a history of a database with every kind of view."""
    return History(0, "full", storage, steps or STANDARD)


def reached(site: Site, storage: str) -> list[list[str]]:
    """Return the points that each step of the standard history reaches, in order."""
    world = World(site, 0, "full", storage)
    world.happenings = HAPPENINGS
    found = []
    try:
        for step in STANDARD:
            before = len(world.points.trace)
            perform(world, step)
            found.append(world.points.trace[before:])
    finally:
        world.close()
    return found


def places(traces: list[list[str]]) -> Iterator[Place]:
    """Yield the places of troubles: each point of each step, the first times it is reached.

    A stage within a transaction has one place: wherever that ends, nothing of it was done.
    """
    inner: set[str] = set()
    for at, trace in enumerate(traces):
        for point, times in Counter(trace).items():
            if point not in (*STAGES, *REQUESTS, BEGIN, COMMIT):
                if point in inner:
                    continue
                inner.add(point)
            for count in range(1, min(times, _TIMES) + 1):
                yield Place(at, point, count)


def singles(site: Site, storage: str) -> Iterator[History]:
    """Yield the history with each trouble at each place."""
    for place in places(reached(site, storage)):
        rule = RULES[STANDARD[place.step].name]
        for effect in effects_at(place.point, rule):
            for name in rule.meanwhile if effect == IS_SLOW else ("",):
                yield _with(
                    {place.step: [Trouble(place.point, place.count, effect, name)]}, storage
                )


def pairs(site: Site, storage: str) -> Iterator[History]:
    """Yield the history with each pair of points at which processes end.

    The second one is in the recovery from the first, when the same step is tried again, and in the next step that reaches it.
    """
    traces = reached(site, storage)
    first: dict[str, Place] = {}
    for place in places(traces):
        first.setdefault(place.point, place)
    for point, place in first.items():
        for effect in _ends_at(point):
            one = Trouble(point, 1, effect)
            for other in first:
                yield from _pairs(traces, storage, place.step, one, other)


def _pairs(
    traces: list[list[str]], storage: str, at: int, one: Trouble, other: str
) -> Iterator[History]:
    trace = traces[at]
    done = Counter(trace[: trace.index(one.point) + 1])
    recovers = other in (BEGIN, COMMIT, "list", "delete runs", "delete log")
    for end in _ends_at(other):
        if recovers:
            yield _with({at: [one, Trouble(other, done[other] + 1, end)]}, storage)
        if other in trace:
            again = STANDARD[at]._replace(troubles=(Trouble(other, 1, end),))
            steps = list(_with({at: [one]}, storage).steps)
            yield history(storage, *steps[: at + 1], again, *steps[at + 1 :])
        later = next((n for n in range(at + 1, len(traces)) if other in traces[n]), None)
        if later is not None:
            yield _with({at: [one], later: [Trouble(other, 1, end)]}, storage)


def _ends_at(point: str) -> tuple[str, ...]:
    """Return how processes end at a point, and the loss of an acknowledgement there."""
    if point == COMMIT or (point in REQUESTS and point.startswith("put")):
        return (CRASHES, CRASHES_AFTERWARDS, IS_LOST)
    return (CRASHES,)


def _with(troubles: dict[int, list[Trouble]], storage: str) -> History:
    steps = list(STANDARD)
    for at, each in troubles.items():
        steps[at] = steps[at]._replace(troubles=tuple(each))
    return replace(history(storage), steps=tuple(steps))
