"""Windows over the rows of a node: in this process where that is proved, else as a Spark job.

A window is read if its rows are sorted by its partition and its ORDER BY, as lowering makes it, and
each of its functions is in an allow-list (:mod:`headrace.execution.engine.narrow.calls`). If a
value is in doubt, such as a sum that may overflow, Spark computes the whole window, with its own
values or its own error.

Aggregates of groups of rows: in this process where that is proved, else as a Spark job.

An aggregate is read if each of its functions is in an allow-list, that of
:mod:`headrace.execution.engine.narrow.calls`. Its rows keep their order within a group, or are
sorted first if its plan sorts them. If a value is in doubt, Spark computes the whole aggregate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.execution.engine.narrow.calls import WindowCalls, is_same, order_of
from headrace.execution.engine.narrow.evaluated import of_catalyst
from headrace.execution.engine.narrow.frames import Frames
from headrace.execution.engine.narrow.nodes import DoubtfulNode
from headrace.planning.catalyst.rewrite import is_session
from headrace.planning.catalyst.scala import items, kind_of, node_name
from headrace.planning.catalyst.vectors.reader import require

if TYPE_CHECKING:
    from headrace.execution.engine.narrow.calls import Call, ReadsPlans
    from headrace.execution.engine.narrow.evaluated import ColumnValues, ComputedColumns
    from headrace.execution.engine.narrow.frames import Order


@dataclass(frozen=True, slots=True, eq=False)
class Windowing:
    """How rows get values of window functions.

    ``given`` evaluates the columns of the order, then the arguments of the ``calls``; ``results``
    evaluates the added columns over the rows and the values of the calls, unless they are these.
    """

    given: ColumnValues | None
    order: Order
    calls: tuple[Call, ...]
    results: ColumnValues | None

    def over(self, rows: pa.Table) -> pa.Table:
        """Return the rows of whole groups with the values of the functions."""
        columns = [*rows.columns, *self._added(rows)]
        return pa.Table.from_arrays(columns, names=[f"x{i}" for i in range(len(columns))])

    def _added(self, rows: pa.Table) -> list[pa.ChunkedArray | pa.Array]:
        given = [] if self.given is None else self.given.over(rows).combine_chunks().columns
        columns = [each.chunk(0) for each in given]
        positions, groups, arguments = self.order.sorted(columns, rows.num_rows)
        places = np.empty(rows.num_rows, np.int64)
        places[positions] = np.arange(rows.num_rows)
        back = pa.array(places)
        values = [call.over(groups, arguments).take(back) for call in self.calls]
        if self.results is None:
            return list(values)
        names = [f"x{i}" for i in range(rows.num_columns + len(values))]
        whole = pa.Table.from_arrays([*rows.columns, *values], names=names)
        return list(self.results.over(whole).columns)


@dataclass(frozen=True, slots=True, eq=False)
class Windowed(DoubtfulNode):
    """The rows of another node with values of window functions."""

    windowing: Windowing

    def computed_here(self, rows: pa.Table) -> pa.Table:
        """Add the values of the functions to the rows."""
        return self.windowing.over(rows)

    @property
    def evaluated(self) -> tuple[ComputedColumns, ...]:
        """The expressions over rows."""
        return of_catalyst(self.windowing.given, self.windowing.results)


def windowed(reading: ReadsPlans, plan: Any) -> Windowed:
    """Return the node of a ``Window``.

    Raises:
        UnprovedError: only Spark computes it.
    """
    below, partition, order = plan.child(), items(plan.partitionSpec()), items(plan.orderSpec())
    require(plan, when=node_name(below) == "Sort" and not getattr(below, "global")())
    orders = items(below.order())
    ends = len(partition), len(partition) + len(order)
    require(plan, when=is_same([each.child() for each in orders[: ends[0]]], partition))
    require(plan, when=is_same(orders[ends[0] : ends[1]], order))
    calls = WindowCalls(reading.scala, order)
    results = [calls.window(each) for each in items(plan.windowExpressions())]
    keys, attributes = [each.child() for each in orders], items(below.output())
    given = [*keys, *calls.arguments]
    own = calls.attributes
    plain = all(kind_of(each.child()) == "AttributeReference" for each in results)
    whole = plain and len(own) == len(results)
    windowing = Windowing(
        reading.evaluated(given, attributes) if given else None,
        order_of(orders, *ends),
        tuple(calls.made),
        None if whole else reading.evaluated(results, [*attributes, *own]),
    )
    return Windowed(reading.node(below.child()), reading.planned(plan, "a doubt"), windowing)


@dataclass(frozen=True, slots=True, eq=False)
class Aggregating:
    """How groups of rows become a row each: ``results``, over its keys and values.

    ``given`` evaluates the columns of the order, which start with the ``keys`` keys of groups, then
    the arguments of the ``calls``.
    """

    given: ColumnValues
    order: Order
    keys: int
    calls: tuple[Call, ...]
    results: ColumnValues

    def over(self, rows: pa.Table) -> pa.Table:
        """Return a row for each group of some rows."""
        columns = [each.chunk(0) for each in self.given.over(rows).combine_chunks().columns]
        positions, groups, arguments = self.order.sorted(columns, rows.num_rows)
        starts = np.flatnonzero(groups.group_starts)
        frames = Frames(starts, np.append(starts[1:], rows.num_rows))
        first = pa.array(positions[starts])
        keys = [each.take(first) for each in columns[: self.keys]]
        values = [call.of_groups(frames, arguments) for call in self.calls]
        names = [f"x{i}" for i in range(len(keys) + len(values))]
        whole = pa.Table.from_arrays([*keys, *values], names=names)
        found = self.results.over(whole)
        return found.rename_columns([f"x{i}" for i in range(found.num_columns)])


@dataclass(frozen=True, slots=True, eq=False)
class Aggregated(DoubtfulNode):
    """A row for each group of the rows of another node."""

    aggregating: Aggregating

    def computed_here(self, rows: pa.Table) -> pa.Table:
        """Return a row for each group."""
        return self.aggregating.over(rows)

    @property
    def evaluated(self) -> tuple[ComputedColumns, ...]:
        """The expressions over rows."""
        return of_catalyst(self.aggregating.given, self.aggregating.results)


def aggregated(reading: ReadsPlans, plan: Any) -> Aggregated:
    """Return the node of an ``Aggregate``.

    Raises:
        UnprovedError: only Spark computes it.
    """
    below, keys = plan.child(), items(plan.groupingExpressions())
    require(plan, when=bool(keys) and not any(map(is_session, keys)))
    orders = [reading.scala.ascending(key) for key in keys]
    if node_name(below) == "Sort" and not getattr(below, "global")():
        orders = items(below.order())
        require(plan, when=is_same([each.child() for each in orders[: len(keys)]], keys))
        below = below.child()
    calls = WindowCalls(reading.scala, [])
    results = [calls.aggregate(each) for each in items(plan.aggregateExpressions())]
    require(plan, when=not (calls.regroups and calls.sees_order))
    given = [*(each.child() for each in orders), *calls.arguments]
    aggregating = Aggregating(
        reading.evaluated(given, items(below.output())),
        order_of(orders, len(keys), len(keys), stable=True),
        len(keys),
        tuple(calls.made),
        reading.evaluated(results, [*keys, *calls.attributes]),
    )
    return Aggregated(reading.node(below), reading.planned(plan, "a doubt"), aggregating)
