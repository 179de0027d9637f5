"""The order of rows that tie in ORDER BY: the same for views, reads and ``VERIFY``.

Spark does not define the order in which ``row_number()``, a ROWS frame, ``first`` or ``LIMIT`` see
rows that are equal in ORDER BY. Here the order is total: after ORDER BY, rows are ordered by their
other columns, ascending, NULLs first. These columns follow from the query as it is resolved, before
it is optimised, so that they are the same wherever the query is planned:

- for window functions and ``LIMIT``, the columns of their SELECT list, from left to right, then
  those that only its ORDER BY and PARTITION BY use;
- for aggregate functions, the columns that the SELECT uses, in the order of its input. Lists and
  strings of a group without an order of their own, such as ``array_agg(c)``, have this one.

Rows that are equal in all of these are interchangeable. Columns with maps or variants inside other
values have no order and are omitted; a map is ordered by its sorted entries, a variant and a string
with a collation by their bytes. ``rank()``, ``dense_rank()`` and RANGE frames ignore this order.

There are two steps. :func:`with_ties_marked` adds the columns to the ORDER BY of a ``LIMIT``; below
windows and aggregates it adds a local ``Sort`` by them, a *mark* that Spark's optimiser keeps.
Views read the mark (:func:`ties_below`); for Spark's batch, :func:`with_ties_settled` replaces it
by a sort of each whole group, which Spark's own operators preserve.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import MapType, StringType, VariantType

from headrace.planning.catalyst.allowed import adds_in_order
from headrace.planning.catalyst.asof import has_asof, without_ties
from headrace.planning.catalyst.python import PYTHON_NODES
from headrace.planning.catalyst.resolved import columns_of, type_of
from headrace.planning.catalyst.rewrite import is_session
from headrace.planning.catalyst.rewrites import ORDER_FORGOTTEN
from headrace.planning.catalyst.scala import (
    EXPRESSIONS,
    Scala,
    items,
    kind_of,
    with_children,
    with_nodes,
)
from headrace.types import holds, is_collated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame

    from headrace.planning.catalyst.transplant import Transplant


REORDERING = "LimitPushDownThroughWindow"
"""The rule of Spark's optimiser that sorts the rows of a window again, by ORDER BY alone."""

_PATTERNS = ("WINDOW", "AGGREGATE", "LIMIT", "OFFSET")
"""The tree patterns of nodes whose result may depend on ties."""

_TIES_TOGETHER = frozenset({"Rank", "DenseRank", "PercentRank", "CumeDist"})
"""The window functions that return the same value for rows that tie."""

_OF_SEVERAL = frozenset(
    """
    AnyValue ApproximatePercentile ApproxTopK First HistogramNumeric Last ListAgg MaxBy MinBy Mode
    """.split()  # noqa: SIM905
)
"""The aggregate functions whose value may depend on the order of the rows.

So does the value of some sums; see :func:`adds_in_order`. Sums of floats are not included: they may
differ in the last digits.
"""

_LISTS = frozenset({"CollectList", "CollectSet"})
"""Functions that return lists: those of a group have no order, those of a frame have its order."""

_LIMITS = ("GlobalLimit", "LocalLimit", "Offset")
_BETWEEN = ("Project", "SubqueryAlias", "View")
_BELOW = ("Project", "WindowGroupLimit", *PYTHON_NODES)


def with_one_order(transplant: Transplant, frame: DataFrame, logical: Any) -> DataFrame:
    """Return a query, analysed as ``logical``, that breaks ties as views do.

    As-of joins and the groups of ordered functions are changed after Spark has optimised the query:
    the first use the columns that are read, the second the marks in the plan.
    """
    marked = with_ties_marked(transplant.scala, logical)
    if marked is not transplant.logical(frame):
        frame = transplant.frame(marked)
    if marked is logical and not has_asof(logical):
        return frame
    optimised = transplant.optimised(frame)
    chosen = without_ties(transplant.scala, optimised) if has_asof(logical) else optimised
    settled = with_ties_settled(transplant.scala, chosen)
    # Spark's own optimiser creates plans that its analyser would refuse.
    return frame if settled is optimised else transplant.frame(transplant.finished(settled))


def with_ties_marked(scala: Scala, plan: Any) -> Any:
    """Return an analysed plan with marks for the order of rows that tie.

    Returns the plan itself if the order has no effect.
    """
    if not any(scala.may_hold(pattern, plan) for pattern in _PATTERNS):
        return plan
    return with_nodes(scala, plan, _Marks(scala).nodes)


def ties_below(node: Any) -> Any | None:
    """Return the mark of a window or aggregate, or None if the order of ties has no effect."""
    return _mark(node, _BELOW)


def _mark(node: Any, between: tuple[str, ...]) -> Any | None:
    below = node.child()
    while below.nodeName() in between:
        below = below.child()
    is_mark = below.nodeName() == "Sort" and not getattr(below, "global")()
    return below if is_mark and _sees_ties(node) else None


