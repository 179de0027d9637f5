"""``SELECT key, count(*), sum(x), min(y) ... GROUP BY key``: exact aggregates, by group.

Algebra: the accumulators are linear, so the increments are added to the state as they are; only
the output needs the old totals. For the groups touched, with ``n`` the number of rows of a group::

    Δ answer = [n + Δn > 0] (total + Δ) - [n > 0] total

An aggregate that is not a sum is a *part*, with its own arrangement: ``Distinct`` turns added and
removed values into increments; ``Extremum`` and ``Picked`` find the first value before and after,
and ``FloatSum`` adds up exactly.

State: the number of rows and the accumulators, by group, which the spine sums; then the values
of each part, by group.
Cost per epoch: O(|Δ| log n), whatever the size of the groups.
NULL: the NULLs of a key are one group. The increments contain nothing for arguments that are NULL.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.algebra.operators.aggregate_parts import (
    INIT,
    ROWS,
    Distinct,
    Part,
    ValuePart,
    answer_schema,
    check_groups,
    increments_of,
    layouts_of,
    leftover,
    placed,
    with_zeros,
)
from headrace.algebra.operators.protocol import StatefulOperator, StepResult
from headrace.algebra.zset import HASH, WEIGHT, Layout, ZSet, same
from headrace.algebra.zset.order import valid
from headrace.algebra.zset.zset import column, numbers
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from headrace.algebra.spine import Spine
    from headrace.algebra.zset.order import Bools, Ints


@dataclass(frozen=True)
class GroupAggregate(StatefulOperator):
    """Emit totals by group; a group without rows has none.

    ``layout``: the identity columns are the group key; ``__weight`` sums to the number of rows;
    the other sums are the accumulators. The input is a table of ``increments``, one per row or
    already summed. The output has ``__hash``, the key columns, ``__weight`` (-1 for an old row, +1
    for a new one), ``__rows`` (int64), the accumulators with their totals, and one column for each
    part with a result, in the order of the parts. At most two rows per group touched; none for a
    group in which nothing changes.
    """

    layout: Layout
    parts: tuple[Part, ...] = ()

    def __post_init__(self) -> None:
        if self.layout.key != tuple(self.layout.columns.names):
            raise HeadraceError(Code.INTERNAL, "the columns of a group are not its key")
        _check_parts(self.layout, self.parts)

    @property
    def is_global(self) -> bool:
        """Whether there is a result over an empty input."""
        return False

    @cached_property
    def increments(self) -> Layout:
        """The layout of the input: key, arguments; sums: accumulators, weights for the parts."""
        return increments_of(self.layout, self.parts)

    @cached_property
    def layouts(self) -> tuple[Layout, ...]:
        """The totals by group, the values of each part, and what parts keep beside them."""
        return (self.layout, *layouts_of(self.parts, self.layout))

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the output."""
        return answer_schema(self.layout, self.parts)

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> StepResult:
        """Return the old and new rows of the groups touched, and the consolidated increments."""
        given = ZSet.of(self.increments, inputs[0])
        return _step(self, given, ZSet.empty(self.layout), before)


