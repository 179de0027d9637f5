"""Queries that DuckDB answers have exactly the rows, and the types, that Spark returns."""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.execution.engine.reading.queries import Queries
from headrace.execution.engine.reading.scans import Refused, Scans
from headrace.storage.log import SEGMENTS_READ
from length import choose, each
from sessions import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

QUERIES = choose(6, 2000)
SCHEMA = """
CREATE TABLE t (id BIGINT PRIMARY KEY, a INT, b BIGINT, s STRING, p DECIMAL(12,2), f DOUBLE,
  d DATE, at TIMESTAMP, ok BOOLEAN);
CREATE STREAM e (id BIGINT NOT NULL, a INT, b BIGINT, s STRING, p DECIMAL(12,2), f DOUBLE,
  d DATE, at TIMESTAMP);
CREATE TABLE u (k INT, name STRING, q DECIMAL(10,4), tiny TINYINT);
CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n, sum(b) AS total, max(p) AS top FROM t GROUP BY a;
CREATE VIEW w AS SELECT t.id, t.s, u.name, u.q FROM t LEFT JOIN u ON t.a = u.k WHERE t.b > -500;
"""
COLUMNS = {
    "id": "int", "a": "int", "b": "int", "s": "text", "p": "decimal", "f": "float", "d": "date",
    "at": "time", "ok": "bool",
}  # fmt: skip
VALUES: dict[str, list[str]] = {
    "int": ["0", "1", "-3", "7", "250", "NULL"],
    "text": ["''", "'ann'", "'Ärger'", "'b%'", "'zz''z'", "NULL"],
    "decimal": ["0", "1.50", "-12.25", "99999.99", "NULL"],
    "float": ["0.0D", "-0.0D", "double('NaN')", "1.5D", "double('-Infinity')", "NULL"],
    "date": ["DATE'1969-12-31'", "DATE'2026-02-28'", "DATE'0001-01-01'", "NULL"],
    "time": ["TIMESTAMP'2026-01-01 00:00:00.123456'", "TIMESTAMP'1960-05-05 12:00:00'", "NULL"],
    "bool": ["true", "false", "NULL"],
}


