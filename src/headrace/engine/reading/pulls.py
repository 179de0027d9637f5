"""Pull queries without a Spark job: a projection and conditions over one stored relation.

Spark has resolved and optimised the query. Conditions that compare a column with a constant choose
the rows: by a lookup if they give the whole key, else by comparing columns in memory. What is left
of the query is evaluated over the few chosen rows by Catalyst's own expressions.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    TimeType,
)

from headrace.catalyst.evaluation import Evaluation
from headrace.catalyst.resolved import passed_on, type_of
from headrace.catalyst.scala import Scala, items, kind_of
from headrace.serving.contents import can_look_up
from headrace.serving.python_values import python_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

    from headrace.serving import Contents
    from headrace.zset import Layout

_MOST_KEYS = 1024
_MOST_EVALUATED = 2_000
"""More rows than these are evaluated faster by a job."""
_MOST_ROWS = 100_000
_MOST_SCANNED = 8_000_000
"""The physical rows up to which columns are compared in the driver."""

_COMPARISONS: dict[str, tuple[str, str]] = {
    "EqualTo": ("equal", "equal"),
    "GreaterThan": ("greater", "less"),
    "GreaterThanOrEqual": ("greater_equal", "less_equal"),
    "LessThan": ("less", "greater"),
    "LessThanOrEqual": ("less_equal", "greater_equal"),
}
"""Spark's comparisons of a column with a constant, and those of a constant with a column."""


@dataclass(frozen=True, slots=True)
class Test:
    """A condition on one column, which is compared with any of some values."""

    column: str
    comparison: str
    values: pa.Array

    @property
    def values_of_key(self) -> list[object] | None:
        """The values that the column must have; None if the test does not give them."""
        return python_values(self.values) if self.comparison == "equal" else None

    def passed(self, rows: pa.RecordBatch) -> pa.Array:
        """Return whether each row passes; NULL, which does not, where the column is NULL."""
        column = rows.column(self.column)
        if self.comparison == "equal" and len(self.values) != 1:
            return pc.is_in(column, self.values)
        return pc.call_function(self.comparison, [column, self.values[0]])


@dataclass(frozen=True, slots=True)
class Pull:
    """A query over the rows of one relation.

    Rows, of ``columns``, pass all ``tests``, and the ``condition`` where it is not None. ``names``
    are the columns of the result, if it just has columns of the relation; else ``output`` computes
    it.
    """

    tests: tuple[Test, ...]
    condition: Evaluation | None
    columns: tuple[str, ...]
    names: tuple[str, ...] | None
    output: Evaluation
    schema: pa.Schema

    @classmethod
    def of(cls, scala: Scala, prepared: DataFrame, columns: tuple[str, ...]) -> Pull | None:
        """Return the pull of a prepared query over a relation's columns; None if it is not one.

        The query must read this relation alone.
        """
        plan = prepared._jdf.queryExecution().optimizedPlan()  # noqa: SLF001
        projected = condition = None
        node = str(plan.nodeName())
        leaf = plan
        if node == "Project":
            projected, leaf = items(plan.projectList()), plan.child()
            node = str(leaf.nodeName())
        if node == "Filter":
            condition, leaf = leaf.condition(), leaf.child()
            node = str(leaf.nodeName())
        if node != "MapInArrow" or not plan.deterministic() or plan.subqueriesAll().nonEmpty():
            return None
        output = items(leaf.output())
        if len(output) != len(columns):
            return None
        by_id = {
            int(attribute.exprId().id()): name
            for attribute, name in zip(output, columns, strict=True)
        }
        inputs, spark = leaf.output(), prepared.schema
        tests, whole = _tests(condition, by_id)
        passes = scala.alias(condition, "passes") if condition is not None and not whole else None
        named = output if projected is None else projected
        ids = [passed_on(each) for each in named]
        plain = all(id_ in by_id for id_ in ids)
        return cls(
            tuple(tests),
            None if passes is None else Evaluation(scala, [passes], inputs, _PASSES),
            columns,
            tuple(by_id[id_] for id_ in ids if id_ is not None) if plain else None,
            Evaluation(scala, named, inputs, spark),
            to_arrow_schema(spark.toNullable(), timezone="UTC"),
        )

    def rows(self, contents: Contents, indexes: Sequence[Contents] = ()) -> pa.Table | None:
        """Return the result; None if it takes so many rows that a job is faster.

        ``indexes`` have the same rows, arranged by other columns.

        Raises:
            Py4JError: an expression fails on a row.
        """
        evaluated = self.condition is not None or self.names is None
        most = _MOST_EVALUATED if evaluated else _MOST_ROWS
        found = self._chosen(contents, indexes, most)
        if found is None:
            return None
        found = found.select(self.columns)
        if self.condition is not None and found.num_rows:
            found = found.filter(self.condition.over(found).column(0))
        if not found.num_rows:
            return self.schema.empty_table()
        if self.names is None:
            return self.output.over(found).cast(self.schema)
        arrays = [found.column(name) for name in self.names]
        return pa.Table.from_arrays(arrays, names=self.schema.names).cast(self.schema)

    def _chosen(
        self, contents: Contents, indexes: Sequence[Contents], most: int
    ) -> pa.Table | None:
        """Return the rows that pass the tests; None if there are more than ``most``."""
        by = next((each for each in (contents, *indexes) if self.finds_by(each.layout)), None)
        keys = None if by is None else self._keys(by.layout)
        if by is not None and keys is not None:
            parts = [by.by_key(key) for key in keys]
            found = pa.concat_tables(parts) if parts else contents.layout.columns.empty_table()
            for test in self.tests:
                for batch in [found.combine_chunks()] if found.num_rows else []:
                    found = batch.filter(test.passed(batch))
            return found if found.num_rows <= most else None
        if contents.spine.rows_upper_bound > (_MOST_SCANNED if self.tests else most):
            return None
        return contents.where([test.passed for test in self.tests], most)

    def finds_by(self, layout: Layout) -> bool:
        """Whether its conditions give all columns of the key of an arrangement."""
        given = {t.column for t in self.tests if t.values_of_key is not None}
        return can_look_up(layout) and given.issuperset(layout.key)

    def _keys(self, layout: Layout) -> Iterator[tuple[object, ...]] | None:
        """Return the keys that the tests allow, which give all its columns; None if too many."""
        given = {t.column: t.values_of_key for t in self.tests if t.values_of_key is not None}
        each = [given[name] for name in layout.key]
        return product(*each) if prod(map(len, each)) <= _MOST_KEYS else None


