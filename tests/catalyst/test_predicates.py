"""Conditions as tests of Arrow, beside Spark's own evaluation of them."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from headrace.planning.catalyst.evaluation import Evaluation
from headrace.planning.catalyst.predicates import Predicates
from headrace.planning.catalyst.scala import items, scala_of
from headrace.types import to_arrow
from length import choose

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

TESTED = {
    "tiny": "TINYINT",
    "small": "SMALLINT",
    "n": "INT",
    "big": "BIGINT",
    "flag": "BOOLEAN",
    "text": "STRING",
    "price": "DECIMAL(12,2)",
    "wide": "DECIMAL(38,0)",
    "day": "DATE",
    "at": "TIMESTAMP",
    "local": "TIMESTAMP_NTZ",
    "clock": "TIME(6)",
}
OTHERS = {"f": "DOUBLE", "folded": "STRING COLLATE UTF8_LCASE", "list": "ARRAY<INT>"}
START = datetime(2024, 1, 31, 22, tzinfo=UTC)


def value(random: Random, type_: str) -> tuple[object, str]:
    """Return a value of a type and its text in SQL, from few that are close to each other."""
    k = random.randrange(-3, 4)
    if type_.startswith("DECIMAL"):
        exact = Decimal(k) if type_.endswith(",0)") else Decimal(k) / 4
        return exact, f"CAST({exact} AS {type_})"
    if type_.startswith("STRING"):
        text = random.choice(["", "a", "A", "ab", "b", "\U0001f600", "\uffff"])
        return text, f"'{text}'"
    match type_:
        case "BOOLEAN":
            return k > 0, str(k > 0)
        case "DATE":
            day = date(2024, 2, 1) + timedelta(k)
            return day, f"DATE '{day}'"
        case "TIMESTAMP" | "TIMESTAMP_NTZ":
            moment = (START + timedelta(minutes=40 * k)).replace(tzinfo=None)
            return moment, f"{type_} '{moment}'"
        case "TIME(6)":
            moment = time(12 + k, 30)
            return moment, f"CAST('{moment}' AS TIME(6))"
        case "DOUBLE":
            return k / 2, f"{k / 2}D"
        case "ARRAY<INT>":
            return [k], f"array({k})"
        case _:
            return k, f"CAST({k} AS {type_})"


def condition(random: Random, depth: int = 2) -> str:
    """Return a random condition on the columns, most of which is tested."""
    name, type_ = random.choice([*TESTED.items(), *TESTED.items(), *OTHERS.items()])
    constant = value(random, type_)[1]
    several = [value(random, type_)[1] for _ in range(random.choice([2, 3, 14]))]
    match random.randrange(12) if depth else random.randrange(8):
        case 0:
            return f"{name} {random.choice(['IN', 'NOT IN'])} ({', '.join(several)})"
        case 1:
            return f"{name} IN ({constant}, NULL)"
        case 2:
            return f"{name} IS {random.choice(['', 'NOT '])}NULL"
        case 3:
            return f"{name} BETWEEN {several[0]} AND {several[1]}"
        case 4:
            return f"{name} = {several[0]} OR {name} = {several[1]} OR {name} = {several[0]}"
        case 5:
            unit, compared = (
                random.choice(["HOUR", "DAY", "MONTH"]),
                random.choice(["=", ">", "<="]),
            )
            day = value(random, "DATE")[1]
            floor = random.choice([f"date_trunc('{unit}', at)", "CAST(at AS DATE)"])
            return f"{floor} {compared} {day}"
        case 6 | 7:
            compared = random.choice(["=", "<", "<=", ">", ">=", "<>", "<=>"])
            pair = random.choice([(name, constant), (constant, name)])
            return f"{pair[0]} {compared} {pair[1]}"
        case 8:
            return f"NOT ({condition(random, depth - 1)})"
        case 9:
            return f"({condition(random, depth - 1)}) OR ({condition(random, depth - 1)})"
        case _:
            return f"({condition(random, depth - 1)}) AND ({condition(random, depth - 1)})"


def test_rows_that_meet_conditions_pass_their_tests_and_no_others_if_these_are_exact(
    spark: SparkSession,
) -> None:
    random, scala = Random(1), scala_of(spark)
    schema = StructType.fromDDL(", ".join(f"{n} {t}" for n, t in (TESTED | OTHERS).items()))
    rows = pa.table(
        [_column(random, type_) for type_ in (TESTED | OTHERS).values()],
        schema=pa.schema([(field.name, to_arrow(field.dataType)) for field in schema]),
    )
    texts = [condition(random) for _ in range(choose(100, 3_000))]
    leaf = spark.range(0, 1, 1, 1).mapInArrow(passed_on, schema)
    frame = leaf.selectExpr(*(f"{text} AS c{i}" for i, text in enumerate(texts)), "*")
    plan = frame._jdf.queryExecution().optimizedPlan()
    named = items(plan.projectList())[: len(texts)]
    inputs, shape = plan.child().output(), StructType(frame.schema[: len(texts)])
    columns = [str(column.name()) for column in items(inputs)]
    given = rows.select(columns).combine_chunks()
    met = Evaluation(scala, named, inputs, shape).over(given)
    names = {int(a.exprId().id()): str(a.name()) for a in items(inputs)}
    predicates, counts = Predicates(scala), {"exact": 0, "wide": 0, "none": 0}
    for text, handle, is_met in zip(texts, named, met.columns, strict=True):
        restriction, exact = predicates.restriction(predicates.conjuncts(handle.child()), names)
        mask = restriction.rows(given)
        passes = np.ones(given.num_rows, np.bool_) if mask is None else mask
        expected = pc.fill_null(is_met.combine_chunks(), fill_value=False).to_numpy(
            zero_copy_only=False
        )
        assert not (expected & ~passes).any(), text
        assert not exact or (expected == passes).all(), text
        counts["exact" if exact else "wide" if restriction.tests else "none"] += 1
    assert min(counts.values()) > len(texts) / 10, counts


def test_times_in_the_windows_that_a_condition_names_pass_and_few_others(
    spark: SparkSession,
) -> None:
    scala, schema = scala_of(spark), StructType.fromDDL("id INT, at TIMESTAMP")
    minutes = range(-600, 600, 7)
    times = pa.array([START + timedelta(minutes=m) for m in minutes], pa.timestamp("us", "UTC"))
    given = pa.table({"id": pa.array(minutes, pa.int32()), "at": times})
    leaf = spark.range(0, 1, 1, 1).mapInArrow(passed_on, schema)
    predicates = Predicates(scala)
    for window, compared, most in [
        ("window(at, '1 hour').start", "=", 60),
        ("window(at, '1 hour').end", "=", 60),
        ("window(at, '1 hour').start", "<", None),
        ("window(at, '1 hour').end", ">=", None),
        ("window(at, '1 hour', '1 hour', '25 minutes').end", "=", 60),
        ("window(at, '1 hour', '1 hour', '25 minutes').start", "<=", None),
        ("date_trunc('MINUTE', at)", "=", 1),
        ("date_trunc('HOUR', at)", "<=", None),
        ("date_trunc('WEEK', at)", "=", 7 * 24 * 60),
    ]:
        for constant in ("2024-01-31 22:00:00", "2024-01-31 23:25:00", "2024-01-29 00:00:00"):
            text = f"{window} {compared} TIMESTAMP '{constant}'"
            frame = leaf.selectExpr(f"{text} AS c0", "*")
            plan = frame._jdf.queryExecution().optimizedPlan()
            named, inputs = items(plan.projectList())[:1], plan.child().output()
            shape = StructType(frame.schema[:1])
            met = Evaluation(scala, named, inputs, shape).over(given.select(["id", "at"]))
            names = {int(a.exprId().id()): str(a.name()) for a in items(inputs)}
            restriction, exact = predicates.restriction(
                predicates.conjuncts(named[0].child()), names
            )
            mask = restriction.rows(given)
            passes = np.ones(given.num_rows, np.bool_) if mask is None else mask
            expected = met.column(0).combine_chunks().to_numpy(zero_copy_only=False)
            assert restriction.tests, text
            assert not exact, text
            assert not (expected & ~passes).any(), text
            if most is not None:
                kept = np.asarray(minutes)[passes]
                assert not len(kept) or kept.max() - kept.min() < most, text


def test_either_of_two_ranges_lies_in_the_range_that_spans_both(spark: SparkSession) -> None:
    leaf = spark.range(0, 1, 1, 1).mapInArrow(passed_on, StructType.fromDDL("n INT"))
    predicates = Predicates(scala_of(spark))
    given = pa.table({"n": pa.array(range(12), pa.int32())})
    for text, wanted in [
        ("(n >= 3 AND n < 5) OR n = 9", None),
        ("n >= 3 OR n >= 7", range(3, 12)),
        ("n < 3 OR n < 7", range(7)),
        ("n < 3 OR n > 7", None),
    ]:
        plan = leaf.selectExpr(f"{text} AS c0", "n")._jdf.queryExecution().optimizedPlan()
        handle, inputs = items(plan.projectList())[0].child(), plan.child().output()
        names = {int(a.exprId().id()): "n" for a in items(inputs)}
        restriction, _ = predicates.restriction(predicates.conjuncts(handle), names)
        mask = restriction.rows(given)
        found = None if mask is None else np.flatnonzero(mask).tolist()
        assert found == (None if wanted is None else list(wanted)), text


def passed_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _column(random: Random, type_: str) -> list[object]:
    return [value(random, type_)[0] if random.random() < 0.8 else None for _ in range(60)]
