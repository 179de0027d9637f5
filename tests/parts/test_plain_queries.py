"""Plain queries, planned without Spark, have exactly the columns and rows that Spark returns."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.errors import Span
from headrace.lifecycle.states.plain_queries import planned_plainly
from length import choose, each
from sessions import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

QUERIES = choose(30, 3000)
SCHEMA = """
CREATE TABLE t (id BIGINT PRIMARY KEY, a INT, b BIGINT, tiny TINYINT, small SMALLINT, s STRING,
  p DECIMAL(12,2), q DECIMAL(38,10), f DOUBLE, d DATE, at TIMESTAMP, local TIMESTAMP_NTZ, ok BOOLEAN,
  xs ARRAY<INT>, `Mixed Case` INT, date DATE, count INT NOT NULL);
CREATE TABLE u (k INT, name STRING NOT NULL, day DATE, b BIGINT);
CREATE STREAM e (k INT, name STRING, at TIMESTAMP, v BIGINT);
CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n, sum(b) AS total FROM t GROUP BY a;
"""
COLUMNS = {
    "id": "int", "a": "int", "b": "int", "tiny": "int", "small": "int", "s": "text",
    "p": "decimal", "q": "decimal", "f": "float", "d": "date", "at": "time", "local": "local",
    "ok": "bool", "count": "int", "date": "date",
}  # fmt: skip
VALUES: dict[str, list[str]] = {
    "int": ["0", "1", "-3", "7", "100", "NULL"],
    "text": ["''", "'ann'", "'Ärger'", "'b%'", "'zz''z'", "NULL"],
    "decimal": ["0", "1.50", "-12.25", "99999.99", "NULL"],
    "float": ["0.0D", "-0.0D", "double('NaN')", "1.5D", "double('-Infinity')", "NULL"],
    "date": ["DATE'1969-12-31'", "DATE'2026-02-28'", "DATE'0001-01-01'", "NULL"],
    "time": ["TIMESTAMP'2026-01-01 00:00:00.123456'", "TIMESTAMP'1960-05-05 12:00:00'", "NULL"],
    "local": ["TIMESTAMP_NTZ'2026-01-01 00:00:00.123456'", "NULL"],
    "bool": ["true", "false", "NULL"],
}
CONSTANTS = {
    "int": ["0", "1", "-3", "7", "100", "3000000000", "1.5", "'7'"],
    "text": ["''", "'ann'", "'Ärger'", "r'b%'", "7"],
    "decimal": ["0", "1.5", "-12.25", "99999.99", "7", "1.505", "100000000000", "1e0"],
    "float": ["0", "0.0", "-0.0", "1.5", "-7", "1e0", "0.1", "123456789012345678"],
    "date": ["DATE'1969-12-31'", "'2026-02-28'", "DATE '0001-01-01'", "'2026-2-8'", "'x'"],
    "time": [
        "TIMESTAMP'2026-01-01 00:00:00.123456'", "'2026-01-01 00:00:00.123456'",
        "'1960-05-05 12:00:00'", "DATE'2026-01-01'", "'2026-01-01'", "'2026-01-01 00:00:00Z'",
    ],
    "local": ["TIMESTAMP_NTZ'2026-01-01 00:00:00.123456'", "'2026-01-01 00:00:00'"],
    "bool": ["true", "FALSE"],
}  # fmt: skip


@pytest.fixture(scope="module")
def db(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> Iterator[headrace.Database]:
    rng = random.Random(4)
    with headrace.connect(
        tmp_path_factory.mktemp("plain") / "db", spark=spark, partitions=PARTITIONS
    ) as database:
        database.sql(SCHEMA)
        names = [name for name in COLUMNS if name not in {"id", "count"}]
        rows = [
            f"({n}, {n % 3}, {', '.join(rng.choice(VALUES[COLUMNS[name]]) for name in names)})"
            for n in range(120)
        ]
        database.sql(f"INSERT INTO t (id, count, {', '.join(names)}) VALUES {', '.join(rows)}")
        database.flush()
        database.sql("DELETE FROM t WHERE id BETWEEN 20 AND 24")
        database.sql(
            "INSERT INTO u VALUES (0,'x',DATE'2026-02-28',1),(1,'y',NULL,7),(1,'y',NULL,7),"
            "(7,'ann',DATE'1969-12-31',NULL)"
        )
        database.sql(
            "INSERT INTO e VALUES (1, 'ann', TIMESTAMP'2026-01-01 00:00:00', 5), (7, NULL, NULL, 2)"
        )
        database.sql(
            "INSERT INTO e VALUES (1, 'y', TIMESTAMP'2026-01-02 00:00:00', NULL), (0, 'x', NULL, 9)"
        )
        database.flush()
        yield database


def plainly(db: headrace.Database, query: str) -> pa.Table | None:
    """Return the rows of a query that is planned without Spark; None if it is not."""
    reader = db.parts.reader
    state = reader.published
    found = planned_plainly(query, state.catalog)
    if found is None:
        return None
    shape, prepared = found
    expected = by_spark(db, query)
    analysed, _ = db.parts.queries.planned(Span.whole(query))
    assert [(c.name, c.type, c.nullable) for c in shape.schema.columns] == [
        (c.name, c.type, c.nullable) for c in analysed.schema.columns
    ], query
    assert set(shape.names) == set(analysed.names), query
    assert set(shape.reads) >= set(analysed.reads), query
    rows = db.parts.queries.answer(
        prepared,
        prepared.relations,
        lambda id_: reader.rows(state, state.catalog.by_id[id_]),
        dict,
    )
    assert rows is not None, query
    assert rows.schema == expected.schema, query
    ordered = "ORDER BY" in query
    if "LIMIT" in query and not ordered:
        assert rows.num_rows == expected.num_rows, query
        return rows
    assert shown(rows, ordered=ordered) == shown(expected, ordered=ordered), query
    return rows


def shown(rows: pa.Table, *, ordered: bool) -> object:
    """Return rows as Spark shows values: NaN is NaN. In an order, -0.0 ties with 0.0."""
    texts = [repr(row) for row in zip(*(c.to_pylist() for c in rows.columns), strict=True)]
    return [re.sub(r"-0\.0\b", "0.0", text) for text in texts] if ordered else Counter(texts)


def by_spark(db: headrace.Database, query: str) -> pa.Table:
    parts = db.parts
    with parts.engine.planning:
        prepared = parts.queries.prepared(query)
    state, ids = parts.reader.published, prepared.optimised.reads
    return parts.queries.rows(prepared.optimised, parts.reader.shares(ids, state))


@pytest.mark.parametrize(
    "query",
    each(
        2,
        [
            "SELECT * FROM t",
            "select ID, A as x, s text from T where Id = 7",
            "SELECT c.id, c.xs FROM t c WHERE c.id IN (1, 2, 3, 200)",
            "SELECT count(*), COUNT(A), count(DISTINCT s), Sum(B), max(p), min(d), avg(a) FROM t",
            "SELECT a, count(*) FROM t GROUP BY a",
            "SELECT count(*) AS n, t.a FROM t GROUP BY A, t.a ORDER BY n DESC, a LIMIT 3",
            "SELECT s, sum(p) FROM t WHERE NOT (a = 1 OR b IS NULL) GROUP BY s HAVING count(*) > 1",
            "SELECT s FROM t GROUP BY s ORDER BY count(*) DESC, 1 LIMIT 2 OFFSET 1",
            "SELECT DISTINCT a, ok FROM t ORDER BY 2 DESC, a",
            "SELECT DISTINCT s FROM t WHERE ok",
            "SELECT id, f FROM t ORDER BY f DESC NULLS LAST LIMIT 20",
            "SELECT id FROM t ORDER BY at LIMIT 7 OFFSET 3",
            "SELECT s, s, a FROM t ORDER BY id OFFSET 100",
            "SELECT id FROM t WHERE date >= '2026-01-01' AND at <> '2026-01-01 00:00:00.123456'",
            "SELECT t.id, u.name FROM t JOIN u ON t.a = u.k ORDER BY id, name",
            "SELECT * FROM v LEFT OUTER JOIN u x ON v.a = x.k AND x.b = v.n WHERE x.name = 'ann'",
            "SELECT l.a, count(r.name) FROM v AS l LEFT JOIN u AS r ON l.a = r.k GROUP BY l.a",
            "SELECT x.id FROM t x INNER JOIN t y ON x.b = y.b AND x.id < y.id WHERE 3 < y.id",
            "SELECT count FROM t WHERE count BETWEEN 1 AND 2 AND 5 >= id",
            "SELECT total FROM v WHERE n > 1",
            "SELECT count(*) FROM t HAVING count(*) > 1000",
            "SELECT id FROM t LIMIT 4",
            "SELECT k, count(*), max(at) FROM e WHERE v > 1 OR name IS NULL GROUP BY k",
            "SELECT * FROM e WHERE at >= '2026-01-01 12:00:00'",
            "SELECT u.name, e.v FROM e LEFT JOIN u ON e.k = u.k AND e.name = u.name",
            "SELECT count(*) FROM e",
            "SELECT max(ok), min(at), max(local), sum(q), count(id) FROM t WHERE small IN (1, 7)",
        ],
    ),
)
def test_a_plain_query_has_the_columns_and_rows_of_spark(db: headrace.Database, query: str):
    assert plainly(db, query) is not None


def test_random_plain_queries_have_the_columns_and_rows_of_spark(db: headrace.Database):
    rng = random.Random(choose(5, 31))
    answered = sum(plainly(db, random_query(rng)) is not None for _ in range(QUERIES))
    assert answered > QUERIES * 0.3


def random_query(rng: random.Random) -> str:
    names = rng.sample(list(COLUMNS), rng.randrange(1, 4))
    where = f" WHERE {condition(rng, 2)}" if rng.random() < 0.8 else ""
    joined = rng.random() < 0.3
    of = "t."
    source = "t"
    if joined:
        on = rng.choice(["t.a = u.k", "t.b = u.b", "u.name = t.s AND t.a > u.k", "t.d = u.day"])
        source = f"t {rng.choice(['JOIN', 'LEFT JOIN'])} u ON {on}"
        where = where and f" WHERE {condition(rng, 1, 't.')}"
    else:
        of = rng.choice(["", "", "t."])
    if rng.random() < 0.5:
        keys = [f"{of}{name}" for name in names if COLUMNS[name] != "float"]
        calls = [aggregate(rng, of) for _ in range(rng.randrange(1, 4))]
        named = [f"{text}{rng.choice(['', f' AS x{n}'])}" for n, text in enumerate(calls)]
        group = f" GROUP BY {', '.join(keys)}" if keys else ""
        having = f" HAVING {rng.choice(calls)} > 1" if rng.random() < 0.3 else ""
        by = ", ".join([*keys, *calls[:1]])
        order = f" ORDER BY {by}" if keys and rng.random() < 0.5 else ""
        limit = f" LIMIT {rng.randrange(0, 6)}" if rng.random() < 0.5 else ""
        return (
            f"SELECT {', '.join([*keys, *named])} FROM {source}{where}{group}{having}{order}{limit}"
        )
    shown_ = ", ".join(f"{of}{mixed(rng, name)}" for name in names) if rng.random() < 0.9 else "*"
    by = rng.choice(list(COLUMNS)) if rng.random() < 0.5 else rng.choice(names)
    how = rng.choice(["", " DESC", " NULLS LAST", " DESC NULLS FIRST"])
    order = f" ORDER BY {of}{by}{how}" if rng.random() < 0.7 else ""
    limit = f" LIMIT {rng.randrange(1, 30)}" if not order or rng.random() < 0.8 else ""
    order = f"{order}, {of}id" if order and not limit and not joined else order
    if order and joined and not limit:
        order = ""
    skip = f" OFFSET {rng.randrange(9)}" if limit and rng.random() < 0.3 else ""
    distinct = "DISTINCT " if rng.random() < 0.2 else ""
    return f"SELECT {distinct}{shown_} FROM {source}{where}{order}{limit}{skip}"


def mixed(rng: random.Random, name: str) -> str:
    return rng.choice([name, name, name.upper(), f"`{name}`", f"{name} AS {name}_", f"{name} z"])


def aggregate(rng: random.Random, of: str) -> str:
    name = rng.choice([name for name in COLUMNS if COLUMNS[name] != "float"])
    kind = COLUMNS[name]
    known = ["min", "max", "count", "COUNT"]
    known += ["sum", "Sum"] * (kind in ("int", "decimal")) + ["avg"] * (kind == "int")
    column = rng.choice([f"{of}{name}", f"{of}{name.upper()}"])
    called = f"{rng.choice(known)}({column})"
    return rng.choice([called, called, "count(*)", f"count(DISTINCT {column})"])


def condition(rng: random.Random, depth: int, of: str = "") -> str:
    if depth and rng.random() < 0.5:
        joined = f" {rng.choice(['AND', 'OR'])} "
        both = joined.join(condition(rng, depth - 1, of) for _ in range(rng.randrange(2, 4)))
        return rng.choice([f"({both})", f"NOT ({both})"])
    name = rng.choice(list(COLUMNS))
    given = CONSTANTS[COLUMNS[name]]
    column = f"{of}{name}"
    kind = rng.random()
    if kind < 0.15:
        return f"{column} IS {rng.choice(['', 'NOT '])}NULL"
    if kind < 0.35:
        listed = ", ".join(rng.sample(given, 2))
        return f"{column} {rng.choice(['', 'NOT '])}IN ({listed})"
    if kind < 0.5:
        return f"{column} {rng.choice(['', 'NOT '])}BETWEEN {rng.choice(given)} AND {rng.choice(given)}"
    if kind < 0.6:
        return f"{rng.choice(['', 'NOT '])}{of}ok"
    if kind < 0.7:
        alike = [other for other in COLUMNS if COLUMNS[other] == COLUMNS[name]]
        return f"{column} {rng.choice(['=', '<', '!='])} {of}{rng.choice(alike)}"
    operator = rng.choice(["=", "==", "<", "<=", ">", ">=", "<>", "!="])
    one, other = column, rng.choice(given)
    return f"{one} {operator} {other}" if rng.random() < 0.8 else f"{other} {operator} {one}"
