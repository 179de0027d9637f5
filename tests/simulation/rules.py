"""The steps of histories: each is a function with a name, and what its arguments are drawn from.

To add one, write a function of the world and its arguments under :func:`rule`. What may happen
*while something else is slow* is such a function under :func:`happening`.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Code, HeadraceError
from headrace.files import mounts
from simulation.points import BEGIN, COMMIT
from simulation.world import BUNDLES, TAIL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from runtime.pure import Change, EventChange
    from simulation.world import Process, World

    Drawn = Callable[[Random], Any]

COMMITTING: Final = ("before commit", "after commit", BEGIN, COMMIT)
_EPOCH: Final = ("step", "stepped", "commit", "publish", "put runs", *COMMITTING)
_FILL: Final = ("fill", "catch up", "put runs", "fetch", *COMMITTING)


@dataclass(frozen=True, slots=True)
class Rule:
    """A step: what it does, how often it is chosen, when it applies, the points that it reaches.

    If it ``restarts``, an error of the store or the ledger ends the process; otherwise the
    process goes on, and whatever is asked for next has to work.
    """

    name: str
    run: Callable[..., None]
    weight: int
    points: tuple[str, ...]
    drawn: Mapping[str, Drawn]
    applies: Callable[[World], bool]
    meanwhile: tuple[str, ...]
    restarts: bool


RULES: dict[str, Rule] = {}
HAPPENINGS: dict[str, Callable[[World], None]] = {}


def rule(
    weight: int,
    points: tuple[str, ...],
    *,
    applies: Callable[[World], bool] = lambda _world: True,
    meanwhile: tuple[str, ...] = (),
    restarts: bool = False,
    **drawn: Drawn,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as a step."""

    def register(run: Callable[..., None]) -> Callable[..., None]:
        name = run.__name__
        RULES[name] = Rule(name, run, weight, points, drawn, applies, meanwhile, restarts)
        return run

    return register


def happening(run: Callable[[World], None]) -> Callable[[World], None]:
    """Register what may happen while something is slow."""
    HAPPENINGS[run.__name__] = run
    return run


def changes(random: Random) -> list[Change]:
    """Draw changes of a table: one to six."""
    return [
        (random.randrange(7), random.randrange(3), random.choice((1, 1, -1)))
        for _ in range(random.randint(1, 6))
    ]


def below(bound: int) -> Drawn:
    """Return what draws a number below a bound."""
    return lambda random: random.randrange(bound)


def _groups(random: Random) -> list[int]:
    return sorted(random.sample(range(5), random.randint(1, 3)))


def _in_a_store(world: World) -> bool:
    return world.in_store


def _in_bundles(world: World) -> bool:
    return world.storage == BUNDLES


# -- what happens while something else is slow ------------------------------------------------


def _given(world: World) -> list[Change]:
    at = len(world.log)
    return [(at % 7, at % 3, 1), ((at + 3) % 7, (at + 1) % 3, -1 if at % 2 else 1)]


def _is_free(world: World) -> bool:
    """Whether nobody holds the lock of epochs, for which others would wait."""
    return world.db.loop.lock._owner is None


def _by_another(world: World, do: Callable[[], object]) -> None:
    """Do something as another thread does, which holds no sets; wait for it."""
    if world.db.loop.beside.held() is None:
        do()
        return
    errors: list[BaseException] = []

    def run() -> None:
        try:
            do()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    other = threading.Thread(target=run)
    other.start()
    other.join()
    if errors:
        raise errors[0]


@happening
def another_takes_over(world: World) -> None:
    if _in_a_store(world) and len(world.zombies) < 3:
        world.take_over()


@happening
def another_takes_over_and_goes_on(world: World) -> None:
    if _in_a_store(world) and len(world.zombies) < 3:
        world.take_over()
        world.append(world.process, _given(world))
        world.db.loop.advance()
        world.db.compaction.run(TAIL)


