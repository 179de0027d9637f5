"""Converts an optimised Catalyst plan to Headrace's: an allow-list of nodes, and refusals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.planning.catalog import ROWTIME
from headrace.planning.catalyst.asof import AsOf
from headrace.planning.catalyst.clock import all_of, conjuncts, has_mark
from headrace.planning.catalyst.functions import called, check_together, generate_alone, leaves_out
from headrace.planning.catalyst.pieces import Pieces, distinct_columns, exact_columns, only_columns
from headrace.planning.catalyst.plan import (
    PLACE,
    TIME,
    Aggregate,
    Attribute,
    Compared,
    Constant,
    Expand,
    Expression,
    Filter,
    FirstRows,
    Generate,
    Join,
    JoinKind,
    Plan,
    Project,
    Scan,
    SortKey,
    UnionAll,
    Window,
)
from headrace.planning.catalyst.predicates import ranges_of
from headrace.planning.catalyst.python import PYTHON_NODES, call_text, fold_of
from headrace.planning.catalyst.recursion import RecursionReader, once
from headrace.planning.catalyst.resolved import (
    attribute_of,
    attributes_of,
    columns_of,
    is_true,
    present,
)
from headrace.planning.catalyst.rewrite import is_session, not_in
from headrace.planning.catalyst.rewrites import pruned
from headrace.planning.catalyst.scala import Scala, items, kind_of, maybe, part
from headrace.planning.catalyst.select import LATEST, Edition
from headrace.planning.catalyst.subqueries import (
    Scalars,
    Single,
    SubqueryComparison,
    comparison_of,
    has_scalar,
    of_columns,
    ordered_by_columns,
    with_values,
)
from headrace.planning.catalyst.ties import ties_below
from headrace.planning.catalyst.windows import (
    first_without_numbers,
    functions_alone,
    near_rows,
    numbers_all_rows,
    without_order,
)
from headrace.planning.dialects import OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.errors import Span
    from headrace.planning.catalyst.python import Registered
    from headrace.types import RelationId


_PLANNING = "org.apache.spark.sql.catalyst.planning"

_PASSED = frozenset(
    "LocalLimit RebalancePartitions Repartition RepartitionByExpression Sort SubqueryAlias".split()  # noqa: SIM905
)
"""Nodes that change no rows: a view is a bag, so order and partitioning are irrelevant."""

_HIDDEN = {OFFSET: PLACE, ROWTIME: TIME}
"""Additional columns of a stream's log, and their positions in a scan."""

_JOINS = {
    "Inner": JoinKind.INNER,
    "Cross": JoinKind.INNER,
    "LeftOuter": JoinKind.LEFT,
    "RightOuter": JoinKind.RIGHT,
    "FullOuter": JoinKind.FULL,
    "LeftSemi": JoinKind.SEMI,
    "LeftAnti": JoinKind.ANTI,
    "ExistenceJoin": JoinKind.EXISTENCE,
}
_RANKS = {"RowNumber": "row_number", "Rank": "rank", "DenseRank": "dense_rank"}
_PROJECTING = ("Project", *PYTHON_NODES)
_LIMITING = ("GlobalLimit", "LocalLimit", "Offset", "SubqueryAlias", *_PROJECTING)
_ALL = 2**62
"""The limit of OFFSET without LIMIT: more rows than any relation has."""


