"""Messages read from partitions, and messages that wait for the rest of a transaction.

The rows of a part are read in one epoch. So that the end of a batch does not split a transaction of
the source into two epochs, the last transaction's messages in a partition are held back until a
message of another one follows there. The end of a transaction is announced in another topic, if at
all, so they are held for a limited time: until nothing has arrived for half a second, or until they
are too many.
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
    """Messages by column; ``timestamps`` are in milliseconds since 1970.

    Keys, values, timestamps and headers are None for a message without them.
    """

    topics: list[str] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    timestamps: list[int | None] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[list[tuple[str, bytes | None]] | None] = field(default_factory=list)

    @classmethod
    def of(cls, messages: Sequence[Any]) -> Batch:
        """Return messages of the client as a batch."""
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
        """Return the partition of a message, as ``topic/number``."""
        return f"{self.topics[at]}/{self.partitions[at]}"

    def ends(self) -> dict[str, int]:
        """Return the offset after the last message of each partition in the batch."""
        last = dict(zip(zip(self.topics, self.partitions, strict=True), self.offsets, strict=True))
        return {f"{topic}/{partition}": at + 1 for (topic, partition), at in last.items()}

    def by_place(self) -> dict[tuple[str, int], list[int]]:
        """Return the ascending indices of the messages of each topic and partition."""
        found: dict[tuple[str, int], list[int]] = {}
        for at, place in enumerate(zip(self.topics, self.partitions, strict=True)):
            found.setdefault(place, []).append(at)
        return found

    def take(self, places: NDArray[np.int64]) -> Batch:
        """Return the messages at these indices."""
        chosen = places.tolist()
        return Batch(*([getattr(self, f.name)[at] for at in chosen] for f in fields(self)))

    def followed_by(self, other: Batch) -> Batch:
        """Return the concatenation of two batches."""
        return Batch(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(slots=True)
class HeldBack:
    """The messages that wait for the rest of their transaction; see the module.

    ``transaction`` returns the id of the transaction that contains a message, given its value; None
    if nothing of it can follow.
    """

    transaction: Callable[[bytes], str | None]
    clock: Callable[[], float] = time.monotonic
    _held: Batch = field(default_factory=Batch)
    _open: dict[tuple[str, int], tuple[int, str]] = field(default_factory=dict)
    """By topic and partition: the number of held messages, and their transaction."""
    _arrived: float = 0.0

    def released(self, batch: Batch) -> Batch:
        """Return those of the held and the newly arrived messages that need not wait."""
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
        """The partitions with held messages, as ``topic/number``."""
        return frozenset(f"{topic}/{partition}" for topic, partition in self._open)

    def _released_all(self, whole: Batch) -> Batch:
        self._held, self._open = Batch(), {}
        return whole

    def _last(self, place: tuple[str, int], values: list[bytes | None]) -> tuple[int, str | None]:
        """Return the index at which a partition's last transaction begins, and its id.

        The id is None, and the index the end, if nothing of it can follow. A message without a
        value follows a deletion, and belongs to the same transaction.
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
