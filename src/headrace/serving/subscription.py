"""Following a view: its contents, then its changes, by whole epochs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.serving.operations import OPERATION, OPERATIONS, with_operations
from headrace.zset import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.serving.contents import Contents
    from headrace.types import Epoch
    from headrace.zset import ZSet


@dataclass(frozen=True, slots=True)
class Change:
    """One row that came or went in one epoch.

    ``operation`` is ``+I``, ``-U``, ``+U`` or ``-D``; ``weight`` is how many copies of the row
    came (positive) or went (negative).
    """

    epoch: Epoch
    operation: str
    weight: int
    row: dict[str, Any]

    @property
    def word(self) -> str:
        """The operation in a word: INSERT, UPDATE_BEFORE, UPDATE_AFTER or DELETE."""
        return OPERATIONS[self.operation]


@dataclass(slots=True)
class Follower:
    """Turns the changelog of one arrangement into changes, in order, from an epoch on.

    ``at`` is the last epoch that was delivered: a later follower can start from there. None means
    that the contents have not been delivered yet. Changes are paired to updates by ``key``.
    """

    contents: Contents
    key: tuple[str, ...]
    last_epoch: Callable[[], Epoch]
    at: Epoch | None = None
    _pending: list[Change] = field(default_factory=list)

    def poll(self) -> list[Change] | None:
        """Return the changes of the epochs since the last call; None where there are no epochs."""
        last = self.last_epoch()
        if self.at is None:
            self.at = last
            return [Change(last, "+I", 1, row) for row in self.contents.whole(last).to_pylist()]
        if last <= self.at:
            return None
        changes = [
            change
            for epoch, rows in self.contents.changes(self.at, last)
            for change in self._operations(epoch, rows)
        ]
        self.at = last
        return changes

    def _operations(self, epoch: Epoch, rows: ZSet) -> Iterator[Change]:
        changes = with_operations(rows.table, self.key)
        operations, weights = changes[OPERATION].to_pylist(), changes[WEIGHT].to_pylist()
        plain = changes.select(self.contents.layout.columns.names).to_pylist()
        for operation, weight, row in zip(operations, weights, plain, strict=True):
            yield Change(epoch, operation, weight, row)
