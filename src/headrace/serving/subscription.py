"""Subscriptions to a view: its snapshot, then its deltas, by whole epochs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.serving.operations import OPERATION, OPERATIONS, with_operations
from headrace.serving.python_values import python_rows
from headrace.zset import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.serving.contents import History
    from headrace.types import Epoch
    from headrace.zset import ZSet


class Change(NamedTuple):
    """A row that was added or removed in one epoch.

    ``operation`` is ``+I``, ``-U``, ``+U`` or ``-D``; ``weight`` is the number of copies added
    (positive) or removed (negative).
    """

    epoch: Epoch
    operation: str
    weight: int
    row: dict[str, Any]

    @property
    def word(self) -> str:
        """The name of the operation: INSERT, UPDATE_BEFORE, UPDATE_AFTER or DELETE."""
        return OPERATIONS[self.operation]


@dataclass(slots=True)
class Follower:
    """Reads the changelog of one arrangement as changes, in order, from an epoch on.

    ``at`` is the last delivered epoch: a later follower can start from there. None: the snapshot
    has not been delivered yet. Changes of one ``key`` are updates.
    """

    history: History
    key: tuple[str, ...]
    last_epoch: Callable[[], Epoch]
    at: Epoch | None = None
    _pending: list[Change] = field(default_factory=list)

    def poll(self) -> list[Change] | None:
        """Return the changes since the last call; None if there are no new epochs."""
        last = self.last_epoch()
        if self.at is None:
            self.at = last
            return [Change(last, "+I", 1, row) for row in python_rows(self.history.whole(last))]
        if last <= self.at:
            return None
        changes = [
            change
            for epoch, rows in self.history.changes(self.at, last)
            for change in self._operations(epoch, rows)
        ]
        self.at = last
        return changes

    def _operations(self, epoch: Epoch, rows: ZSet) -> Iterator[Change]:
        changes = with_operations(rows.table, self.key)
        operations, weights = changes[OPERATION].to_pylist(), changes[WEIGHT].to_pylist()
        plain = python_rows(changes.select(self.history.layout.columns.names))
        for operation, weight, row in zip(operations, weights, plain, strict=True):
            yield Change(epoch, operation, weight, row)
