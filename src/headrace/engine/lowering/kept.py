"""Programs that are kept between steps.

A program is kept as long as the circuits and relations that it was built over are declared: a
CREATE or DROP discards no program of what it does not touch.

The program of an epoch is that of a set of changed relations. Where ever other sets of many
relations change, one program over all of them serves: what has not changed has an empty share.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet

    from headrace.engine.lowering.assembly import Program
    from headrace.types import BuildId, RelationId

    Relations: TypeAlias = "frozenset[RelationId]"

_MOST_PROGRAMS = 64
MOST_SETS = 8
"""How many sets of changed relations have programs of their own, with all else equal."""


@dataclass(frozen=True, slots=True)
class LiveKey:
    """What the program of an epoch depends on; see :meth:`StepRunner.plan_live`."""

    changed: Relations
    without: Relations
    partitions: int
    looping: Relations
    given: Relations

    def alike(self, other: LiveKey, plain: AbstractSet[RelationId]) -> bool:
        """Whether only ``plain`` relations, streams and tables, make the difference."""
        return (
            self.changed ^ other.changed <= plain
            and self.without == other.without
            and self.partitions == other.partitions
            and self.looping == other.looping
            and self.given == other.given
        )


@dataclass(frozen=True, slots=True)
class FillKey:
    """What the program of a fill depends on; see :meth:`StepRunner.plan_fill`.

    ``known_as`` is the build that is filled, the replay of a slice, or what stands for several.
    """

    known_as: object
    build: BuildId
    partitions: int = 1
    looping: bool = False
    ticks: bool = False
    here: bool = False
    restoring: bool = False


@dataclass(frozen=True, slots=True)
class _Kept:
    program: Program
    over: tuple[object, ...]


@dataclass(slots=True)
class KeptPrograms:
    """The programs, least recently used first. Not thread-safe."""

    _programs: OrderedDict[object, _Kept] = field(default_factory=OrderedDict)

    def get(self, key: object, over: Sequence[object], build: Callable[[], Program]) -> Program:
        """Return the program of a key; build it unless it was built over these same objects."""
        known = self._programs.get(key)
        if known is None or not _same(known.over, over):
            known = self._programs[key] = _Kept(build(), tuple(over))
            while len(self._programs) > _MOST_PROGRAMS:
                self._programs.popitem(last=False)
        self._programs.move_to_end(key)
        return known.program

    def known(self, key: object) -> Program | None:
        """Return the program of a key if there is one, whatever it was built over."""
        found = self._programs.get(key)
        return None if found is None else found.program

    def covering(self, key: LiveKey, plain: AbstractSet[RelationId]) -> Relations:
        """Return the changed relations of the program that an epoch runs: its own, or more.

        ``plain`` are the relations that may be among them without having changed.
        """
        if key in self._programs:
            return key.changed
        near = [k for k in self._programs if isinstance(k, LiveKey) and k.alike(key, plain)]
        if len(near) < MOST_SETS:
            return key.changed
        wider = [k.changed for k in near if k.changed > key.changed]
        return min(wider, key=len) if wider else key.changed.union(*(k.changed for k in near))

    def forget(self, is_over: Callable[[object], bool]) -> None:
        """Forget the programs of some keys."""
        for key in [key for key in self._programs if is_over(key)]:
            del self._programs[key]

    def clear(self) -> None:
        """Forget all programs."""
        self._programs.clear()

    def programs(self) -> list[Program]:
        """Return the programs."""
        return [kept.program for kept in self._programs.values()]


def _same(known: Sequence[object], now: Sequence[object]) -> bool:
    return len(known) == len(now) and all(a is b for a, b in zip(known, now, strict=True))