@happening
def a_write(world: World) -> None:
    if not world.db.appender._committing:  # else it would wait for what waits for it
        world.append(world.process, _given(world))


@happening
def an_epoch(world: World) -> None:
    if _is_free(world):
        _by_another(world, world.db.loop.advance)


@happening
def a_step_beside(world: World) -> None:
    if _is_free(world):
        _by_another(world, world.process.end_step)


@happening
def a_delivery(world: World) -> None:
    world.process.delivery.advance()


@happening
def a_compaction(world: World) -> None:
    world.db.compaction.run(TAIL)


@happening
def an_upload(world: World) -> None:
    _upload(world.process)


def _upload(process: Process) -> None:
    if process.db.uploads is not None:
        process.db.uploads.upload_named()


_TAKEN_OVER: Final = ("another_takes_over", "another_takes_over_and_goes_on")


# -- steps ------------------------------------------------------------------------------------


@rule(
    8,
    ("put log", *COMMITTING),
    meanwhile=(*_TAKEN_OVER, "an_epoch", "a_step_beside", "a_delivery", "an_upload"),
    given=changes,
)
def write(world: World, given: list[Change]) -> None:
    world.append(world.process, given)


@rule(
    8,
    _EPOCH,
    meanwhile=(*_TAKEN_OVER, "a_write", "a_compaction", "a_delivery", "an_upload"),
)
def epoch(world: World) -> None:
    world.db.loop.advance()


@rule(
    6,
    (*_EPOCH, "put log", *COMMITTING),
    meanwhile=(*_TAKEN_OVER, "a_compaction", "a_step_beside"),
    wide=lambda random: random.choice("tu"),
    narrow=lambda random: random.choice("tu"),
    given=changes,
)
def begin_beside(world: World, wide: str, narrow: str, given: list[Change]) -> None:
    """Begin a wide step of one table's set beside epochs, if it may; make one of what is narrow."""
    process, at = world.process, len(world.logs[wide])
    if process.db.loop.beside.run is None:
        process.step_beside()
    world.append(process, [((at + i) % 7, (at + i) % 3, 1) for i in range(5)], wide)
    world.append(process, given[:2], narrow)
    process.db.loop.advance()


@rule(
    8,
    _EPOCH,
    applies=lambda world: bool(world.process.steps),
    meanwhile=(*_TAKEN_OVER, "a_write", "an_epoch", "a_compaction", "a_delivery", "an_upload"),
    index=below(2),
)
def end_beside(world: World, index: int) -> None:
    """Make a step that has begun beside epochs, while epochs go on."""
    world.process.end_step(index)


@rule(
    4,
    (*_EPOCH, "put log", "sink", "sink written", "fetch"),
    number=lambda random: random.randint(2, 5),
    given=changes,
)
def go_on(world: World, number: int, given: list[Change]) -> None:
    """Make several epochs, each of a write, and refresh and deliver everything: files get old."""
    process, begun = world.process, len(world.log)
    for at in range(number):
        key, group, weight = given[at % len(given)]
        world.append(process, [((key + at + begun) % 7, (group + at) % 3, weight)])
        process.db.loop.advance()
    lagging = [world.view(name) for name in ("late", "later", "top") if name in world.ids]
    if lagging:
        process.db.refresh(*lagging)
    process.delivery.advance()


@rule(
    3,
    ("sink", "sink written", "fetch", *COMMITTING),
    meanwhile=(*_TAKEN_OVER, "a_write", "an_epoch", "a_compaction"),
)
def deliver(world: World) -> None:
    world.process.delivery.advance()


@rule(
    6,
    (
        *("merged", "swept", "put runs", "delete runs", "delete log", "fetch", *COMMITTING),
        *("log merged", "segments exchanged", "log exchanged", "put log"),
        *("log copied", "segments moved"),
    ),
    meanwhile=(
        *_TAKEN_OVER,
        *("a_write", "an_epoch", "a_step_beside", "a_delivery", "an_upload"),
    ),
)
def compact(world: World) -> None:
    world.db.compaction.run(TAIL)


