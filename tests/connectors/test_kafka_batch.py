"""Batches of messages: a transaction of a source is not torn by where a batch ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.io.connectors.kafka.arrivals import Batch, HeldBack
from headrace.io.formats.messages import LineValues

if TYPE_CHECKING:
    import pytest


class Clock:
    """A clock that tests set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def batch(*messages: tuple[int, int, str | None]) -> Batch:
    """Return messages of a partition, at an offset, whose value is their transaction."""
    made = Batch()
    for partition, offset, value in messages:
        made.topics.append("t")
        made.partitions.append(partition)
        made.offsets.append(offset)
        made.timestamps.append(offset)
        made.keys.append(b"%d" % offset)
        made.values.append(None if value is None else value.encode())
        made.headers.append(None)
    return made


def transaction(value: bytes) -> str | None:
    return value.decode() if value != b"-" else None


def found(made: Batch) -> list[tuple[Any, ...]]:
    assert made.keys == [b"%d" % offset for offset in made.offsets]
    return list(zip(made.partitions, made.offsets, strict=True))


def test_the_last_transaction_of_a_partition_waits_for_what_follows() -> None:
    held = HeldBack(transaction, Clock())
    assert found(held.released(batch((0, 1, "a"), (0, 2, "b"), (0, 3, "b")))) == [(0, 1)]
    assert found(held.released(Batch())) == []
    assert found(held.released(batch((0, 4, "b")))) == []
    assert found(held.released(batch((0, 5, "-")))) == [(0, 2), (0, 3), (0, 4), (0, 5)]
    assert found(held.released(batch((0, 6, "c"), (1, 1, "c"), (1, 2, "d")))) == [(1, 1)]
    assert found(held.released(batch((0, 7, "d")))) == [(0, 6)]


def test_a_message_without_a_value_belongs_to_the_deletion_before() -> None:
    held = HeldBack(transaction, Clock())
    arrived = batch((0, 1, "a"), (0, 2, None), (0, 3, "b"), (0, 4, None))
    assert found(held.released(arrived)) == [(0, 1), (0, 2)]
    assert found(held.released(batch((0, 5, None)))) == []
    assert found(held.released(batch((0, 6, "-"), (0, 7, None)))) == [(0, n) for n in range(3, 8)]
    assert found(held.released(batch((0, 8, None)))) == [(0, 8)]


def test_silence_and_size_release_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    held = HeldBack(transaction, clock)
    assert found(held.released(batch((0, 1, "a")))) == []
    clock.now = 0.4
    assert found(held.released(Batch())) == []
    clock.now = 0.6
    assert found(held.released(Batch())) == [(0, 1)]
    assert found(held.released(Batch())) == []
    monkeypatch.setattr("headrace.io.connectors.kafka.arrivals._MOST_HELD", 2)
    assert found(held.released(batch((0, 2, "b"), (0, 3, "b")))) == []
    assert found(held.released(batch((0, 4, "b")))) == [(0, 2), (0, 3), (0, 4)]


def test_a_long_transaction_is_looked_at_once() -> None:
    seen: list[bytes] = []

    def noted(value: bytes) -> str:
        seen.append(value)
        return value.decode()

    held = HeldBack(noted, Clock())
    for at in range(100):
        assert found(held.released(batch((0, at, "a")))) == []
    assert len(seen) == 1 + 100  # the first also to find out whether anything has to wait
    assert len(found(held.released(batch((0, 100, "b"))))) == 100
    assert len(seen) == 1 + 101


