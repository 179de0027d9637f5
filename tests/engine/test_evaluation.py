"""Expressions over nested values with NULLs, evaluated without a job and by one."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from headrace.planning.catalyst.evaluation import Evaluation
from headrace.planning.catalyst.scala import collect_arrow, items, scala_of
from headrace.types import Schema
from length import choose
from nested import INT, TEXT, TRUTH, Expressions, random_rows, random_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

ALWAYS = {
    "xs": ArrayType(INT),
    "flags": ArrayType(TRUTH),
    "m": MapType(TEXT, INT),
    "deep": ArrayType(StructType([StructField("a", ArrayType(INT)), StructField("b", TEXT)])),
}
LAMBDAS = (
    "transform(xs, x -> x + 1)",
    "filter(xs, (x, i) -> x IS NULL OR i > 1)",
    "exists(flags, f -> f)",
    "aggregate(xs, 0, (sum, x) -> sum + coalesce(x, 0), sum -> sum * 2)",
    "transform_values(m, (k, v) -> concat(k, v))",
    "map_zip_with(m, m, (k, v, w) -> coalesce(v, 7))",
    "transform(deep, d -> transform(d.a, x -> concat(x, d.b)))",
    "zip_with(xs, flags, (x, f) -> if(f, x, NULL))",
    "array_sort(xs, (x, y) -> CASE WHEN x IS NULL THEN 1 WHEN y IS NULL THEN -1 ELSE y - x END)",
)


@pytest.mark.parametrize("seed", range(choose(1, 60)))
def test_nulls_at_every_level_are_evaluated_without_a_job_as_by_one(
    spark: SparkSession, seed: int
) -> None:
    random = Random(seed)
    columns = ALWAYS | {f"c{i}": random_type(random, 3) for i in range(5)}
    rows = random_rows(random, columns, 12)
    made = Expressions(random, columns)
    texts = [*LAMBDAS, *(made.of(made.some_type(), choose(2, 3)) for _ in range(16))]

    def given(_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from rows.to_batches()

    schema = StructType([StructField(name, type_) for name, type_ in columns.items()])
    leaf = spark.range(0, 1, 1, 1).mapInArrow(given, schema)
    frame = leaf.selectExpr(*(f"{text} AS e{i}" for i, text in enumerate(texts)))
    plan = frame._jdf.queryExecution().optimizedPlan()
    below = plan.child()
    evaluation = Evaluation(
        scala_of(spark), items(plan.projectList()), below.output(), frame.schema
    )
    inputs = rows.select([str(column.name()) for column in items(below.output())])
    evaluated = evaluation.over(inputs).cast(Schema.of_spark(frame.schema).arrow)
    assert _by_text(evaluated, texts) == _by_text(collect_arrow(frame), texts)


def _by_text(found: pa.Table, texts: list[str]) -> dict[str, Any]:
    return {t: repr(c.to_pylist()) for t, c in zip(texts, found.columns, strict=True)}
