"""The only door to Spark's planner: a query's text in, our small plan out.

Spark parses, resolves, types and optimises. Between parsing and resolving, the query is checked
against the fence of :mod:`headrace.catalyst.allowed`: what Spark would run at once (commands,
scripts, paths, reflection) never reaches its analyser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructType, _parse_datatype_json_string

from headrace.catalyst.allowed import (
    ALWAYS_CLOCK,
    FUNCTIONS,
    OUTSIDE,
    REFUSED,
    SPECIAL_TIMES,
)
from headrace.catalyst.failures import translate
from headrace.catalyst.plan import Plan
from headrace.catalyst.read import Reader
from headrace.catalyst.scala import Scala, items
from headrace.errors import Code, HeadraceError, Span, nearest
from headrace.types import RelationId, Schema

# Rules that would use the (empty) contents of the stand-ins instead of their schema alone, or that
# would forget what a view is over where its condition is never true.
_DATA_RULES = (
    "ConvertToLocalRelation",
    "PropagateEmptyRelation",
    "OptimizeOneRowPlan",
    "PruneFilters",
)
_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer"


@dataclass(frozen=True, slots=True)
class Analysed:
    """A query that Spark has resolved: its columns, what it reads, and Catalyst's plans."""

    schema: Schema
    reads: tuple[RelationId, ...]
    optimised: Any

    @property
    def text(self) -> str:
        """Spark's optimised plan as text."""
        return str(self.optimised.toString())


