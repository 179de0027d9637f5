"""The work of each operator, added up over the epochs since the database was opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.runtime.step import Report


@dataclass(frozen=True, slots=True)
class OperatorWork:
    """What one operator did in ``epochs`` epochs: its rows, and its seconds over all partitions.

    ``rows_read`` counts the stored rows that it looked up or recomputed.
    """

    epochs: int
    rows_in: int
    rows_out: int
    rows_read: int
    seconds: float


_NOTHING = OperatorWork(0, 0, 0, 0, 0.0)


@dataclass(frozen=True, slots=True)
class Work:
    """The work of operators by name; added by the thread that makes epochs, read by any."""

    _by_operator: dict[str, OperatorWork] = field(default_factory=dict)

    def add(self, reports: Iterable[Report]) -> None:
        """Add the reports of one committed epoch."""
        epoch: dict[str, OperatorWork] = {}
        for each in reports:
            here = epoch.get(each.operator, _NOTHING)
            epoch[each.operator] = OperatorWork(
                1,
                here.rows_in + each.rows_in,
                here.rows_out + each.rows_out,
                here.rows_read + each.rows_read,
                here.seconds + each.seconds,
            )
        for name, here in epoch.items():
            before = self._by_operator.get(name, _NOTHING)
            self._by_operator[name] = OperatorWork(
                before.epochs + here.epochs,
                before.rows_in + here.rows_in,
                before.rows_out + here.rows_out,
                before.rows_read + here.rows_read,
                before.seconds + here.seconds,
            )

    def of(self, operator: str) -> OperatorWork | None:
        """Return the work of an operator; None if it has not run since the database was opened."""
        return self._by_operator.get(operator)
