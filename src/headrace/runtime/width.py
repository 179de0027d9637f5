"""The width of a step: narrow in this process, or wide as Spark jobs.

A job costs more than the work on a few changes, and one process less than that on many. How many
rows flow is known only when a step runs: a few changes may fan out. A narrow step with too many
rows on the way ends before anything is durable and is run again as jobs; steps with as many changes
of the same relations are wide from then on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from headrace.runtime.step import Share
    from headrace.types import RelationId

_MOST_BYTES = 1 << 25
"""The most bytes of the changes of a narrow step: this process holds them several times."""

_REMEMBERED = 64
"""After so many wide steps, a narrow one is tried again: the data may have changed."""


class Width(Enum):
    """Where a step runs, and why."""

    NARROW = "narrow"
    """In this process: it reads few changes."""
    MANY_CHANGES = "wide: many changes"
    """As jobs: it reads more than ``small_rows`` changes."""
    LARGE_CHANGES = "wide: large changes"
    """As jobs: it reads few changes, but of many bytes."""
    FANS_OUT = "wide: changes fan out"
    """As jobs: it reads few changes, but too many rows follow from them."""

    @property
    def few(self) -> bool:
        """Whether the step runs in this process, in one partition."""
        return self is Width.NARROW


class SetAsideError(Exception):
    """A narrow step is left to a thread beside epochs: it is wide, or it has failed.

    It was undone. ``changed`` is what it was to read.
    """

    def __init__(self, changed: frozenset[RelationId]) -> None:
        super().__init__(changed)
        self.changed = changed


@dataclass(slots=True)
class _FannedOut:
    """A narrow step of this many changes had too many rows; ``left`` more steps heed that."""

    rows: int
    left: int = _REMEMBERED


@dataclass(slots=True)
class Widths:
    """Chooses the width of steps. ``small_rows``: the most changes of a narrow step."""

    small_rows: int
    _known: dict[frozenset[RelationId], _FannedOut] = field(default_factory=dict)

    def of_shares(self, changed: frozenset[RelationId], shares: Collection[Share]) -> Width:
        """Return the width of a step over the changes of some relations; see :meth:`of`."""
        rows = sum(share.rows for share in shares)
        return self.of(changed, rows, sum(share.bytes for share in shares))

    def of(self, changed: frozenset[RelationId], rows: int, size: int) -> Width:
        """Return the width of a step over so many changes, of ``size`` bytes, of some relations.

        Each step that is wide since its changes fan out counts: after some, one is narrow again.
        """
        if rows > self.small_rows:
            return Width.MANY_CHANGES
        if size > _MOST_BYTES:
            return Width.LARGE_CHANGES
        known = self._known.get(changed)
        if known is None or rows < known.rows:
            return Width.NARROW
        known.left -= 1
        if known.left <= 0:
            self._known.pop(changed, None)
        return Width.FANS_OUT

    def fan_out(self, changed: frozenset[RelationId], rows: int) -> bool:
        """Whether so many changes of some relations are known to fan out."""
        known = self._known.get(changed)
        return known is not None and rows >= known.rows

    def fanned_out(self, changed: frozenset[RelationId], rows: int) -> None:
        """Remember that a narrow step over so many changes had too many rows."""
        self._known[changed] = _FannedOut(rows)
