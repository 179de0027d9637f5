"""Catalyst's expressions evaluated over Arrow columns, beside Spark's own evaluation of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from headrace.planning.catalyst.evaluation import Evaluation
from headrace.planning.catalyst.resolved import id_of, type_of
from headrace.planning.catalyst.scala import items, scala_of
from headrace.planning.catalyst.vectors import DoubtError, ExpressionReader, InputRows, reader_over
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from headrace.planning.catalyst.scala import Scala


@dataclass(frozen=True)
class Case:
    """An expression: its text, Catalyst's handle, and its values in Spark; a failure is None."""

    text: str
    handle: Any
    values: Sequence[Any]


@dataclass(frozen=True)
class Bench:
    """InputRows, the plan that expressions are resolved over, and how both are evaluated."""

    spark: SparkSession
    rows: pa.Table
    leaf: Any

    @classmethod
    def of(cls, spark: SparkSession, rows: pa.Table, columns: str) -> Bench:
        """Return rows with columns that a text declares."""
        leaf = spark.range(0, 1, 1, 1).mapInArrow(passed_on, StructType.fromDDL(columns))
        return cls(spark, rows, leaf)

    @property
    def scala(self) -> Scala:
        return scala_of(self.spark)

    def cases(self, texts: Sequence[str]) -> tuple[list[Case], ExpressionReader]:
        """Return expressions with their values in Spark, and what reads them over the rows."""
        named = [f"{text} AS c{i}" for i, text in enumerate(texts)]
        plan = self.leaf.selectExpr(*named, "*")._jdf.queryExecution().optimizedPlan()
        handles = [each.child() for each in items(plan.projectList())[: len(texts)]]
        return self.evaluated(texts, handles, plan.child())

    def evaluated(
        self, texts: Sequence[str], handles: Sequence[Any], below: Any
    ) -> tuple[list[Case], ExpressionReader]:
        scala, inputs = self.scala, items(below.output())
        name = scala.module("org.apache.spark.sql.catalyst.expressions.Literal").apply("v")
        tried, fields = [], []
        for i, handle in enumerate(handles):
            struct = scala.expression("CreateNamedStruct", scala.seq([name, handle]))
            tried.append(scala.alias(scala.expression("TryEval", struct), f"t{i}"))
            fields.append(StructField(f"t{i}", StructType([StructField("v", type_of(handle))])))
        columns = self.rows.select([str(each.name()) for each in inputs])
        found = Evaluation(scala, tried, below.output(), StructType(fields)).over(columns)
        cases = [
            Case(text, handle, shown(column.combine_chunks()))
            for text, handle, column in zip(texts, handles, found.columns, strict=True)
        ]
        names = self.rows.schema.names
        places = {id_of(each): names.index(str(each.name())) for each in inputs}
        return cases, reader_over(places)


def passed_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def shown(column: pa.Array) -> list[Any]:
    """Return values in a form that is equal for identical values only, times as numbers."""
    kind = column.type
    if pa.types.is_struct(kind):
        fields = zip(*map(shown, column.flatten()), strict=True)
        return [
            each if valid else None
            for each, valid in zip(fields, column.is_valid().to_pylist(), strict=True)
        ]
    if pa.types.is_temporal(kind):
        column = column.view(pa.int32() if pa.types.is_date32(kind) else pa.int64())
    return [repr(value) for value in column.to_pylist()]


def doubts(bench: Bench, case: Case, reader: ExpressionReader) -> int:
    """Return how many rows are in doubt, after comparing the values of all others with Spark's.

    The rows without doubt are evaluated together as well; so are all of them, if none is in doubt.
    """
    vector = reader.vector(case.handle)
    assert vector.type == to_arrow(type_of(case.handle)), case.text
    sure = []
    for row in range(bench.rows.num_rows):
        try:
            found = vector.column(InputRows.of(bench.rows.slice(row, 1)))
        except DoubtError:
            continue
        assert tuple(shown(found)) == case.values[row], (case.text, shown(found), case.values[row])
        sure.append(row)
    if not sure:
        return int(bench.rows.num_rows)
    together = InputRows.of(bench.rows.take(sure))
    found = vector.column(together)
    assert found.type == vector.type
    found.validate(full=True)
    values = [(value,) for value in shown(found)]
    assert values == [case.values[row] for row in sure], case.text
    return int(bench.rows.num_rows) - len(sure)