@pytest.fixture(scope="module")
def db(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> Iterator[headrace.Database]:
    rng = random.Random(3)
    with headrace.connect(
        tmp_path_factory.mktemp("scans") / "db", spark=spark, partitions=PARTITIONS
    ) as database:
        database.sql(SCHEMA)
        for low in (0, 150):  # several runs, of which one is small
            rows = [
                f"({n}, {', '.join(rng.choice(VALUES[kind]) for kind in list(COLUMNS.values())[1:])})"
                for n in range(low, low + 150 // (low + 1) + 8)
            ]
            database.sql(f"INSERT INTO t VALUES {', '.join(rows)}")
            database.flush()
        database.sql("UPDATE t SET b = b + 1, s = 'new' WHERE id < 12")
        database.sql("DELETE FROM t WHERE id BETWEEN 20 AND 24")
        database.sql(
            "INSERT INTO u VALUES (0,'x',1.5,1),(1,'y',NULL,2),(1,'y',NULL,2),(7,NULL,2,3)"
        )
        database.sql("DELETE FROM u WHERE k = 0")
        land(database, rng)
        database.flush()
        yield database


def land(database: headrace.Database, rng: random.Random) -> None:
    """Append events in many landings, correct some of them, and add a column between."""

    def append(columns: list[str], ids: range) -> None:
        for low in range(ids.start, ids.stop, 7):
            rows = [
                f"({n}, {', '.join(rng.choice(VALUES[COLUMNS[c]]) for c in columns[1:])})"
                for n in range(low, min(low + 7, ids.stop))
            ]
            database.sql(f"INSERT INTO e ({', '.join(columns)}) VALUES {', '.join(rows)}")

    append(list(COLUMNS)[:-1], range(120))
    database.sql("ALTER STREAM e ADD COLUMN ok BOOLEAN DEFAULT true")
    database.sql("CREATE MATERIALIZED VIEW events AS SELECT *, ROWOFFSET AS place FROM e")
    database.sql("CORRECT STREAM e REPLACE SET b = b + 1, s = 'new' WHERE id < 12")
    database.sql("CORRECT STREAM e REPLACE SET s = 'newer', a = 250 WHERE id IN (3, 5, 119)")
    database.sql("CORRECT STREAM e VOID WHERE id BETWEEN 40 AND 44 OR id = 5")
    append(list(COLUMNS), range(120, 150))


def both(db: headrace.Database, query: str) -> tuple[pa.Table, pa.Table]:
    """Return the result by DuckDB, and by a job of Spark."""
    parts = db.parts
    relations = [relation for relation in parts.reader.catalog if relation.name in "tuve"]
    state = parts.reader.published
    by_id = state.catalog.by_id
    with parts.engine.planning:
        prepared = parts.queries.prepared(query)
    scan = parts.queries.scan(prepared.optimised, relations)
    found = Scans().rows(scan, lambda id_: parts.reader.rows(state, by_id[id_]))
    if found is None:
        raise Refused("an error")
    ids = [relation.id for relation in relations]
    return found, parts.queries.rows(prepared.optimised, parts.reader.shares(ids, state))


def same(found: pa.Table, expected: pa.Table, *, ordered: bool) -> bool:
    """Compare as Spark shows values: NaN is NaN, and -0.0 is not 0.0."""
    rows = [[repr(tuple(row.values())) for row in each.to_pylist()] for each in (found, expected)]
    return found.schema == expected.schema and (
        rows[0] == rows[1] if ordered else Counter(rows[0]) == Counter(rows[1])
    )


@pytest.mark.parametrize(
    "query",
    each(
        3,
        [
            "SELECT count(*) FROM t",
            "SELECT * FROM t",
            "SELECT id, b FROM t WHERE b >= 7 AND s = 'ann' OR ok IS NULL",
            "SELECT s, count(*) AS n, sum(b), min(p), max(at), avg(a) FROM t GROUP BY s ORDER BY n DESC, s LIMIT 3",
            "SELECT id, f FROM t ORDER BY f DESC NULLS LAST, id LIMIT 20",
            "SELECT d, year(d), month(d), day(d) FROM t WHERE d IN (DATE'2026-02-28', DATE'0001-01-01')",
            "SELECT id FROM t ORDER BY at, id DESC LIMIT 7",
            "SELECT count(DISTINCT s), sum(p), avg(b) FILTER (WHERE ok), count(f) FROM t WHERE id < 0",
            "SELECT t.id, u.name FROM t JOIN u ON t.a = u.k AND t.b > u.tiny ORDER BY 1, 2",
            "SELECT t.id, u.name, u.q FROM t LEFT JOIN u ON t.a = u.k",
            "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.a)",
            "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.a)",
            "SELECT l.id, r.id FROM t l JOIN t r ON l.b = r.b AND l.id < r.id",
            "SELECT name, count(*) FROM w GROUP BY name HAVING count(*) > 1",
            "SELECT n + total, top * 2 FROM v WHERE a = 7",
            "SELECT a, CASE WHEN b > 3 THEN 'much' WHEN b IS NULL THEN s ELSE 'few' END FROM t",
            "SELECT DISTINCT a, ok FROM t",
            "SELECT a FROM t UNION ALL SELECT k FROM u",
            "SELECT a FROM t UNION SELECT k + 1 FROM u ORDER BY 1",
            "SELECT s || '-' || CAST(a AS STRING), length(s) FROM t WHERE s LIKE 'a%' OR s LIKE '%ge%'",
            "SELECT sum(n) FROM (SELECT a, count(*) AS n FROM t GROUP BY a ORDER BY n LIMIT 2)",
            "SELECT p * 3, p + q, p - q, p * q FROM t JOIN u ON a = k",
            "SELECT id FROM t WHERE f > 1.0D OR f = f",
            "SELECT upper_id FROM (SELECT id * 2 AS upper_id, b FROM t) WHERE b <> 7",
            "SELECT count(*) FROM e",
            "SELECT count(*) FROM e WHERE b = 7",
            "SELECT count(*), max(id) FROM e WHERE id BETWEEN 30 AND 60",
            "SELECT count(s) FROM e WHERE at > TIMESTAMP'2025-01-01' AND f > 1.0D",
            "SELECT * FROM e WHERE s IN ('new', 'newer', 'ann')",
            "SELECT s, count(*), sum(b), min(p), max(at) FROM e WHERE a IS NOT NULL GROUP BY s",
            "SELECT id, ok FROM e WHERE ok ORDER BY id DESC LIMIT 7",
            "SELECT ROWOFFSET, id FROM e WHERE ROWOFFSET BETWEEN 10 AND 130",
            "SELECT l.id, r.id FROM e l JOIN t r ON l.id = r.id AND l.s = r.s",
            "SELECT id FROM e ORDER BY id LIMIT 5 OFFSET 60",
        ],
    ),
)
def test_a_query_has_the_rows_of_spark(db: headrace.Database, query: str):
    found, expected = both(db, query)
    assert same(found, expected, ordered="ORDER BY" in query and "(SELECT" not in query)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT upper(s) FROM t", "function upper"),
        ("SELECT f, count(*) FROM t GROUP BY f", "grouping by floats"),
        ("SELECT sum(f) FROM t", "function sum on type double"),
        ("SELECT avg(p) FROM t", "function avg on type decimal(12,2)"),
        ("SELECT * FROM t CROSS JOIN u", "a join without an equality"),
        ("SELECT b / 2 FROM t", "function divide"),
        ("SELECT rank() OVER (ORDER BY b) FROM t", "Window"),
        ("SELECT rand() FROM t", "random"),
        ("SELECT collect_list(a) FROM t", "a sort of partitions"),
        ("SELECT try_sum(b) FROM t", "function try_sum on type bigint"),
        ("SELECT id FROM t WHERE b > (SELECT avg(b) FROM t)", "subquery"),
        ("SELECT CAST(s AS INT) FROM t", "CAST of string to int"),
        ("SELECT -CAST(p AS DECIMAL(35,2)) FROM t", "arithmetic on type decimal(35,2)"),
        ("SELECT s COLLATE UTF8_LCASE FROM t", "function collate"),
    ],
)
def test_what_may_differ_is_left_to_spark(db: headrace.Database, query: str, reason: str):
    with pytest.raises(Refused) as refused:
        both(db, query)
    assert reason.lower() in str(refused.value).lower()


