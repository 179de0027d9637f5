"""Compared: against a filter of all rows by the value, after every epoch."""

from __future__ import annotations

import operator as op
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.operators import BOUND, VALUE, Compared
from headrace.algebra.zset import HASH, WEIGHT
from headrace.algebra.zset.order import coarse_keys
from headrace.errors import HeadraceError
from reference import Bag, Epochs, compare_values, exact, hash_of, nonzero, strays

if TYPE_CHECKING:
    from collections.abc import Callable

NAN = float("nan")
WIDE = Decimal(10) ** 30
NUMBERS = {
    pa.int32(): st.integers(-3, 3),
    pa.int64(): st.sampled_from([-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 2, 2**63 - 1]),
    pa.float64(): st.sampled_from([-1.5, -0.0, 0.0, 2.5, NAN, float("inf")]),
    pa.decimal128(38, 2): st.sampled_from(
        [Decimal("-0.01"), Decimal("0.00"), Decimal("2.50"), WIDE, WIDE + 1, -WIDE, -WIDE - 1]
    ),
    pa.string(): st.sampled_from(["", "a", "ab", "abcdefgh", "abcdefghi", "abcdefghj", "é", "z\0"]),
}
CONDITIONS: dict[str, tuple[bool, Callable[[int, int], bool]]] = {
    "<": (True, op.lt),
    "<=": (True, op.le),
    ">": (False, op.gt),
    ">=": (False, op.ge),
}
ROWS = pa.schema([("id", pa.int64()), ("x", pa.float64())])
some_bits = st.sampled_from([0, 1, 6])


def true_of(condition: str, bound: Any, value: Any) -> bool:
    if bound is None or value is None:
        return False
    return CONDITIONS[condition][1](compare_values(bound, value), 0)


@st.composite
def histories(draw: st.DrawFn) -> tuple[pa.DataType, list[tuple[list[Any], list[Any]]]]:
    """Epochs: insertions, retractions and values; the last value stays. No absent row is retracted.

    The value is there once from the first epoch in which there is one; it may be NULL.
    """
    kind = draw(st.sampled_from(list(NUMBERS)))
    values = st.one_of(st.none(), NUMBERS[kind])
    rows = st.tuples(st.integers(0, 2), st.sampled_from([0.0, -0.0, NAN]), values)
    live: Counter[Any] = Counter()
    epochs = []
    for _ in range(draw(st.integers(1, 6))):
        changes = []
        for row, goes in draw(st.lists(st.tuples(rows, st.booleans()), max_size=8)):
            there = live[exact(row)]
            weight = -there if goes and there else draw(st.integers(1, 3))
            live[exact(row)] += weight
            changes.append((row, weight))
        epochs.append((changes, draw(st.lists(values, max_size=2))))
    return kind, epochs


def rows_of(kind: pa.DataType, changes: list[tuple[tuple, int]], bits: int) -> pa.Table:
    fields = [
        pa.field(HASH, pa.int64()),
        *ROWS,
        pa.field(BOUND, kind),
        pa.field(WEIGHT, pa.int64()),
    ]
    found = [
        {HASH: hash_of(row[:2], bits), "id": row[0], "x": row[1], BOUND: row[2], WEIGHT: weight}
        for row, weight in changes
    ]
    return pa.Table.from_pylist(found, schema=pa.schema(fields))


def values_of(kind: pa.DataType, weighted: list[tuple[Any, int]], bits: int) -> pa.Table:
    fields = [pa.field(HASH, pa.int64()), pa.field(VALUE, kind), pa.field(WEIGHT, pa.int64())]
    hashes = {((number << (64 - bits)) if bits else 0) - 2**63 for number in range(2**bits)}
    found = [
        {HASH: hash_, VALUE: value, WEIGHT: weight}
        for value, weight in weighted
        for hash_ in sorted(hashes)
    ]
    return pa.Table.from_pylist(found, schema=pa.schema(fields))


