"""Which parts of a query are one, and which only look alike."""

from __future__ import annotations

import pytest

from headrace.planning.circuit.digest import digest
from headrace.planning.circuit.explain import explain, state

pytestmark = pytest.mark.spark

COUNTED = "SELECT g, count(*) AS n FROM t GROUP BY g"
ONE = {
    "twice": f"WITH c AS ({COUNTED}) SELECT g, n FROM c UNION ALL SELECT n, g FROM c",
    "written twice": f"SELECT g, n FROM ({COUNTED}) UNION ALL SELECT h, m FROM (SELECT t2.g AS h,"
    " count(1) AS m FROM t AS t2 GROUP BY 1)",
    "shown in part": f"WITH c AS ({COUNTED}) SELECT n FROM c UNION ALL SELECT n + g FROM c",
    "in another order": "SELECT g FROM t WHERE k > 1 AND x > 2 GROUP BY g"
    " UNION ALL SELECT g FROM t WHERE 2 < x AND k > 1 GROUP BY g",
    "compared by a join": f"WITH c AS ({COUNTED}) SELECT u.v, c.n FROM u JOIN c ON u.v = c.g"
    " UNION ALL SELECT g, n FROM c",
    "compared by an anti join": "WITH c AS (SELECT DISTINCT g FROM t) SELECT v AS a, k AS b FROM u"
    " WHERE NOT EXISTS (SELECT 1 FROM c WHERE c.g = u.v) UNION ALL SELECT g, g + 1 FROM c",
}
TWO = {
    "a condition": f"WITH c AS ({COUNTED}) SELECT g, n FROM c WHERE g IS NOT NULL"
    " UNION ALL SELECT g, n FROM c",
    "kept by an outer join": f"WITH c AS ({COUNTED}) SELECT u.v, c.n FROM c LEFT JOIN u ON u.v = c.g"
    " WHERE c.g IS NOT NULL UNION ALL SELECT g, n FROM c",
    "a constant": "SELECT g FROM t WHERE x > 1 GROUP BY g UNION ALL SELECT g FROM t WHERE x > 2 GROUP BY g",
    "a column": "SELECT g, sum(x) AS s FROM t GROUP BY g UNION ALL SELECT g, sum(k) FROM t GROUP BY g",
    "a function": "SELECT g, max(x) AS s FROM t GROUP BY g UNION ALL SELECT g, min(x) FROM t GROUP BY g",
    "distinct values": "SELECT g, sum(x) AS s FROM t GROUP BY g"
    " UNION ALL SELECT g, sum(DISTINCT x) FROM t GROUP BY g",
    "text like a column": "SELECT concat(s, 'none#0') AS c FROM t GROUP BY s"
    " UNION ALL SELECT concat(s, 'none#1') FROM t GROUP BY concat(s, 'none#1'), s",
    "a relation": "SELECT k FROM t GROUP BY k UNION ALL SELECT k FROM u GROUP BY k",
    "a kind of join": "SELECT t.g FROM t JOIN u ON t.g = u.v UNION ALL SELECT t.g FROM t LEFT JOIN u ON t.g = u.v",
}


@pytest.mark.parametrize("query", ONE.values(), ids=ONE)
def test_parts_that_are_equal_are_one(planned, query):
    circuit = planned.circuit(query)
    assert max(circuit.users().values()) == 2
    assert "1 part of the query used more than once, stored once." in state(circuit, {})
    lines = explain(circuit, planned.names.__getitem__, {})
    assert sum(line.endswith("used again, see above") for line in lines) == 1
    assert digest(planned.circuit(query)) == digest(circuit)
    names = [node.name for node in circuit.stateful()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("query", TWO.values(), ids=TWO)
def test_parts_that_differ_are_two(planned, query):
    circuit = planned.circuit(query)
    assert max(circuit.users().values()) == 1
    assert "used more than once" not in state(circuit, {})
