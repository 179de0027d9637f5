"""Messages as they were read from partitions, and those that wait for the rest of a transaction.

What one part lands, one epoch reads. So that a transaction of the source is not torn over two
epochs by where a batch happens to end, its messages at the end of a partition are held back until
a message of something else follows there. The end of a transaction is announced in another topic,
if at all, so they are not held for long: until nothing has arrived for half a second, or until
they are too many.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

_QUIET_SECONDS: Final = 0.5
_MOST_HELD: Final = 50_000


@dataclass(slots=True)
class Batch:
    """Messages by column; ``values`` has None for a message without one."""

    topics: list[str] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    timestamps: list[int | None] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[list[tuple[str, bytes | None]] | None] = field(default_factory=list)

    @classmethod
    def of(cls, messages: Sequence[Any]) -> Batch:
        """Return messages of the client by column."""
        return cls(
            [each.topic() for each in messages],
            [each.partition() for each in messages],
            [each.offset() for each in messages],
            [at if kind else None for kind, at in (each.timestamp() for each in messages)],
            [each.key() for each in messages],
            [each.value() for each in messages],
            [each.headers() for each in messages],
        )

    def place(self, at: int) -> str:
        """Return the topic and partition of a message."""
        return f"{self.topics[at]}/{self.partitions[at]}"

    def ends(self) -> dict[str, int]:
        """Return the next offset of each partition that has messages here."""
        last = dict(zip(zip(self.topics, self.partitions, strict=True), self.offsets, strict=True))
        return {f"{topic}/{partition}": at + 1 for (topic, partition), at in last.items()}

    def by_place(self) -> dict[tuple[str, int], list[int]]:
        """Return the positions of the messages of each topic and partition, in order."""
        found: dict[tuple[str, int], list[int]] = {}
        for at, place in enumerate(zip(self.topics, self.partitions, strict=True)):
            found.setdefault(place, []).append(at)
        return found

    def take(self, places: NDArray[np.int64]) -> Batch:
        """Return the messages at some positions."""
        chosen = places.tolist()
        return Batch(*([getattr(self, f.name)[at] for at in chosen] for f in fields(self)))

    def followed_by(self, other: Batch) -> Batch:
        """Return these messages and others after them."""
        return Batch(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(slots=True)
class HeldBack:
    """The messages that wait for the rest of their transaction; see the module.

    ``transaction`` returns the transaction that the value of a message belongs to and that may go
    on after it, or None.
    """

    transaction: Callable[[bytes], str | None]
    clock: Callable[[], float] = time.monotonic
    _held: Batch = field(default_factory=Batch)
    _open: dict[tuple[str, int], tuple[int, str]] = field(default_factory=dict)
    """By topic and partition: how many messages are held, and their transaction."""
    _arrived: float = 0.0

    def released(self, batch: Batch) -> Batch:
        """Return the messages that are held or have just arrived and need not wait any more."""
        if batch.offsets:
            self._arrived = self.clock()
        elif not self._held.offsets or self.clock() - self._arrived <= _QUIET_SECONDS:
            return batch
        else:
            return self._released_all(self._held)
        whole = self._held.followed_by(batch) if self._held.offsets else batch
        waiting: list[int] = []
        open_ = {}
        for place, at in whole.by_place().items():
            begins, transaction = self._last(place, [whole.values[i] for i in at])
            waiting += at[begins:]
            if transaction is not None:
                open_[place] = len(at) - begins, transaction
        if len(waiting) > _MOST_HELD:
            return self._released_all(whole)
        held = np.sort(np.array(waiting, np.int64))
        self._held, self._open = whole.take(held), open_
        return whole.take(np.setdiff1d(np.arange(len(whole.offsets)), held)) if waiting else whole

    @property
    def places(self) -> frozenset[str]:
        """The topics and partitions of which messages are held."""
        return frozenset(f"{topic}/{partition}" for topic, partition in self._open)

    def _released_all(self, whole: Batch) -> Batch:
        self._held, self._open = Batch(), {}
        return whole

    def _last(self, place: tuple[str, int], values: list[bytes | None]) -> tuple[int, str | None]:
        """Return where the last transaction of a partition begins, and that, if it may go on.

        A message without a value follows a deletion, and belongs to its transaction.
        """
        end = len(values)
        held, former = self._open.get(place, (0, None))
        last = next((at for at in range(end - 1, held - 1, -1) if values[at] is not None), None)
        open_ = former if last is None else self._of(values[last])
        if open_ is None:
            return end, None
        begins = held if last is None else last
        for at in range(begins - 1, held - 1, -1):
            if values[at] is None:
                continue
            if self._of(values[at]) != open_:
                return begins, open_
            begins = at
        return (0 if former == open_ else begins), open_

    def _of(self, value: bytes | None) -> str | None:
        return None if value is None else self.transaction(value)
