"""Messages that a thread of its own reads from brokers while others are decoded and landed.

The thread always waits in a poll of the client, so a message is here as soon as a broker sends it.
Whoever takes messages gets all that have arrived. A part costs a transaction however few rows it
has, so messages are gathered for a time that goes by how long the last part took: parts become
larger as landing them becomes slower.

Messages read from partitions, and messages that wait for the rest of a transaction.

The rows of a part are read in one epoch. So that the end of a batch does not split a transaction of
the source into two epochs, the last transaction's messages in a partition are held back until a
message of another one follows there. The end of a transaction is announced in another topic, if at
all, so they are held for a limited time: until nothing has arrived for half a second, or until they
are too many.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from headrace.io.formats.messages import LineValues

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

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


_IDLE_SECONDS: Final = 0.25
_LONGEST_GATHER_SECONDS: Final = 0.02
_MOST_BYTES: Final = 32 << 20
_MOST_WAITING: Final = 100_000
"""Limits of what waits to be taken: at them, the thread stops reading."""
_BACKLOG: Final = 10_000
"""As many waiting messages indicate that more arrive than are taken."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """Messages in the order of each partition, and what else the client said after them.

    ``ends`` are the offsets before which a partition has been read completely, by its name in
    positions; ``failed`` is the error after which nothing more arrives.
    """

    messages: Batch = field(default_factory=Batch)
    ends: Mapping[str, int] = field(default_factory=dict)
    failed: Any = None

    @classmethod
    def joined(cls, several: Sequence[Arrived]) -> Arrived:
        """Return what has arrived in several polls, one after another."""
        if len(several) == 1:
            return several[0]
        ends = {place: end for each in several for place, end in each.ends.items()}
        failed = several[-1].failed if several else None
        return cls(Batch.joined([each.messages for each in several]), ends, failed)

    def __bool__(self) -> bool:
        """Whether there is anything."""
        return bool(len(self.messages) or self.ends) or self.failed is not None


@dataclass(slots=True)
class Arrivals:
    """Reads messages on a thread of its own from when it is started until it is closed.

    ``consume`` waits for messages, for a short time, and returns those that have arrived. ``clock``
    returns seconds.
    """

    consume: Callable[[], Arrived]
    clock: Callable[[], float] = time.monotonic
    _waiting: deque[Arrived] = field(default_factory=deque)
    """What polls have returned and nobody has taken."""
    _messages: int = 0
    _bytes: int = 0
    """How many messages these are, and the size of their values."""
    _most: int = _MOST_WAITING
    """How many messages who takes them wants at most."""
    _failed: bool = False
    _raised: Exception | None = None
    _closed: bool = False
    _arrived: float = 0.0
    """When the first of the waiting messages arrived."""
    _taken: float | None = None
    """When messages were last taken; None once they have been landed."""
    _landed: float = 0.0
    _took: float = 0.0
    """When that was, and how long it took."""
    _asked: deque[tuple[Future[None], Callable[[], None]]] = field(default_factory=deque)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to read."""
        self._thread = threading.Thread(target=self._read, name="headrace-kafka", daemon=True)
        self._thread.start()

    def interrupt(self) -> None:
        """End :meth:`take`, and the thread after its present poll. Thread-safe."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def close(self) -> None:
        """Return once the thread does not use the client any more."""
        self.interrupt()
        if self._thread is not None:
            self._thread.join()

    def ask(self, question: Callable[[], None]) -> Future[None]:
        """Call a function that uses the client, on the thread that polls, between two polls.

        The future is cancelled if the thread has ended.
        """
        asked: Future[None] = Future()
        with self._changed:
            if self._closed or self._has_ended():
                asked.cancel()
            else:
                self._asked.append((asked, question))
                self._changed.notify_all()
        return asked

    def take(self, most: int) -> Arrived:
        """Return what has arrived; nothing if that is so for a while.

        What a poll has returned is taken as a whole: at most ``most`` messages, or those of one
        poll.
        """
        if self._taken is not None:
            self._landed = self.clock()
            self._took, self._taken = self._landed - self._taken, None
        with self._changed:
            self._most = most
            self._changed.wait_for(self._has_any, _IDLE_SECONDS)
            gathered = gathered_by(self._arrived, self._landed, self._took)
            while not self._has_enough() and (left := gathered - self.clock()) > 0:
                self._changed.wait(left)
            taken: list[Arrived] = []
            count = 0
            while self._waiting:
                more = len(self._waiting[0].messages)
                if taken and count + more > most:
                    break
                count += more
                taken.append(self._waiting.popleft())
            self._messages -= count
            self._bytes -= sum(each.messages.bytes for each in taken)
            self._taken = self.clock() if count else None
            self._changed.notify_all()
        if self._raised is not None and not taken:
            raise self._raised
        return Arrived.joined(taken)

    @property
    def is_backlog(self) -> bool:
        """Whether many messages wait to be taken."""
        return self._messages >= _BACKLOG

    def _has_ended(self) -> bool:
        return self._closed or self._failed or self._raised is not None

    def _has_any(self) -> bool:
        return bool(self._waiting) or self._has_ended()

    def _has_enough(self) -> bool:
        return self._messages >= self._most or not self._has_room() or self._has_ended()

    def _has_room(self) -> bool:
        return self._messages < _MOST_WAITING and self._bytes < _MOST_BYTES

    def _read(self) -> None:
        try:
            while self._answer() and not self._has_ended():
                arrived = self.consume()
                if not arrived:
                    continue
                size = arrived.messages.bytes
                with self._changed:
                    if not self._messages:
                        self._arrived = self.clock()
                    first = not self._waiting
                    self._waiting.append(arrived)
                    self._messages += len(arrived.messages)
                    self._bytes += size
                    self._failed = arrived.failed is not None
                    if first or self._has_enough():  # who gathers need not know of each poll
                        self._changed.notify_all()
        except Exception as error:  # noqa: BLE001 - it is raised where messages are taken
            self._raised = error
        with self._changed:
            self._changed.notify_all()
            for asked, _ in self._asked:
                asked.cancel()

    def _answer(self) -> bool:
        """Answer what was asked until there is room for messages; return whether there is."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._asked or self._has_room())
                if self._closed or not self._asked:
                    return not self._closed
                asked, question = self._asked.popleft()
            try:
                question()
            except Exception as error:  # noqa: BLE001 - it is raised to who has asked
                asked.set_exception(error)
            else:
                asked.set_result(None)


def gathered_by(arrived: float, landed: float, took: float) -> float:
    """Return until when messages are gathered, by when the first of them arrived.

    ``took`` is how long it took to land the last part, until ``landed``. Landing takes no more than
    half of the time, and what arrives together, from several partitions, is landed together, not in
    two parts, the second of them waiting for the first.
    """
    pause = min(took, _LONGEST_GATHER_SECONDS)
    return max(arrived + pause / 2, landed + pause)