@given(
    sizes=st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=10),
    cuts=st.lists(st.integers(1, 5), min_size=1, max_size=20),
    partitions=st.integers(1, 3),
)
def test_every_message_is_released_once_in_order_and_none_without_its_transaction(
    sizes: list[tuple[int, bool]], cuts: list[int], partitions: int
) -> None:
    names = [
        f"x{n}" if known else "-" for n, (size, known) in enumerate(sizes) for _ in range(size)
    ]
    sent = [(p, at, name) for p in range(partitions) for at, name in enumerate(names)]
    clock, parts, at = Clock(), [], 0
    held = HeldBack(transaction, clock)
    for cut in [*cuts, len(sent)]:
        parts.append(found(held.released(batch(*sent[at : at + cut]))))
        at += cut
    clock.now = 1.0
    parts.append(found(held.released(Batch())))
    for partition in range(partitions):
        released = [offset for part in parts for p, offset in part if p == partition]
        assert released == list(range(len(names)))
        for number, (_, known) in enumerate(sizes):
            mine = {o for o, name in enumerate(names) if name == f"x{number}"}
            of_parts = [mine & {o for p, o in part if p == partition} for part in parts]
            assert not known or mine in of_parts


def test_the_last_message_of_each_partition_is_known_for_one_topic_and_for_several() -> None:
    made = batch((0, 5, "a"), (1, 7, "b"), (0, 6, "c"))
    assert made.last() == {("t", 0): 2, ("t", 1): 1}
    assert made.ends() == {"t/0": 7, "t/1": 8}
    made.topics[1] = "u"
    assert made.ends() == {"t/0": 7, "u/1": 8}
    assert Batch().ends() == {}
    before, after = made.take(np.arange(1)), made.take(np.arange(1, 3))
    assert Batch.joined([before, Batch(), after]) == made


class Message:
    """A message of the client, in the partition 0."""

    def __init__(self, offset: int, value: bytes | None) -> None:
        self._offset, self._value = offset, value

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes | None:
        return self._value

    def key(self) -> bytes:
        return b"%d" % self._offset

    def timestamp(self) -> tuple[int, int]:
        return (self._offset % 2, self._offset)

    def headers(self) -> None:
        return None


def test_origins_of_messages_are_their_partitions_and_offsets() -> None:
    made = batch((0, 5, "a"), (1, 7, "b"), (0, 6, "c"), (10, 2, "d"))
    for topics in (["t"] * 4, ["t", "u", "t", "u"]):
        made.topics[:] = topics
        for chosen in ([], [0, 1, 2, 3], [1, 3], [2, 0]):
            places, offsets = made.origins(np.array(chosen, np.int64))
            expected = [(made.place(at), made.offsets[at]) for at in chosen]
            assert list(zip(places.to_pylist(), offsets.to_pylist(), strict=True)) == expected
    assert [column.to_pylist() for column in Batch().origins(np.array([], np.int64))] == [[], []]


def test_values_are_kept_as_lines_until_one_cannot_be() -> None:
    values = [b"a", b"", b"b", None, b"c\nd", b"e"]
    one_by_one, as_lines = Batch(), list[Batch]()
    for at, value in enumerate(values):
        as_lines.append(Batch())
        for made, wanted in ((one_by_one, "key"), (as_lines[-1], ("lines", "timestamp"))):
            made.add([Message(at, value)], wanted)
    assert one_by_one.keys == [b"%d" % at for at in range(6)]
    assert one_by_one.timestamps == [None] * 6
    assert [isinstance(each.values, LineValues) for each in as_lines] == [
        True,
        True,
        True,
        False,
        False,
        True,
    ]
    for end in (3, 6):
        joined = Batch.joined([*as_lines[:end], Batch()])
        assert isinstance(joined.values, LineValues) == (end == 3)
        assert list(joined.values) == values[:end]
        assert joined.timestamps == [None, 1, None, 3, None, 5][:end]
        assert joined.ends() == {"t/0": end}
        taken = joined.take(np.array([0, 2]))
        assert (list(taken.values), list(taken.offsets)) == ([b"a", b"b"], [0, 2])
    grown = Batch()
    for first in (0, 2, 4):
        grown.add([Message(at, values[at]) for at in (first, first + 1)], {"lines"})
    assert list(grown.values) == values
