"""Transplanting resolved expressions onto deltas.

Catalyst nodes of an analysed query are rebuilt over another child: the child's columns get the ids
that the expressions refer to, and every node passes on a weight column. The text of expressions is
never parsed again, since it does not survive a round trip.

This uses private API of Spark, which is pinned to one minor version, and tested.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import (
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StructField,
    StructType,
    VariantType,
)
from pyspark.util import PythonEvalType

from headrace.errors import Code, HeadraceError
from headrace.planning.catalyst.resolved import type_of
from headrace.planning.catalyst.rewrites import whole
from headrace.planning.catalyst.scala import (
    ANALYSIS,
    EXPRESSIONS,
    LOGICAL,
    OPTIMIZER,
    Scala,
    items,
    kind_of,
    maybe,
)
from headrace.types import holds, of_task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headrace.planning.catalyst import plan


_SEED = 42
_PARTITION_SHIFT = 32
_HALF = 1 << 31


def spark_schema(fields: Sequence[tuple[str, DataType]]) -> StructType:
    """Return a schema with these columns, all nullable."""
    return StructType([StructField(name, type_) for name, type_ in fields])


@dataclass(frozen=True, slots=True)
class Mapped:
    """A Python task in a plan, and the columns that it yields."""

    task: Callable[[Iterator[Any]], Iterator[Any]]
    schema: StructType


@dataclass(frozen=True, slots=True)
class Transplant:
    """Builds logical plans of one Spark session from JVM objects. Every plan is fully resolved.

    ``tasks`` are the Python tasks in its plans, by the ids of their calls. ``sums`` are the ids of
    the columns of :meth:`added_up`.
    """

    spark: SparkSession
    scala: Scala
    tasks: dict[int, Mapped] = field(default_factory=dict)
    sums: set[int] = field(default_factory=set)

    # -- expressions -----------------------------------------------------------------------

    def alias(self, value: Any, name: str, like: Any | None = None) -> Any:
        """Name a value; with ``like``, an attribute, use its id and metadata."""
        return self.scala.alias(value, name, like)

    def literal(self, value: Any, type_: DataType) -> Any:
        """Return a constant; Python's None is a NULL of the type."""
        jvm_type = self.type(type_)
        if value is None:
            return self.scala.expression("Literal", None, jvm_type)
        constant = self.scala.module(f"{EXPRESSIONS}.Literal").apply(value)
        return self.cast(constant, type_) if isinstance(type_, LongType) else constant

    def zero(self, type_: DataType) -> Any:
        """Return the constant 0 of a numeric type."""
        if isinstance(type_, LongType):
            return self.literal(0, type_)
        value = self.cast(self.literal(0, LongType()), type_).eval(None)
        return self.scala.expression("Literal", value, self.type(type_))

    def type(self, type_: DataType) -> Any:
        """Return the JVM's object for a Spark type."""
        return self.scala.type(type_.json())

    def cast(self, value: Any, type_: DataType) -> Any:
        """Return ``value`` as another type; an overflow is an error."""
        return self.scala.cast(value, self.type(type_))

    def hash(self, values: Sequence[Any]) -> Any:
        """Return the 64-bit hash of the values; without values 0, so that all rows meet."""
        return self._hash([part for value in values for part in self.scala.comparable(value)])

    def hash_of_row(self, attributes: Iterable[plan.Attribute]) -> Any:
        """Return the hash of a row's columns, without those of types that have no hash."""
        hashed = (a.handle for a in attributes if not holds(a.type, (MapType, VariantType)))
        return self._hash(list(hashed))

    def _hash(self, parts: Sequence[Any]) -> Any:
        """Return the hash of values that Spark can hash."""
        if not parts:
            return self.literal(0, LongType())
        return self.scala.expression("XxHash64", self.scala.seq(parts), _SEED)

    def increment(
        self,
        arguments: tuple[plan.Expression, ...],
        condition: plan.Expression | None,
        type_: LongType | DecimalType,
        weight: Any,
        value: Any | None,
    ) -> Any:
        """Return the increment of an accumulator for one row, or 0 if the row does not count.

        The increment is the value times the weight, or the weight without a value. Arguments are
        not computed if the condition is not true, since that may fail.
        """
        added = weight if value is None else self._times(value, type_, weight)
        tests = [
            self.scala.expression("IsNotNull", a.handle) for a in arguments if a.handle.nullable()
        ]
        nothing = self.cast(self.literal(0, LongType()), type_)
        for test in [*reversed(tests), *([] if condition is None else [condition.handle])]:
            added = self.scala.expression("If", test, added, nothing)
        return added

    def _times(self, value: Any, type_: LongType | DecimalType, weight: Any) -> Any:
        wide = self.cast(value, type_)
        if isinstance(type_, LongType):
            return self.scala.expression("Multiply", wide, weight)
        times = self.cast(weight, DecimalType(20, 0))
        exact = self.scala.expression("Multiply", wide, times, self.scala.exact)
        return self.cast(exact, type_)

    def buffers(
        self, function: plan.AggregateFunction, total: Any | None, count: Any, upper: Any | None
    ) -> tuple[list[Any], Any]:
        """Set an aggregate function's buffers from accumulators; ``total`` may be an extremum.

        For a sum in two halves, ``upper`` is the upper half and ``total`` the lower one. For
        percentiles, ``total`` is the result, in place of a buffer.

        Returns the named buffers, to be projected first, and the named result over them.
        """
        call = function.handle
        if function.percentiles is not None:
            shown = call.resultAttribute()
            return [self.alias(total, str(shown.name()), shown)], shown
        evaluated = call.aggregateFunction()
        expression = self.scala.expression
        attributes = items(evaluated.aggBufferAttributes())
        nothing = expression("EqualTo", count, self.literal(0, LongType()))
        named = []
        for attribute in attributes:
            wanted = type_of(attribute)
            match str(attribute.name()):
                case "count":
                    value = count
                case "min" | "max" | "first" | "last" | "valueWithExtremumOrdering":
                    value = total
                case "extremumOrdering":
                    value = self.literal(None, wanted)  # only updates read it
                case "valueSet":
                    value = self.literal(True, wanted)  # noqa: FBT003
                case "isEmpty":
                    value = nothing
                case "sum":
                    if isinstance(wanted, DoubleType) and function.adds_floats:
                        zero = self.literal(0.0, wanted)
                        value = expression("Coalesce", self.scala.seq([total, zero]))
                    elif upper is None:
                        value = self.cast(total, wanted)
                    else:
                        value = whole(self.scala, upper, total, wanted)
                    if function.name != "avg":
                        value = expression("If", nothing, self.literal(None, wanted), value)
                case other:
                    raise NotImplementedError(other)
            named.append(self.alias(value, str(attribute.name()), attribute))
        result = call.resultAttribute()
        return named, self.alias(evaluated.evaluateExpression(), str(result.name()), result)

    # -- nodes -----------------------------------------------------------------------------

    def project(self, named: Iterable[Any], child: Any) -> Any:
        """Return a Project of named expressions over a plan."""
        return self.scala.logical("Project", self.scala.seq(named), child)

    def filter(self, condition: Any, child: Any) -> Any:
        """Return the rows of a plan for which a condition is true."""
        return self.scala.logical("Filter", condition, child)

    def call(self, function: plan.AggregateFunction, condition: Any | None) -> Any:
        """Return an aggregate call with the id of its result, for rows that meet a condition."""
        call = function.handle
        aggregate, given = call.aggregateFunction(), maybe(call.filter())
        if condition is not None and function.distinct and function.skips_nulls:
            # With a FILTER, Spark would rewrite all calls, which fails for listagg.
            aggregate, condition = self._called_where(condition, aggregate), None
        if condition is not None and given is not None:
            condition = self.scala.expression("And", condition, given)
        called = self.scala.expression(
            "aggregate.AggregateExpression",
            aggregate,
            call.mode(),
            function.distinct,
            self.scala.option(given if condition is None else condition),
            call.resultId(),
        )
        result = call.resultAttribute()
        return self.alias(called, str(result.name()), result)

    def _called_where(self, condition: Any, aggregate: Any) -> Any:
        """Return an aggregate function over values that are NULL where a condition is not true."""
        children = [self.where(condition, child) for child in items(aggregate.children())]
        if kind_of(aggregate) == "ListAgg":
            children[1] = aggregate.delimiter()
        return aggregate.withNewChildren(self.scala.seq(children))

    def where(self, condition: Any, value: Any) -> Any:
        """Return a value, or NULL where a condition is not true."""
        if kind_of(value) == "SortOrder":
            return value.withNewChildren(self.scala.seq([self.where(condition, value.child())]))
        null = self.scala.expression("Literal", None, value.dataType())
        return self.scala.expression("If", condition, value, null)

    def aggregate(self, grouping: Sequence[Any], calls: Sequence[Any], child: Any) -> Any:
        """Return one row per group: the grouping attributes, then the calls.

        Spark computes several DISTINCT calls with two levels of grouping, with new attributes each
        time. Since the plan is built here, the attributes are equal wherever it is used, and it
        runs once.
        """
        seq = self.scala.seq
        shown = seq([*grouping, *calls])
        whole = self.scala.logical("Aggregate", seq(grouping), shown, child, self.scala.none)
        return self.scala.module(f"{OPTIMIZER}.RewriteDistinctAggregates").rewrite(whole)

    def window(
        self,
        node: Any,
        partition: Sequence[Any],
        child: Any,
        functions: Sequence[Any] | None = None,
    ) -> Any:
        """Return a Window node over another child, with other partition keys and functions."""
        return self.scala.logical(
            "Window",
            node.windowExpressions() if functions is None else self.scala.seq(functions),
            self.scala.seq(partition),
            node.orderSpec(),
            child,
            self.scala.none,
        )

    def sorted(self, logical: Any, keys: Sequence[Any], order: Sequence[Any]) -> Any:
        """Sort each partition by keys, then by an order, then by all other columns."""
        rest = [value for each in items(logical.output()) for value in self._sortable(each)]
        orders = [self.scala.ascending(key) for key in keys]
        orders += [*order, *(self.scala.ascending(value) for value in rest)]
        return self.scala.logical(
            "Sort",
            self.scala.seq(orders),
            False,  # noqa: FBT003
            logical,
            self.scala.none,
        )

    def _sortable(self, attribute: Any) -> list[Any]:
        """Return expressions whose order tells the values of an attribute apart."""
        if holds(type_of(attribute), (MapType,)):
            return [self.hash([attribute])]
        return self.scala.comparable(attribute)

    def hashed(self, logical: Any, keys: Sequence[Any], partitions: int) -> Any:
        """Move rows with equal keys to one partition, by Spark's own hash."""
        number = self.scala.option(partitions)
        return self.scala.logical(
            "RepartitionByExpression", self.scala.seq(keys), logical, number, self.scala.none
        )

    def expand(self, node: plan.Expand, weight: Any, child: Any) -> tuple[Any, Any]:
        """Return an Expand that passes on the weight, and the attribute of the weight above it."""
        given = [(a.name, a.handle) for a in node.attributes]
        return self._expanded(node.projections, given, weight, child)

    def repeated(
        self, values: Iterable[int], column: Any, weight: Any, child: Any
    ) -> tuple[Any, Any, Any]:
        """Return a column's rows once per number, and the attributes of weight and number."""
        number = self.alias(self.scala.long(0), "number").toAttribute()
        projections = ((self.scala.long(value), column) for value in values)
        given = [("number", number), (str(column.name()), column)]
        return *self._expanded(projections, given, weight, child), number

    def _expanded(
        self,
        projections: Iterable[Sequence[Any]],
        given: Sequence[tuple[str, Any]],
        weight: Any,
        child: Any,
    ) -> tuple[Any, Any]:
        """Return an Expand with new names and attributes, and the attribute of the weight.

        Its ids are new. Otherwise, if Spark renames one of two uses of a plan, they would differ in
        the attributes that they pass on with the ids from below, and each would run.
        """
        seq = self.scala.seq
        rows = seq(seq([*projection, weight]) for projection in projections)
        own = [self.alias(handle, name).toAttribute() for name, handle in given]
        passed = self.alias(weight, str(weight.name())).toAttribute()
        expanded = self.scala.logical("Expand", rows, seq([*own, passed]), child)
        pairs = zip(given, own, strict=True)
        named = [self.alias(attribute, name, handle) for (name, handle), attribute in pairs]
        return self.project([*named, passed], expanded), passed

    def generate(self, node: plan.Generate, child: Any) -> Any:
        """Return a Generate over a child that has the weight after its own columns."""
        return node.handle.withNewChildren(self.scala.seq([child]))

    def union(self, children: Sequence[Any]) -> Any:
        """Return all rows of all plans; columns are matched by position."""
        if len(children) == 1:
            return children[0]
        return self.scala.logical("Union", self.scala.seq(children), False, False)  # noqa: FBT003

    def added_up(
        self, logical: Any, keys: Sequence[str], sums: Sequence[tuple[str, DataType]]
    ) -> Any:
        """Return one row per distinct key, with the sums of the other columns."""
        columns = self.output(logical)
        kept = [self.unmarked(columns[name]) for name in keys]
        added = [
            self.alias(
                self.scala.expression("aggregate.Sum", columns[name]).toAggregateExpression(),
                name,
            )
            for name, _ in sums
        ]
        seq = self.scala.seq
        total = self.scala.logical(
            "Aggregate", seq(kept), seq(kept + added), logical, self.scala.none
        )
        totals = self.output(total)
        named = [totals[name] for name in keys]
        cast = [self.alias(self.cast(totals[name], type_), name) for name, type_ in sums]
        # Collapsed projections leave only the ids of the last one.
        self.sums.update(int(each.exprId().id()) for each in (*added, *cast))
        return self.project([*named, *cast], total)

    def unmarked(self, attribute: Any) -> Any:
        """Return an attribute as a plain key: Spark does not unite intervals that it marks."""
        metadata = self.scala.module("org.apache.spark.sql.types.Metadata").empty()
        return attribute.withMetadata(metadata)

    def output(self, logical: Any) -> dict[str, Any]:
        """Return the output attributes of a plan by name."""
        return {str(a.name()): a for a in items(logical.output())}

    def exchange(self, logical: Any, hash_name: str, partitions: int) -> Any:
        """Send each row to the partition that owns its hash: contiguous ranges of equal size."""
        expression, long = self.scala.expression, self.scala.long
        shift = self.scala.module(f"{EXPRESSIONS}.Literal").apply(_PARTITION_SHIFT)
        upper = expression("ShiftRight", self.output(logical)[hash_name], shift)
        scaled = expression("Multiply", expression("Add", upper, long(_HALF)), long(partitions))
        owner = self.cast(expression("ShiftRight", scaled, shift), IntegerType())
        return self.delivered(logical, owner, partitions)

    def delivered(self, logical: Any, owner: Any, partitions: int) -> Any:
        """Send each row to the partition whose number, an INT, is in ``owner``."""
        return self.scala.logical(
            "RepartitionByExpression",
            self.scala.seq([self.scala.expression("DirectShufflePartitionID", owner)]),
            logical,
            self.scala.option(partitions),
            self.scala.none,
        )

    def gather(self, logical: Any) -> Any:
        """Put all rows into one partition, without an exchange."""
        return self.scala.logical("Repartition", 1, False, logical)  # noqa: FBT003

    def mapped(
        self,
        logical: Any,
        task: Callable[[Iterator[Any]], Iterator[Any]],
        schema: StructType,
    ) -> Any:
        """Run a Python task over the Arrow batches of each partition.

        ``DataFrame.mapInArrow`` would make Spark analyse the whole plan again, and reads a dot or a
        backtick in the name of a column as syntax.
        """
        schema = of_task(schema)
        made = pandas_udf(task, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
        function = made._unwrapped._judf.builder(logical.output())  # noqa: SLF001
        planner = self.spark._jsparkSession.sessionState().externalUDFPlanner()  # noqa: SLF001
        self.tasks[int(function.resultId().id())] = Mapped(task, schema)
        none = self.scala.none
        return planner.planPythonMapInArrow(function, logical, False, none)  # noqa: FBT003

    def range(self, rows: int) -> Any:
        """Return a plan with one row in each of ``rows`` partitions."""
        return self.scala.module(f"{LOGICAL}.Range").apply(0, rows, 1, rows)

    def frame(self, logical: Any) -> DataFrame:
        """Return a new DataFrame, with its own physical plan, for a logical plan."""
        return DataFrame(self._dataset(logical), self.spark)

    def _dataset(self, logical: Any) -> Any:
        session = self.spark._jsparkSession  # noqa: SLF001
        return self.scala.call("org.apache.spark.sql.classic.Dataset", "ofRows", session, logical)

    @property
    def parser(self) -> Any:
        """The SQL parser of the session, which becomes the active one of this thread."""
        return self.scala.parser(self.spark._jsparkSession)  # noqa: SLF001

    def logical(self, frame: DataFrame) -> Any:
        """Return the resolved logical plan of a DataFrame."""
        return frame._jdf.queryExecution().analyzed()  # noqa: SLF001

    def optimised(self, frame: DataFrame) -> Any:
        """Return the optimised logical plan of a DataFrame."""
        return frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001

    def finished(self, logical: Any) -> Any:
        """Return a resolved plan in a form that Spark accepts without analysing it.

        Analysis would rename the attributes of one of two equal parts, and Spark might then derive
        different plans and run both. Only one step of analysis is needed: marking attributes as
        nullable above an outer join.
        """
        rule = self.scala.module(f"{ANALYSIS}.UpdateAttributeNullability")
        whole = rule.apply(logical)
        if not whole.resolved():
            raise HeadraceError(Code.INTERNAL, "a step's plan is not resolved", str(whole))
        whole.setAnalyzed()
        return whole

    def run(self, logical: Any) -> None:
        """Run a plan for the effects of its tasks, with a new physical plan."""
        self._dataset(logical).queryExecution().toRdd().count()