_PASSES = StructType([StructField("passes", BooleanType())])


def _tests(condition: Any | None, by_id: dict[int, str]) -> tuple[list[Test], bool]:
    """Return the parts of a condition that are tests, and whether these are all of it."""
    tests: list[Test] = []
    present: list[int] = []
    whole = True
    for part in _parts(condition):
        kind = kind_of(part)
        if kind == "IsNotNull" and kind_of(part.child()) == "AttributeReference":
            present.append(int(part.child().exprId().id()))
            continue
        test = _test(part, kind, by_id)
        if test is None:
            whole = False
        else:
            tests.append(test)
    tested = {test.column for test in tests}
    return tests, whole and all(by_id.get(id_) in tested for id_ in present)


def _parts(condition: Any | None) -> Iterator[Any]:
    if condition is None:
        return
    if kind_of(condition) == "And":
        yield from _parts(condition.left())
        yield from _parts(condition.right())
    else:
        yield condition


def _test(part: Any, kind: str, by_id: dict[int, str]) -> Test | None:
    if kind in _COMPARISONS:
        left, right = part.left(), part.right()
        forward, backward = _COMPARISONS[kind]
        if kind_of(left) == "Literal":
            left, right, forward = right, left, backward
        if kind_of(left) != "AttributeReference" or kind_of(right) != "Literal":
            return None
        return _compared(left, forward, [right.value()], by_id)
    if kind == "In" and kind_of(part.value()) == "AttributeReference":
        listed = items(part.list())
        if all(kind_of(each) == "Literal" for each in listed):
            return _compared(part.value(), "equal", [each.value() for each in listed], by_id)
    if kind == "InSet" and kind_of(part.child()) == "AttributeReference":
        return _compared(part.child(), "equal", items(part.hset().toSeq()), by_id)
    return None


def _compared(
    attribute: Any, comparison: str, values: list[Any], by_id: dict[int, str]
) -> Test | None:
    name, type_ = by_id.get(int(attribute.exprId().id())), type_of(attribute)
    convert = _converter(type_)
    if name is None or convert is None or any(value is None for value in values):
        return None
    return Test(name, comparison, convert(values))


def _converter(type_: DataType) -> Callable[[list[Any]], pa.Array] | None:
    """Return how values that Spark keeps for constants of a type become an array of it.

    Only for types in which Arrow compares exactly as Spark does.
    """
    match type_:
        case BooleanType() | ByteType() | ShortType() | IntegerType() | LongType():
            arrow = to_arrow_schema(StructType([StructField("v", type_)])).field(0).type
            return lambda values: pa.array(values, arrow)
        case DateType():
            return lambda values: pa.array(values, pa.int32()).cast(pa.date32())
        case TimeType():
            return lambda values: pa.array(values, pa.time64("ns"))
        case TimestampType():
            zone = pa.timestamp("us", "UTC")
            return lambda values: pa.array(values, pa.int64()).cast(zone)
        case StringType() if type(type_) is StringType and type_.isUTF8BinaryCollation():
            return lambda values: pa.array([str(v.toString()) for v in values], pa.string())
        case DecimalType():
            of = pa.decimal128(type_.precision, type_.scale)
            return lambda values: pa.array([Decimal(str(v.toString())) for v in values], of)
        case _:
            return None