def test_an_error_is_that_of_spark(db: headrace.Database):
    db.sql("INSERT INTO u VALUES (2147483647, 'large', 1, 1)")
    with pytest.raises(headrace.HeadraceError, match="overflow"):
        db.sql("SELECT sum(k + 1) FROM u WHERE name = 'large'")
    with pytest.raises(headrace.HeadraceError, match="overflow"):
        db.sql("SELECT count(*) FROM u WHERE k + 1 > 5")
    db.sql("DELETE FROM u WHERE name = 'large'")
    db.flush()


def test_random_queries_have_the_rows_of_spark(db: headrace.Database):
    rng = random.Random(choose(29, 30))
    answered = 0
    for _ in range(QUERIES):
        query = random_query(rng)
        if rng.random() < 0.5:
            query = query.replace(" FROM t", " FROM e", 1)
        try:
            found, expected = both(db, query)
        except Refused:
            continue
        answered += 1
        assert same(found, expected, ordered="ORDER BY" in query), query
    assert answered > QUERIES * 0.7


def test_events_are_those_that_a_view_of_the_stream_has(db: headrace.Database):
    """The view is made by epochs, and compared with plain Spark over the whole log."""
    names = ", ".join(COLUMNS)
    events = db.sql(f"SELECT {names}, ROWOFFSET AS place FROM e").to_arrow()
    assert same(events, db.sql("SELECT * FROM events").to_arrow(), ordered=False)
    assert {verdict for *_, verdict in db.sql("VERIFY events").fetchall()} == {"equal to batch"}
    assert db.sql("SELECT count(*) FROM e").fetchall() == [(144,)]
    assert events.num_rows == 144


def test_any_rows_that_a_limit_returns_are_events_that_pass(
    db: headrace.Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Queries, "rows", lambda *_given: pytest.fail("a Spark job"))
    opened = SEGMENTS_READ.segments
    assert {r[0] for r in db.sql("SELECT id FROM e LIMIT 5").fetchall()} == set(range(145, 150))
    assert SEGMENTS_READ.segments - opened == 2
    for query, rows in (
        ("SELECT id, s FROM e WHERE id < 60 AND s = 'newer' LIMIT 5", 1),
        ("SELECT id, upper(s) FROM e WHERE id < 60 AND upper(s) LIKE 'NEW%' LIMIT 5", 5),
        ("SELECT id, s FROM e WHERE s LIKE 'n%' AND id < 60 LIMIT 5", 5),
        ("SELECT id, s FROM (SELECT * FROM e WHERE s IN ('new', 'newer') LIMIT 9) LIMIT 5", 5),
        ("SELECT id + 1 - 1, s FROM e WHERE s IN ('new', 'newer') LIMIT 2", 2),
    ):
        found = db.sql(query).fetchall()
        every = {
            (id_, s) for id_, s in db.sql("SELECT id, s FROM e WHERE s LIKE 'new%'").fetchall()
        }
        assert len(set(found)) == rows
        assert {(id_, s.lower()) for id_, s in found} <= every


