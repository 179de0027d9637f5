"""Lineage by column: what each column is said to depend on, and that nothing else changes it."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest
from pyspark.sql.types import StructType

from headrace.errors import Span
from headrace.planning.catalog import PlainView, Table
from headrace.planning.functions import Function
from headrace.types import RelationId, Schema
from planned import Planned

pytestmark = pytest.mark.spark

COLUMNS = {
    "o": "id INT, g INT, x INT, y INT, s STRING, ts TIMESTAMP, arr ARRAY<INT>,"
    " st STRUCT<a: INT, b: STRUCT<c: INT, d: INT>>",
    "c": "g INT, name STRING, z INT",
}

# For each query, the dependences of each column; ``*`` is what decides which rows there are.
LINEAGE = {
    "SELECT id, x AS renamed, x + y AS total, 1 AS one FROM o WHERE s <> 'a'": """
        id: o.id identity
        renamed: o.x identity
        total: o.x transformation, o.y transformation
        one:
        *: o.s filter""",
    "SELECT o.id, c.name FROM o JOIN c ON o.g = c.g AND o.x > c.z": """
        id: o.id identity
        name: c.name identity
        *: c.g join, c.z join, o.g join, o.x join""",
    "SELECT g, sum(x) AS a, count(*) AS n, max(y) FILTER (WHERE id > 2) AS b FROM o"
    " GROUP BY g HAVING min(s) > 'a'": """
        g: o.g identity
        a: o.x aggregation
        n:
        b: o.id conditional, o.y aggregation
        *: o.g group_by, o.s filter""",
    "SELECT id, x FROM o UNION ALL SELECT z, g FROM c WHERE name = 'n'": """
        id: c.z identity, o.id identity
        x: c.g identity, o.x identity
        *: c.name filter""",
    "SELECT id, CASE WHEN g > 1 THEN x ELSE y END AS a, if(s = 'a', x, 0) AS b,"
    " coalesce(x, y) AS d FROM o": """
        id: o.id identity
        a: o.g conditional, o.x transformation, o.y transformation
        b: o.s conditional, o.x transformation
        d: o.x conditional, o.x transformation, o.y transformation
        *:""",
    "SELECT id, row_number() OVER (PARTITION BY g ORDER BY x) AS r,"
    " sum(y) OVER (PARTITION BY g) AS t, lag(s) OVER (ORDER BY id) AS l FROM o": """
        id: o.id identity
        r: o.g window, o.x window
        t: o.g window, o.y aggregation
        l: o.id window, o.s transformation
        *:""",
    "SELECT id, st.a AS a, st.b.d AS d, named_struct('p', x, 'q', y) AS q FROM o": """
        id: o.id identity
        a: o.st.a identity
        d: o.st.b.d identity
        q: o.x transformation, o.y transformation
        *:""",
    "SELECT id, e FROM o LATERAL VIEW explode(arr) AS e": """
        id: o.id identity
        e: o.arr transformation
        *: o.arr join""",
    "SELECT id, transform(arr, v -> v + x) AS a FROM o": """
        id: o.id identity
        a: o.arr transformation, o.x transformation
        *:""",
    "SELECT id, (SELECT max(z) FROM c WHERE c.g = o.g) AS m FROM o"
    " WHERE EXISTS (SELECT 1 FROM c WHERE c.z = o.x AND name > 'a') AND y IN (SELECT g FROM c)": """
        id: o.id identity
        m: c.g filter, c.z aggregation, o.g filter
        *: c.g filter, c.name filter, c.z filter, o.x filter, o.y filter""",
    "WITH a AS (SELECT g, sum(x) AS t FROM o GROUP BY g), b AS (SELECT g, t + 1 AS t FROM a)"
    " SELECT a.g, b.t FROM a JOIN b ON a.t < b.t": """
        g: o.g identity
        t: o.x aggregation
        *: o.g group_by, o.x join""",
    "SELECT window(ts, '1 minute').start AS w, count(*) AS n FROM o GROUP BY window(ts, '1 minute')": """
        w: o.ts conditional, o.ts transformation
        n:
        *: o.ts filter, o.ts group_by""",
    "SELECT window.end AS w, sum(x) AS n FROM o GROUP BY window(ts, '2 minutes', '1 minute')": """
        w: o.ts conditional, o.ts transformation
        n: o.x aggregation
        *: o.ts filter, o.ts group_by""",
    "SELECT id FROM o WHERE ts > now() - INTERVAL 1 HOUR": """
        id: o.id identity
        *: o.ts filter""",
    "SELECT DISTINCT g, s FROM o": """
        g: o.g identity
        s: o.s identity
        *: o.g group_by, o.s group_by""",
    "SELECT id FROM o EXCEPT SELECT z FROM c": """
        id: o.id identity
        *: c.z filter, o.id filter""",
    "SELECT g, s, sum(x) AS t FROM o GROUP BY CUBE (g, s)": """
        g: o.g identity
        s: o.s identity
        t: o.x aggregation
        *: o.g group_by, o.s group_by""",
    "SELECT id, x FROM o ORDER BY y DESC LIMIT 2": """
        id: o.id identity
        x: o.x identity
        *: o.y sort""",
    "WITH RECURSIVE r(n, m) AS (SELECT id, x FROM o WHERE y = 0 UNION ALL"
    " SELECT o.id, r.m + 1 FROM r JOIN o ON o.g = r.n) SELECT n, m FROM r": """
        n: o.id identity
        m: o.x identity, o.x transformation
        *: o.g join, o.id join, o.y filter""",
    "SELECT o.id, l.m FROM o, LATERAL (SELECT max(z) AS m FROM c WHERE c.g = o.g) l": """
        id: o.id identity
        m: c.z aggregation
        *: c.g filter, o.g filter""",
    "SELECT id, twice(x) AS t FROM o": """
        id: o.id identity
        t: o.x transformation
        *:""",
    "SELECT big, pv.id FROM pv": """
        big: pv.big identity
        id: pv.id identity
        *:""",
    "SELECT g, listagg(s, ',') WITHIN GROUP (ORDER BY x) AS l, max_by(s, y) AS b FROM o GROUP BY g": """
        g: o.g identity
        l: o.s aggregation, o.x aggregation
        b: o.s aggregation, o.y aggregation
        *: o.g group_by""",
    "SELECT o.g, z FROM o FULL JOIN c USING (g)": """
        g: o.g identity
        z: c.z identity
        *: c.g join, o.g join""",
    "SELECT * FROM (SELECT g, s, x FROM o) PIVOT (sum(x) FOR s IN ('a' AS a, 'b' AS b))": """
        g: o.g identity
        a: o.s aggregation, o.x aggregation
        b: o.s aggregation, o.x aggregation
        *: o.g group_by, o.s group_by""",
    "SELECT id, k, v FROM o UNPIVOT (v FOR k IN (x, y))": """
        id: o.id identity
        k:
        v: o.x identity, o.y identity
        *: o.x filter, o.y filter""",
}


@pytest.fixture(scope="module")
def known(spark):
    planned = Planned(spark)
    for name, columns in COLUMNS.items():
        id_ = RelationId(len(planned.names) + 1)
        planned.declare(Table(id_, name, Schema.of_spark(StructType.fromDDL(columns))))
    view = "SELECT id, x > 10 AS big FROM o WHERE y > 0"
    schema = planned.engine.planner.analyse(Span.whole(view)).schema
    planned.declare(PlainView(RelationId(len(planned.names) + 1), "pv", schema, view, ()))
    twice = Function("twice", lambda x: 2 * x, "INT", ("INT",), deterministic=True)
    planned.engine.register(planned.engine.prepared(twice))
    return planned


def lineage(planned, query):
    names = re.findall(r"^\s*(\w+):", LINEAGE[query], re.MULTILINE)
    return planned.engine.planner.lineage(Span.whole(query), names)


def shown(planned, influences):
    pairs = (
        (f"{planned.names[c.relation]}.{c.dotted}", how)
        for c in influences
        for how in influences[c]
    )
    return ", ".join(f"{column} {how}" for column, how in sorted(pairs))


def expected(query):
    return [line.strip() for line in LINEAGE[query].strip().split("\n")]


def lines_of(planned, query):
    found = lineage(planned, query)
    lines = [f"{name}: {shown(planned, each)}".strip() for name, each in found.columns.items()]
    return [*lines, f"*: {shown(planned, found.rows)}".strip()]


SHORT = [each for number, each in enumerate(LINEAGE) if number in {1, 2, 4, 5, 6, 9, 10}]
"""The queries of `make test`; `make suites` has all."""


def test_each_column_has_its_inputs_with_their_influence(known):
    for query in SHORT:
        assert lines_of(known, query) == expected(query), query


@pytest.mark.long
@pytest.mark.parametrize("query", LINEAGE)
def test_each_column_has_its_inputs_for_every_kind_of_query(known, query):
    assert lines_of(known, query) == expected(query)


# -- what is not claimed changes nothing ---------------------------------------------------------

LEAVES = {
    "o": ("id", "g", "x", "y", "s", "ts", "arr", "st.a", "st.b.c", "st.b.d"),
    "c": ("g", "name", "z"),
}
"""The columns of each table, and the fields of structs in them."""
SELECTED = {
    "o": "id, g, x, y, s, timestamp_seconds(ts) AS ts, arr,"
    " named_struct('a', `st.a`, 'b', named_struct('c', `st.b.c`, 'd', `st.b.d`)) AS st",
    "c": "g, name, z",
}
TEXTS = ("s", "name")


def value(column, row, changed):
    """Return a value as SQL; no two rows of a column in an order tie."""
    if changed and row == 3 and column != "arr":
        return "NULL"
    number = (row * 5 + 2 * len(column)) % 23 + (17 * row + 31 if changed else 0)
    if column in ("g", "y"):
        number = number % 3 + (1 if changed else 0)
    if column == "arr":
        return f"array({', '.join(str(number + i) for i in range(1 + (row + changed) % 3))})"
    if column == "ts":
        return str(60 * number + 7 * row)
    return f"'{'abcdefgh'[(row + 3 * changed) % 8]}'" if column in TEXTS else str(number)


def table(name, changed):
    """Return a query with the rows of a table, some of whose columns have changed values."""
    leaves = LEAVES[name]
    rows = (", ".join(value(leaf, row, leaf in changed) for leaf in leaves) for row in range(1, 8))
    given = ", ".join(f"({row})" for row in rows)
    names = ", ".join(f"`{leaf}`" for leaf in leaves)
    return f"SELECT {SELECTED[name]} FROM VALUES {given} AS v({names})"


def unclaimed(planned, found, column):
    """Return the columns, by table, of which lineage does not say that a column depends on them."""
    claimed = {(planned.names[c.relation], c.dotted) for c in (*found.columns[column], *found.rows)}
    return tuple(
        (name, leaf)
        for name, leaves in LEAVES.items()
        for leaf in leaves
        if not any(name == of and f"{leaf}.".startswith(f"{given}.") for of, given in claimed)
    )


def unchanged(known, spark, queries):
    """Evaluate queries with the unclaimed inputs of each column changed; return what differs.

    All are one job. With all inputs changed, each query must have another result.
    """
    every = tuple((name, leaf) for name, leaves in LEAVES.items() for leaf in leaves)
    wanted, texts, views = [], [], {}
    for query in queries:
        found = lineage(known, query)
        cases = {(): None, every: None}
        for column in found.columns:
            cases.setdefault(unclaimed(known, found, column), None)
            wanted.append((query, column, unclaimed(known, found, column)))
        for case in cases:
            number = views.setdefault(case, len(views))
            text = re.sub(r"\b(FROM|JOIN) (o|c)\b", rf"\1 \2_{number} AS \2", query)
            texts.append(
                f"SELECT {len(texts)} AS n, to_json(struct(*), map('ignoreNullFields', 'false'))"
                f" AS row FROM ({text})"
            )
            wanted.append((query, None, case))
    for case, number in views.items():
        for name in LEAVES:
            changed = {leaf for of, leaf in case if of == name}
            spark.sql(table(name, changed)).createOrReplaceTempView(f"{name}_{number}")
    results = [[] for _ in texts]
    for n, row in spark.sql(" UNION ALL ".join(texts)).collect():
        results[n].append(json.loads(row))
    asked = [(query, case) for query, column, case in wanted if column is None]
    rows = dict(zip(asked, results, strict=True))

    def bag(query, case, column):
        return Counter(json.dumps(row[column]) for row in rows[query, case])

    for query in queries:
        assert rows[query, ()], query
        assert rows[query, ()] != rows[query, every], query
    return [
        (query, column)
        for query, column, case in wanted
        if column is not None and bag(query, case, column) != bag(query, (), column)
    ]


def evaluable(query):
    return not re.search(r"twice|\bpv\b|now\(\)|RECURSIVE", query)


@pytest.fixture(scope="module")
def batch(spark):
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return session


def test_no_column_changes_with_what_it_is_not_said_to_depend_on(known, batch):
    assert unchanged(known, batch, SHORT[1:3]) == []


@pytest.mark.long
def test_no_column_of_any_query_changes_with_what_it_is_not_said_to_depend_on(known, batch):
    assert unchanged(known, batch, [query for query in LINEAGE if evaluable(query)]) == []
