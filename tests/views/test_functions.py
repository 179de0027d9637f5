"""Python functions in views, while they are registered and while they are missing.

What is expected is Spark batch with the plain Python function, registered by PySpark alone.
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.functions import arrow_udf, pandas_udf, udf

import headrace
from headrace.errors import HeadraceError
from length import choose

pytestmark = pytest.mark.spark

ITEMS = """id INT, city STRING, gross DECIMAL(10,2), rate DECIMAL(6,4), at TIMESTAMP, tags ARRAY<INT>,
    place STRUCT<x: INT, y: STRING>"""
CITIES = ["oslo", "Oslo", "ROME", "rome ", None, ""]

VIEWS = {
    "projected": "SELECT id, net(gross, rate) AS net, moved(at) AS at, total(tags) AS total FROM items",
    "nested": "SELECT id, turned(place) AS place, listed(place, tags) AS listed FROM items",
    "filtered": "SELECT id, gross FROM items WHERE total(tags) > 2 AND clean(city) = 'oslo'",
    "cased": "SELECT id, CASE WHEN id > 9 THEN total(tags) WHEN id > 4 THEN plus(id) ELSE id END AS n FROM items",
    "grouped": "SELECT clean(city) AS city, sum(net(gross, rate)) AS net, count(*) AS n FROM items GROUP BY clean(city)",
    "busy": "SELECT city, max(plus(id)) AS most FROM items GROUP BY city HAVING plus(count(*)) > 2",
    "distinct_": "SELECT count(DISTINCT clean(city)) AS cities, count(DISTINCT plus(id)) AS ids FROM items",
    "joined": "SELECT i.id, v.score FROM items i JOIN visits v ON clean(i.city) = clean(v.city)",
    "outer_": "SELECT i.id, v.score FROM items i LEFT JOIN visits v ON plus(i.id) = v.score AND i.id > 2",
    "semi": "SELECT id FROM items WHERE clean(city) IN (SELECT clean(city) FROM visits WHERE same(score) > 3)",
    "ranked": "SELECT id, row_number() OVER (PARTITION BY clean(city) ORDER BY plus(id) DESC, id) AS nth FROM items",
    "first_": "SELECT plus(id) AS n, clean(city) AS city FROM items ORDER BY clean(city) NULLS LAST, id LIMIT 3",
    "exploded": "SELECT id, explode(array(plus(id), same(id))) AS n FROM items",
    "above": "SELECT city, plus(n) AS n, same(n) AS m FROM grouped",
    "pairs": "SELECT a.city, b.n FROM grouped a JOIN grouped b ON plus(a.n) = same(b.n) + 1",
}


def bodies():
    """The functions as users write them, each with its result and kind."""

    def net(gross, rate):
        return None if gross is None or rate is None else gross / (1 + rate)

    def clean(city):
        return None if city is None else city.strip().lower()

    def moved(at):
        return None if at is None else at.replace(hour=0) + timedelta(days=1)

    def total(tags):
        return -1 if tags is None else sum(t for t in tags if t is not None)

    def turned(place):
        return None if place is None else (place.y, place.x)

    def listed(place, tags):
        return {"x": None if place is None else [place["x"]], "tags": tags}

    def plus(numbers):
        return numbers + 1

    def same(numbers):
        return numbers

    return {
        "net": (net, "DECIMAL(18,4)", "python"),
        "clean": (clean, "STRING", "python"),
        "moved": (moved, "TIMESTAMP", "python"),
        "total": (total, "INT", "python"),
        "turned": (turned, "STRUCT<b: STRING, a: INT>", "python"),
        "listed": (listed, "MAP<STRING, ARRAY<INT>>", "python"),
        "plus": (plus, "BIGINT", "pandas"),
        "same": (same, "BIGINT", "arrow"),
    }


def functions(without=()):
    return [
        headrace.function(name, body, returns=returns, kind=kind, deterministic=True)
        for name, (body, returns, kind) in bodies().items()
        if name not in without
    ]


def plain(spark):
    """Register the same by PySpark alone."""

    def plus(numbers: pd.Series) -> pd.Series:
        return numbers + 1

    def same(numbers: pa.Array) -> pa.Array:
        return numbers.cast(pa.int64())

    for name, (body, returns, kind) in bodies().items():
        if kind == "python":
            spark.udf.register(name, udf(body, returns, useArrow=False))
    plus.__annotations__ = {"numbers": pd.Series, "return": pd.Series}
    same.__annotations__ = {"numbers": pa.Array, "return": pa.Array}
    spark.udf.register("plus", pandas_udf(plus, "BIGINT"))
    spark.udf.register("same", arrow_udf(same, "BIGINT"))


class Market:
    """Items and visits, changed at random; a third of all values are NULL."""

    def __init__(self, run, seed: int) -> None:
        self.run = run
        self.dice = random.Random(seed)
        plain(run.batch)
        run.table("items", ITEMS, key="id")
        run.stream("visits", "city STRING, score INT")

    def items(self, count: int) -> None:
        dice = self.dice

        def some(value):
            return None if dice.random() < 0.3 else value

        rows = [
            (
                dice.randrange(20),
                dice.choice(CITIES),
                some(Decimal(dice.randrange(10_000)) / 100),
                some(Decimal(dice.randrange(5)) / 10),
                some(datetime(2024, 3, 31, dice.randrange(24), 30)),  # noqa: DTZ001
                some([some(dice.randrange(4)) for _ in range(dice.randrange(4))]),
                some({"x": some(dice.randrange(3)), "y": some("y")}),
            )
            for _ in range(count)
        ]
        self.run.insert("items", rows)

    def visits(self, count: int) -> None:
        dice = self.dice
        self.run.insert(
            "visits", [(dice.choice(CITIES), dice.choice([None, *range(20)])) for _ in range(count)]
        )

    def change(self) -> None:
        match self.dice.randrange(4):
            case 0:
                self.items(3)
            case 1:
                self.items(2)
                self.visits(1)
            case 2:
                self.run.update("items", {"gross": "gross + 1", "city": "'Rome'"}, "id % 4 = 1")
            case _:
                self.run.delete("items", f"id % 5 = {self.dice.randrange(5)}")


@pytest.mark.long
@pytest.mark.parametrize(
    "names",
    choose(
        [
            ["projected", "nested", "filtered", "cased", "grouped", "joined"],
            ["outer_", "semi", "ranked", "first_", "exploded"],
        ],
        [list(VIEWS)[:8], list(VIEWS)[8:13], ["grouped", "above", "pairs"]],
    ),
)
def test_functions_stand_wherever_expressions_do(oracle, names):
    run = oracle(functions=functions(), rows_per_change=40)
    market = Market(run, len(names))
    market.items(8)
    market.visits(4)
    for name in names:
        run.view(name, VIEWS[name])
    for _ in range(choose(2, 4)):
        market.change()
        run.epoch()
    run.truncate("items")
    run.epoch()
    market.items(5)
    run.finish()


@pytest.mark.long
def test_views_wait_for_a_function_and_miss_nothing(oracle):
    run = oracle(functions=functions(), rows_per_change=40)
    market = Market(run, 3)
    market.items(8)
    market.visits(4)
    for name in ("grouped", "above", "joined"):
        run.view(name, VIEWS[name])
    run.view("other", "SELECT score, sum(plus(score)) AS n FROM visits GROUP BY score")
    run.epoch()
    run.db.close()

    waits = headrace.connect(
        run.directory, spark=run.spark, **{**run.settings, "functions": functions(["clean"])}
    )
    causes = {row[0]: (row[1], row[-1]) for row in waits.sql("SHOW DIRTY").fetchall()}
    assert causes == {
        "grouped": ("waiting", 'It calls function "clean", which is not registered.'),
        "joined": ("waiting", 'It calls function "clean", which is not registered.'),
        "above": ("waiting", 'It reads view "grouped", which waits for a function.'),
    }
    with pytest.raises(HeadraceError, match=r'view "above" waits for a function'):
        waits.sql("SELECT * FROM above")
    with pytest.raises(HeadraceError, match=r'view "grouped" waits for a function'):
        waits.sql("CREATE MATERIALIZED VIEW late AS SELECT * FROM grouped")
    with pytest.raises(HeadraceError, match=r'function "clean" is not registered'):
        waits.sql("SELECT clean(city) FROM items")
    states = {row[0]: row[5:] for row in waits.sql("SHOW FUNCTIONS").fetchall()}
    assert states["clean"] == ("missing", "grouped, joined")
    assert states["plus"] == ("registered", "above, other")

    run.db = waits
    gone = run._matching("items", run.models["items"].names, "id % 3 = 1")
    waits.sql("DELETE FROM items WHERE id % 3 = 1")
    run.models["items"].write([(-1, row) for row in gone], ordered=False)
    market.visits(3)
    market.items(4)
    waits.flush()
    assert {view: verdict for view, _, _, verdict in waits.sql("VERIFY").fetchall()} == {
        "grouped": 'waiting: It calls function "clean", which is not registered.',
        "joined": 'waiting: It calls function "clean", which is not registered.',
        "above": 'waiting: It reads view "grouped", which waits for a function.',
        "other": "equal to batch",
    }
    (said,) = waits.sql("REPAIR grouped").fetchall()
    assert said[:2] == ("grouped", "stopped")
    assert said[2].startswith('still waiting: It calls function "clean", which is not registered.')
    for model in run.models.values():
        model.advance(len(model.log))
    run._register()
    for name in run.views:
        run._changelogs.pop(name)
    run._past.clear()

    for each in functions():
        if each.name == "clean":
            waits.register(each)
    assert waits.sql("SHOW DIRTY").fetchall() == []
    for name in run.views:
        run._follow(name)
        run._check_views([name], waits.parts.ledger.head.epoch)
    for _ in range(choose(1, 3)):
        market.change()
        run.epoch()
    run.finish()


@pytest.mark.long
def test_a_view_that_waited_while_nothing_happened_goes_on_where_it_was(oracle):
    run = oracle(functions=functions(), rows_per_change=40)
    market = Market(run, 4)
    market.items(6)
    for name in ("grouped", "above"):
        run.view(name, VIEWS[name])
    filled = [e.counters.get("filled") for e in run.db.parts.ledger.epochs.newest(100)]
    run.db.close()
    run.settings["functions"] = []
    headrace.connect(run.directory, spark=run.spark, **run.settings).close()
    run.settings["functions"] = functions()
    run.db = headrace.connect(run.directory, spark=run.spark, **run.settings)
    again = [e.counters.get("filled") for e in run.db.parts.ledger.epochs.newest(100)]
    assert sorted(filter(None, again)) == sorted(filter(None, filled)) == ["above", "grouped"]
    run.db.close()
    run.db = headrace.connect(run.directory, spark=run.spark, **run.settings)
    for name in run.views:
        run._follow(name)
    market.items(4)
    run.epoch()
    run.delete("items", "id % 2 = 1")
    run.finish()


@pytest.mark.long
def test_a_function_that_fails_on_a_row_stops_the_views_that_call_it(db):
    def inverse(x):
        return 1 / x

    db.sql("CREATE TABLE t (k INT, x INT, PRIMARY KEY (k))")
    db.register("inverse", inverse, returns="DOUBLE", deterministic=True)
    db.sql("CREATE MATERIALIZED VIEW inverses AS SELECT k, inverse(x) AS y FROM t")
    db.sql("CREATE MATERIALIZED VIEW above AS SELECT sum(y) AS y FROM inverses")
    db.sql("CREATE MATERIALIZED VIEW others AS SELECT count(*) AS n FROM t")
    db.sql("INSERT INTO t VALUES (1, 2), (2, 0)")
    assert db.sql("SELECT * FROM others").fetchall() == [(2,)]
    with pytest.raises(HeadraceError, match=r'view "inverses" stopped') as stopped:
        db.sql("SELECT * FROM inverses")
    for said in ('function "inverse" failed', "ZeroDivisionError: division by zero", "(0)"):
        assert said in stopped.value.detail
    assert "test_functions.py" in stopped.value.detail
    with pytest.raises(HeadraceError, match=r'function "inverse" failed') as failed:
        db.sql("SELECT inverse(x) FROM t")
    assert failed.value.code == "invalid"

    # Correcting the function repairs them.
    def careful(x):
        return None if not x else 1 / x

    with pytest.raises(HeadraceError, match="differs from the one called by") as refused:
        db.register("inverse", careful, returns="DOUBLE", deterministic=True)
    assert refused.value.code == "conflict"
    db.register("inverse", careful, returns="DOUBLE", deterministic=True, replace=True)
    db.sql("INSERT INTO t VALUES (3, 4)")
    rows = db.sql("SELECT * FROM inverses").fetchall()
    assert sorted(rows) == [(1, 0.5), (2, None), (3, 0.25)]
    assert db.sql("SELECT * FROM above").fetchall() == [(0.75,)]
    assert {verdict for *_, verdict in db.sql("VERIFY").fetchall()} == {"equal to batch"}


@pytest.mark.long
def test_a_replaced_function_fills_the_views_that_call_it_anew(oracle):
    run = oracle(functions=functions(), rows_per_change=40)
    market = Market(run, 5)
    market.items(8)
    for name in ("grouped", "above", "filtered"):
        run.view(name, VIEWS[name])

    def clean(city):
        return None if not city else city[:1]

    other = headrace.function("clean", clean, returns="STRING", deterministic=True)
    with pytest.raises(HeadraceError, match='views "grouped", "filtered"'):
        run.db.register(other)
    epoch = run.db.parts.ledger.head.epoch
    run.db.register(other, replace=True)
    run.batch.udf.register("clean", udf(clean, "STRING", useArrow=False))
    run.settings["functions"] = [*functions(["clean"]), other]
    with pytest.raises(HeadraceError, match="no longer kept"):
        run.db.sql(f"SELECT * FROM above AS OF EPOCH {epoch}")
    run._past.clear()
    for name in run.views:
        run._follow(name)
        run.batch.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {run.views[name]}")
        run._check_views([name], run.db.parts.ledger.head.epoch)
    for _ in range(choose(1, 3)):
        market.change()
        run.epoch()
    run.finish()

    run.db.close()
    with pytest.raises(HeadraceError, match="differs from the one called by"):
        headrace.connect(
            run.directory, spark=run.spark, **run.settings | {"functions": functions()}
        )
    run.db = headrace.connect(run.directory, spark=run.spark, **run.settings)


def test_what_cannot_be_called_is_refused_with_the_reason(db):
    db.sql("CREATE TABLE t (k INT, name STRING)")

    @db.register(returns="INT", arguments=["INT", "INT"], deterministic=True)
    def added(x, y):
        return x + y

    @db.register(returns="INT")
    def rolled(x):
        return x

    @db.register("wrong", returns="INT", deterministic=True)
    def texts(x):
        return str(x)

    assert added(1, 2) == 3
    db.sql("INSERT INTO t VALUES (1, 'a')")
    assert db.sql("SELECT ADDED(k, 2), rolled(k) FROM t").fetchall() == [(3, 1)]
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT added(k, 1) AS n FROM t")
    explained = [line for (line,) in db.sql("EXPLAIN VIEW v").fetchall()]
    assert any("Python added(t.k, 1): called for each changed row" in line for line in explained)
    for statement, said in {
        "CREATE MATERIALIZED VIEW w AS SELECT rolled(k) AS n FROM t": "not declared deterministic",
        "SELECT added(k) FROM t": 'function "added" takes 2 arguments, not 1',
        "SELECT added(k, name) FROM t": 'argument 2 of function "added" is STRING, not INT',
        "SELECT added(x => k, y => k) FROM t": "a named argument",
        "SELECT aded(k, k) FROM t": 'Did you mean "added"?',
        "SELECT wrong(k) FROM t": "is a Python str, not a value of INT",
        "DROP FUNCTION added": 'function "added" is used by view "v"',
        "DROP FUNCTION aded": 'Did you mean "added"?',
        "SELECT builtin.added(k, k) FROM t": "does not exist",
    }.items():
        with pytest.raises(HeadraceError) as refused:
            db.sql(statement)
        assert said in str(refused.value), statement
    for name, returns, said in [
        ("sum", "INT", "is built into Spark"),
        ("Extract", "INT", "is built into Spark"),
        ("no name", "INT", "is no name for a function"),
        ("of_variant", "VARIANT", "cannot return VARIANT"),
        ("of_nanoseconds", "TIME(9)", "TIME(9) is not supported"),
        ("of_nothing", "INTT", 'type "INTT" does not exist'),
        ("undeclared", "", "without the type that it returns"),
    ]:
        with pytest.raises(HeadraceError) as refused:
            db.register(name, lambda x: x, returns=returns)
        assert said in str(refused.value), name
    for kind in ("pandas", "arrow"):
        with pytest.raises(HeadraceError, match="for many rows at once"):
            db.register("of_times", lambda x: x, returns="ARRAY<TIME>", kind=kind)
    assert db.sql("DROP FUNCTION IF EXISTS nothing").message == 'function "nothing" does not exist'
    db.sql("DROP FUNCTION added CASCADE")
    assert [row[0] for row in db.sql("SHOW FUNCTIONS").fetchall()] == ["rolled", "wrong"]
    assert db.sql("SHOW VIEWS").fetchall() == []
    with pytest.raises(HeadraceError, match='function "added" does not exist'):
        db.sql("SELECT added(k, k) FROM t")


@pytest.mark.long
def test_a_view_that_lags_behind_stays_where_it_stands_when_its_function_is_replaced(db):
    def same(n):
        return n

    def negated(n):
        return -n

    db.register("f", same, returns="INT", deterministic=True)
    db.sql("CREATE STREAM s (v INT)")
    db.sql("CREATE MATERIALIZED VIEW m WITH (refresh = 'manual') AS SELECT sum(f(v)) AS n FROM s")
    db.sql("INSERT INTO s VALUES (1), (2); REFRESH m; INSERT INTO s VALUES (10); FLUSH")
    db.register("f", negated, returns="INT", deterministic=True, replace=True)
    assert db.sql("SELECT n FROM m").fetchall() == [(-3,)]
    assert [verdict for *_, verdict in db.sql("VERIFY m")] == ["equal to batch"]
    db.sql("REFRESH m")
    assert db.sql("SELECT n FROM m").fetchall() == [(-13,)]