def random_query(rng: random.Random) -> str:
    names = rng.sample(list(COLUMNS), rng.randrange(1, 4))
    where = f" WHERE {condition(rng, 2)}" if rng.random() < 0.7 else ""
    if rng.random() < 0.5:
        keys = [name for name in names if COLUMNS[name] != "float"]
        found = [aggregate(rng) for _ in range(rng.randrange(1, 4))]
        shown = ", ".join([*keys, *(f"{text} AS x{n}" for n, text in enumerate(found))])
        group = f" GROUP BY {', '.join(keys)}" if keys else ""
        having = " HAVING count(*) > 1" if group and rng.random() < 0.3 else ""
        order = f" ORDER BY {', '.join(keys)}" if keys and rng.random() < 0.5 else ""
        limit = f" LIMIT {rng.randrange(1, 6)}" if order and rng.random() < 0.5 else ""
        return f"SELECT {shown} FROM t{where}{group}{having}{order}{limit}"
    shown = ", ".join([*names, f"{number(rng, 2)} AS x"])
    by = rng.choice(list(COLUMNS))
    how = rng.choice(["", " DESC", " NULLS LAST", " DESC NULLS FIRST"])
    order = f" ORDER BY {by}{how}, id LIMIT {rng.randrange(1, 30)}" if rng.random() < 0.7 else ""
    return f"SELECT {shown} FROM t{where}{order}"


def aggregate(rng: random.Random) -> str:
    name = rng.choice([name for name in COLUMNS if COLUMNS[name] != "float"])
    kind = COLUMNS[name]
    of = ["min", "max", "count"]
    of += ["sum"] * (kind in ("int", "decimal")) + ["avg"] * (kind == "int")
    only = f" FILTER (WHERE {condition(rng, 1)})" if rng.random() < 0.3 else ""
    return rng.choice([f"{rng.choice(of)}({name}){only}", "count(*)", f"count(DISTINCT {name})"])


def condition(rng: random.Random, depth: int) -> str:
    if depth and rng.random() < 0.5:
        joined = f" {rng.choice(['AND', 'OR'])} "
        both_ = joined.join(condition(rng, depth - 1) for _ in range(2))
        return rng.choice([f"({both_})", f"NOT ({both_})"])
    name = rng.choice(list(COLUMNS))
    given = VALUES[COLUMNS[name]]
    if rng.random() < 0.2:
        return f"{name} IS {rng.choice(['', 'NOT '])}NULL"
    if rng.random() < 0.2:
        return f"{name} {rng.choice(['', 'NOT '])}IN ({', '.join(rng.sample(given, 2))})"
    operator = rng.choice(["=", "<", "<=", ">", ">=", "<>", "<=>"])
    return f"{name} {operator} {rng.choice(given)}"


def number(rng: random.Random, depth: int) -> str:
    if depth and rng.random() < 0.6:
        left, right = number(rng, depth - 1), number(rng, depth - 1)
        return rng.choice(
            [
                f"({left} {rng.choice('+-*')} {right})",
                f"coalesce({left}, {right})",
                f"(CASE WHEN {condition(rng, 0)} THEN {left} ELSE {right} END)",
            ]
        )
    return rng.choice(["id", "a", "b", "p", "1", "-2", "CAST(a AS BIGINT)"])


@pytest.mark.parametrize(
    ("query", "way"),
    [
        ("SELECT upper(s) FROM t WHERE id = 3", "rows that its conditions choose"),
        ("SELECT a, count(*) FROM t GROUP BY a", "a scan by DuckDB"),
        ("SELECT upper(s), count(*) FROM t GROUP BY 1", "a Spark job, because of function upper"),
        ("SELECT upper(s) FROM e WHERE id = 3", "rows that its conditions choose"),
        (
            "SELECT a, count(*) FROM e WHERE id > 130 GROUP BY a",
            'a scan by DuckDB, without a Spark job; 4 of 26 segments of stream "e"',
        ),
        ("SELECT count(*) FROM e", "a scan by DuckDB, without a Spark job; 0 of 26 segments"),
        (
            "SELECT upper(s) FROM e LIMIT 5",
            "rows that its conditions choose, without a Spark job; at most 5 of 26 segments",
        ),
    ],
)
def test_explain_says_what_answers(db: headrace.Database, query: str, way: str):
    lines = [line for (line,) in db.sql(f"EXPLAIN {query}").fetchall()]
    assert lines[lines.index("-- Read now by") + 1].startswith(way)


def test_a_scan_ends_when_its_statement_is_cancelled(db: headrace.Database):
    session = db.session()
    session.sql("CREATE TABLE many (k INT, n INT)")
    session.insert("many", [{"k": 0, "n": n} for n in range(60_000)])
    session.flush()
    started = threading.Event()
    ended: list[BaseException] = []

    def run() -> None:
        started.set()
        try:  # each row with each of the others
            session.sql("SELECT count(*) FROM many l JOIN many r ON l.k = r.k WHERE l.n < r.n")
        except headrace.HeadraceError as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    started.wait()
    while thread.is_alive():
        session.cancel()
        thread.join(0.2)
    assert [error.code for error in ended] == ["cancelled"]
    session.sql("DROP TABLE many")