@dataclass
class Planner:
    """Analyses queries over stand-ins of the declared relations. Not thread-safe.

    A stand-in is a relation with the declared schema and no content. It is not foldable, so no
    rule of Catalyst can use the lack of content.
    """

    spark: SparkSession
    scala: Scala = field(init=False)
    _names: dict[str, RelationId] = field(default_factory=dict, init=False)
    _relations: dict[int, RelationId] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Open a session of its own, so that nothing else sees the stand-ins."""
        self.spark = self.spark.newSession()
        self.spark.conf.set(
            "spark.sql.optimizer.excludedRules",
            ",".join(f"{_OPTIMIZER}.{rule}" for rule in _DATA_RULES),
        )
        self.scala = Scala(self.spark.sparkContext._jvm)  # noqa: SLF001

    def parse_type(self, type_span: Span, text: str | None = None) -> DataType:
        """Return the Spark type that ``text`` (by default, the span's own text) names."""
        sql = text or type_span.text[type_span.start : type_span.end]
        try:
            parsed = self._session.sessionState().sqlParser().parseDataType(sql)
        except PySparkException as error:
            raise HeadraceError(
                Code.INVALID,
                f'type "{sql}" does not exist',
                hint="Use a type of Spark SQL, such as INT, BIGINT, STRING or DECIMAL(10,2).",
                span=type_span,
            ) from error
        return _parse_datatype_json_string(parsed.json())

    def declare(self, relation: RelationId, name: str, schema: Schema) -> None:
        """Make ``name`` known to queries, replacing a former meaning."""
        jvm = self.scala.jvm
        java_schema = jvm.org.apache.spark.sql.types.DataType.fromJson(json.dumps(schema.to_json()))
        empty = self.spark.sparkContext._jsc.emptyRDD()  # noqa: SLF001
        frame = self._session.createDataFrame(empty, java_schema)
        leaf = frame.queryExecution().analyzed()
        self._relations[leaf.rdd().id()] = relation
        frame.createOrReplaceTempView(f"`{name}`")
        self._names[name] = relation

    def forget(self, name: str) -> None:
        """Make ``name`` unknown again."""
        self._names.pop(name, None)
        self.spark.catalog.dropTempView(name)

    def analyse(self, query: Span) -> Analysed:
        """Resolve the query at ``query``; refuse what lies outside the fence."""
        try:
            parsed = self._session.sessionState().sqlParser().parsePlan(
                query.text[query.start : query.end]
            )
            self._check_parsed(parsed, query)
            dataset = self.scala.named("org.apache.spark.sql.classic.Dataset")
            execution = dataset.ofRows(self._session, parsed).queryExecution()
            analysed = execution.analyzed()
            self._check_resolved(analysed, query)
            optimised = execution.optimizedPlan()
        except PySparkException as error:
            raise translate(error, query) from error
        except Py4JError as error:
            raise HeadraceError(
                Code.INVALID,
                "Spark cannot make sense of the query",
                detail=_first_cause(error),
                span=query,
            ) from error
        schema = StructType.fromJson(json.loads(analysed.schema().json()))
        reads = {
            self._relations[leaf.rdd().id()]
            for leaf in items(optimised.collectLeaves())
            if leaf.nodeName() == "LogicalRDD"
        }
        return Analysed(Schema.of_spark(schema), tuple(sorted(reads)), optimised)

    def plan(self, analysed: Analysed, query: Span) -> Plan:
        """Read the optimised plan as ours, or refuse the construct that is not maintained."""
        return Reader(self.scala, self._relations, query).plan(analysed.optimised)

    @property
    def _session(self) -> Any:
        return self.spark._jsparkSession  # noqa: SLF001

    def _check_parsed(self, parsed: Any, query: Span) -> None:
        common_tables: set[str] = set()
        nodes = list(_nodes(parsed))
        for node, kind in nodes:
            if kind == "UnresolvedWith":
                common_tables |= {items_of(pair) for pair in items(node.cteRelations())}
        for node, kind in nodes:
            if kind not in _PARSED_NODES:
                raise HeadraceError(
                    Code.UNSUPPORTED,
                    f"{_NODE_WORDS.get(kind) or _words(kind)} is not allowed in a query",
                    hint="A query is one SELECT over streams, tables and views.",
                    span=_origin(node, query),
                )
            if kind == "UnresolvedRelation":
                self._check_name(node, common_tables, query)
            for expression, name in _expressions(node):
                if name in ("UnresolvedFunction", "UnresolvedGenerator"):
                    _check_function(expression, name, query)
                elif name == "Literal":
                    _check_typed_literal(expression, query)

    def _check_name(self, node: Any, common_tables: set[str], query: Span) -> None:
        name = ".".join(part.lower() for part in items(node.multipartIdentifier()))
        if name in common_tables or name in self._names:
            return
        close = nearest(name, tuple(self._names))
        raise HeadraceError(
            Code.INVALID,
            f'stream, table or view "{name}" does not exist',
            hint=f'Did you mean "{close}"?' if close else "SHOW TABLES lists what exists.",
            span=_origin(node, query),
        )

    def _check_resolved(self, analysed: Any, query: Span) -> None:
        if analysed.isStreaming():
            raise HeadraceError(Code.INTERNAL, "a stand-in is a Spark stream")
        # Functions such as to_date stand for others, which are what has to be looked at.
        replaced = self.scala.module(f"{_OPTIMIZER}.ReplaceExpressions").apply
        for node, kind in _nodes(analysed, replaced):
            if not items(node.children()) and kind not in _LEAVES:
                raise HeadraceError(
                    Code.UNSUPPORTED,
                    f"{_words(kind)} is not allowed in a query",
                    hint="Read from streams, tables and views.",
                    span=_origin(node, query),
                )
            for expression, name in _expressions(node):
                if name in OUTSIDE:
                    raise _refused(OUTSIDE[name], _origin(expression, query))
                if name == "Cast":
                    _check_cast(expression, query)
                if name in ALWAYS_CLOCK:
                    raise _refused(_ALIASES.get(name, "current_timestamp"), _origin(expression, query))
                if not expression.deterministic() and not items(expression.children()):
                    raise _refused(str(expression.prettyName()), _origin(expression, query))


_LEAVES = ("LogicalRDD", "OneRowRelation", "LocalRelation", "CTERelationRef")
_ALIASES = {"CurrentDate": "current_date", "CurrentTime": "current_time", "Now": "now"}

_PARSED_NODES: Mapping[str, None] = dict.fromkeys(
    """Project Filter Join Aggregate UnresolvedRelation SubqueryAlias Union Distinct Sort
    GlobalLimit LocalLimit Offset Generate UnresolvedWith UnresolvedSubqueryColumnAliases Except
    Intersect UnresolvedHaving OneRowRelation LateralJoin WithWindowDefinition
    UnresolvedInlineTable Window Expand Pivot Unpivot WithCTE CTERelationDef
    CTERelationRef RelationTimeTravel Deduplicate UsingJoin LocalRelation""".split()
)


_NODE_WORDS = {
    "UnresolvedTableValuedFunction": "a table-valued function",
    "UnresolvedTVFAliases": "a table-valued function",
    "ScriptTransformation": "TRANSFORM",
    "Sample": "TABLESAMPLE",
    "UnresolvedHint": "a hint",
    "RepartitionByExpression": "DISTRIBUTE BY",
    "UnresolvedQualify": "QUALIFY",
    "Intersect All": "INTERSECT ALL",
    "Except All": "EXCEPT ALL",
    "PipeOperator": "the pipe operator",
}


def items_of(pair: Any) -> str:
    """Return the name of a common table expression, as it is looked up."""
    return str(pair._1()).lower()


def _nodes(
    plan: Any, prepared: Callable[[Any], Any] = lambda plan: plan
) -> Iterator[tuple[Any, str]]:
    """Yield every logical node with its kind, subqueries in expressions included.

    ``prepared`` is applied to the whole plan, and to that of each subquery.
    """
    yield from _below(prepared(plan), prepared)


def _below(plan: Any, prepared: Callable[[Any], Any]) -> Iterator[tuple[Any, str]]:
    kind = str(plan.nodeName())
    yield plan, kind
    if kind == "UnresolvedWith":
        for pair in items(plan.cteRelations()):
            yield from _below(pair._2(), prepared)
    for child in items(plan.children()):
        yield from _below(child, prepared)
    for expression, name in _expressions(plan):
        if name in _SUBQUERIES:
            yield from _nodes(expression.plan(), prepared)


_SUBQUERIES = frozenset(
    "ScalarSubquery Exists ListQuery LateralSubquery InSubquery FunctionTableSubqueryArgumentExpression".split()
) - {"InSubquery"}


def _expressions(node: Any) -> Iterator[tuple[Any, str]]:
    """Yield every expression of one node, parents before children."""
    pending = items(node.expressions())
    while pending:
        expression = pending.pop()
        yield expression, str(expression.getClass().getSimpleName())
        pending.extend(items(expression.children()))


def _check_function(expression: Any, kind: str, query: Span) -> None:
    if kind == "UnresolvedFunction":
        parts = [part.lower() for part in items(expression.nameParts())]
    else:
        parts = [str(expression.name().funcName()).lower()]
    name = parts[-1]
    span = _origin(expression, query)
    if len(parts) > 1 and parts[:-1] not in (["builtin"], ["system", "builtin"]):
        raise HeadraceError(
            Code.INVALID, f'function "{".".join(parts)}" does not exist', span=span
        )
    if name == "unix_timestamp" and items(expression.children()):
        return
    if name in REFUSED:
        raise _refused(name, span)
    if name not in FUNCTIONS:
        close = nearest(name, tuple(sorted(FUNCTIONS)))
        raise HeadraceError(
            Code.INVALID,
            f'function "{name}" does not exist',
            hint=f'Did you mean "{close}"?' if close else None,
            span=span,
        )


_CLOCK_TEXT = re.compile(rf"[\s'\"]*({'|'.join(SPECIAL_TIMES)})\b", re.IGNORECASE)
_TIMES = ("date", "timestamp", "timestamp_ntz")


def _check_typed_literal(literal: Any, query: Span) -> None:
    """Refuse ``TIMESTAMP 'now'`` and the like, which the parser has replaced by a time."""
    if str(literal.dataType().typeName()) not in _TIMES:
        return
    span = _origin(literal, query)
    found = re.match(r"\w+\s*(['\"].*)", span.source, re.DOTALL)
    if found is not None and _CLOCK_TEXT.match(found[1]):
        raise _refused(_clock_word(found[1]), span)


def _check_cast(cast: Any, query: Span) -> None:
    """Refuse a constant text that Spark takes for the time of planning when it is cast."""
    value = cast.child()
    if str(cast.dataType().typeName()) not in _TIMES or not value.foldable():
        return
    if str(value.dataType().typeName()) != "string":
        return
    text = str(value.eval(None))
    if _CLOCK_TEXT.match(text):
        raise _refused(_clock_word(text), _origin(cast, query))


def _clock_word(text: str) -> str:
    found = _CLOCK_TEXT.match(text)
    return f"timestamp '{found[1].lower() if found else text}'"


def _first_cause(error: Py4JError) -> str:
    """Return the line of a Java stack trace that says what is wrong."""
    lines = [line for line in str(error).split("\n") if line.startswith(": ")]
    shown = lines[0].removeprefix(": ") if lines else str(error).split("\n")[0]
    return re.sub(r"^[\w.$]+: |#\d+L?|\[[A-Z_.]+\] | SQLSTATE: \w+", "", shown)[:300]


def _refused(name: str, span: Span) -> HeadraceError:
    why = REFUSED.get("now" if name.startswith("timestamp '") else name)
    called = f'function "{name}"' if " " not in name else name
    return HeadraceError(
        Code.UNSUPPORTED,
        f"{called} is not allowed in a query",
        detail=f"{name} is refused because {why.reason}." if why else "It is not deterministic.",
        hint=why.hint if why else None,
        span=span,
    )


def _words(kind: str) -> str:
    """Turn a class name such as ``ScriptTransformation`` into words."""
    spaced = "".join(f" {c.lower()}" if c.isupper() else c for c in kind)
    return " ".join(spaced.split())


def _origin(node: Any, query: Span) -> Span:
    """Return where in the query a node was written, as far as Spark knows."""
    origin = node.origin()
    start, stop = origin.startIndex(), origin.stopIndex()
    if not (start.isDefined() and stop.isDefined()):
        return query
    begin, end = query.start + start.get(), query.start + stop.get() + 1
    if not query.start <= begin < end <= query.end:
        return query
    return Span(query.text, begin, end, query.file, query.line)
