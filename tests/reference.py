"""The algebra in plain Python: slow, obvious, and what the real one has to equal."""

from __future__ import annotations

import itertools
import math
import struct
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import xxhash

from headrace.algebra.spine import Run, Spine
from headrace.algebra.zset import HASH, WEIGHT, Layout, ZSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.algebra.operators import StatefulOperator, StepResult
    from headrace.algebra.zset import OrderBy

Row = tuple[Any, ...]
Bag = Counter[Row]


def hash_of(key: Sequence[Any], bits: int) -> int:
    """Hash a key to a signed 64-bit number of which only the upper ``bits`` vary; () is 0."""
    if not key:
        return 0
    number = xxhash.xxh3_64_intdigest(repr([exact(value) for value in key]).encode())
    shift = 64 - bits
    return ((number >> shift) << shift) - 2**63


def exact(value: Any) -> Any:
    """Return something hashable that is equal for the same values only: floats go by bits."""
    if isinstance(value, float):
        return struct.pack(">d", value)
    if isinstance(value, list):
        return tuple(exact(each) for each in value)
    if isinstance(value, dict):
        return tuple((name, exact(each)) for name, each in value.items())
    if isinstance(value, tuple):
        return tuple(exact(each) for each in value)
    return value


def table_of(
    layout: Layout, rows: Iterable[dict[str, Any]], *extra: pa.Field, bits: int = 64
) -> pa.Table:
    """Build a table of a layout with its hashes; several chunks where there are several rows."""
    rows = list(rows)
    for row in rows:
        row[HASH] = hash_of([row.get(name) for name in layout.key], bits)
    schema = pa.schema([*layout.schema, *extra])
    half = len(rows) // 2
    parts = [rows] if half == 0 else [rows[:half], rows[half:]]
    return pa.concat_tables([pa.Table.from_pylist(part, schema=schema) for part in parts])


def bag(table: pa.Table, names: Sequence[str]) -> Bag:
    """Count the rows of a table by some of its columns, weights added up."""
    total: Bag = Counter()
    columns = [table[name].to_pylist() for name in names]
    for index, weight in enumerate(table[WEIGHT].to_pylist()):
        total[tuple(exact(column[index]) for column in columns)] += weight
    return nonzero(total)


def nonzero(total: Bag) -> Bag:
    """Drop the rows that are not there."""
    return Counter({row: weight for row, weight in total.items() if weight})


def plus(first: Bag, second: Bag) -> Bag:
    """Add two bags."""
    total = Counter(first)
    for row, weight in second.items():
        total[row] += weight
    return nonzero(total)


def strays(change: pa.Table, names: Sequence[str], before: Bag, after: Bag) -> list[Row]:
    """Return the rows that come and are not there after a change, or go and were not before it."""
    columns = [change[name].to_pylist() for name in names]
    rows = [tuple(exact(value) for value in row) for row in zip(*columns, strict=True)]
    weights = change[WEIGHT].to_pylist()
    return [
        row
        for row, weight in zip(rows, weights, strict=True)
        if (weight > 0 and not after[row]) or (weight < 0 and not before[row])
    ]


def is_consolidated(rows: ZSet) -> bool:
    """Check the promise of consolidated Z-sets, the slow way."""
    hashes = rows.table[HASH].to_pylist()
    columns = [rows.table[name].to_pylist() for name in rows.layout.columns.names]
    identities = [
        (hash_, *(exact(column[index]) for column in columns)) for index, hash_ in enumerate(hashes)
    ]
    ties = zip(hashes, rows.table.to_pylist(), strict=True)
    ordered = all(
        first != second or compare(left, right, rows.layout.order) <= 0
        for (first, left), (second, right) in itertools.pairwise(ties)
    )
    sums = zip(*(rows.table[name].to_pylist() for name in rows.layout.summed.names), strict=True)
    return (
        rows.table.schema.equals(rows.layout.schema)
        and hashes == sorted(hashes)
        and ordered
        and len(set(identities)) == len(identities)
        and all(any(row) for row in sums)
    )


def compare(left: dict[str, Any], right: dict[str, Any], order: Iterable[OrderBy]) -> int:
    """Compare two rows as ORDER BY in Spark does: below, equal or above 0."""
    for by in order:
        a, b = left[by.name], right[by.name]
        if a is None or b is None:
            result = (a is not None) - (b is not None)
            result = result if by.nulls_first else -result
        else:
            result = compare_values(a, b)
            result = -result if by.descending else result
        if result:
            return result
    return 0


def compare_values(left: Any, right: Any) -> int:
    """Compare two values that are not NULL; lists by element, dicts by field."""
    if isinstance(left, dict):
        left, right = list(left.values()), list(right.values())
    if isinstance(left, list):
        for a, b in zip(left, right, strict=False):
            if a is None or b is None:
                result = (a is not None) - (b is not None)
            else:
                result = compare_values(a, b)
            if result:
                return result
        return len(left) - len(right)
    if isinstance(left, str):
        left, right = left.encode(), right.encode()
    if isinstance(left, float) and (math.isnan(left) or math.isnan(right)):
        return math.isnan(left) - math.isnan(right)
    return (left > right) - (left < right)


class Epochs:
    """Run an operator epoch by epoch, and hold it to its promises.

    ``answer`` is the sum of all outputs, by the columns ``outputs``. Arrangements are kept as runs
    in memory, compacted every third epoch.
    """

    def __init__(self, operator: StatefulOperator, outputs: Sequence[str]) -> None:
        self.operator = operator
        self.outputs = outputs
        self.spines = tuple(Spine(layout) for layout in operator.layouts)
        self.answer: Bag = Counter()
        self.epochs = 0

    def step(self, *inputs: pa.Table) -> StepResult:
        """Take one epoch; a step repeated must give the same."""
        step = self.operator.step(inputs, self.spines)
        again = self.operator.step(inputs, self.spines)
        assert exact(step.output.to_pylist()) == exact(again.output.to_pylist())
        assert len(step.updates) == len(self.spines)
        assert all(is_consolidated(update) for update in step.updates)
        self.spines = tuple(
            spine.plus(update) for spine, update in zip(self.spines, step.updates, strict=True)
        )
        self.answer = plus(self.answer, bag(step.output, self.outputs))
        self.epochs += 1
        if self.epochs % 3 == 0:
            self.spines = tuple(compacted(spine) for spine in self.spines)
        return step

    @property
    def state_rows(self) -> int:
        """The number of rows that the arrangements hold after compaction."""
        return sum(compacted(spine).rows_upper_bound for spine in self.spines)


def compacted(spine: Spine) -> Spine:
    """Merge all runs of a spine, in memory."""
    parts = list(spine.scan(7))
    runs = (Run.of(ZSet.sum_of(spine.layout, parts)),) if parts else ()
    return Spine(spine.layout, runs, spine.low, spine.high)


def numbers(*values: int) -> np.ndarray:
    """Return an array of int64."""
    return np.array(values, np.int64)
