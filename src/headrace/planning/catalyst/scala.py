"""Access to Scala objects through py4j: sequences, options, objects, constructors.

Walks trees of Catalyst, and replaces parts of plans and expressions.

Collecting the rows of a DataFrame as Arrow.
"""

from __future__ import annotations

from base64 import b64decode
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import BYTES_TYPE, register_output_converter

from headrace.types import exchanged, with_schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession


_CATALYST = "org.apache.spark.sql.catalyst"
ASOF_JOINS = ("spark.sql.join.asofJoin.enabled", "true")
"""The session setting that makes the parser read ASOF JOIN."""

ANALYSIS = f"{_CATALYST}.analysis"
EXPRESSIONS = f"{_CATALYST}.expressions"
LOGICAL = f"{_CATALYST}.plans.logical"
OPTIMIZER = f"{_CATALYST}.optimizer"
TYPES = "org.apache.spark.sql.types"

_OF_PYSPARK = (
    "PythonSQLUtils",
    "PythonUtils",
    "SimplePythonFunction",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.classic.SparkSession$",
    "org.apache.spark.sql.execution.python.UserDefinedPythonFunction",
    "org.apache.spark.sql.functions",
)
"""The classes that PySpark looks up for every query and every function."""


@dataclass(frozen=True, slots=True)
class Scala:
    """The JVM of a Spark session; every returned value is a handle of a JVM object.

    Values that never change are cached.
    """

    jvm: Any
    _kept: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def named(self, path: str) -> Any:
        """Return the class with a dotted path, or with a name that PySpark imports.

        The view of the JVM caches it, for PySpark as well: finding a class by its name searches all
        of Spark's jars.
        """
        kept = vars(self.jvm)
        if path not in kept:
            kept[path] = getattr(self.jvm, path)
        return kept[path]

    def module(self, path: str) -> Any:
        """Return the singleton of a Scala ``object``."""
        return self.once(path, lambda: getattr(self.named(f"{path}$"), "MODULE$"))

    def expression(self, name: str, *arguments: Any) -> Any:
        """Construct the Catalyst expression class ``name``."""
        return self.named(f"{EXPRESSIONS}.{name}")(*arguments)

    def logical(self, name: str, *arguments: Any) -> Any:
        """Construct the Catalyst logical plan class ``name``."""
        return self.named(f"{LOGICAL}.{name}")(*arguments)

    def call(self, path: str, method: str, *arguments: Any) -> Any:
        """Call a static method of a class."""
        return self.once(f"{path}.{method}", lambda: getattr(self.named(path), method))(*arguments)

    def seq(self, items: Iterable[Any]) -> Any:
        """Return an immutable Scala ``Seq`` of the items."""
        made = self.module("scala.collection.immutable.Nil")
        for item in reversed(list(items)):
            made = getattr(made, "$colon$colon")(item)
        return made

    def once(self, name: str, made: Callable[[], Any]) -> Any:
        """Return a value that is made once for the JVM, and cached under a name."""
        if name not in self._kept:
            self._kept[name] = made()
        return self._kept[name]

    def alias(self, value: Any, name: str, like: Any | None = None) -> Any:
        """Name a value; with ``like``, an attribute, use its id and metadata."""
        if like is None:
            id_, metadata = self.call(f"{EXPRESSIONS}.NamedExpression", "newExprId"), self.none
        else:
            id_, metadata = like.exprId(), self.option(like.metadata())
        empty = self.seq([])
        return self.expression("Alias", value, name, id_, empty, metadata, empty)

    def cast(self, value: Any, type_: Any) -> Any:
        """Return a cast of ``value`` to a type of the JVM, in UTC; an overflow is an error."""
        utc = self.once("UTC", lambda: self.option("UTC"))
        return self.expression("Cast", value, type_, utc, self.ansi)

    def normalised(self, value: Any) -> Any:
        """Return a value in which values that SQL holds equal are identical: one NaN, no -0.0."""
        return self.module(f"{OPTIMIZER}.NormalizeFloatingNumbers").normalize(value)

    def comparable(self, value: Any) -> list[Any]:
        """Return what tells values of an expression apart: itself, or the bytes of a variant.

        Spark neither compares nor hashes variants, though each is two binary values.
        """
        if str(value.dataType().typeName()) != "variant":
            return [value]
        binary = self.type('"binary"')
        invoke = self.named(f"{EXPRESSIONS}.objects.Invoke")
        none = self.seq([])
        return [
            invoke(value, method, binary, none, none, True, True, True)  # noqa: FBT003
            for method in ("getValue", "getMetadata")
        ]

    def ascending(self, value: Any) -> Any:
        """Return the ascending order by a value, NULLs first."""
        ascending = self.module(f"{EXPRESSIONS}.Ascending")
        first = self.module(f"{EXPRESSIONS}.NullsFirst")
        return self.expression("SortOrder", value, ascending, first, self.seq([]))

    def long(self, value: int) -> Any:
        """Return a constant of type BIGINT."""
        constant = self.module(f"{EXPRESSIONS}.Literal").apply(value)
        return self.cast(constant, self.module(f"{TYPES}.LongType"))

    def parser(self, session: Any) -> Any:
        """Return the SQL parser of a session, which uses the settings of the active session.

        The session becomes the active session of this thread.
        """
        self._sessions.setActiveSession(session)
        return session.sessionState().sqlParser()

    @contextmanager
    def active(self, session: SparkSession) -> Iterator[None]:
        """Make a session the active one of this thread, for the duration of a block.

        Spark's planner uses the settings of the active session.
        """
        before = self._sessions.getActiveSession()
        self._sessions.setActiveSession(session._jsparkSession)  # noqa: SLF001
        try:
            yield
        finally:
            if before.isDefined():
                self._sessions.setActiveSession(before.get())
            else:
                self._sessions.clearActiveSession()

    @property
    def _sessions(self) -> Any:
        return self.module("org.apache.spark.sql.classic.SparkSession")

    def type(self, json: str) -> Any:
        """Return the JVM's object of a type of Spark."""
        return self.once(json, lambda: self.call(f"{TYPES}.DataType", "fromJson", json))

    def option(self, value: Any | None) -> Any:
        """Return a Scala ``Option``."""
        return self.none if value is None else self.call("scala.Option", "apply", value)

    @property
    def none(self) -> Any:
        """Scala's ``None``."""
        return self.once("None", lambda: self.call("scala.Option", "empty"))

    @property
    def ansi(self) -> Any:
        """The mode of evaluation in which an overflow is an error."""
        return self.once("ANSI", lambda: self.module(f"{EXPRESSIONS}.EvalMode").ANSI())

    @property
    def exact(self) -> Any:
        """Arithmetic that keeps the scale of decimals; an overflow is an error."""
        return self.expression("NumericEvalContext", self.ansi, False)  # noqa: FBT003

    def may_hold(self, pattern: str, tree: Any) -> bool:
        """Return whether a kind of node may be in an expression or plan, including subqueries.

        ``pattern`` is one of Spark's ``TreePattern``.
        """

        def made() -> Any:
            return getattr(self.module(f"{_CATALYST}.trees.TreePattern"), pattern)()

        return bool(tree.containsPattern(self.once(pattern, made)))


