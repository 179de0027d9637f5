"""The progress of reconciliation: rounds of samples that together cover all rows of a relation.

A round divides the rows of a view, both the stored and the expected ones, into slices by a salted
hash of its key, or of all columns if it has no key. Each slice is compared once, in a random order.
So a complete round has compared every row, and the slices compared so far are a random sample.

What is sampled is a *unit*: the rows with one value of the hashed columns. With a key, a unit is
one row that is stored, expected, or both. Each round draws a new salt, independent of the rows: as
far as the hash is random, the compared units are a random sample without replacement of all units,
and :func:`~headrace.history.confidence.upper_bound` holds for the share of units that were wrong
when they were compared. Rows that change afterwards are not sampled again before the next round.
"""

from __future__ import annotations

import math
import random
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from headrace.engine.verifying.comparisons import Count, Sample
from headrace.history.confidence import upper_bound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.ledger import Ledger
    from headrace.types import RelationId

SLICE_ROWS: Final = 256
"""About how many rows a slice has."""
_MOST_SLICES: Final = 1 << 16
_SALTS: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class Tally:
    """The number of compared units, and how many of them were wrong."""

    units: int = 0
    wrong: int = 0

    def plus(self, units: int, wrong: int) -> Tally:
        """Return the tally with further units added."""
        return Tally(self.units + units, self.wrong + wrong)


@dataclass(frozen=True, slots=True)
class Rounds:
    """The samples of one view: the current round, the last complete one, and the total.

    ``done`` of the ``slices`` of the current round have been compared. ``began`` identifies the
    state of the inputs when the round began; ``samples`` and ``total`` count over all rounds.
    ``at`` is the time of the last comparison, in Unix seconds.
    """

    salt: int
    slices: int
    began: Mapping[str, int] = field(default_factory=dict)
    done: int = 0
    tally: Tally = Tally()
    last: Tally = Tally()
    complete: int = 0
    samples: int = 0
    total: Tally = Tally()
    at: float | None = None

    @classmethod
    def first(cls, rows: int, began: Mapping[str, int]) -> Rounds:
        """Return the first round of a view with about ``rows`` rows."""
        return cls(_salt(), _slices(rows), began)

    @property
    def is_over(self) -> bool:
        """Whether every slice of the current round has been compared."""
        return self.done >= self.slices

    @property
    def covered(self) -> float:
        """The share of the rows that the current round has compared."""
        return self.done / self.slices

    @property
    def bound(self) -> float:
        """The upper bound, at 95% confidence, on the share of wrong units, rounded up to 4 digits.

        It uses the samples of the current round and of the last complete one.
        """
        wrong, units = self.tally.wrong + self.last.wrong, self.tally.units + self.last.units
        bound = upper_bound(wrong, units)
        digit = 10.0 ** (math.floor(math.log10(bound)) - 3)
        return min(1.0, float(f"{math.ceil(bound / digit) * digit:.4g}"))

    def slices_for(self, rows: int, wanted: int) -> int:
        """Return the number of slices that together have about ``wanted`` of ``rows`` rows."""
        return max(1, min(self.slices, -(-wanted * self.slices // max(rows, 1))))

    def sample(self, columns: tuple[str, ...], slices: int = 1) -> Sample:
        """Return the next slices to compare; fewer if the round ends before."""
        order = random.Random(self.salt).sample(range(self.slices), self.slices)  # noqa: S311
        chosen = tuple(sorted(order[self.done : self.done + slices]))
        return Sample(columns, self.salt, self.slices, chosen)

    def after(self, sample: Sample, found: Count, at: float) -> Rounds:
        """Return the progress after a sample was compared."""
        return replace(
            self,
            done=self.done + len(sample.chosen),
            tally=self.tally.plus(found.units, found.wrong),
            samples=self.samples + 1,
            total=self.total.plus(found.units, found.wrong),
            at=at,
        )

    def next_round(self, rows: int, began: Mapping[str, int]) -> Rounds:
        """Return the progress at the start of the next round."""
        fresh = self.restarted(rows, began)
        return replace(fresh, last=self.tally, complete=self.complete + 1)

    def restarted(self, rows: int, began: Mapping[str, int]) -> Rounds:
        """Return a first round after the rows were replaced: earlier samples no longer count."""
        return replace(
            self,
            salt=_salt(),
            slices=_slices(rows),
            began=began,
            done=0,
            tally=Tally(),
            last=Tally(),
        )

    def to_json(self) -> dict[str, Any]:
        """Return a value that ``json`` can write and :meth:`of_json` reads."""
        return asdict(self)

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Rounds:
        """Return the rounds that :meth:`to_json` wrote."""
        tallies = {name: Tally(**value[name]) for name in ("tally", "last", "total")}
        return cls(**{**value, **tallies})


def rounds_of(ledger: Ledger) -> dict[RelationId, Rounds]:
    """Return the progress of each view that has been sampled."""
    return {id_: Rounds.of_json(made) for id_, made in ledger.evidence.progress().items()}


def _slices(rows: int) -> int:
    return max(1, min(_MOST_SLICES, rows // SLICE_ROWS))


def _salt() -> int:
    return random.SystemRandom().randrange(_SALTS)
