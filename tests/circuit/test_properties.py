"""The key of a query: columns of which it is known that no two rows agree in them."""

from __future__ import annotations

import pytest

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
]

NONE = [
    "SELECT s FROM t",
    "SELECT k + 1 AS k FROM t",
    "SELECT CAST(k AS BIGINT) AS k FROM t",
    "SELECT a FROM w",
    "SELECT k, v FROM u",
    "SELECT count(*) AS n FROM t GROUP BY g",
    "SELECT g, count(*) AS n FROM t GROUP BY g, s",
    "SELECT k FROM t UNION ALL SELECT k FROM t",
    "SELECT k, explode(arr) AS e FROM t",
    "SELECT g, s, count(*) AS n FROM t GROUP BY g, s, ROLLUP (x)",
    "SELECT window(ts, '1 hour', '30 minutes') AS w, k FROM t",
    "SELECT x.k AS i FROM t x JOIN t y ON x.g = y.g",
]


@pytest.mark.parametrize(("query", "key"), KEYS, ids=[query for query, _ in KEYS])
def test_a_key_is_known(planned, query, key):
    circuit = planned.circuit(query)
    names = circuit.output.operator.layout.columns.names
    assert circuit.unique
    assert [names[i] for i in circuit.output.key] == key.split()


JOINED = [
    "SELECT t.k, u.v FROM t JOIN u ON t.k = u.k",
    "SELECT t.g, w.a, w.b FROM t JOIN w ON t.g = w.a",
    "SELECT x.g, y.s FROM t x JOIN t y ON x.g = y.k",
]


@pytest.mark.parametrize("query", JOINED)
def test_without_a_known_key_a_join_is_arranged_by_what_it_is_joined_on(planned, query):
    circuit = planned.circuit(query)
    assert not circuit.unique
    assert circuit.output.key == (0,)


@pytest.mark.parametrize("query", NONE)
def test_without_a_known_key_the_whole_row_stands_in(planned, query):
    circuit = planned.circuit(query)
    assert not circuit.unique
    assert circuit.output.key == tuple(range(len(circuit.output.operator.layout.columns)))