@rule(
    6, ("put log", *COMMITTING), meanwhile=(*_TAKEN_OVER, "a_compaction"), number=below(1_000_000)
)
def change_events(world: World, number: int) -> None:
    """Append events to the stream, or correct one of them, or void it."""
    now = world.events_at(len(world.events))
    if number % 3 == 0 or not now:
        world.append_events([(None, number + i, 1) for i in range(1 + number % 2)])
        return
    event = sorted(now)[number % len(now)]
    old: list[EventChange] = [(event, now[event], -1)]
    world.append_events(old if number % 5 == 0 else [*old, (event, number, 1)])


@rule(2, ())
def begin_to_read(world: World) -> None:
    """Ask for all changes of the log; they are read after each of the next steps."""
    world.begin_to_read()


@rule(
    6,
    ("put runs", "put log", *COMMITTING),
    applies=_in_bundles,
    meanwhile=(*_TAKEN_OVER, "a_write", "an_epoch", "a_compaction"),
)
def upload(world: World) -> None:
    """Upload small files that wait in the ledger."""
    _upload(world.process)


@rule(
    2,
    ("put runs", "put log", *COMMITTING),
    applies=_in_bundles,
    meanwhile=(*_TAKEN_OVER, "a_write"),
    given=changes,
)
def upload_for_a_job(world: World, given: list[Change]) -> None:
    """Upload all files, as before a job on other machines."""
    world.append(world.process, given)
    mounts.upload(world.process.machine)


@rule(1, (), applies=_in_bundles)
def let_no_file_wait(world: World) -> None:
    """As if the store had been away for too long."""
    world.db.uploads._since = -math.inf


@rule(1, ("list", "delete runs", "delete log", BEGIN, COMMIT), meanwhile=_TAKEN_OVER)
def restart(world: World) -> None:
    world.restart()


@rule(1, ("list", "delete runs", "delete log", BEGIN, COMMIT))
def lose_the_machine(world: World) -> None:
    world.process.life.machine_lost = True
    world.restart()


@rule(
    2,
    _FILL,
    applies=lambda world: world.views < 3,
    meanwhile=(*_TAKEN_OVER, "a_write", "a_compaction", "an_epoch", "a_delivery"),
    restarts=True,
)
def fill(world: World) -> None:
    world.views += 1
    world.db.create_view(f"v{world.views}", world.table)


@rule(1, _FILL, applies=lambda world: world.views < 3, restarts=True)
def begin_to_fill(world: World) -> None:
    world.views += 1
    world.process.filling.append(world.db.begin_view(f"v{world.views}", world.table))


@rule(
    2,
    ("fill", "catch up", "put runs", "fetch"),
    applies=lambda world: bool(world.process.filling),
    meanwhile=(*_TAKEN_OVER, "a_write", "a_compaction", "an_epoch"),
    restarts=True,
    index=below(3),
)
def catch_up(world: World, index: int) -> None:
    filling = world.process.filling
    filling[index % len(filling)].catch_up(world.db.loop.published.current)


@rule(
    2,
    _FILL,
    applies=lambda world: bool(world.process.filling),
    meanwhile=(*_TAKEN_OVER, "a_write", "a_compaction", "an_epoch"),
    restarts=True,
)
def finish(world: World) -> None:
    world.db.finish_view(world.process.filling.pop(0))


@rule(
    2,
    ("take over", *_FILL, "put log"),
    meanwhile=(*_TAKEN_OVER, "a_compaction", "a_delivery", "an_epoch", "a_step_beside"),
    restarts=True,
    given=changes,
)
def replace(world: World, given: list[Change]) -> None:
    """Fill another build of a view beside the one that serves, and have it take over."""
    process, former = world.process, world.view("counts")
    fill = process.db.begin_view(former.name, world.table, former)
    world.append(process, given)
    process.db.loop.advance()
    process.db.finish_view(fill, former)


