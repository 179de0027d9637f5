"""Aggregates of groups of rows: in this process where that is proved, else as a Spark job.

An aggregate is read if each of its functions is in an allow-list, that of
:mod:`headrace.engine.narrow.calls`. Its rows keep their order within a group, or are sorted first
if its plan sorts them. If a value is in doubt, Spark computes the whole aggregate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.catalyst.scala import items, node_name
from headrace.catalyst.session_windows import is_session
from headrace.catalyst.vectors.reader import require
from headrace.engine.narrow.calls import WindowCalls, is_same, order_of
from headrace.engine.narrow.evaluated import of_catalyst
from headrace.engine.narrow.frames import Frames
from headrace.engine.narrow.nodes import DoubtfulNode

if TYPE_CHECKING:
    from headrace.engine.narrow.calls import Call, ReadsPlans
    from headrace.engine.narrow.evaluated import ColumnValues, ComputedColumns
    from headrace.engine.narrow.frames import Order


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