class Run:
    """An operator, all rows so far and the value that holds; hashes differ in ``bits`` only."""

    def __init__(self, kind: pa.DataType, condition: str, bits: int) -> None:
        self.kind, self.condition, self.bits = kind, condition, bits
        self.operator = Compared(ROWS, kind, CONDITIONS[condition][0])
        self.epochs = Epochs(self.operator, [*ROWS.names, VALUE])
        self.live: Counter[Any] = Counter()
        self.shown: dict[Any, Any] = {}
        self.answer: Bag = Counter()
        self.there: list[Any] = []

    def step(self, changes: list[tuple[tuple, int]], values: list[Any]) -> pa.Table:
        weighted = []
        before = self._pairs()
        for value in values:
            weighted += [(old, -1) for old in self.there] + [(value, 1)]
            self.there = [value]
        for row, weight in changes:
            self.live[exact(row)] += weight
            self.shown[exact(row)] = row
        given = rows_of(self.kind, changes, self.bits), values_of(self.kind, weighted, self.bits)
        output = self.epochs.step(*given).output
        assert output.schema == self.operator.output
        assert not strays(output, [*ROWS.names, VALUE], before, self._pairs())
        self._apply(output)
        return output

    def _pairs(self) -> Bag:
        """Return all rows, each beside the value that holds."""
        value = pa.array(self.there or [None], self.kind)[0].as_py()
        live = ((self.shown[key], weight) for key, weight in self.live.items())
        return nonzero(Counter({exact((*row[:2], value)): weight for row, weight in live}))

    def _apply(self, output: pa.Table) -> None:
        """Apply the condition to the pairs, as Spark does with what comes out.

        A row's bound follows from its id here: each row is told by its columns and its bound.
        """
        bounds = {exact(row[:2]): [] for row in self.shown.values()}
        for row in self.shown.values():
            bounds[exact(row[:2])].append(row[2])
        for row in output.to_pylist():
            key = (row["id"], row["x"])
            (bound,) = bounds[exact(key)]
            if true_of(self.condition, bound, row[VALUE]):
                self.answer[exact(key)] += row[WEIGHT]

    def expected(self) -> Bag:
        value = self.there[0] if self.there else None
        found: Bag = Counter()
        for key, weight in self.live.items():
            row = self.shown[key]
            if true_of(self.condition, row[2], value):
                found[exact(row[:2])] += weight
        return nonzero(found)


@given(history=histories(), condition=st.sampled_from(list(CONDITIONS)), bits=some_bits)
def test_after_every_epoch_the_rows_that_meet_the_condition_are_those_of_the_query(
    history: tuple, condition: str, bits: int
) -> None:
    kind, epochs = history
    run = Run(kind, condition, bits)
    ids: dict[Any, int] = {}
    for changes, values in epochs:
        # One bound per row: rows that differ in it get ids of their own.
        told = [((ids.setdefault(exact(row), len(ids)), *row[1:]), w) for row, w in changes]
        run.step(told, values)
        assert nonzero(run.answer) == run.expected()


def test_a_value_that_moves_reads_the_rows_between_and_no_others() -> None:
    run = Run(pa.int64(), ">", 0)
    run.step([((i, 0.0, i), 1) for i in range(10_000)], [5_000])
    reads = run.epochs.spines[0].reads
    before = reads.rows
    assert run.step([], [5_003]).num_rows == 2 * 4
    assert reads.rows - before == 2 * 4  # each step is taken twice
    before = reads.rows
    run.step([((10_000, 0.0, 7_000), 1)], [])
    assert reads.rows == before


def test_a_row_whose_bound_is_null_is_not_kept() -> None:
    run = Run(pa.int64(), ">", 0)
    run.step([((1, 0.0, None), 1), ((2, 0.0, 7), 1)], [3])
    assert run.epochs.state_rows == 2  # a row, and the value


def test_two_values_at_once_are_an_error() -> None:
    operator = Compared(ROWS, pa.int64(), below=True)
    run = Epochs(operator, [*ROWS.names, VALUE])
    with pytest.raises(HeadraceError, match="not one value"):
        run.step(rows_of(pa.int64(), [], 0), values_of(pa.int64(), [(1, 1), (2, 1)], 0))


@given(data=st.data(), kind=st.sampled_from(list(NUMBERS)))
def test_coarse_keys_never_reverse_two_values_whatever_else_is_in_the_array(
    data: st.DataObject, kind: pa.DataType
) -> None:
    values = data.draw(st.lists(NUMBERS[kind], max_size=6))
    array = pa.array([None, *values, None], kind)
    keys = coarse_keys(array.slice(1, len(values))).tolist()
    assert keys == [int(coarse_keys(pa.array([value], kind))[0]) for value in values]
    for a, left in zip(values, keys, strict=True):
        for b, right in zip(values, keys, strict=True):
            assert not (compare_values(a, b) < 0 and left > right)
            if kind not in (pa.string(), pa.decimal128(38, 2)):
                assert (compare_values(a, b) == 0) == (left == right)
