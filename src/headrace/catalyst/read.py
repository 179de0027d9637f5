"""Reading an optimised Catalyst plan as ours: an allow-list of nodes, with reasons for the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import MapType, VariantType

from headrace.catalyst.aggregates import (
    KEPT,
    condition_of,
    has_no_order,
    is_distinct,
    is_ordered,
    kind_of,
    needs_rows,
)
from headrace.catalyst.clock import all_of, conjuncts, has_mark
from headrace.catalyst.fence import origin
from headrace.catalyst.plan import (
    Aggregate,
    AggregateFunction,
    Attribute,
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
from headrace.catalyst.prune import pruned
from headrace.catalyst.resolved import attribute_of, attributes_of, passed_on, type_of
from headrace.catalyst.rewrite import not_in
from headrace.catalyst.scala import EXPRESSIONS, Scala, items, maybe, part
from headrace.catalyst.subqueries import Scalars, has_scalar
from headrace.catalyst.temporal import Temporals
from headrace.errors import Code, HeadraceError, Span
from headrace.types import holds, is_collated

if TYPE_CHECKING:
    from headrace.types import RelationId

_PLANNING = "org.apache.spark.sql.catalyst.planning"

_REFUSED_NODES = {
    "Sample": ("TABLESAMPLE", "Filter by a hash of a column, such as xxhash64(id) % 10 = 0."),
    "UnionLoop": ("a recursive WITH", None),
}
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
_LIMITING = ("GlobalLimit", "LocalLimit", "Offset", "Project", "SubqueryAlias")
_ALL = 2**62
"""More rows than there are: OFFSET without LIMIT."""

_SESSION = "spark.sessionWindow"
"""The metadata by which Spark tells a session window from other columns."""


@dataclass(slots=True)
class Reader:
    """Reads one query's plan; ``relations`` tells whose stand-in a leaf is, by its RDD's id."""

    scala: Scala
    relations: dict[int, RelationId]
    query: Span
    clocked: bool = False

    def plan(self, node: Any) -> Plan:
        """Return the plan, with only the columns that are needed read from each relation."""
        while node.nodeName() in ("Sort", "RebalancePartitions"):
            node = node.child()  # a view is a bag: an order of its rows has no meaning
        return pruned(self._read(node), None)

    # -- reading ---------------------------------------------------------------------------

    def _read(self, node: Any) -> Plan:
        kind = str(node.nodeName())
        match kind:
            case "LogicalRDD":
                attributes = attributes_of(node)
                columns = tuple(range(len(attributes)))
                return Scan(self.relations[node.rdd().id()], attributes, columns)
            case "LocalRelation" | "OneRowRelation":
                return Constant(node, attributes_of(node))
            case "Project":
                child, named = self._with_scalars(node.child(), items(node.projectList()))
                expressions = tuple(self._expression(e) for e in named)
                return Project(child, expressions, attributes_of(node))
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
                branches = tuple(self._read(child) for child in items(node.children()))
                return UnionAll(branches, attributes_of(node))
            case "Join":
                return self._join(node)
            case "Aggregate":
                return self._aggregate(node)
            case "Window":
                return self._window(node)
            case "WindowGroupLimit":
                return self._group_limit(node)
            case "GlobalLimit" | "Offset":
                return self._limit(node)
            case "Sort" | "SubqueryAlias" | "LocalLimit":
                return self._read(node.child())
            case _:
                what, hint = _REFUSED_NODES.get(kind, (f"Spark's {kind}", None))
                raise self._unsupported(f"{what} is not supported in a view", hint, node)

    def _generate(self, node: Any) -> Plan:
        generator = node.generator()
        name = str(generator.getClass().getSimpleName())
        if name not in ("Explode", "PosExplode", "Inline", "Stack", "ReplicateRows"):
            hint = "Use explode, posexplode, inline or stack."
            raise self._unsupported(f"the generator {name} is not supported", hint, generator)
        return Generate(self._read(node.child()), str(generator.sql()), node, attributes_of(node))

    def _filter(self, node: Any) -> Plan:
        timed, rest = self._timed(node.condition())
        plain = [rest] if rest is not None else []
        filtered, found = self._with_scalars(node.child(), [*plain, *timed])
        if plain:
            filtered = Filter(filtered, self._expression(found[0]))
        if timed:
            filtered = self._temporals.node(filtered, found[len(plain) :])
        attributes = attributes_of(node)
        if len(filtered.attributes) == len(attributes):
            return filtered
        own = tuple(self._expression(a.handle) for a in attributes)
        return Project(filtered, own, attributes)

    def _with_scalars(self, child: Any, expressions: list[Any]) -> tuple[Plan, list[Any]]:
        """Read a child with the values of the expressions' scalar subqueries beside its rows."""
        if not has_scalar(expressions):
            return self._read(child), expressions
        scalars = Scalars(self.scala)
        replaced = [scalars.replaced(e) for e in expressions]
        return self._read(scalars.joined(child)), replaced

    def _project_scalars(
        self, child: Plan, expressions: list[Any], attributes: tuple[Attribute, ...]
    ) -> Plan:
        """Project expressions with scalar subqueries over a plan that was read already."""
        scalars = Scalars(self.scala)
        replaced = [scalars.replaced(e) for e in expressions]
        for plan, outer in zip(scalars.plans, scalars.outer, strict=True):
            kind = JoinKind.LEFT if outer else JoinKind.INNER
            child = Join(kind, child, self._read(plan), (), (), None)
        return Project(child, tuple(self._expression(e) for e in replaced), attributes)

    def _group_limit(self, node: Any) -> Plan:
        """Read what Spark has inferred from a filter on a rank; the filter is still there."""
        child = self._read(node.child())
        order = self._order(items(node.orderSpec()))
        if order is None:
            return child
        keys = tuple(self._expression(e) for e in items(node.partitionSpec()))
        for key in keys:
            self._check_key(key, "a PARTITION BY key", node)
        rank = _RANKS[str(node.rankLikeFunction().getClass().getSimpleName())]
        return FirstRows(child, keys, order, rank, int(node.limit()), 0)

    def _limit(self, node: Any) -> Plan:
        """Read ORDER BY ... LIMIT ... OFFSET; projections in between change nothing."""
        limit, skip, projects, below = None, 0, [], node
        while (kind := str(below.nodeName())) in _LIMITING:
            if kind == "GlobalLimit":
                most = int(below.limitExpr().eval(None))
                limit = most if limit is None else min(limit, most)
            elif kind == "Offset":
                skip += int(below.offsetExpr().eval(None))
            elif kind == "Project":
                projects.append(below)
            below = below.child()
        order = self._order(items(below.order())) if kind == "Sort" else None
        if order is None or any(has_scalar(items(p.projectList())) for p in projects):
            raise self._unsupported(
                "LIMIT without ORDER BY is not supported in a view",
                "Which rows there are must not be left to chance: ORDER BY columns that compare.",
                node,
            )
        count = _ALL if limit is None else limit
        read: Plan = FirstRows(self._read(below.child()), (), order, "row_number", count, skip)
        for project in reversed(projects):
            expressions = tuple(self._expression(e) for e in items(project.projectList()))
            read = Project(read, expressions, attributes_of(project))
        return read

    def _order(self, orders: list[Any]) -> tuple[SortKey, ...] | None:
        """Return an order, or None where it compares what we do not."""
        keys = []
        for order in orders:
            value = self._expression(order.child())
            if is_collated(value.type) or holds(value.type, (MapType, VariantType)):
                return None
            descending = str(order.direction().sql()) == "DESC"
            keys.append(SortKey(value, descending, "FIRST" in str(order.nullOrdering().sql())))
        return tuple(keys)

    def _window(self, node: Any) -> Plan:
        child = self._read(node.child())
        partition = tuple(self._expression(e) for e in items(node.partitionSpec()))
        for key in partition:
            self._check_key(key, "a PARTITION BY key", node)
        functions = items(node.windowExpressions())
        for function in functions:
            self._expression(function)
        text = ", ".join(str(function.child().sql()) for function in functions)
        return Window(child, partition, text, node, attributes_of(node))

    def _join(self, node: Any) -> Plan:
        flag = None
        name = str(node.joinType().getClass().getSimpleName()).removesuffix("$")
        if name == "ExistenceJoin":
            flag = attribute_of(node.joinType().exists())
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
            raise self._temporals.refusal(
                f"a condition on the clock over both sides of a {_JOINS[name].value} join"
                " is not supported",
                "Filter one side in a subquery, or join the sides by INNER JOIN.",
                timed[0],
            )
        keys = [self._expression(e) for e in left_keys]
        for key in keys:
            self._check_key(key, "a join key", node)
        joined = Join(
            _JOINS[name],
            self._read(node.left()),
            self._read(node.right()),
            tuple(keys),
            tuple(self._expression(e) for e in right_keys),
            self._expression(residual) if residual is not None else None,
            flag,
        )
        return self._temporals.node(joined, timed) if timed else joined

    @property
    def _temporals(self) -> Temporals:
        return Temporals(self.scala, self.query, self._expression)

    def _timed(self, condition: Any | None) -> tuple[list[Any], Any | None]:
        """Return the parts of a condition that depend on the clock, and what is left."""
        if condition is None or not self.clocked:
            return [], condition
        found = [(each, has_mark(each)) for each in conjuncts(condition)]
        rest = all_of(self.scala, [each for each, timed in found if not timed])
        return [each for each, timed in found if timed], rest

    def _aggregate(self, node: Any) -> Plan:
        extracted = maybe(self.scala.module(f"{_PLANNING}.PhysicalAggregation").unapply(node))
        if extracted is None:
            raise self._unsupported("this form of aggregation is not supported", None, node)
        grouping, results = items(part(extracted, 0)), items(part(extracted, 2))
        keys: list[Expression] = []
        session = None
        for named in grouping:
            value = named.child() if named.getClass().getSimpleName() == "Alias" else named
            key = self._expression(self._normalised(value))
            self._check_key(key, "a GROUP BY key", node)
            if named.metadata().contains(_SESSION):
                session = len(keys)
            keys.append(key)
        own = tuple(attribute_of(named.toAttribute()) for named in grouping)
        functions = tuple(self._function(call, results) for call in items(part(extracted, 1)))
        child = self._read(node.child())
        if has_scalar(results):
            shown = [*(a.handle for a in own), *(f.handle.resultAttribute() for f in functions)]
            expressions = tuple(self._expression(e) for e in shown)
            attributes = tuple(attribute_of(e) for e in shown)
            whole = Aggregate(child, tuple(keys), own, functions, expressions, attributes, session)
            return self._project_scalars(whole, results, attributes_of(node))
        return Aggregate(
            child,
            tuple(keys),
            own,
            functions,
            tuple(self._expression(e) for e in results),
            attributes_of(node),
            session,
        )

    def _function(self, call: Any, results: list[Any]) -> AggregateFunction:
        function = call.aggregateFunction()
        text = str(call.sql())
        if has_no_order(call, results):
            raise self._unsupported(
                f"the order of {text} is not stated",
                "Sort it: sort_array(collect_list(x)), or listagg(x) WITHIN GROUP (ORDER BY x).",
                function,
            )
        values = items(function.children())
        distinct = is_distinct(call)
        if distinct:
            values = [self._normalised(value) for value in values]
        arguments = tuple(self._expression(e) for e in values)
        types = tuple(argument.type for argument in arguments)
        condition = condition_of(call)
        name = KEPT.get(kind_of(call), str(function.prettyName()))
        counts_rows = (
            name == "count"
            and condition is None
            and not distinct
            and all(not argument.handle.nullable() for argument in arguments)
        )
        return AggregateFunction(
            name,
            text,
            arguments,
            self._expression(condition) if condition is not None else None,
            counts_rows,
            distinct,
            needs_rows(call, types),
            is_ordered(call, types),
            call,
        )

    def _normalised(self, value: Any) -> Any:
        """Return a value of which those that SQL takes for equal are the same: one NaN, no -0.0."""
        rule = "org.apache.spark.sql.catalyst.optimizer.NormalizeFloatingNumbers"
        return self.scala.module(rule).normalize(value)

    # -- pieces ----------------------------------------------------------------------------

    def _expression(self, handle: Any) -> Expression:
        if self.clocked and has_mark(handle):
            hint = "Compare it with a time of the row in WHERE or ON."
            raise self._temporals.refusal("the clock is not supported here", hint, handle)
        if not handle.deterministic():
            raise self._unsupported("an expression of the view is not deterministic", None, handle)
        subquery = self.scala.named(f"{EXPRESSIONS}.SubqueryExpression")
        if subquery.hasSubquery(handle):
            raise self._unsupported(
                "a subquery in an expression is not supported in a view",
                "Make the subquery a view of its own, and join it.",
                handle,
            )
        return Expression(
            str(handle.sql()),
            type_of(handle),
            str(handle.canonicalized().toString()),
            passed_on(handle),
            handle,
        )

    def _check_key(self, key: Expression, what: str, node: Any) -> None:
        if is_collated(key.type):
            raise self._unsupported(
                f"{what} that is compared by a collation is not supported",
                "Use lower() or COLLATE UTF8_BINARY, so that equal values are the same text.",
                node,
            )
        if isinstance(key.type, (MapType, VariantType)):
            raise self._unsupported(
                f"{what} of type {key.type.simpleString().upper()} is not supported",
                "Use one of its fields, or to_json of it.",
                node,
            )

    def _unsupported(self, primary: str, hint: str | None, node: Any) -> HeadraceError:
        span = origin(node, self.query)
        return HeadraceError(Code.UNSUPPORTED, primary, hint=hint, span=span)