@dataclass(frozen=True, slots=True)
class Numbers:
    """Assigns numbers to JVM values: equal values have the same number."""

    _by_hash: dict[int, list[Any]] = field(default_factory=lambda: defaultdict(list))

    def of(self, value: Any) -> tuple[int, int]:
        """Return the number of a value: its hash, and its index among values with that hash."""
        code = int(value.hashCode())
        alike = self._by_hash[code]
        for position, other in enumerate(alike):
            if value.equals(other):
                return code, position
        alike.append(value)
        return code, len(alike) - 1


@lru_cache(maxsize=1)
def _of_jvm(jvm: Any) -> Scala:
    # py4j's own converter creates an array of bytes in Python, byte by byte.
    register_output_converter(BYTES_TYPE, lambda value, _client: b64decode(value))
    scala = Scala(jvm)
    for name in _OF_PYSPARK:
        scala.named(name)
    return scala


def scala_of(spark: SparkSession) -> Scala:
    """Return the JVM of a session."""
    return _of_jvm(spark.sparkContext._jvm)  # noqa: SLF001


def kind_of(expression: Any) -> str:
    """Return the name of an expression's class."""
    return str(expression.getClass().getSimpleName())


def node_name(plan: Any) -> str:
    """Return the name of a node of a plan, such as Project, or of an expression: its class."""
    return str(plan.nodeName())


def references(expression: Any) -> frozenset[int]:
    """Return the ids of the attributes that an expression refers to."""
    return frozenset(int(a.exprId().id()) for a in items(expression.references().toSeq()))


def within(expression: Any) -> Iterator[Any]:
    """Yield an expression and its descendants, parents before children."""
    yield expression
    for child in items(expression.children()):
        yield from within(child)


def items(sequence: Any) -> list[Any]:
    """Return the elements of a Scala ``Seq`` as a list."""
    return [sequence.apply(position) for position in range(sequence.length())]


def part(product: Any, position: int) -> Any:
    """Return a field of a Scala tuple or case class; positions count from 0."""
    return product.productElement(position)


def maybe(option: Any) -> Any | None:
    """Return the value of a Scala ``Option``, or None."""
    return option.get() if option.isDefined() else None


