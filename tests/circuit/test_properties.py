"""The key of a query: columns of which it is known that no two rows agree in them."""

from __future__ import annotations

import pytest

from length import each

pytestmark = pytest.mark.spark

KEYS = [
    ("SELECT k, s FROM t", "k"),
    ("SELECT s, k FROM t WHERE x > 3 ORDER BY s", "k"),
    ("SELECT k AS a, k AS b FROM t", "a"),
    ("SELECT a, b FROM w", "a b"),
    ("SELECT b AS p, a AS q, b FROM w", "q p"),
    ("SELECT g, count(*) AS n FROM t GROUP BY g", "g"),
    ("SELECT g + 1 AS h, count(*) AS n FROM t GROUP BY g + 1", "h"),
    ("SELECT g, s, count(*) AS n FROM t GROUP BY g, s HAVING count(*) > 1", "g s"),
    ("SELECT DISTINCT g, s FROM t", "g s"),
    ("SELECT g FROM t UNION SELECT v FROM u", "g"),
    ("SELECT count(*) AS n FROM t", ""),
    ("SELECT x.k, y.s FROM t x JOIN t y ON x.g = y.k", "k"),
    ("SELECT y.s, x.k FROM t y JOIN t x ON x.g = y.k", "k"),
    ("SELECT t.k, w.mp FROM t JOIN w ON t.k = w.a AND t.g = w.b", "k"),
    ("SELECT t.k, w.a, w.b FROM t JOIN w ON t.k = w.a", "a b"),
    ("SELECT t.k, w.a, w.b FROM t JOIN w ON t.g = w.a", "k a b"),
    ("SELECT t.k, z.n FROM t JOIN (SELECT v, count(*) AS n FROM u GROUP BY v) z ON t.g = z.v", "k"),
    ("SELECT t.k, z.n FROM t JOIN (SELECT count(*) AS n FROM u) z ON t.x = z.n", "k"),
    ("SELECT t.k, r.n FROM t JOIN (SELECT k, g AS n FROM t) r ON t.k = r.k", "k"),
    # casts that lose nothing, constants, equal columns
    ("SELECT CAST(k AS BIGINT) AS k FROM t", "k"),
    ("SELECT s, CAST(k AS STRING) AS id FROM t", "id"),
    ("SELECT a, mp FROM w WHERE b = 3", "a"),
    ("SELECT mp FROM w WHERE b = 3 AND a = 4", ""),
    ("SELECT k, s FROM t WHERE k = 5", "k"),
    ("SELECT y.k, x.s FROM t x JOIN t y ON x.k = y.k", "k"),
    ("SELECT b, mp FROM w WHERE a = b", "b"),
    ("SELECT t.k, w.mp FROM t JOIN w ON t.k = w.a AND w.b = 3", "k"),
    # fewest columns
    ("SELECT DISTINCT k, s FROM t", "k"),
    ("SELECT k, g, sum(x) AS n FROM t GROUP BY g, k", "k"),
    ("SELECT k, g FROM t EXCEPT SELECT k, v FROM u", "k"),
    ("SELECT k FROM t INTERSECT SELECT v FROM u", "k"),
    ("SELECT k, s FROM t WHERE g NOT IN (SELECT v FROM u)", "k"),
    ("SELECT k, EXISTS (SELECT 1 FROM u WHERE u.k = t.k) AS e FROM t", "k"),
    ("SELECT k, (SELECT max(v) FROM u) AS m FROM t", "k"),
    ("SELECT k, (SELECT max(v) FROM u WHERE u.k = t.g) AS m FROM t", "k"),
    # versions of a table, and nearest rows: at most one partner
    (
        "SELECT t.k, p.price FROM t LEFT JOIN p FOR SYSTEM_TIME AS OF t.ts AS p ON p.item = t.g",
        "k",
    ),
    ("SELECT t.k, p.price FROM t JOIN p FOR SYSTEM_TIME AS OF t.ts AS p ON p.item = t.g", "k"),
    ("SELECT item, price FROM p FOR SYSTEM_TIME AS OF DATE '2024-01-01' AS p", "item"),
    (
        "SELECT t.k, p.price FROM t ASOF JOIN p MATCH_CONDITION (t.ts >= p.since) ON t.g = p.item",
        "k",
    ),
    (
        (
            "SELECT t.k, p.price FROM t LEFT ASOF JOIN p MATCH_CONDITION (t.ts < p.since)"
            " ON t.g = p.item"
        ),
        "k",
    ),
    # full joins
    (
        (
            "SELECT b, a, x.mp, y.v FROM w x FULL JOIN"
            " (SELECT k AS a, v AS b, count(*) AS v FROM u GROUP BY k, v) y USING (a, b)"
        ),
        "a b",
    ),
    ("SELECT x.k, y.a, y.b FROM t x FULL JOIN w y ON x.g = y.a", "k a b"),
    # first rows, and rows that are numbered
    (
        (
            "SELECT g, x FROM (SELECT *, row_number() OVER (PARTITION BY g ORDER BY ts) AS n FROM t)"
            " WHERE n = 1"
        ),
        "g",
    ),
    (
        (
            "SELECT v, k, n FROM (SELECT *, row_number() OVER (PARTITION BY v ORDER BY k) AS n FROM u)"
            " WHERE n <= 3"
        ),
        "v n",
    ),
    ("SELECT v FROM u ORDER BY v DESC, k LIMIT 1", ""),
    ("SELECT k, pos, e FROM t LATERAL VIEW posexplode(arr) AS pos, e", "k pos"),
    # unions with a constant for each input
    ("SELECT 'a' AS src, k FROM t UNION ALL SELECT 'b', k FROM t", "src k"),
    ("SELECT 'a' AS src, k, 0 AS b FROM t UNION ALL SELECT 'b', a, b FROM w", "src k b"),
    ("SELECT 'all' AS g, count(*) AS n FROM t UNION ALL SELECT 'u', count(*) FROM u", "g"),
    # windows of time
    (
        "SELECT g, session_window, count(*) AS n FROM t GROUP BY g, session_window(ts, '1 hour')",
        "g session_window",
    ),
    (
        (
            "SELECT session_window.end AS e, g, count(*) AS n FROM t"
            " GROUP BY g, session_window(ts, '1 hour')"
        ),
        "g e",
    ),
    ("SELECT g, window.start AS s, count(*) AS n FROM t GROUP BY g, window(ts, '1 hour')", "g s"),
    ("SELECT window(ts, '1 hour', '30 minutes') AS w, k FROM t", "k w"),
    (
        (
            "SELECT g, session_window, count(*) AS n FROM t GROUP BY g, session_window(ts, '1 hour')"
            " HAVING count(*) > 1"
        ),
        "g session_window",
    ),
    ("SELECT 1 AS id, count(*) AS n FROM t", ""),
]