@rule(
    3,
    ("refresh", "refreshed", "refresh follows", "put runs", "fetch", *COMMITTING),
    applies=lambda world: "late" in world.ids,
    meanwhile=(
        *_TAKEN_OVER,
        *("a_write", "a_compaction", "a_delivery", "an_epoch", "a_step_beside"),
    ),
    which=lambda random: random.randint(1, 7),
)
def refresh(world: World, which: int) -> None:
    """Refresh some of the views that lag behind."""
    names = [name for bit, name in enumerate(("late", "later", "top")) if which >> bit & 1]
    world.db.refresh(*map(world.view, names))


@rule(
    2,
    ("replace", "replaced", *_FILL, "put log"),
    meanwhile=(*_TAKEN_OVER, "a_compaction", "a_delivery", "an_epoch", "a_step_beside"),
    restarts=True,
    which=below(3),
    groups=_groups,
    given=changes,
)
def replay(world: World, which: int, groups: list[int], given: list[Change]) -> None:
    """Recompute groups of a view that is right, while epochs go on."""
    process, names = world.process, ("counts", "late", "later")
    view = world.view(names[which] if names[which] in world.ids else "counts")
    fill = process.db.begin_replay(view, groups)
    world.append(process, given)
    process.db.loop.advance()
    done = process.db.finish_replay(fill)
    assert done.changed == 0


@rule(1, (*_EPOCH, "sink", "sink written", "fetch"), meanwhile=("a_write", "a_compaction"))
def settle(world: World) -> None:
    world.process.settle()
    world.process.delivery.advance()


@rule(
    2,
    ("list", "delete runs", "delete log", BEGIN, COMMIT),
    applies=lambda world: _in_a_store(world) and len(world.zombies) < 2,
    meanwhile=_TAKEN_OVER,
)
def take_over(world: World) -> None:
    world.take_over()


@rule(1, (), applies=_in_a_store)
def requests_arrive_late(world: World) -> None:
    """Have the store do what it has said has failed."""
    world.objects.arrive()


def _zombie_writes(zombie: Process, world: World, given: list[Change]) -> None:
    zombie.db.append(world.table, given)


_OF_ZOMBIES: Final[dict[str, Callable[[Process, World, list[Change]], Any]]] = {
    "epoch": lambda zombie, _world, _given: zombie.db.loop.advance(),
    "end beside": lambda zombie, _world, _given: zombie.end_step(),
    "write": _zombie_writes,
    "compact": lambda zombie, _world, _given: zombie.db.compaction.run(TAIL),
    "deliver": lambda zombie, _world, _given: zombie.delivery.advance(),
    "upload": lambda zombie, _world, _given: _upload(zombie),
    "fill": lambda zombie, world, _given: zombie.db.create_view("of a zombie", world.table),
    "finish": lambda zombie, _world, _given: (
        zombie.db.finish_view(zombie.filling.pop(0)) if zombie.filling else None
    ),
}


@rule(
    4,
    (*_EPOCH, "put log", "merged", "delete runs", "fill", "fetch"),
    applies=lambda world: bool(world.zombies),
    given=changes,
    index=below(3),
    what=lambda random: random.choice(sorted(_OF_ZOMBIES)),
)
def a_zombie_goes_on(world: World, given: list[Change], index: int, what: str) -> None:
    """Whatever it does is refused; what it has uploaded is swept at the next opening."""
    zombie, before = world.zombies[index % len(world.zombies)], world.version()
    try:
        _OF_ZOMBIES[what](zombie, world, given)
    except HeadraceError as error:
        away = error.code is Code.UNAVAILABLE and world.points.met
        # Files that it reads may have been deleted by now.
        if not away and error.code not in (Code.CONFLICT, Code.CORRUPT):
            raise
    else:  # there may be nothing to do
        assert what != "write", "a process that was taken over from has written"
    assert world.version() == before, "a process that was taken over from has committed"