Replace = Callable[[Any, str, str], Any | None]
"""Returns a replacement for an expression, given its class and the kind of its node.

None keeps the expression and continues with its children.
"""

SUBQUERIES = frozenset(
    {
        "Exists",
        "FunctionTableSubqueryArgumentExpression",
        "LateralSubquery",
        "ListQuery",
        "ScalarSubquery",
    }
)
"""The expressions that contain a plan."""

READ_BY_TASK = "MapInArrow"
"""The node that runs a Python task; the nodes below it have no columns of a query."""


def with_replaced(scala: Scala, plan: Any, replace: Replace) -> Any:
    """Return a plan with expressions replaced, including subqueries, or the plan itself.

    The expressions of projections, conditions, aggregates and LATERAL joins are visited.
    """
    plan = with_children(scala, plan, lambda child: with_replaced(scala, child, replace))
    node = node_name(plan)

    def of_all(expressions: list[Any]) -> list[Any]:
        return [replaced(scala, each, node, replace) for each in expressions]

    match node:
        case "Filter":
            condition = plan.condition()
            (found,) = of_all([condition])
            return plan if found is condition else scala.logical("Filter", found, plan.child())
        case "Join":
            given = [c] if (c := maybe(plan.condition())) is not None else []
            new = of_all(given)
            if _same(given, new):
                return plan
            condition = scala.option(new[0])
            parts = (plan.left(), plan.right(), plan.joinType())
            return scala.logical("Join", *parts, condition, plan.hint())
        case "LateralJoin":
            given = [plan.right()]
            (lateral,) = of_all(given)
            if lateral is given[0]:
                return plan
            left, how, condition = plan.left(), plan.joinType(), plan.condition()
            return scala.logical("LateralJoin", left, lateral, how, condition)
        case "Project":
            given = items(plan.projectList())
            new = of_all(given)
            if _same(given, new):
                return plan
            return scala.logical("Project", scala.seq(new), plan.child())
        case "Aggregate":
            keys, given = items(plan.groupingExpressions()), items(plan.aggregateExpressions())
            new_keys, new = of_all(keys), of_all(given)
            if _same([*keys, *given], [*new_keys, *new]):
                return plan
            by, shown = scala.seq(new_keys), scala.seq(new)
            return scala.logical("Aggregate", by, shown, plan.child(), plan.hint())
        case _:
            return plan


def replaced(scala: Scala, expression: Any, node: str, replace: Replace) -> Any:
    """Return an expression with its children replaced, including subqueries."""
    kind = kind_of(expression)
    other = replace(expression, kind, node)
    if other is not None:
        return other
    if kind in SUBQUERIES:
        plan = expression.plan()
        new = with_replaced(scala, plan, replace)
        return expression if new is plan else expression.withNewPlan(new)
    return with_children(scala, expression, lambda child: replaced(scala, child, node, replace))


def with_nodes(scala: Scala, plan: Any, rewritten: Callable[[Any], Any]) -> Any:
    """Return a plan with the nodes rewritten, in itself and in its subqueries."""

    def replace(expression: Any, kind: str, _node: str) -> Any | None:
        if kind not in SUBQUERIES:
            return None
        inner = expression.plan()
        new = rewritten(with_replaced(scala, inner, replace))
        return expression if new is inner else expression.withNewPlan(new)

    if scala.may_hold("PLAN_EXPRESSION", plan):
        plan = with_replaced(scala, plan, replace)
    return rewritten(plan)


def with_children(scala: Scala, tree: Any, change: Callable[[Any], Any]) -> Any:
    """Return a plan or an expression with its children changed; itself if no child changes."""
    below = items(tree.children())
    new = [change(child) for child in below]
    return tree if _same(below, new) else tree.withNewChildren(scala.seq(new))


def topmost(plan: Any, kind: str) -> Iterator[Any]:
    """Yield the topmost nodes of a kind in a plan."""
    if node_name(plan) == kind:
        yield plan
        return
    for child in items(plan.children()):
        yield from topmost(child, kind)


def _same(before: list[Any], after: list[Any]) -> bool:
    return all(a is b for a, b in zip(before, after, strict=True))


def collect_arrow(frame: DataFrame) -> pa.Table:
    """Run a query and return its rows, with all columns nullable.

    ``DataFrame.toArrow`` refuses a NULL struct, which outer joins create, if its fields are not
    nullable.

    Raises:
        PySparkException, Py4JError: the query fails.
    """
    schema = exchanged(frame.schema)
    batches = frame._collect_as_arrow(empty_list_if_zero_records=False)  # noqa: SLF001
    return with_schema(pa.Table.from_batches(batches), schema)