def with_ties_settled(scala: Scala, plan: Any) -> Any:
    """Return an optimised plan in which the rows of marked groups are sorted."""

    def nodes(plan: Any) -> Any:
        plan = with_children(scala, plan, nodes)
        if plan.nodeName() not in ("Window", "Aggregate"):
            return plan
        # Several DISTINCT aggregates have become an Expand and two levels of grouping.
        mark = _mark(plan, (*_BELOW, "Expand"))
        return plan if mark is None else _settled(scala, plan, mark)

    return with_nodes(scala, plan, nodes)


def _settled(scala: Scala, node: Any, mark: Any) -> Any:
    """Return a node with each group in one partition and sorted, in place of its mark."""
    keys, order = _groups(scala, node)
    ties = items(mark.order())

    def placed(below: Any) -> Any:
        if below.nodeName() == "Sort":
            return in_order(below.child())
        if below.nodeName() in PYTHON_NODES:  # for Spark, the output of these nodes has no order
            return in_order(_without_mark(scala, below, ties))
        return below.withNewChildren(scala.seq([placed(below.child())]))

    def in_order(rows: Any) -> Any:
        # An aggregate's key that Spark computes above the mark only adds more groups.
        known = [key for key in keys if key.references().subsetOf(rows.outputSet())]
        if known:
            spread = scala.seq(known), rows, scala.none, scala.none
            rows = scala.logical("RepartitionByExpression", *spread)
        else:
            rows = scala.logical("Repartition", 1, True, rows)  # noqa: FBT003
        return _sorted(scala, [*map(scala.ascending, known), *order, *ties], rows)

    return node.withNewChildren(scala.seq([placed(node.child())]))


def _without_mark(scala: Scala, node: Any, ties: list[Any]) -> Any:
    """Return the rows of a node above a mark, unsorted, with the columns of the mark."""
    if node.nodeName() == "Sort":
        return node.child()
    rows = _without_mark(scala, node.child(), ties)
    if node.nodeName() != "Project":
        return node.withNewChildren(scala.seq([rows]))
    more = [c for tie in ties for c in columns_of(tie) if not node.outputSet().contains(c)]
    return scala.logical("Project", scala.seq([*items(node.projectList()), *more]), rows)


def _groups(scala: Scala, node: Any) -> tuple[list[Any], list[Any]]:
    """Return the grouping keys of a node, and the order that it states for their rows.

    A session key is not included: Spark merges sessions within groups of the other keys.
    """
    if node.nodeName() == "Window":
        return items(node.partitionSpec()), items(node.orderSpec())
    keys = items(node.groupingExpressions())
    sessions = [key for key in keys if is_session(key)]
    others = [scala.normalised(key) for key in keys if not is_session(key)]
    return others, [scala.ascending(key) for key in sessions]


