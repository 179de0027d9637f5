"""The work of operators: in one epoch, and added up since the database was opened."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.types import BuildId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headrace.catalog import Catalog
    from headrace.ledger import Read
    from headrace.runtime.step import Report
    from headrace.types import RelationId


@dataclass(frozen=True, slots=True)
class OperatorWork:
    """What one operator did in ``epochs`` epochs: its rows, and its seconds over all partitions.

    ``changes`` is the number of changes of streams and tables that could reach it in these epochs.
    ``rows_read`` counts the stored rows that it looked up or recomputed.
    """

    epochs: int
    changes: int
    rows_in: int
    rows_out: int
    rows_read: int
    seconds: float

    def plus(self, other: OperatorWork) -> OperatorWork:
        """Return the sum of the work in different epochs."""
        return OperatorWork(
            self.epochs + other.epochs,
            self.changes + other.changes,
            self.rows_in + other.rows_in,
            self.rows_out + other.rows_out,
            self.rows_read + other.rows_read,
            self.seconds + other.seconds,
        )

    @property
    def most_rows(self) -> int:
        """The number of rows in or out, whichever is larger."""
        return max(self.rows_in, self.rows_out)


_NOTHING = OperatorWork(0, 0, 0, 0, 0, 0.0)


@dataclass(frozen=True, slots=True)
class Work:
    """The work of operators by name; added by the thread that makes epochs, read by any."""

    _by_operator: dict[str, OperatorWork] = field(default_factory=dict)

    def add(self, epoch: Mapping[str, OperatorWork]) -> None:
        """Add the work of one committed epoch."""
        for name, here in epoch.items():
            self._by_operator[name] = self._by_operator.get(name, _NOTHING).plus(here)

    def of(self, operator: str) -> OperatorWork | None:
        """Return the work of an operator; None if it has not run since the database was opened."""
        return self._by_operator.get(operator)

    def seconds_by_owner(self, catalog: Catalog) -> dict[RelationId, float]:
        """Return the seconds of all operators of each view and table of the catalog."""
        found: dict[RelationId, float] = {}
        for operator, work in list(self._by_operator.items()):
            owner = owner_of(operator, catalog)
            if owner is not None:
                found[owner] = found.get(owner, 0.0) + work.seconds
        return found


def work_in_epoch(
    reports: Iterable[Report], changes: Callable[[str], int]
) -> dict[str, OperatorWork]:
    """Return the work of each operator in one epoch, over all partitions.

    ``changes`` returns how many changes could reach an operator, by its name.
    """
    found: dict[str, OperatorWork] = {}
    for each in reports:
        here = found.get(each.operator)
        if here is None:
            here = OperatorWork(1, changes(each.operator), 0, 0, 0, 0.0)
        rows = each.rows_in, each.rows_out, each.rows_read
        found[each.operator] = here.plus(OperatorWork(0, 0, *rows, each.seconds))
    return found


def owner_of(operator: str, catalog: Catalog) -> RelationId | None:
    """Return the view or table that an operator maintains, by the operator's name."""
    build, _, _ = operator.partition("/")
    return catalog.by_build.get(BuildId(int(build))) if build.isdecimal() else None


def changes_that_reach(catalog: Catalog, reads: Iterable[Read]) -> Callable[[str], int]:
    """Return a function of an operator's name: the changes in an epoch of what its view reads."""
    counts = {read.relation: read.to_offset - read.from_offset for read in reads}
    known: dict[RelationId, int] = {}

    def changes(operator: str) -> int:
        owner = owner_of(operator, catalog)
        if owner is None:
            return 0
        if owner not in known:
            known[owner] = sum(counts.get(id_, 0) for id_ in catalog.bases([owner]))
        return known[owner]

    return changes


@dataclass(frozen=True, slots=True)
class FanOut:
    """The operator of an epoch that made the most of its rows, and the changes that reached it.

    ``rows`` are those that came in or went out, whichever are more.
    """

    operator: str
    relation: RelationId
    rows: int
    changes: int

    @classmethod
    def of(cls, epoch: Mapping[str, OperatorWork], catalog: Catalog) -> FanOut | None:
        """Return that of an epoch; None if no operator had rows that follow from changes.

        It is the one with the most rows out, each counted as often as the rows in have doubled:
        what follows it may have as many rows, but only because of it.
        """

        def growth(name: str) -> tuple[float, int]:
            work = epoch[name]
            doubled = math.log2(max(work.rows_out, 1) / max(work.rows_in, 1))
            return max(doubled, 0) * work.rows_out, work.most_rows

        name = max((name for name in epoch if epoch[name].changes), key=growth, default=None)
        owner = None if name is None else owner_of(name, catalog)
        if name is None or owner is None:
            return None
        return cls(name, owner, epoch[name].most_rows, epoch[name].changes)
