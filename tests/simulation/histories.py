"""Histories: what a seed is, how it is played, and how one that fails is made smaller."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pprint import pformat
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace.errors import Code, HeadraceError
from headrace.storage.ledger import OutdatedEpochError
from runtime.crashing import Crash
from simulation.points import (
    BEGIN,
    COMMIT,
    CRASHES,
    CRASHES_AFTERWARDS,
    FAILS,
    GOES_AWAY,
    IS_LATE,
    IS_LOST,
    IS_LOST_AND_AWAY,
    IS_SLOW,
    LOSES_MACHINE,
    REQUESTS,
    STAGES,
    Trouble,
)
from simulation.rules import HAPPENINGS, RULES, Rule
from simulation.world import BUNDLES, DISK, STORE, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from simulation.world import Site

STEPS: Final = 16
_ENDS: Final = (CRASHES, LOSES_MACHINE)
_ANSWERS: Final = (FAILS, GOES_AWAY, *_ENDS)
_CHANGES: Final = (*_ANSWERS, CRASHES_AFTERWARDS, IS_LOST, IS_LATE)


class Step(NamedTuple):
    """A step by the name of its rule, with its arguments and troubles: plain data."""

    name: str
    arguments: dict[str, Any]
    troubles: tuple[Trouble, ...] = ()


@dataclass(frozen=True, slots=True)
class History:
    """What happens to a database of a shape whose files are in a storage.

    Seeds of unique names follow from ``seed``.
    """

    seed: int
    shape: str
    storage: str
    steps: tuple[Step, ...]

    @classmethod
    def of(cls, seed: int, steps: int = STEPS) -> History:
        """Return the history of a seed."""
        random = Random(seed)
        shape = random.choice(("small", "small", "full"))
        storage = random.choice((STORE, BUNDLES, BUNDLES, DISK))
        rules = list(RULES.values())
        chosen = random.choices(rules, [each.weight for each in rules], k=steps)
        return cls(seed, shape, storage, tuple(_drawn(each, random) for each in chosen))

    def text(self) -> str:
        """Return it as Python, which a test can play again."""
        steps = ",\n".join(f"    {_step_text(each)}" for each in self.steps)
        return f"History({self.seed}, {self.shape!r}, {self.storage!r}, (\n{steps},\n))"


def _step_text(step: Step) -> str:
    text = f"Step({step.name!r}, {pformat(step.arguments, width=10_000)}"
    if not step.troubles:
        return text + ")"
    items = ", ".join(f"Trouble{tuple(each)}" for each in step.troubles)
    return f"{text}, ({items},))"


def _drawn(rule: Rule, random: Random) -> Step:
    arguments = {name: draw(random) for name, draw in rule.drawn.items()}
    number = random.choice((0, 0, 0, 0, 1, 1, 2)) if rule.points else 0
    return Step(rule.name, arguments, tuple(_trouble(rule, random) for _ in range(number)))


def _trouble(rule: Rule, random: Random) -> Trouble:
    point = random.choice(rule.points)
    effect = random.choice(effects_at(point, rule))
    meanwhile = random.choice(rule.meanwhile) if effect == IS_SLOW else ""
    return Trouble(point, random.choice((1, 1, 1, 2, 3)), effect, meanwhile)


def effects_at(point: str, rule: Rule) -> tuple[str, ...]:
    """Return what can go wrong at a point in a step of a rule."""
    if point == COMMIT:
        return (*_ANSWERS, CRASHES_AFTERWARDS, IS_LOST, IS_LOST_AND_AWAY)
    if point == BEGIN:
        return (FAILS, GOES_AWAY, CRASHES)
    of_requests = _ANSWERS if point in ("list", "fetch") else _CHANGES
    found = of_requests if point in REQUESTS else _ENDS
    may_wait = rule.meanwhile and point in (*STAGES, *REQUESTS)
    return (*found, IS_SLOW) if may_wait else found


def play(site: Site, history: History) -> World:
    """Play a history; return the world, which is closed.

    Raises:
        Exception: what does not hold.
    """
    world = World(site, history.seed, history.shape, history.storage)
    world.happenings = HAPPENINGS
    try:
        for step in history.steps:
            perform(world, step)
        world.finish()
    finally:
        world.close()
    return world


def perform(world: World, step: Step) -> None:
    """Perform a step, with its troubles, and check what must hold."""
    rule = RULES[step.name]
    if not rule.applies(world):
        return
    process, points, behind = world.process, world.points, world.is_behind()
    points.begin(step.troubles)
    try:
        rule.run(world, **step.arguments)
    except Crash:
        if not world.overtaken(process):
            world.restart()
    except HeadraceError as error:
        away = error.code is Code.UNAVAILABLE and points.met
        if world.overtaken(process):
            if not away and error.code not in (Code.CONFLICT, Code.CORRUPT):
                raise
        elif not away and not (behind and isinstance(error, OutdatedEpochError)):
            raise
        elif rule.restarts:
            points.away.clear()
            world.restart()
    points.end()
    world.bury()
    world.check()


def failure_of(site: Site, history: History) -> BaseException | None:
    """Return what a history fails with; None if all holds."""
    try:
        play(site, history)
    except (Exception, Crash) as error:  # noqa: BLE001 - that is what is asked
        return error
    return None


def shrunk(history: History, fails: Callable[[History], bool], tries: int = 400) -> History:
    """Return a smaller history that fails, by leaving out what it fails without."""
    left = tries
    size = max(1, len(history.steps) // 2)
    while size:
        found = None
        for smaller in _without(history, size):
            left -= 1
            if left < 0:
                return history
            if fails(smaller):
                found = smaller
                break
        if found is not None:
            history = found
        elif size == 1:
            simpler = next((each for each in _simpler(history) if fails(each)), None)
            if simpler is None:
                return history
            history = simpler
        else:
            size //= 2
    return history


def _without(history: History, size: int) -> Iterator[History]:
    for at in reversed(range(0, len(history.steps), size)):
        yield replace(history, steps=(*history.steps[:at], *history.steps[at + size :]))


def _simpler(history: History) -> Iterator[History]:
    if history.shape != "small":
        yield replace(history, shape="small")
    for storage in (DISK, STORE):
        if history.storage not in (DISK, storage):
            yield replace(history, storage=storage)
    for at, step in enumerate(history.steps):
        for other in _simpler_steps(step):
            yield replace(history, steps=(*history.steps[:at], other, *history.steps[at + 1 :]))


def _simpler_steps(step: Step) -> Sequence[Step]:
    found = [
        step._replace(troubles=(*step.troubles[:at], *step.troubles[at + 1 :]))
        for at in range(len(step.troubles))
    ]
    given = step.arguments.get("given", ())
    if len(given) > 1:
        found += [
            step._replace(arguments={**step.arguments, "given": [*given[:at], *given[at + 1 :]]})
            for at in range(len(given))
        ]
    return found
