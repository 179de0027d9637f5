"""``WHERE price > (SELECT avg(price) FROM items)``: rows on one side of a value that may change.

Algebra: rows ``R`` are paired with the single row that has a value ``v``, and a condition on the
pairs compares a *bound* of the row with it. With ``ΔR = R⁺ - R⁻``, inserted minus retracted rows,
the delta of the pairs is::

    R⁺ ⋈ v1 - R⁻ ⋈ v0 + (R - R⁻) ⋈ (v1 - v0)

In the last term, only the rows matter for which the condition may differ between ``v0`` and
``v1``: those whose bound lies between the two. The others are not read. So the output is not the
delta of all pairs; once the condition has been applied, it is the delta of the query's result.

State: the rows, ordered by their bound, spread over a few hashes, and the value, under each of
these hashes. Bounds are stored as one number each, which close bounds may share: such rows may be
emitted unnecessarily, and the condition decides.
Cost per epoch: O(|ΔR| log n), plus, if the value changes, the rows between the old and the new
one, found by their bound.
NULL: a bound or a value that is NULL makes the condition NULL, so the row is not in the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.algebra.operators.protocol import StatefulOperator, StepResult
from headrace.algebra.spine import due_rows
from headrace.algebra.zset import HASH, WEIGHT, Layout, OrderBy, ZSet
from headrace.algebra.zset.order import coarse_keys, valid
from headrace.algebra.zset.zset import column
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from headrace.algebra.spine import Spine
    from headrace.algebra.zset.order import Ints


BOUND = "__bound"
"""The column with the compared expression: its value in the input, its number in the state."""

VALUE = "__value"
"""The column with the value, in the second input and the output."""

_WEIGHT_FIELD = pa.field(WEIGHT, pa.int64(), nullable=False)
_BELOW_ALL = -(2**63)
_ABOVE_ALL = 2**63 - 1
_SCAN_ROWS = 4096


@dataclass(frozen=True)
class Compared(StatefulOperator):
    """Pair rows with a value, leaving out pairs whose comparison cannot have changed.

    ``rows`` are the columns of a row, ``value`` is the type of the value and of the bounds. With
    ``below``, the condition is true of rows whose bound is less than the value, otherwise of rows
    whose bound is greater; it may be true of equal bounds in either case.

    Inputs are the delta of the rows (``__hash``, the columns, ``__bound``, the weight) and the
    delta of the value (``__hash``, ``__value``, the weight); the value has at most one row per hash
    that a row may have. The output has ``__hash``, the columns of a row, ``__value`` and the
    weight. It is not consolidated, and correct only after the condition has been applied.
    """

    rows: pa.Schema
    value: pa.DataType
    below: bool

    @cached_property
    def layouts(self) -> tuple[Layout, Layout]:
        """The rows ordered by bound, and the value."""
        columns = pa.schema([*self.rows, pa.field(BOUND, pa.int64(), nullable=False)])
        sums = pa.schema([_WEIGHT_FIELD])
        values = pa.schema([pa.field(VALUE, self.value)])
        return Layout((), columns, sums, (OrderBy(BOUND),)), Layout((), values, sums)

    @property
    def inputs(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of the columns of both inputs, in order."""
        return (HASH, *self.rows.names, BOUND, WEIGHT), (HASH, VALUE, WEIGHT)

    @cached_property
    def output(self) -> pa.Schema:
        """The columns of the output."""
        hash_ = pa.field(HASH, pa.int64(), nullable=False)
        return pa.schema([hash_, *self.rows, pa.field(VALUE, self.value), _WEIGHT_FIELD])

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> StepResult:
        """Return the pairs whose condition may change, and the consolidated inputs."""
        change, changed_value = inputs
        rows = self._by_bound(change).consolidated()
        inserted, retracted = rows.by_sign()
        values = ZSet.of(self.layouts[1], changed_value).consolidated()
        stored = ZSet.sum_of(self.layouts[1], list(before[1].scan(_SCAN_ROWS)))
        old = _single_value(stored)
        new = _single_value(stored.plus(values).consolidated()) if values.rows else old
        parts = [self._paired(inserted, new, 1), self._paired(retracted, old, 1)]
        if values.rows:
            between = self._between(before[0].plus(retracted), old, new)
            parts += [self._paired(between, old, -1), self._paired(between, new, 1)]
        return StepResult(pa.concat_tables(parts), (rows, values))

    def _by_bound(self, change: pa.Table) -> ZSet:
        """Return the changed rows whose bound is not NULL, with the number of the bound."""
        bounds = column(change, BOUND)
        bounded = pa.array(np.flatnonzero(valid(bounds)))
        columns = [column(change, name).take(bounded) for name in (HASH, *self.rows.names)]
        columns.append(pa.array(_numbers(bounds.take(bounded))))
        columns.append(column(change, WEIGHT).take(bounded))
        layout = self.layouts[0]
        return ZSet.of(layout, pa.Table.from_arrays(columns, names=layout.schema.names))

    def _between(self, rows: Spine, old: pa.Array | None, new: pa.Array | None) -> ZSet:
        """Return the rows for which the condition may differ between two values."""
        ends = [int(_numbers(value)[0]) for value in (old, new) if value is not None]
        match ends:
            case []:
                return ZSet.empty(self.layouts[0])
            case [only] if self.below:
                return due_rows(rows, _BELOW_ALL, only)
            case [only]:
                return due_rows(rows, only - 1, _ABOVE_ALL)
            case _:
                return due_rows(rows, min(ends) - 1, max(ends))

    def _paired(self, rows: ZSet, value: pa.Array | None, sign: int) -> pa.Table:
        if value is None:
            return self.output.empty_table()
        columns = [column(rows.table, name) for name in (HASH, *self.rows.names)]
        columns.append(pa.repeat(value[0], rows.rows))
        columns.append(pa.array(rows.weights * sign))
        return pa.Table.from_arrays(columns, schema=self.output)


def _single_value(values: ZSet) -> pa.Array | None:
    """Return the value as an array of length one; None if it is absent or NULL."""
    first = values.filter(values.hashes == values.hashes.min()) if values.rows else values
    if first.rows > 1 or (first.weights != 1).any():
        raise HeadraceError(Code.INTERNAL, "a value that rows are compared with is not one value")
    found = column(first.table, VALUE)
    return found if found.null_count < len(found) else None


def _numbers(bounds: pa.Array) -> Ints:
    """Return the numbers of bounds: in the order of the bounds, above the least int64."""
    return np.maximum(coarse_keys(bounds), _BELOW_ALL + 1)