NONE = [
    "SELECT s FROM t",
    "SELECT k + 1 AS k FROM t",
    "SELECT CAST(k AS SMALLINT) AS k FROM t",
    "SELECT try_cast(k AS SMALLINT) AS k FROM t",
    "SELECT d, count(*) AS n FROM t GROUP BY d, CAST(d AS STRING)",
    "SELECT 'a' AS src, k FROM t UNION ALL SELECT 'a', k FROM t",
    "SELECT 'a' AS src, k FROM t UNION ALL SELECT 'b', v FROM u",
    "SELECT price FROM p FOR SYSTEM_TIME AS OF DATE '2024-01-01' AS p",
    "SELECT k, p.price FROM t JOIN p ON p.item = t.g AND t.ts >= p.since",
    "SELECT coalesce(x.g, y.k) AS k, y.v FROM t x FULL JOIN u y ON x.g = y.k",
    # sessions of several groups may begin at one time
    (
        "SELECT w.start AS s, n FROM (SELECT w, n, row_number() OVER (PARTITION BY w ORDER BY n, g)"
        " AS r FROM (SELECT g, session_window AS w, count(*) AS n FROM t"
        " GROUP BY g, session_window(ts, '1 hour'))) WHERE r = 1"
    ),
    # the rest of the condition decides which rows have a partner
    (
        "SELECT coalesce(x.a, y.a) AS a, coalesce(x.b, y.b) AS b FROM w x FULL JOIN w y"
        " ON x.a = y.a AND x.b = y.b AND x.a + 1 = y.b + 0"
    ),
    # both sides may have a row with NULL as the key
    "SELECT k, x.g, y.v FROM t x FULL JOIN (SELECT k, max(v) AS v FROM u GROUP BY k) y USING (k)",
    "SELECT g, count(*) AS n FROM t GROUP BY ROLLUP (g)",
    "SELECT g, window.start AS s, count(*) AS n FROM t GROUP BY ROLLUP (g), window(ts, '1 hour')",
    (
        "SELECT w.start AS s, count(*) AS n FROM (SELECT window(ts, '1 hour') AS w FROM t UNION ALL"
        " SELECT window(ts, '2 hours') FROM t) GROUP BY w"
    ),
    (
        "WITH RECURSIVE r AS (SELECT k, g FROM t UNION ALL SELECT t.k, t.g FROM r JOIN t ON t.g = r.k"
        " WHERE t.k < 5) SELECT * FROM r"
    ),
    "SELECT a FROM w",
    "SELECT k, v FROM u",
    "SELECT count(*) AS n FROM t GROUP BY g",
    "SELECT g, count(*) AS n FROM t GROUP BY g, s",
    "SELECT k FROM t UNION ALL SELECT k FROM t",
    "SELECT k, explode(arr) AS e FROM t",
    "SELECT g, s, count(*) AS n FROM t GROUP BY g, s, ROLLUP (x)",
    "SELECT x.k AS i FROM t x JOIN t y ON x.g = y.g",
]


@pytest.mark.parametrize(("query", "key"), each(2, KEYS), ids=[query for query, _ in each(2, KEYS)])
def test_a_key_is_known(planned, query, key):
    circuit = planned.circuit(query)
    names = circuit.output.operator.layout.columns.names
    assert circuit.unique
    assert [names[i] for i in circuit.output.key] == key.split()


JOINED = [
    "SELECT t.k, u.v FROM t JOIN u ON t.k = u.k",
    "SELECT t.g, w.a, w.b FROM t JOIN w ON t.g = w.a",
    "SELECT x.g, y.s FROM t x JOIN t y ON x.g = y.k",
    "SELECT t.g, p.price FROM t JOIN p FOR SYSTEM_TIME AS OF t.ts AS p ON p.item = t.g",
    # first rows of groups, by group
    "SELECT g, x FROM (SELECT *, rank() OVER (PARTITION BY g ORDER BY x) AS n FROM t) WHERE n = 1",
    (
        "SELECT g, x FROM (SELECT *, row_number() OVER (PARTITION BY g ORDER BY x) AS n FROM t)"
        " WHERE n <= 2"
    ),
]


@pytest.mark.parametrize("query", each(2, JOINED))
def test_without_a_known_key_rows_stay_where_a_join_or_group_has_them(planned, query):
    circuit = planned.circuit(query)
    assert not circuit.unique
    assert circuit.output.key == (0,)


@pytest.mark.parametrize("query", each(2, NONE))
def test_without_a_known_key_the_whole_row_stands_in(planned, query):
    circuit = planned.circuit(query)
    assert not circuit.unique
    assert circuit.output.key == tuple(range(len(circuit.output.operator.layout.columns)))
