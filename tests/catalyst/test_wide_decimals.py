"""Decimals of any precision and scale over Arrow columns, beside Spark's own evaluation of them."""

from __future__ import annotations

from decimal import Context, Decimal
from itertools import islice
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import DecimalType

from headrace.planning.catalyst.scala import items
from headrace.planning.catalyst.vectors import DoubtError, ExpressionReader, InputRows
from length import choose
from vectors_bench import Bench, Case, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from headrace.planning.catalyst.vectors import Vector

WIDE = Context(prec=100)
STRICT = (False,)
"""An overflow is an error, not NULL."""
EDGES = (1, 5, 9, 17, 18, 19, 20, 28, 34, 35, 37, 38)
"""Precisions around which values are computed in another way, here or in Spark."""


def digits(random: Random, precision: int) -> int:
    """Return an integer of up to ``precision`` digits, many of which carry when it is rounded."""
    count = random.randint(1, precision)
    most = 10**count - 1
    tail = 10 ** random.randint(0, count)
    near = [1 << 31, 1 << 53, 1 << 63, 1 << 64, 1 << 96, 1 << 126, 10**34, 10**33 * 5]
    made = random.choice(
        [
            most,
            most - random.randint(0, 9),
            most // tail * tail + tail // 2,
            most // tail * tail + tail // 2 - 1,
            tail * 5,
            10 ** (count - 1),
            random.randint(0, most),
            random.choice(near) + random.randint(-1, 1),
        ]
    )
    return random.choice([1, -1]) * (made if abs(made) < 10**precision else most)


def of_type(random: Random, precision: int, scale: int, rows: int) -> pa.Array:
    """Return decimals: extremes, those that carry, NULL, and small ones last."""
    given: list[int | None] = [10**precision - 1, 1 - 10**precision, 0, None]
    given += [digits(random, precision) for _ in range(rows)] + [3]
    return pa.array(
        [None if u is None else Decimal(u).scaleb(-scale, WIDE) for u in given],
        pa.decimal128(precision, scale),
    )


def types(random: Random) -> Iterator[tuple[int, int]]:
    """Yield precisions and scales without end: first those of the defects, then any."""
    yield from [(38, 10), (38, 0), (38, 38), (19, 2), (18, 4)]
    while True:
        precision = random.choice([random.choice(EDGES), random.randint(1, 38)])
        yield precision, random.choice([0, precision, random.randint(0, precision)])


def always_here(random: Random, x: str, y: str, scale: int) -> list[str]:
    """Return expressions that are evaluated here wherever Spark has a value."""
    cast = []
    for _ in range(4):
        precision = random.choice(EDGES)
        near = min(precision, max(0, scale - random.randint(0, 3)))
        target = f"DECIMAL({precision},{random.choice([near, random.randint(0, precision)])})"
        cast.append(f"CAST({x} AS {target})")
    return [
        *cast,
        *(f"round({x}, {random.randint(0, scale)})" for _ in range(3)),
        f"round({x})",
        f"{x} < {y}",
        f"{x} = {y}",
        f"{x} <=> {y}",
        f"{x} IN ({y}, 1.5, 0)",
        f"coalesce({x}, {y})",
        f"greatest({x}, {y}, 1)",
        f"least({x}, {y})",
        f"CASE WHEN {x} > {y} THEN {x} ELSE {y} END",
        f"xxhash64({x}, {y})",
        f"CAST(n AS DECIMAL(38,{random.randint(0, 38)}))",
    ]


def perhaps_here(random: Random, x: str, y: str, scale: int) -> list[str]:
    """Return expressions of which Spark evaluates some values, such as those of many digits."""
    target = f"DECIMAL(38,{random.choice([scale, random.randint(0, 38)])})"
    return [
        f"{x} + {y}",
        f"{x} - {y}",
        f"{x} * {y}",
        f"{x} / {y}",
        f"{x} % {y}",
        f"abs({x})",
        f"-{x}",
        f"floor({x})",
        f"ceil({x})",
        f"bround({x}, {random.randint(0, scale)})",
        f"try_cast({x} AS {target})",
        f"CAST({x} AS BIGINT)",
        f"CAST({x} AS INT)",
        f"CAST({x} AS DOUBLE)",
        f"CAST({x} AS STRING)",
        f"CAST(text AS {target})",
        f"try_cast(text AS {target})",
        f"CAST(d AS {target})",
        f"{x} * n",
        f"{x} + 0.5",
        f"sign({x})",
    ]