@dataclass(frozen=True, slots=True)
class _Marks:
    scala: Scala

    def nodes(self, plan: Any) -> Any:
        """Return a plan with marks in its own nodes."""
        if not any(self.scala.may_hold(pattern, plan) for pattern in _PATTERNS):
            return plan
        plan = self._in_order_of_use(plan)
        plan = with_children(self.scala, plan, self.nodes)
        name = str(plan.nodeName())
        if name in _LIMITS:
            return self._limited(plan)
        if name not in ("Window", "Aggregate") or not _sees_ties(plan) or ties_below(plan):
            return plan
        columns = items(plan.child().output())
        if name == "Aggregate":
            used, alike = plan.references(), items(plan.groupingExpressions())
            columns = [column for column in columns if used.contains(column)]
        else:
            alike = [*items(plan.partitionSpec()), *(o.child() for o in items(plan.orderSpec()))]
        orders = self._orders(columns, alike)
        if not orders:
            return plan
        return plan.withNewChildren(self.scala.seq([_sorted(self.scala, orders, plan.child())]))

    def _limited(self, plan: Any) -> Any:
        """Return a LIMIT whose ORDER BY is extended by all columns of the rows."""
        above = []
        below = plan
        while below.nodeName() in (*_LIMITS, *_BETWEEN):
            above.append(below)
            below = below.child()
        if below.nodeName() != "Sort" or not getattr(below, "global")():
            return plan
        given = items(below.order())
        more = self._orders(items(below.child().output()), [order.child() for order in given])
        if not more:
            return plan
        whole = self.scala.seq([*given, *more])
        rows = self.scala.logical("Sort", whole, True, below.child(), self.scala.none)  # noqa: FBT003
        for each in reversed(above):
            rows = each.withNewChildren(self.scala.seq([rows]))
        return rows

    def _orders(self, columns: Iterable[Any], alike: list[Any]) -> list[Any]:
        """Return the order by some columns, without those that are equal in rows that tie.

        Strings that are equal by a collation may differ.
        """
        known = {e.exprId().id() for e in alike if kind_of(e) == _COLUMN and not _by_collation(e)}
        orders: list[Any] = []
        for column in columns:
            id_ = column.exprId().id()
            if id_ not in known and (values := self._comparable(column)):
                known.add(id_)
                orders += map(self.scala.ascending, values)
        return orders

    def _comparable(self, column: Any) -> list[Any]:
        """Return expressions that order the values of a column; none if there is no order."""
        type_ = type_of(column)
        if isinstance(type_, MapType):
            if holds(type_.keyType, _UNORDERED) or holds(type_.valueType, _UNORDERED):
                return []
            ascending = self.scala.module(f"{EXPRESSIONS}.Literal").apply(True)  # noqa: FBT003
            entries = self.scala.expression("MapEntries", column)
            return [self.scala.expression("SortArray", entries, ascending)]
        if isinstance(type_, VariantType):
            return self.scala.comparable(column)
        if holds(type_, _UNORDERED):
            return []
        if isinstance(type_, StringType) and _by_collation(column):
            return [self.scala.cast(column, self.scala.type(StringType().json()))]
        return [column]

    def _in_order_of_use(self, plan: Any) -> Any:
        """Return a plan whose windows of one SELECT are in the order of its SELECT list.

        Spark puts them in any order. Each adds columns that break ties in the next one.
        """
        above = []
        below = plan
        while below.nodeName() in ("Project", "Filter"):
            above.append(below)
            below = below.child()
        if not above or below.nodeName() != "Window" or below.child().nodeName() != "Window":
            return plan
        windows = []
        while below.nodeName() == "Window":
            windows.append(below)
            below = below.child()
        shown = [int(c.exprId().id()) for n in above for e in _shown(n) for c in columns_of(e)]
        places = {id_: place for place, id_ in reversed(list(enumerate(shown)))}

        def place(window: Any) -> int:
            ids = [int(e.exprId().id()) for e in items(window.windowExpressions())]
            return min((places.get(id_, len(shown)) for id_ in ids), default=0)

        wanted = sorted(windows, key=place)
        if all(a is b for a, b in zip(wanted, reversed(windows), strict=True)):
            return plan
        for each in (*wanted, *reversed(above)):
            below = each.withNewChildren(self.scala.seq([below]))
        return below


_COLUMN = "AttributeReference"
_UNORDERED = (MapType, VariantType)


def _by_collation(expression: Any) -> bool:
    return is_collated(type_of(expression))


def _shown(node: Any) -> list[Any]:
    return items(node.projectList()) if node.nodeName() == "Project" else [node.condition()]


def _sees_ties(node: Any) -> bool:
    """Return whether the values of a window or aggregate may depend on the order of ties."""
    if node.nodeName() == "Window":
        calls = _calls(items(node.windowExpressions()), "WindowExpression")
        return any(map(_function_sees_ties, calls))
    shown = items(node.aggregateExpressions())
    calls = _calls(shown, "AggregateExpression")
    if any(_is_of_several(call.aggregateFunction()) for call in calls):
        return True
    return any(_shows_list(each, "") for each in shown)


def _is_of_several(function: Any) -> bool:
    return kind_of(function) in _OF_SEVERAL or adds_in_order(function)


def _shows_list(expression: Any, above: str) -> bool:
    """Return whether the order of a ``collect_list`` is visible in an expression."""
    kind = kind_of(expression)
    if kind == "AggregateExpression":
        is_list = kind_of(expression.aggregateFunction()) == "CollectList"
        return is_list and above not in ORDER_FORGOTTEN
    return any(_shows_list(child, kind) for child in items(expression.children()))


def _calls(expressions: Iterable[Any], kind: str) -> Iterator[Any]:
    """Yield the outermost expressions of a kind."""
    for each in expressions:
        if kind_of(each) == kind:
            yield each
        else:
            yield from _calls(items(each.children()), kind)


def _function_sees_ties(window: Any) -> bool:
    function = window.windowFunction()
    kind = kind_of(function)
    if kind in _TIES_TOGETHER:
        return False
    if kind != "AggregateExpression":
        return True
    called = function.aggregateFunction()
    if kind_of(called) in _LISTS or _is_of_several(called):
        return True
    return _counts_rows(window.windowSpec().frameSpecification())


def _counts_rows(frame: Any) -> bool:
    """Return whether a frame ends at a row, and not at the last of the rows that tie."""
    if kind_of(frame) != "SpecifiedWindowFrame" or "Row" not in kind_of(frame.frameType()):
        return False
    ends = kind_of(frame.lower()), kind_of(frame.upper())
    return not ("Unbounded" in ends[0] and "Unbounded" in ends[1])


def _sorted(scala: Scala, orders: list[Any], rows: Any) -> Any:
    """Return a plan with the rows of each partition sorted."""
    return scala.logical("Sort", scala.seq(orders), False, rows, scala.none)  # noqa: FBT003