@dataclass(frozen=True)
class GlobalAggregate(StatefulOperator):
    """Emit totals without ``GROUP BY``: exactly one row, even for an empty input.

    ``layout`` has no identity columns, and every ``__hash`` is 0. The first step emits the row,
    even for an empty input; so only the partition that owns the hash 0 may step. Otherwise like
    :class:`GroupAggregate`.
    """

    layout: Layout
    parts: tuple[Part, ...] = ()

    def __post_init__(self) -> None:
        if self.layout.columns.names:
            raise HeadraceError(Code.INTERNAL, "a global aggregate has a key")
        _check_parts(self.layout, self.parts)

    @property
    def is_global(self) -> bool:
        """Whether there is a result over an empty input."""
        return True

    @cached_property
    def increments(self) -> Layout:
        """The layout of the input: arguments; sums: accumulators, weights for the parts."""
        return increments_of(self.layout, self.parts)

    @cached_property
    def layouts(self) -> tuple[Layout, ...]:
        """The totals, with the sum ``__init``, and the rest as of :class:`GroupAggregate`."""
        totals = self.layout.with_summed(pa.field(INIT, pa.int64(), nullable=False))
        return (totals, *layouts_of(self.parts, self.layout))

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the output."""
        return answer_schema(self.layout, self.parts)

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> StepResult:
        """Return the old and the new row if they differ, and the consolidated increments."""
        given = ZSet.of(self.increments, inputs[0])
        if given.hashes.any():
            raise HeadraceError(Code.INTERNAL, "an increment of a global aggregate has a hash")
        _, old = before[0].lookup(np.zeros(1, np.int64), [])
        init = pa.array([] if old.rows else [1], pa.int64())
        hashes = pa.array(np.zeros(len(init), np.int64))
        more = with_zeros(self.layouts[0], {HASH: hashes, INIT: init}, len(init))
        return _step(self, given, more, before)


@dataclass(frozen=True, slots=True)
class _Groups:
    """The totals of some of the touched groups; ``at`` has their positions among these."""

    at: Ints
    totals: ZSet

    def where(self, kept: Bools) -> _Groups:
        return _Groups(self.at[kept], self.totals.filter(kept))


def _step(
    aggregate: GroupAggregate | GlobalAggregate,
    given: ZSet,
    more: ZSet,
    before: tuple[Spine, ...],
) -> StepResult:
    """Return the step of one epoch; ``more`` are further increments of the totals."""
    layout, parts, schema = more.layout, aggregate.parts, aggregate.schema
    increments, updates = [_linear(layout, given), more], {}
    valued: list[tuple[ValuePart, tuple[int, ...]]] = []
    for part, at in placed(parts):
        if isinstance(part, Distinct):
            updates[at[0]], fed = part.change(given, layout, before[at[0] + 1])
            increments.append(fed)
        else:
            valued.append((part, at))
    groups, change = _touched(ZSet.sum_of(layout, increments), marked=bool(valued))
    probes, found = before[0].lookup(groups.hashes, groups.keys)
    old = _Groups(probes, found)
    new = _after(old, change)
    changed = np.zeros(groups.rows, np.bool_)
    changed[change.at] = True
    results: list[tuple[pa.Array, pa.Array]] = []
    for part, at in valued:
        made = part.change(given, groups, [before[i + 1] for i in at])
        updates |= zip(at, made.deltas, strict=True)
        results += zip(made.old, made.new, strict=True)
    for both in results:
        changed |= ~same(*both)
    check_groups(new.totals)
    _check_extrema(new, groups.rows, [after for _, after in results])
    output = _answer(schema, old, new, changed, results)
    return StepResult(output, (change.totals, *(updates[i] for i in range(len(updates)))))


def _linear(layout: Layout, given: ZSet) -> ZSet:
    """Return the given increments, with zeros for the accumulators that parts feed."""
    if given.layout is layout:
        return given
    names = [name for name in layout.schema.names if name in given.layout.schema.names]
    columns = {name: column(given.table, name) for name in names}
    return with_zeros(layout, columns, given.rows)


def _touched(increments: ZSet, *, marked: bool) -> tuple[ZSet, _Groups]:
    """Return the groups touched, sorted by hash, and those whose totals change.

    With ``marked``, groups whose increments cancel count as touched.
    """
    groups = increments.grouped() if marked else increments.consolidated()
    change = _Groups(np.arange(groups.rows), groups)
    return groups, change.where(groups.any_sum) if marked else change


def _after(old: _Groups, change: _Groups) -> _Groups:
    """Return the sum of the old totals and the change; groups whose totals are all zero are out."""
    if not len(old.at):
        return change
    at = np.concatenate([old.at, change.at])
    return _Groups(*old.totals.plus(change.totals).summed(at, alike=True))


def _check_parts(layout: Layout, parts: tuple[Part, ...]) -> None:
    fed = [name for part in parts for name in part.fed]
    if len(set(fed)) != len(fed) or not set(fed) <= {*layout.summed.names} - {WEIGHT, INIT}:
        raise HeadraceError(Code.INTERNAL, "a part of an aggregate feeds another's accumulator")
    arguments = [field for part in parts for field in part.arguments]
    if len({field.name for field in arguments}) != len({(f.name, f.type) for f in arguments}):
        raise HeadraceError(Code.INTERNAL, "two parts have an argument of one name and two types")


def _check_extrema(new: _Groups, groups: int, results: list[pa.Array]) -> None:
    absent = np.ones(groups, np.bool_)
    absent[new.at[new.totals.weights > 0]] = False
    if absent.any() and any(valid(result)[absent].any() for result in results):
        raise leftover("a group without rows has a minimum or maximum, or a picked value")


def _answer(
    schema: pa.Schema,
    old: _Groups,
    new: _Groups,
    changed: Bools,
    results: list[tuple[pa.Array, pa.Array]],
) -> pa.Table:
    """Return the output rows of the changed groups that existed, and of those that exist."""
    layout = new.totals.layout
    existence = INIT if INIT in layout.summed.names else WEIGHT
    both = old.totals.plus(new.totals)
    at = np.concatenate([old.at, new.at])
    kept = (changed[at] & (numbers(both.table, existence) != 0)).nonzero()[0]
    is_new, at = kept >= len(old.at), at[kept]
    table, names = both.take(kept).table, schema.names
    given = {ROWS: WEIGHT}
    columns = [column(table, given.get(name, name)) for name in names[: len(names) - len(results)]]
    columns[names.index(WEIGHT)] = pa.array(np.where(is_new, 1, -1))
    positions = pa.array(at + is_new * len(changed))
    columns += [pa.concat_arrays(each).take(positions) for each in results]
    return pa.Table.from_arrays(columns, schema=schema)
