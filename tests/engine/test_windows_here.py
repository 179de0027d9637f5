"""Windows that are computed in this process, beside Spark's own values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions
from pyspark.sql.types import StructType

from headrace.execution.engine.narrow.nodes import JobNode, RowsNode, StepRun, Task
from headrace.execution.engine.narrow.reading import node_of
from headrace.execution.engine.narrow.windows import Aggregated, Windowed
from headrace.planning.catalyst.scala import items, node_name, scala_of
from headrace.planning.catalyst.transplant import Transplant
from headrace.types import Schema
from length import choose

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headrace.interfaces.database import Database

COLUMNS = """id INT NOT NULL, g INT, h DOUBLE, o INT, n INT, tiny TINYINT, big BIGINT, huge BIGINT, d DOUBLE, f FLOAT,
    x DOUBLE, s STRING, raw BINARY, flag BOOLEAN, small DECIMAL(7,2), price DECIMAL(12,2), wide DECIMAL(38,18),
    full DECIMAL(38,0), day DATE, at TIMESTAMP, list ARRAY<INT>, pair STRUCT<a: INT, b: STRING>"""

WINDOWS = (
    "PARTITION BY g ORDER BY o",
    "PARTITION BY h, s ORDER BY x DESC NULLS LAST, s",
    "PARTITION BY g % 2, x ORDER BY pair, list DESC",
    "ORDER BY s DESC, price NULLS LAST, at",
    "PARTITION BY list, day ORDER BY wide DESC, raw",
)
NUMBERED = """
row_number() | rank() | dense_rank() | percent_rank() | cume_dist() | ntile(1) | ntile(3) | ntile(50)
lag(n) | lag(s, 2, 'none') | lag(price, 1, 0.5BD) | lag(x, 2) IGNORE NULLS | lag(n, 1, id) IGNORE NULLS | lag(n, -1)
lead(d) | lead(n, 2, -1) | lead(pair, 1) | lead(s, 1, s) IGNORE NULLS | lead(list, 3) | lead(n, 0)
lag(n + 1, 1, o * 2) | lead(n, 1000000)
"""
FRAMED = """
count(*) | count(n) | count(n, s) | count_if(flag) | sum(n) | sum(tiny) | sum(big) | sum(d) | sum(f) | sum(small)
sum(price) | sum(wide) | sum(n * 2) | avg(n) | avg(big) | avg(d) | avg(f) | avg(small) | avg(price) | avg(wide) | try_sum(n)
min(n) | max(n) | min(x) | max(x) | min(s) | max(s) | min(raw) | max(flag) | min(price) | max(wide) | min(day) | max(at)
max(pair) | min(list) | bool_and(flag) | bool_or(n > 2) | first_value(n) | first_value(x) IGNORE NULLS | last_value(s)
last_value(at) IGNORE NULLS | any_value(raw) | any_value(day) IGNORE NULLS | nth_value(n, 2) | nth_value(s, 3) IGNORE NULLS
nth_value(wide, 1) | max_by(s, x) | min_by(n, price) | max_by(pair, o) | min(n + o) | sum(1) | avg(1.25) | max(n) - n
sum(CAST(tiny AS DECIMAL(5,1))) | sum(price) / count(*) | try_avg(n)
"""
LISTS = """
collect_list(n) | collect_list(pair) | array_agg(x) | listagg(s, ',') | string_agg(s) | collect_list(s) FILTER (WHERE flag)
listagg(s, '-') WITHIN GROUP (ORDER BY o DESC, s)
count(*) FILTER (WHERE n > 0) | first(n) FILTER (WHERE big > 0) | sum(d) FILTER (WHERE d > 0) | max_by(n, o) FILTER (WHERE o > 1)
"""
DISTINCT = """
count(DISTINCT n) | sum(DISTINCT n) | avg(DISTINCT n) | count(*) | sum(price) | avg(wide) | max(s) | min(n) FILTER (WHERE flag)
"""
FRAMES = (
    "",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "ROWS UNBOUNDED PRECEDING",
    "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    "RANGE BETWEEN CURRENT ROW AND CURRENT ROW",
    "ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING",
    "ROWS BETWEEN 3 PRECEDING AND 2 PRECEDING",
    "ROWS BETWEEN 1 FOLLOWING AND 40 FOLLOWING",
    "ROWS BETWEEN CURRENT ROW AND CURRENT ROW",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING",
    "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    "ROWS BETWEEN 100000 PRECEDING AND CURRENT ROW",
)
DISTANCES = {
    "PARTITION BY g ORDER BY o": "RANGE BETWEEN 1 PRECEDING AND CURRENT ROW",
    "ORDER BY o DESC": "RANGE BETWEEN 2 PRECEDING AND 1 PRECEDING",
    "ORDER BY at DESC NULLS LAST": "RANGE BETWEEN INTERVAL '0.000002' SECOND PRECEDING AND INTERVAL '3' SECOND FOLLOWING",
    "PARTITION BY flag ORDER BY x": "RANGE BETWEEN 1.5D PRECEDING AND 1D FOLLOWING",
    "PARTITION BY s ORDER BY day NULLS LAST": "RANGE BETWEEN 10 FOLLOWING AND UNBOUNDED FOLLOWING",
    "PARTITION BY s ORDER BY big": "RANGE BETWEEN UNBOUNDED PRECEDING AND 1L FOLLOWING",
}
"""Windows with frames by the distance of values."""
BY_SPARK = {
    "sum(n) OVER (ORDER BY price RANGE 3 PRECEDING)": "a distance of decimals",
    "stddev(n) OVER (PARTITION BY g)": "a function that is not in the list",
    "collect_list(n) OVER (PARTITION BY g)": "a function that is not in the list",
    "min(s COLLATE UTF8_LCASE) OVER (PARTITION BY g)": "a collation",
    "count(*) OVER (PARTITION BY s COLLATE UTF8_LCASE)": "a collation",
    "rank() OVER (ORDER BY s COLLATE UTF8_LCASE)": "a collation",
}
"""Windows that only Spark computes, with the reason."""
IN_DOUBT = (
    "sum(x) OVER (PARTITION BY g)",
    "avg(x) OVER (PARTITION BY g ORDER BY o)",
    "try_sum(huge) OVER (PARTITION BY g)",
)
"""Windows that are read here, and for some rows computed by Spark."""


@cache
def schema() -> StructType:
    return StructType.fromDDL(COLUMNS)


def listed(texts: str) -> list[str]:
    return [each.strip() for line in texts.strip().split("\n") for each in line.split(" | ")]


def over(call: str, frame: str, window: str) -> str:
    """Return a column with a window function; what follows the call stays outside of OVER."""
    function, between, rest = call.partition(" - n") if " - n" in call else call.partition(" / ")
    found = f"{function} OVER ({window} {frame})"
    return f"{found}{between}{over(rest, frame, window) if between == ' / ' else ''}"


def drawn(random: Random, position: int, few: int) -> dict[str, Any]:
    """Return a row with ties, NULLs and extremes."""

    def one(*values: Any) -> Any:
        return None if random.random() < 0.2 else random.choice(values)

    k = random.randrange(-few, few + 1)
    cents = Decimal(k * 25) / 100
    return {
        "id": position,
        "g": one(*range(few)),
        "h": one(0.0, -0.0, float("nan"), 1.5),
        "o": one(*range(few)),
        "n": one(k, 7, 10**6),
        "tiny": one(-128, 127, k),
        "big": one(k, 2**53 + 1, -(2**53), 2**54),
        "huge": one(2**63 - 1, -(2**63)),
        "d": one(0.1, -0.0, 1e10, -7.25, 1e-300, 3.0, 1 / 3),
        "f": one(0.1, -2.5, 16777216.0),
        "x": one(0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1e308, 5e-324, 2.5),
        "s": one("", "a", "A", "ß", "\uffff", "\U0001f600", "ab"),
        "raw": one(b"", b"\x00", b"\xff\x01", b"a"),
        "flag": one(k > 0, k < 1),
        "small": one(cents, Decimal("99999.99"), Decimal("-0.01")),
        "price": one(cents, Decimal("9999999999.99"), Decimal("-9999999999.99")),
        "wide": one(cents, Decimal("12345678901.000000000000000001"), Decimal(-7) / 10**18),
        "full": one(Decimal(10**38 - 1), Decimal(1)),
        "day": one(date(1970, 1, 1), date(1582, 10, 4), date(2024, 2, 29)),
        "at": one(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=k)),
        "list": one([], [None], [1], [1, None], [k]),
        "pair": one({"a": None, "b": "x"}, {"a": k, "b": None}, {"a": 1, "b": "x"}),
    }


def some_rows(random: Random, count: int, few: int) -> pa.Table:
    """Return rows; some are equal but for their id."""
    rows: list[dict[str, Any]] = []
    for position in range(count):
        row = drawn(random, position, few)
        if rows and random.random() < 0.2:
            row = random.choice(rows) | {"id": position}
        rows.append(row)
    return pa.Table.from_pylist(rows, Schema.of_spark(schema()).arrow)


def never(_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    raise AssertionError


@dataclass(frozen=True)
class Bench:
    """Reads queries over rows that the test gives, as lowering would build their windows."""

    transplant: Transplant

    def window(self, columns: Sequence[str]) -> RowsNode:
        """Return the only window of a query, over rows that are sorted."""
        plan = self._plan("Window", lambda frame: frame.selectExpr("*", *named(columns)))
        keys, order = items(plan.partitionSpec()), items(plan.orderSpec())
        rows = self.transplant.sorted(plan.child(), keys, order)
        return node_of(self.transplant, self.transplant.window(plan, keys, rows))

    def aggregate(self, columns: Sequence[str], keys: Sequence[str], *, ordered: bool) -> RowsNode:
        """Return the only aggregate of a query, over rows that are sorted if it is ``ordered``."""

        def grouped(frame: DataFrame) -> DataFrame:
            return frame.groupBy(*map(functions.expr, keys)).agg(
                *map(functions.expr, named(columns))
            )

        plan = self._plan("Aggregate", grouped)
        rows = plan.child()
        if ordered:
            rows = self.transplant.sorted(rows, items(plan.groupingExpressions()), [])
        whole = plan.withNewChildren(self.transplant.scala.seq([rows]))
        return node_of(self.transplant, whole)

    def _plan(self, kind: str, query: Callable[[DataFrame], DataFrame]) -> Any:
        transplant = self.transplant
        leaf = transplant.mapped(transplant.range(1), never, schema())
        plan = transplant.optimised(query(transplant.frame(leaf)))
        while node_name(plan) != kind:
            (plan,) = items(plan.children())
        return plan


def named(columns: Sequence[str]) -> list[str]:
    return [f"{text} AS c{i}" for i, text in enumerate(columns)]


@pytest.fixture(scope="module")
def bench(spark: SparkSession) -> Bench:
    return Bench(Transplant(spark, scala_of(spark)))


def given(node: RowsNode, rows: pa.Table) -> StepRun:
    """Return a run in which the task below a node has computed some rows."""
    run, below = StepRun(), [node]
    while below:
        each = below.pop()
        if isinstance(each, Task):
            names = [f.name for f in each.schema]
            run.found[each] = rows.rename_columns(names).cast(each.schema)
        else:
            below += each.below
    return run


def shown(rows: pa.Table) -> list[str]:
    """Return rows in the order of their ids, in a form that is equal for identical rows only."""
    columns = [column.to_pylist() for column in rows.columns]
    order = sorted(range(rows.num_rows), key=columns[0].__getitem__)
    return [repr([column[i] for column in columns]) for i in order]


def as_sets(lists: pa.ChunkedArray) -> list[list[str]]:
    """Return lists, and their elements, without an order."""
    return sorted(sorted(map(repr, each)) for each in lists.to_pylist())


def agree(node: RowsNode, rows: pa.Table) -> None:
    assert isinstance(node, (Aggregated, Windowed))
    run = given(node, rows)
    here = node.rows(run)
    assert run.jobs == 0
    by_spark = node.job.rows(run)
    key = here.schema.names[0 if isinstance(node, Windowed) else -1]
    assert here.schema.types == by_spark.schema.types
    for name in here.schema.names:
        ours, theirs = (table.select([key, name]) for table in (here, by_spark))
        assert shown(ours) == shown(theirs), name


@pytest.mark.parametrize("seed", range(choose(1, 8)))
def test_windows_have_the_values_of_spark(bench: Bench, seed: int) -> None:
    random = Random(seed)
    sizes = choose([(30, 3)], [(60, 3), (1, 1), (400, 2), (300, 60), (0, 1)])
    for window in random.sample(WINDOWS, choose(1, 3)):
        columns = [over(call, "", window) for call in listed(NUMBERED)]
        for call in listed(FRAMED):
            frames = random.sample(FRAMES, choose(1, 2))
            columns += [over(call, frame, window) for frame in frames]
        node = bench.window(columns)
        for count, few in sizes:
            agree(node, some_rows(random, count, few))


@pytest.mark.long
def test_frames_by_distance_have_the_values_of_spark(bench: Bench) -> None:
    calls = ("count(*)", "sum(price)", "first_value(s)", "max(x)", "avg(d)")
    for window, frame in DISTANCES.items():
        node = bench.window([over(call, frame, window) for call in calls])
        for seed in range(choose(1, 10)):
            agree(node, some_rows(Random(seed), 50, 3))


@pytest.mark.long
def test_whole_groups_have_the_values_of_spark(bench: Bench) -> None:
    calls = [call for call in listed(FRAMED) if not call.startswith("nth_value")]
    columns = [over(call, "", "PARTITION BY g, flag") for call in calls]
    rows = some_rows(Random(3), 50, 2)
    agree(bench.window(columns), rows)
    apart = [call for call in calls if " - n" not in call]
    agree(bench.aggregate([*apart, *listed(LISTS), "min(id)"], ["g", "flag"], ordered=True), rows)
    agree(bench.aggregate([*apart, "min(id)"], ["s", "g % 2"], ordered=False), rows)
    agree(bench.aggregate([*listed(DISTINCT), "min(id)"], ["s"], ordered=False), rows)
    beside = bench.aggregate(["count(DISTINCT n)", "sum(d)"], ["s"], ordered=True)
    assert isinstance(beside, JobNode)
    node = bench.aggregate(["collect_set(n)", "collect_set(pair)"], ["flag"], ordered=False)
    assert isinstance(node, Aggregated)
    here, by_spark = node.rows(given(node, rows)), node.job.rows(given(node, rows))
    for ours, theirs in zip(here.columns[1:], by_spark.columns[1:], strict=True):
        assert as_sets(ours) == as_sets(theirs)


def test_other_windows_are_left_to_spark(bench: Bench) -> None:
    for text in BY_SPARK:
        node = bench.window([text])
        assert isinstance(node, JobNode), text


@pytest.mark.long
def test_a_window_in_doubt_is_computed_by_spark(bench: Bench) -> None:
    rows = some_rows(Random(4), 40, 2)
    for text in IN_DOUBT:
        node = bench.window([text])
        assert isinstance(node, Windowed), text
        run = given(node, rows)
        assert shown(node.rows(run)) == shown(node.job.rows(run))
        assert run.jobs == 1, text
    for text in ("sum(huge) OVER ()", "sum(full) OVER ()"):
        node = bench.window([text])
        with pytest.raises(Exception, match=r"OVERFLOW|OUT_OF_RANGE"):
            node.rows(given(node, rows))


@pytest.mark.long
def test_a_narrow_epoch_over_windows_and_groups_takes_no_job(db: Database) -> None:
    db.sql("""
        CREATE TABLE t (id INT PRIMARY KEY, k INT, v DECIMAL(10,2), s STRING, d DOUBLE);
        CREATE MATERIALIZED VIEW w AS SELECT id, rank() OVER (PARTITION BY k ORDER BY v) AS r,
            sum(v) OVER (PARTITION BY k ORDER BY v, id) AS t, avg(v) OVER (PARTITION BY s) AS a,
            lag(s) OVER (PARTITION BY k ORDER BY v, id) AS p FROM t;
        CREATE MATERIALIZED VIEW g AS SELECT k, sum(d) AS d, max_by(s, v) AS m FROM t GROUP BY k;
        CREATE MATERIALIZED VIEW h AS SELECT k, count(DISTINCT s) AS n, count(DISTINCT v) AS m,
            bool_or(v > 3) AS b FROM t GROUP BY k;
        CREATE MATERIALIZED VIEW l AS SELECT sort_array(collect_list(v)) AS v,
            listagg(s, ',') WITHIN GROUP (ORDER BY s DESC) AS s FROM t;
        INSERT INTO t VALUES (1, 1, 2.5, 'a', 0.1), (2, 1, 2.5, 'b', 0.2), (3, NULL, NULL, NULL, NULL);
        UPDATE t SET v = 4 WHERE id = 1;
    """)
    four, two = Decimal("4.00"), Decimal("2.50")
    assert db.sql("SELECT * FROM w ORDER BY id").fetchall() == [
        (1, 2, four + two, four, "b"),
        (2, 1, two, two, None),
        (3, 1, None, None, None),
    ]
    assert db.sql("SELECT * FROM g ORDER BY k").fetchall() == [
        (None, None, None),
        (1, 0.1 + 0.2, "a"),
    ]
    assert db.sql("SELECT * FROM h ORDER BY k").fetchall() == [(None, 0, 0, None), (1, 2, 2, True)]
    assert db.sql("SELECT * FROM l").fetchall() == [([two, four], "b,a")]
    epochs = db.parts.ledger.epochs.newest(2)
    assert [each.counters["jobs"] for each in epochs] == [0, 0]
