"""Which state of one circuit another one can take over."""

from __future__ import annotations

import pytest

from headrace.planning.catalyst.numbered import PlanNumbers
from headrace.planning.circuit.reuse import restored

pytestmark = pytest.mark.spark

GROUPS = "SELECT g, sum(x) AS x, count(*) AS n FROM t GROUP BY g"
VALUES = "SELECT g, {} FROM t GROUP BY g"
GROWS = "SELECT k, {} FROM u GROUP BY k"
JOINED = "SELECT t.g, t.x, u.v FROM t JOIN u ON t.k = u.k"


def taken(planned, kept: str, query: str, *, rows: int = 1000, state: int = 10):
    """Return what a query takes over of another, whose state is smaller than its inputs."""
    circuit, other = planned.circuit(query), planned.circuit(kept)
    numbers = PlanNumbers(planned.engine._scala)
    return restored(circuit, [other], numbers, lambda of: state if isinstance(of, str) else rows)


@pytest.mark.parametrize(
    ("kept", "query", "inputs"),
    [
        (GROUPS, f"SELECT x FROM ({GROUPS}) WHERE n > 2", 1),
        (
            GROUPS,
            "SELECT h, x + 1, n FROM (SELECT g AS h, sum(x) AS x, count(*) AS n FROM t GROUP BY h)",
            1,
        ),
        (JOINED, "SELECT g, sum(x) AS x, max(v) AS v FROM t JOIN u ON t.k = u.k GROUP BY g", 1),
        (f"SELECT a.x FROM ({GROUPS}) a JOIN u ON a.n = u.k", f"{GROUPS} HAVING sum(x) > 1", 1),
        (
            "SELECT g, count(*) AS n FROM t WHERE s IN ('a, b', 'c') GROUP BY g",
            "SELECT g, count(*) AS n FROM t WHERE s IN ('a', 'b, c') GROUP BY g",
            0,
        ),
        (GROUPS, "SELECT g, sum(x) AS x, count(*) AS n FROM t WHERE x > 1 GROUP BY g", 0),
        (GROUPS, "SELECT g, sum(x * 2) AS x, count(*) AS n FROM t GROUP BY g", 0),
        (GROUPS, "SELECT k, sum(x) AS x, count(*) AS n FROM t GROUP BY k", 0),
        (GROUPS, "SELECT g, count(x) AS n, avg(x) AS m FROM t GROUP BY g", 1),
        (GROUPS, "SELECT g, count(k) AS n, sum(x) AS x FROM t GROUP BY g", 0),
        (GROUPS, "SELECT g, sum(x) FILTER (WHERE x > 1) AS x FROM t GROUP BY g", 0),
        (VALUES.format("sum(DISTINCT x) AS a"), VALUES.format("max(x) AS a, min(x) AS b"), 1),
        (VALUES.format("min(x) AS a"), VALUES.format("count(DISTINCT x) AS a"), 1),
        (GROWS.format("min(v) AS a"), GROWS.format("count(DISTINCT v) AS a"), 0),
        (GROWS.format("min(v) AS a"), GROWS.format("max(v) AS a"), 0),
        (GROWS.format("min(v) AS a, max(v) AS b"), GROWS.format("max(v) + 1 AS a"), 1),
        (GROWS.format("count(DISTINCT v) AS a"), GROWS.format("max(v) AS a"), 1),
        (
            "SELECT a.g, count(*) AS n FROM t a JOIN t b ON a.k = b.g WHERE a.x > b.x GROUP BY a.g",
            "SELECT a.g, count(*) AS n FROM t a JOIN t b ON a.k = b.g WHERE b.x > a.x GROUP BY a.g",
            1,
        ),
        (
            "SELECT t.g, u.v FROM u LEFT JOIN t ON u.v = t.g",
            "SELECT count(t.g) AS n, u.v FROM u LEFT JOIN t ON u.v = t.g GROUP BY u.v",
            0,
        ),
        (
            (
                "SELECT k, v FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v) AS r FROM u)"
                " WHERE r <= 2"
            ),
            (
                "SELECT k, v FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v) AS r FROM u)"
                " WHERE r <= 3"
            ),
            0,
        ),
    ],
)
def test_only_the_same_rows_arranged_alike_are_taken_over(planned, kept, query, inputs):
    assert len(taken(planned, kept, query).inputs) == inputs


def test_what_is_below_a_restored_input_is_copied_and_not_read(planned):
    query = "SELECT t.g, sum(u.v) AS v FROM t JOIN u ON t.x = u.v GROUP BY t.g"
    found = taken(planned, query, f"SELECT g FROM ({query}) WHERE v > 1")
    assert len(found.inputs) == 1
    assert {id_.split("/", 1)[1].split(".")[1] for id_ in found.copied} == {"left", "right"}
    assert found.unread == {1, 2}


def test_what_is_read_for_another_reason_is_not_copied(planned):
    common = "WITH j AS (SELECT t.g, u.v FROM t JOIN u ON t.x = u.v)"
    groups = "SELECT g, sum(v) AS v FROM j GROUP BY g"
    kept = f"{common} SELECT g, v FROM j UNION ALL {groups}"
    found = taken(planned, kept, f"{common} SELECT g, v + 1 AS v FROM j UNION ALL {groups}")
    assert {node.name.split("/")[1][:4] for node, _ in found.inputs} == {"aggr", "join"}
    assert not found.copied


def test_state_is_left_alone_that_costs_as_much_as_the_inputs(planned):
    query = f"{GROUPS} HAVING sum(x) > 1"
    assert not taken(planned, GROUPS, query, rows=1000, state=500).inputs
    assert taken(planned, GROUPS, query, rows=1000, state=499).inputs


def test_values_of_parts_are_read_once(planned):
    query = (
        "SELECT g, min(x) AS a, max(x) AS b, count(DISTINCT x) AS c, min(k) AS d, max(k) AS e"
        " FROM t GROUP BY g"
    )
    found = taken(planned, query, f"{query} HAVING min(x) > 1")
    ((stored,),) = [found.inputs.values()]
    assert len(stored) == 3, "the groups, values of x, and those of k"
    grows = "SELECT k, min(v) AS a, max(v) AS b FROM u GROUP BY k"
    ((stored,),) = [taken(planned, grows, f"{grows} HAVING min(v) > 1").inputs.values()]
    assert len(stored) == 3, "the groups, the least and the greatest value"