@dataclass(slots=True)
class PlanReader:
    """Reads one query's plan; ``relations`` maps the RDD id of a placeholder to its relation.

    ``recursion_limit`` is the default limit of levels of a recursive WITH. ``check`` is called for
    each node; an exception ends the reading. ``functions`` are the Python functions that can be
    called, by name.
    """

    scala: Scala
    relations: dict[int, RelationId]
    query: Span
    check: Callable[[], None] = field(default=lambda: None)
    clocked: bool = False
    recursion_limit: int = -1
    functions: Mapping[str, Registered] = field(default_factory=dict)
    edition: Edition = LATEST
    following: set[int] = field(default_factory=set)
    """The ids of columns with the time of the next row, made for as-of joins."""
    pieces: Pieces = field(init=False)
    recursion: RecursionReader = field(init=False)

    def __post_init__(self) -> None:
        self.pieces = Pieces(self.scala, self.query, self.clocked)
        self.recursion = RecursionReader(self.pieces, self.recursion_limit)

    def plan(self, node: Any) -> Plan:
        """Return the plan, with only the columns that are needed read from each relation."""
        plan = pruned(self._exact(node))
        if self.recursion.loops:
            return plan  # equal parts of different loops are not merged
        return once(self.scala, self.pieces.expression, plan)

    # -- reading ---------------------------------------------------------------------------

    def _read(self, node: Any) -> Plan:
        self.check()
        kind = str(node.nodeName())
        match kind:
            case "LogicalRDD" | "LocalRelation" | "OneRowRelation" | "UnionLoopRef":
                return self._leaf(node, kind)
            case "Project":
                named, child = items(node.projectList()), self._first_of_groups(node)
                if child is None:
                    child, named = self._with_scalars(node.child(), named)
                expressions = tuple(self.pieces.expression(e) for e in named)
                return Project(child, expressions, attributes_of(node))
            case "BatchEvalPython" | "ArrowEvalPython":
                return self._called(node)
            case "Filter":
                return self._filter(node)
            case "Expand":
                return Expand(
                    self._read(node.child()),
                    tuple(tuple(items(p)) for p in items(node.projections())),
                    attributes_of(node),
                )
            case "Generate":
                return self._generate(node)
            case "Union":
                branches = tuple(self._exact(child) for child in items(node.children()))
                return UnionAll(branches, attributes_of(node))
            case "UnionLoop":
                return self.recursion.loop(node, self._input)
            case "Join" | "AsOfJoin":
                return self._join(node)
            case "Aggregate":
                return self._aggregate(node)
            case "Window":
                return self._window(node)
            case "WindowGroupLimit":
                return self._group_limit(node)
            case "GlobalLimit" | "Offset":
                return self._limit(node)
            case _ if kind in _PASSED:
                return self._read(node.child())
            case _:
                what = f"Spark's {kind} is not supported in a view"
                raise self.pieces.unsupported(what, None, node)

    def _leaf(self, node: Any, kind: str) -> Plan:
        if kind == "UnionLoopRef":
            return self.recursion.reference(node)
        attributes = attributes_of(node)
        if kind == "LogicalRDD":
            columns = tuple(_HIDDEN.get(each.name, i) for i, each in enumerate(attributes))
            return Scan(self.relations[node.rdd().id()], attributes, columns)
        return Constant(node, attributes)

    def _generate(self, node: Any) -> Plan:
        node = generate_alone(self.pieces, node)
        text, outer = str(node.generator().sql()), bool(node.outer())
        return Generate(self._exact(node.child()), text, outer, node, attributes_of(node))

    def _filter(self, node: Any) -> Plan:
        timed, rest = self._timed(node.condition())
        comparisons, rest = self._comparisons(rest)
        plain = [rest] if rest is not None and not is_true(rest) else []
        filtered, found = self._with_scalars(node.child(), [*plain, *timed])
        if plain:
            condition = self.pieces.expression(found[0])
            filtered = Filter(filtered, condition, present(conjuncts(found[0])))
        if timed or comparisons:
            filtered = distinct_columns(self.pieces, filtered)
        if timed:
            filtered = self.pieces.temporals.node(filtered, found[len(plain) :])
        filtered = only_columns(self.pieces, filtered, attributes_of(node))
        for comparison in comparisons:
            filtered = self._compared(filtered, comparison)
        return filtered

    def _comparisons(self, condition: Any | None) -> tuple[list[SubqueryComparison], Any | None]:
        """Return the comparisons with values of subqueries, and the rest of a condition."""
        if condition is None or not has_scalar(self.scala, [condition]):
            return [], condition
        parts = conjuncts(condition)
        found = [comparison_of(self.scala, part_, self.edition) for part_ in parts]
        rest = [each for each, read in zip(parts, found, strict=True) if read is None]
        return [read for read in found if read is not None], all_of(self.scala, rest)

    def _compared(self, child: Plan, comparison: SubqueryComparison) -> Plan:
        """Return the rows of a plan for which a comparison with a subquery's value is true."""
        value = self._read(comparison.value)
        bound = self.pieces.expression(comparison.bound)
        if comparison.below is None:
            equal = self.pieces.expression(self.scala.normalised(comparison.bound))
            (given,) = value.attributes
            wanted = self.pieces.expression(self.scala.normalised(given.handle))
            joined = Join(JoinKind.INNER, child, value, (equal,), (wanted,), None)
            return only_columns(self.pieces, joined, child.attributes)
        condition = self.pieces.expression(comparison.condition)
        return Compared(child, value, bound, condition, comparison.below)

    def _called(self, node: Any) -> Plan:
        """Read a node that calls Python functions: a fold, or functions of single rows."""
        calls, results = items(node.udfs()), items(node.resultAttrs())
        for nth, call in enumerate(calls):
            function = self.functions.get(str(call.name()).lower())
            if function is not None and function.function.folded is not None:
                result = results.pop(nth)
                calls.remove(call)
                child: Plan = fold_of(
                    self.pieces, function, call, result, node.child(), self._input
                )
                return self._with_values(child, calls, results) if calls else child
        return self._with_calls(self._input(node.child()), node)

    def _with_calls(self, child: Plan, node: Any) -> Plan:
        """Read a node that adds the results of calls of Python functions to the rows of a plan."""
        return self._with_values(child, items(node.udfs()), items(node.resultAttrs()))

    def _with_values(self, child: Plan, calls: list[Any], results: list[Any]) -> Plan:
        named = [
            *(a.handle for a in child.attributes),
            *(
                self.scala.alias(call, str(result.name()), result)
                for call, result in zip(calls, results, strict=True)
            ),
        ]
        return Project(
            child,
            tuple(self.pieces.expression(e) for e in named),
            (*child.attributes, *(attribute_of(result) for result in results)),
            tuple(call_text(call) for call in calls),
        )

    def _with_scalars(self, child: Any, expressions: list[Any]) -> tuple[Plan, list[Any]]:
        """Read a child with the values of the expressions' scalar subqueries beside its rows."""
        if not has_scalar(self.scala, expressions):
            return self._read(child), expressions
        scalars = Scalars(self.scala)
        replaced = [scalars.replaced(e) for e in expressions]
        return self._read(scalars.joined(child)), replaced

    def _project_scalars(
        self, child: Plan, expressions: list[Any], attributes: tuple[Attribute, ...]
    ) -> Plan:
        """Project expressions with scalar subqueries over a plan that has been read."""
        scalars = Scalars(self.scala)
        replaced = [scalars.replaced(e) for e in expressions]
        for plan, outer in zip(scalars.plans, scalars.outer, strict=True):
            kind = JoinKind.LEFT if outer else JoinKind.INNER
            child = Join(kind, child, self._input(plan), (), (), None)
        return Project(child, tuple(self.pieces.expression(e) for e in replaced), attributes)

    def _input(self, node: Any) -> Plan:
        """Read the input of a node that stores its rows, without repeated columns."""
        return distinct_columns(self.pieces, self._read(node))

    def _exact(self, node: Any) -> Plan:
        """Read a node whose columns are referred to by position, in Spark's order."""
        return exact_columns(self.pieces, self._read(node), attributes_of(node))

    def _in_order(self, node: Any) -> tuple[Plan, tuple[Expression, ...]]:
        """Read the input of a node, with the columns by which it breaks ties."""
        mark = ties_below(node)
        if mark is None:
            return self._input(node.child()), ()
        ties = tuple(self.pieces.expression(order.child()) for order in items(mark.order()))
        return self._with_ties(node.child(), mark, ties), ties

    def _with_ties(self, node: Any, mark: Any, ties: tuple[Expression, ...]) -> Plan:
        """Read the nodes above a mark, with the tie-breaking columns in addition to their own."""
        if node.nodeName() == "Sort":
            return self._input(node.child())
        child = self._with_ties(node.child(), mark, ties)
        if node.nodeName() == "WindowGroupLimit":
            return self._group_limited(node, child, ties)
        if node.nodeName() in PYTHON_NODES:
            return self._with_calls(child, node)
        own = attributes_of(node)
        shown = {a.id for a in own}
        used = {int(a.exprId().id()) for tie in ties for a in columns_of(tie.handle)}
        more = tuple(a for a in child.attributes if a.id in used - shown)
        named = [*items(node.projectList()), *(a.handle for a in more)]
        expressions = tuple(self.pieces.expression(e) for e in named)
        return distinct_columns(self.pieces, Project(child, expressions, (*own, *more)))

    def _group_limit(self, node: Any) -> Plan:
        """Read a limit that Spark has inferred from a filter on a rank; the filter remains."""
        return self._group_limited(node, self._input(node.child()), ())

    def _group_limited(self, node: Any, child: Plan, ties: tuple[Expression, ...]) -> Plan:
        order = self.pieces.order(items(node.orderSpec()))
        if order is None:
            return child
        keys = tuple(self.pieces.expression(e) for e in items(node.partitionSpec()))
        for key in keys:
            self.pieces.check_key(key, "a PARTITION BY key", node)
        rank = _RANKS[kind_of(node.rankLikeFunction())]
        if rank == "row_number":
            order = (*order, *_tie_keys(ties))
        return FirstRows(child, keys, order, rank, int(node.limit()), 0)

    def _first_of_groups(self, node: Any) -> Plan | None:
        """Read the first rows of groups, if a projection shows these without their numbers."""
        if self.edition < Edition.FIRST_WITHOUT_NUMBERS or has_scalar(
            self.scala, items(node.projectList())
        ):
            return None
        window = first_without_numbers(node)
        if window is None or self.pieces.order(items(window.orderSpec())) is None:
            return None
        return self._in_order(window)[0]

    def _limit(self, node: Any) -> Plan:
        """Read ORDER BY ... LIMIT ... OFFSET; projections in between change nothing."""
        limit, skip, projects, below = None, 0, [], node
        while (kind := str(below.nodeName())) in _LIMITING:
            if kind == "GlobalLimit":
                most = int(below.limitExpr().eval(None))
                limit = most if limit is None else min(limit, most)
            elif kind == "Offset":
                skip += int(below.offsetExpr().eval(None))
            elif kind in _PROJECTING:
                projects.append(below)
            below = below.child()
        if limit is not None and not skip and not projects and numbers_all_rows(below):
            return self._window(below, limit)
        whole = kind == "Sort" and getattr(below, "global")()
        sort = ordered_by_columns(self.scala, below) if whole else below
        order = self.pieces.order(items(sort.order())) if whole else None
        for each in items(sort.order()) if whole and order is None else ():
            key = self.pieces.expression(each.child())
            self.pieces.check_key(key, "an ORDER BY key of LIMIT", each)
        scalars = any(has_scalar(self.scala, items(p.expressions())) for p in projects)
        if order is None or scalars:
            raise without_order(self.pieces, node)
        count = _ALL if limit is None else limit
        read: Plan = FirstRows(self._input(sort.child()), (), order, "row_number", count, skip)
        if sort is not below:
            read = only_columns(self.pieces, read, attributes_of(below))
        for project in reversed(projects):
            if project.nodeName() in PYTHON_NODES:
                read = self._with_calls(distinct_columns(self.pieces, read), project)
                continue
            expressions = tuple(self.pieces.expression(e) for e in items(project.projectList()))
            read = Project(read, expressions, attributes_of(project))
        return read

    def _window(self, node: Any, first: int | None = None) -> Plan:
        """Read window functions; with ``first``, over that many first rows of the order."""
        node = functions_alone(self.pieces, node)
        child, ties = self._in_order(node)
        order = None if first is None else self.pieces.order(items(node.orderSpec()))
        if first is not None and order is not None:
            order = (*order, *_tie_keys(ties))
            child = FirstRows(child, (), order, "row_number", first, 0)
        partition = tuple(self.pieces.expression(e) for e in items(node.partitionSpec()))
        for key in partition:
            self.pieces.check_key(key, "a PARTITION BY key", node)
        functions = items(node.windowExpressions())
        for function in functions:
            self.pieces.expression(function)
        text = ", ".join(str(function.child().sql()) for function in functions)
        added = tuple(attribute_of(function.toAttribute()) for function in functions)
        near = None
        if self.edition >= Edition.NEAR_ROWS:
            order = self.pieces.order(items(node.orderSpec()))
            near = near_rows(self.pieces, node, order, _tie_keys(ties), self.edition)
        return Window(child, partition, text, node, added, ties, near)

    def _join(self, node: Any) -> Plan:
        if node.nodeName() == "AsOfJoin":
            rewritten, following = AsOf(self.scala, node, self.pieces.unsupported).rewritten()
            self.following.add(following)
            return self._read(rewritten)
        valued = with_values(self.scala, node, self.edition)
        if valued is not None:
            return only_columns(self.pieces, self._read(valued), attributes_of(node))
        flag = None
        name = kind_of(node.joinType()).removesuffix("$")
        if name == "ExistenceJoin":
            flag = attribute_of(node.joinType().exists())
        elif name == "LeftSingle":
            return self._read(Single(self.pieces, node).rewritten())
        elif name == "LeftAnti" and node.condition().isDefined():
            rewritten = not_in(self.scala, node)
            if rewritten is not None:
                return self._read(rewritten)
        extracted = maybe(self.scala.module(f"{_PLANNING}.ExtractEquiJoinKeys").unapply(node))
        left_keys: list[Any] = []
        right_keys: list[Any] = []
        residual = maybe(node.condition())
        if extracted is not None:
            left_keys, right_keys = items(part(extracted, 1)), items(part(extracted, 2))
            residual = maybe(part(extracted, 3))
        timed, residual = self._timed(residual)
        if timed and _JOINS[name] is not JoinKind.INNER:
            raise self.pieces.temporals.refusal(
                f"a condition on the clock over both sides of a {_JOINS[name].value} join"
                " is not supported",
                "Filter one side in a subquery, or join the sides by INNER JOIN.",
                timed[0],
            )
        keys = [self.pieces.expression(e) for e in left_keys]
        for key in keys:
            self.pieces.check_key(key, "a join key", node)
        left, right, ranges = self._input(node.left()), self._input(node.right()), None
        if self.edition >= Edition.NEAR_ROWS:
            sides = tuple({a.id for a in side.attributes} for side in (left, right))
            ranges = ranges_of(self.pieces, residual, (sides[0], sides[1]), self.following)
        joined = Join(
            _JOINS[name],
            left,
            right,
            tuple(keys),
            tuple(self.pieces.expression(e) for e in right_keys),
            self.pieces.expression(residual) if residual is not None else None,
            flag,
            ranges,
        )
        return self.pieces.temporals.node(joined, timed) if timed else joined

    def _timed(self, condition: Any | None) -> tuple[list[Any], Any | None]:
        """Return the parts of a condition that depend on the clock, and the rest."""
        if condition is None or not self.clocked:
            return [], condition
        found = [(each, has_mark(each)) for each in conjuncts(condition)]
        rest = all_of(self.scala, [each for each, timed in found if not timed])
        return [each for each, timed in found if timed], rest

    def _aggregate(self, node: Any) -> Plan:
        node = of_columns(self.scala, node)
        extracted = maybe(self.scala.module(f"{_PLANNING}.PhysicalAggregation").unapply(node))
        if extracted is None:
            raise self.pieces.unsupported("this form of aggregation is not supported", None, node)
        grouping, results = items(part(extracted, 0)), items(part(extracted, 2))
        keys: list[Expression] = []
        session = None
        for named in grouping:
            value = named.child() if kind_of(named) == "Alias" else named
            key = self.pieces.expression(self.scala.normalised(value))
            self.pieces.check_key(key, "a GROUP BY key", node)
            if is_session(named):
                session = len(keys)
            keys.append(key)
        own = tuple(attribute_of(named.toAttribute()) for named in grouping)
        calls, tied = items(part(extracted, 1)), ties_below(node) is not None
        functions = tuple(
            called(self.pieces, c, results, calls, self.edition, tied=tied) for c in calls
        )
        check_together(self.pieces, functions)
        child, ties = self._in_order(node)
        if session is not None and leaves_out(child, own[session].id):
            hint = "Write a query for each of the grouping sets, with UNION ALL between them."
            what = "grouping sets without their session window are not supported"
            raise self.pieces.unsupported(what, hint, node)
        kept = session is not None and self.edition >= Edition.SESSIONS_KEPT
        if has_scalar(self.scala, results):
            shown = [*(a.handle for a in own), *(f.handle.resultAttribute() for f in functions)]
            expressions = tuple(self.pieces.expression(e) for e in shown)
            attributes = tuple(attribute_of(e) for e in shown)
            whole = Aggregate(
                child, tuple(keys), own, functions, expressions, attributes, session, ties, kept
            )
            return self._project_scalars(whole, results, attributes_of(node))
        return Aggregate(
            child,
            tuple(keys),
            own,
            functions,
            tuple(self.pieces.expression(e) for e in results),
            attributes_of(node),
            session,
            ties,
            kept,
        )


def _tie_keys(ties: tuple[Expression, ...]) -> tuple[SortKey, ...]:
    """Return the sort keys that break ties."""
    return tuple(SortKey(tie, descending=False, nulls_first=True) for tie in ties)
