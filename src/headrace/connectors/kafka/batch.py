"""Messages read from partitions, and messages that wait for the rest of a transaction.

The rows of a part are read in one epoch. So that the end of a batch does not split a transaction of
the source into two epochs, the last transaction's messages in a partition are held back until a
message of another one follows there. The end of a transaction is announced in another topic, if at
all, so they are held for a limited time: until nothing has arrived for half a second, or until they
are too many.
"""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from headrace.formats.line_values import LineValues

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from numpy.typing import NDArray

_QUIET_SECONDS: Final = 0.5
_MOST_HELD: Final = 50_000


@dataclass(slots=True)
class Batch:
    """Messages by column; ``timestamps`` are in milliseconds since 1970.

    Keys, values, timestamps and headers are None for a message without them, and where they are not
    wanted. The client's objects are not kept: the garbage collector would go through all of them
    again and again, which takes twice as long as all else that is done to read a message.
    """

    topics: list[str] = field(default_factory=list)
    partitions: array[int] = field(default_factory=partial(array, "i"))
    offsets: array[int] = field(default_factory=partial(array, "q"))
    timestamps: list[int | None] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] | LineValues = field(default_factory=list)
    headers: list[list[tuple[str, bytes | None]] | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, messages: Sequence[Any], wanted: Collection[str]) -> None:
        """Add messages of the client.

        They have their ``key``, ``timestamp`` and ``headers`` if ``wanted`` says so. Without
        ``topic`` in it, all messages are of one topic. Each of these is an object for each message.
        With ``lines``, values are kept as lines if they can be.
        """
        if not messages:
            return
        nothing, kind = [None] * len(messages), type(messages[0])
        if "topic" in wanted:
            self.topics += map(kind.topic, messages)
        else:
            self.topics += [messages[0].topic()] * len(messages)
        self.partitions.extend(map(kind.partition, messages))
        self.offsets.extend(map(kind.offset, messages))
        self._add_values(list(map(kind.value, messages)), lines="lines" in wanted)
        self.keys += map(kind.key, messages) if "key" in wanted else nothing
        self.headers += map(kind.headers, messages) if "headers" in wanted else nothing
        if "timestamp" in wanted:
            times = map(kind.timestamp, messages)
            self.timestamps += [at if sort else None for sort, at in times]
        else:
            self.timestamps += nothing

    def _add_values(self, values: list[bytes | None], *, lines: bool) -> None:
        if lines and not self.values:
            self.values = LineValues()
        if isinstance(self.values, LineValues):
            if self.values.add(values):
                return
            self.values = list(self.values)
        self.values += values

    @property
    def bytes(self) -> int:
        """The size of all values."""
        if isinstance(self.values, LineValues):
            return self.values.bytes
        return sum(map(len, filter(None, self.values)))

    def last(self) -> dict[tuple[str, int], int]:
        """Return the index of the last message of each topic and partition."""
        if len(set(self.topics)) == 1:
            numbers = np.asarray(self.partitions)
            ends = np.append(np.flatnonzero(numbers[1:] != numbers[:-1]), len(numbers) - 1)
            last = dict(zip(numbers[ends].tolist(), ends.tolist(), strict=True))
            return {(self.topics[0], number): at for number, at in last.items()}
        return dict(zip(zip(self.topics, self.partitions, strict=True), count()))

    def place(self, at: int) -> str:
        """Return the partition of a message, as ``topic/number``."""
        return f"{self.topics[at]}/{self.partitions[at]}"

    def origins(self, chosen: NDArray[np.int64]) -> tuple[pa.Array, pa.Array]:
        """Return the partitions, as ``topic/number``, and the offsets of messages at indices."""
        offsets = pa.array(np.asarray(self.offsets, np.int64)[chosen])
        if len(set(self.topics)) > 1:
            return pa.array([self.place(at) for at in chosen.tolist()], pa.string()), offsets
        numbers, which = np.unique(np.asarray(self.partitions)[chosen], return_inverse=True)
        names = pa.array([f"{self.topics[0]}/{number}" for number in numbers], pa.string())
        return names.take(pa.array(which)), offsets

    def ends(self) -> dict[str, int]:
        """Return the offset after the last message of each partition in the batch."""
        return {f"{t}/{p}": self.offsets[at] + 1 for (t, p), at in self.last().items()}

    def by_place(self) -> dict[tuple[str, int], list[int]]:
        """Return the ascending indices of the messages of each topic and partition."""
        found: dict[tuple[str, int], list[int]] = {}
        for at, place in enumerate(zip(self.topics, self.partitions, strict=True)):
            found.setdefault(place, []).append(at)
        return found

    def take(self, places: NDArray[np.int64]) -> Batch:
        """Return the messages at these indices."""
        chosen, found = places.tolist(), Batch()
        for each in fields(self):
            column = getattr(self, each.name)
            column = list(column) if isinstance(column, LineValues) else column
            getattr(found, each.name).extend([column[at] for at in chosen])
        return found

    @classmethod
    def joined(cls, batches: Sequence[Batch]) -> Batch:
        """Return the messages of batches, one after another."""
        found, filled = cls(), [batch for batch in batches if len(batch)]
        if filled and all(isinstance(batch.values, LineValues) for batch in filled):
            found.values = LineValues()
        for batch in filled:
            for each in fields(cls):
                getattr(found, each.name).extend(getattr(batch, each.name))
        return found


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
        if len(batch):
            self._arrived = self.clock()
            if not len(self._held) and self._is_whole(batch):
                return batch
        elif not len(self._held) or self.clock() - self._arrived <= _QUIET_SECONDS:
            return batch
        else:
            return self._released_all(self._held)
        whole = Batch.joined([self._held, batch]) if len(self._held) else batch
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
        return whole.take(np.setdiff1d(np.arange(len(whole)), held)) if waiting else whole

    @property
    def places(self) -> frozenset[str]:
        """The partitions with held messages, as ``topic/number``."""
        return frozenset(f"{topic}/{partition}" for topic, partition in self._open)

    def _is_whole(self, batch: Batch) -> bool:
        """Return whether the last message of each partition is the end of its transaction."""
        values = [batch.values[at] for at in batch.last().values()]
        return all(value is not None and self.transaction(value) is None for value in values)

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
