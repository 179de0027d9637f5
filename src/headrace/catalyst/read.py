"""Reading an optimised Catalyst plan as ours: an allow-list of nodes, with reasons for the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    VariantType,
    _parse_datatype_json_string,
)

from headrace.catalyst.plan import (
    Aggregate,
    AggregateFunction,
    Attribute,
    Expand,
    Expression,
    Filter,
    Generate,
    Join,
    JoinKind,
    Plan,
    Project,
    Scan,
    UnionAll,
)
from headrace.catalyst.prune import pruned
from headrace.catalyst.rewrite import not_in
from headrace.catalyst.scala import EXPRESSIONS, Scala, items, maybe, part
from headrace.errors import Code, HeadraceError, Span
from headrace.types import is_collated

if TYPE_CHECKING:
    from headrace.types import RelationId

_PLANNING = "org.apache.spark.sql.catalyst.planning"

_REFUSED_NODES = {
    "Window": ("a window function", "Aggregate with GROUP BY, and join the result back."),
    "GlobalLimit": ("LIMIT", "Put ORDER BY and LIMIT in the query that reads the view."),
    "LocalLimit": ("LIMIT", "Put ORDER BY and LIMIT in the query that reads the view."),
    "Offset": ("OFFSET", "Put OFFSET in the query that reads the view."),
    "OneRowRelation": ("a query without FROM", "Read from a stream, table or view."),
    "LocalRelation": ("a query over constant rows", "Insert the rows into a table, and read that."),
    "Sample": ("TABLESAMPLE", "Filter by a hash of a column, such as xxhash64(id) % 10 = 0."),
    "UnionLoop": ("a recursive WITH", None),
    "Pivot": ("PIVOT", "Write one aggregate with FILTER (WHERE ...) per column."),
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
_LINEAR = {"Count": "count", "Sum": "sum", "Average": "avg"}


@dataclass(slots=True)
class Reader:
    """Reads one query's plan; ``relations`` tells whose stand-in a leaf is, by its RDD's id."""

    scala: Scala
    relations: dict[int, RelationId]
    query: Span

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
                attributes = self._attributes(node)
                columns = tuple(range(len(attributes)))
                return Scan(self.relations[node.rdd().id()], attributes, columns)
            case "Project":
                return Project(
                    self._read(node.child()),
                    tuple(self._expression(e) for e in items(node.projectList())),
                    self._attributes(node),
                )
            case "Filter":
                return Filter(self._read(node.child()), self._expression(node.condition()))
            case "Expand":
                return Expand(
                    self._read(node.child()),
                    tuple(tuple(items(p)) for p in items(node.projections())),
                    self._attributes(node),
                )
            case "Generate":
                return self._generate(node)
            case "Union":
                branches = tuple(self._read(child) for child in items(node.children()))
                return UnionAll(branches, self._attributes(node))
            case "Join":
                return self._join(node)
            case "Aggregate":
                return self._aggregate(node)
            case "Sort" | "SubqueryAlias":
                return self._read(node.child())
            case _:
                what, hint = _REFUSED_NODES.get(kind, (f"Spark's {kind}", None))
                raise self._unsupported(f"{what} is not supported in a view", hint, node)

    def _generate(self, node: Any) -> Plan:
        generator = node.generator()
        name = str(generator.getClass().getSimpleName())
        if name not in ("Explode", "PosExplode", "Inline", "Stack"):
            hint = "Use explode, posexplode, inline or stack."
            raise self._unsupported(f"the generator {name} is not supported", hint, generator)
        return Generate(
            self._read(node.child()), str(generator.sql()), node, self._attributes(node)
        )

    def _join(self, node: Any) -> Plan:
        flag = None
        name = str(node.joinType().getClass().getSimpleName()).removesuffix("$")
        if name == "ExistenceJoin":
            flag = self._attribute(node.joinType().exists())
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
        keys = [self._expression(e) for e in left_keys]
        for key in keys:
            self._check_key(key, "a join key", node)
        return Join(
            _JOINS[name],
            self._read(node.left()),
            self._read(node.right()),
            tuple(keys),
            tuple(self._expression(e) for e in right_keys),
            self._expression(residual) if residual is not None else None,
            flag,
        )

    def _aggregate(self, node: Any) -> Plan:
        extracted = maybe(self.scala.module(f"{_PLANNING}.PhysicalAggregation").unapply(node))
        if extracted is None:
            raise self._unsupported("this form of aggregation is not supported", None, node)
        normalise = self.scala.module(
            "org.apache.spark.sql.catalyst.optimizer.NormalizeFloatingNumbers"
        ).normalize
        grouping = items(part(extracted, 0))
        keys = []
        for named in grouping:
            value = named.child() if named.getClass().getSimpleName() == "Alias" else named
            key = self._expression(normalise(value))
            self._check_key(key, "a GROUP BY key", node)
            keys.append(key)
        return Aggregate(
            self._read(node.child()),
            tuple(keys),
            tuple(self._attribute(named.toAttribute()) for named in grouping),
            tuple(self._function(call) for call in items(part(extracted, 1))),
            tuple(self._expression(e) for e in items(part(extracted, 2))),
            self._attributes(node),
        )

    def _function(self, call: Any) -> AggregateFunction:
        function = call.aggregateFunction()
        kind = str(function.getClass().getSimpleName())
        text = str(call.sql())
        name = _LINEAR.get(kind)
        if kind == "PivotFirst":
            what, hint = _REFUSED_NODES["Pivot"]
            raise self._unsupported(f"{what} is not supported in a view", hint, function)
        if name is None or str(function.prettyName()).startswith("try_"):
            raise self._unsupported(
                f"the aggregate {function.prettyName()!s} is not supported in a view",
                "count, sum and avg are kept incrementally so far.",
                function,
            )
        if call.isDistinct():
            raise self._unsupported(
                f"{text} is not supported in a view",
                "Count over a view that selects DISTINCT values.",
                function,
            )
        arguments = tuple(self._expression(e) for e in items(function.children()))
        if name != "count" and not isinstance(
            arguments[0].type, (ByteType, ShortType, IntegerType, LongType, DecimalType)
        ):
            kind = arguments[0].type.simpleString().upper()
            raise self._unsupported(
                f"{name} over {kind} is not supported in a view",
                "A sum of inexact numbers drifts as rows come and go. Cast the argument, for "
                "instance to DECIMAL(18,4).",
                function,
            )
        condition = maybe(call.filter())
        counts_rows = (
            name == "count"
            and condition is None
            and all(not argument.handle.nullable() for argument in arguments)
        )
        return AggregateFunction(
            name,
            text,
            arguments,
            self._expression(condition) if condition is not None else None,
            counts_rows,
            call,
        )

    # -- pieces ----------------------------------------------------------------------------

    def _attributes(self, node: Any) -> tuple[Attribute, ...]:
        return tuple(self._attribute(a) for a in items(node.output()))

    def _attribute(self, handle: Any) -> Attribute:
        return Attribute(
            int(handle.exprId().id()),
            str(handle.name()),
            type_of(handle),
            bool(handle.nullable()),
            handle,
        )

    def _expression(self, handle: Any) -> Expression:
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
            _passed_on(handle),
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
        origin = node.origin()
        start, stop = origin.startIndex(), origin.stopIndex()
        query = self.query
        span = query
        if start.isDefined() and stop.isDefined():
            begin, end = query.start + start.get(), query.start + stop.get() + 1
            if query.start <= begin < end <= query.end:
                span = Span(query.text, begin, end, query.file, query.line)
        return HeadraceError(Code.UNSUPPORTED, primary, hint=hint, span=span)


def type_of(handle: Any) -> DataType:
    """Return the Spark type of an expression on the JVM."""
    return _parse_datatype_json_string(handle.dataType().json())


def _passed_on(handle: Any) -> int | None:
    """Return the id of the attribute that is renamed or passed on as it is, if that is all."""
    kind = handle.getClass().getSimpleName()
    while kind in ("Alias", "KnownNotNull"):
        handle = handle.child()
        kind = handle.getClass().getSimpleName()
    return int(handle.exprId().id()) if kind == "AttributeReference" else None