def evaluated(vector: Vector, rows: pa.Table) -> list[tuple[str]] | None:
    """Return the values for rows, or None if one is in doubt."""
    try:
        found = vector.column(InputRows.of(rows))
    except DoubtError:
        return None
    assert found.type == vector.type
    found.validate(full=True)
    return [(value,) for value in shown(found)]


def known(bench: Bench, case: Case, vector: Vector) -> tuple[int, int, bool]:
    """Return how many rows Spark has values of, how many are evaluated here, and if together too.

    A value that Spark has is the same here, or in doubt; a row on which it fails is in doubt. That
    holds for each row beside one that is evaluated, and for all of them together.
    """
    fine = [row for row, value in enumerate(case.values) if value is not None]
    sure = [row for row in fine if evaluated(vector, bench.rows.take([row])) is not None]
    for row, value in enumerate(case.values):
        beside = [each for each in sure[-1:] if each != row]
        expected = [value, *(case.values[each] for each in beside)]
        found = evaluated(vector, bench.rows.take([row, *beside]))
        shown_row = bench.rows.slice(row, 1).to_pylist()
        assert found is None or found == expected, (case.text, shown_row)
    found = evaluated(vector, bench.rows.take(sure)) if sure else []
    assert found is None or found == [case.values[row] for row in sure], case.text
    return len(fine), len(sure), found is not None


def proved(
    bench: Bench, cases: Sequence[Case], reader: ExpressionReader
) -> Iterator[tuple[Case, int, int, bool]]:
    for case in cases:
        vector = reader.vector_of(case.handle)
        if vector is not None:
            yield case, *known(bench, case, vector)


@pytest.mark.parametrize("seed", range(choose(1, 40)))
def test_decimals_of_all_precisions_are_as_in_spark(spark: SparkSession, seed: int) -> None:
    random = Random(seed)
    first = 5 if seed else 0
    pairs = list(islice(types(random), first, first + 8))
    columns = {f"c{i}": pair for i, pair in enumerate(pairs)}
    count = choose(24, 40)
    arrays = [of_type(random, *pair, count) for pair in columns.values()]
    rows = len(arrays[0])
    arrays += [
        pa.array([digits(random, 18) for _ in range(rows - 1)] + [-1], pa.int64()),
        pa.array(
            [
                f"{Decimal(digits(random, 38)).scaleb(-random.randint(0, 38), WIDE):f}"[:39]
                for _ in range(rows)
            ]
        ),
        pa.array(np.ldexp(np.array([digits(random, 15) for _ in range(rows)], np.float64), -20)),
    ]
    declared = ", ".join(f"{name} DECIMAL({p},{s})" for name, (p, s) in columns.items())
    bench = Bench.of(
        spark,
        pa.table(arrays, names=[*columns, "n", "text", "d"]),
        f"{declared}, n BIGINT, text STRING, d DOUBLE",
    )
    sure, unsure = [], []
    for name, (_, scale) in columns.items():
        other = random.choice(list(columns))
        sure += always_here(random, name, other, scale)
        unsure += perhaps_here(random, name, other, scale)
    for case, fine, here, together in proved(bench, *bench.cases(sure)):
        assert here == fine, case.text
        assert together, case.text
    counts = [(fine, here) for _, fine, here, _ in proved(bench, *bench.cases(unsure))]
    assert sum(here for _, here in counts) > sum(fine for fine, _ in counts) / 2
    finished = list(proved(bench, *of_aggregates(bench, random, columns)))
    assert len(finished) == 3 * len(columns)


def of_aggregates(
    bench: Bench, random: Random, columns: Mapping[str, tuple[int, int]]
) -> tuple[list[Case], ExpressionReader]:
    """Return what aggregates do to sums of decimals: overflows are checked, averages divided."""
    scala, plan = bench.scala, bench.leaf._jdf.queryExecution().optimizedPlan()
    attributes = {str(each.name()): each for each in items(plan.output())}
    count = scala.cast(attributes["n"], scala.type(DecimalType(20, 0).json()))
    made = {}
    for name, (precision, scale) in columns.items():
        total, fewer = attributes[name], random.randint(max(scale, 1), precision)
        narrow = scala.type(DecimalType(fewer, scale).json())
        average = scala.type(DecimalType(min(38, precision + 4), min(scale + 4, 38)).json())
        made[f"checked {name}"] = scala.expression("CheckOverflow", total, narrow, *STRICT)
        made[f"sum {name}"] = scala.expression("CheckOverflowInSum", total, narrow, *STRICT, None)
        made[f"average {name}"] = scala.expression(
            "DecimalDivideWithOverflowCheck", total, count, average, None, *STRICT
        )
    return bench.evaluated(list(made), list(made.values()), plan)
