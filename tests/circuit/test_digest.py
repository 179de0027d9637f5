"""Which circuits have the same digest: those that store and compute the same, however planned.

``digests.json`` has the digests of queries over the relations of :mod:`planned`. A database whose
views have another digest than their circuits now have is not opened, so these do not change without
another ``FORMAT``.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import headrace
from headrace.planning.catalyst.select import Edition
from headrace.planning.circuit import Circuit, Recompute
from headrace.planning.circuit.circuit import moved
from headrace.planning.circuit.digest import FORMAT, digest, is_comparable, structure
from headrace.types import RelationId
from length import each

DIGESTS: dict[str, str] = json.loads(Path(__file__).with_name("digests.json").read_text())
LATER = (
    (
        "WITH c AS (SELECT g, x FROM (SELECT *, row_number() OVER (PARTITION BY g ORDER BY x, k) AS"
        " n FROM t) WHERE n = 1) SELECT a.g FROM c a JOIN c b ON a.x = b.g"
    ),
    "3:317290eaba1423b8ed72b65fbe367c93",
)
"""A query, and the digest of its circuit since ``Edition.FIRST_WITHOUT_NUMBERS``."""

PAIRS = {
    "another column": ("SELECT k, x FROM t", "SELECT k, g FROM t"),
    "another relation": ("SELECT k FROM t", "SELECT k FROM u"),
    "another expression": ("SELECT k + 1 AS n FROM t", "SELECT k + 2 AS n FROM t"),
    "another string": ("SELECT k FROM t WHERE s = 'a_1'", "SELECT k FROM t WHERE s = 'a_2'"),
    "another condition": ("SELECT k FROM t WHERE x > 3", "SELECT k FROM t WHERE x > 4"),
    "another cast": (
        "SELECT CAST(k AS BIGINT) AS n FROM u",
        "SELECT CAST(k AS DOUBLE) AS n FROM u",
    ),
    "another generator": (
        "SELECT k, e FROM t LATERAL VIEW explode(arr) AS e",
        "SELECT k, e FROM t LATERAL VIEW OUTER explode(arr) AS e",
    ),
    "another grouping set": (
        "SELECT g, s, count(*) AS n FROM t GROUP BY GROUPING SETS ((g), (s))",
        "SELECT g, s, count(*) AS n FROM t GROUP BY GROUPING SETS ((g), (g, s))",
    ),
    "another join key": (
        "SELECT t.s, u.v FROM t JOIN u ON t.g = u.k",
        "SELECT t.s, u.v FROM t JOIN u ON t.g = u.v",
    ),
    "another kind of join": (
        "SELECT t.s, u.v FROM t LEFT JOIN u ON t.g = u.k",
        "SELECT t.s, u.v FROM t FULL JOIN u ON t.g = u.k",
    ),
    "another residual condition": (
        "SELECT t.s FROM t LEFT JOIN u ON t.g = u.k AND t.x > u.v",
        "SELECT t.s FROM t LEFT JOIN u ON t.g = u.k AND t.x >= u.v",
    ),
    "stored rows of a side": (
        "SELECT u.v FROM u JOIN t ON u.k = t.k",
        "SELECT u.v FROM u JOIN t ON u.k = t.k AND t.x > 0",
    ),
    "another aggregate": (
        "SELECT g, sum(x) AS n FROM t GROUP BY g",
        "SELECT g, avg(x) AS n FROM t GROUP BY g",
    ),
    "another FILTER": (
        "SELECT count(*) FILTER (WHERE x > 1) AS n FROM t",
        "SELECT count(*) FILTER (WHERE x > 2) AS n FROM t",
    ),
    "DISTINCT": (
        "SELECT g, count(x) AS n FROM t GROUP BY g",
        "SELECT g, count(DISTINCT x) AS n FROM t GROUP BY g",
    ),
    "another result of the same sums": (
        "SELECT g, sum(x) + 1 AS n FROM t GROUP BY g",
        "SELECT g, sum(x) + 2 AS n FROM t GROUP BY g",
    ),
    "a stream": ("SELECT max(v) AS n FROM u", "SELECT max(g) AS n FROM t"),
    "another column of a recomputed aggregate": (
        "SELECT g, median(x) AS n FROM t GROUP BY g",
        "SELECT g, median(k) AS n FROM t GROUP BY g",
    ),
    "another frame": (
        "SELECT k, sum(x) OVER (PARTITION BY g ORDER BY k ROWS 1 PRECEDING) AS n FROM t",
        "SELECT k, sum(x) OVER (PARTITION BY g ORDER BY k ROWS 2 PRECEDING) AS n FROM t",
    ),
    "another partition": (
        "SELECT k, lag(x) OVER (PARTITION BY g ORDER BY k) AS n FROM t",
        "SELECT k, lag(x) OVER (PARTITION BY s ORDER BY k) AS n FROM t",
    ),
    "another tie-break": (
        "SELECT g, first(x) AS n, max(k) AS m FROM t GROUP BY g",
        "SELECT g, first(x) AS n, max(s) AS m FROM t GROUP BY g",
    ),
    "another order of first rows": (
        "SELECT k, x FROM t ORDER BY x, k LIMIT 3",
        "SELECT k, x FROM t ORDER BY x NULLS LAST, k LIMIT 3",
    ),
    "another number of first rows": (
        "SELECT k, x FROM t ORDER BY x, k LIMIT 3",
        "SELECT k, x FROM t ORDER BY x, k LIMIT 3 OFFSET 1",
    ),
    "another time": (
        "SELECT k FROM t WHERE ts > now() - INTERVAL 1 DAY",
        "SELECT k FROM t WHERE ts > now() - INTERVAL 2 DAYS",
    ),
    "another comparison with a value": (
        "SELECT k FROM t WHERE x > (SELECT avg(v) FROM u)",
        "SELECT k FROM t WHERE x >= (SELECT avg(v) FROM u)",
    ),
    "another recursion limit": (
        "WITH RECURSIVE r(n) MAX RECURSION LEVEL 8 AS (SELECT k FROM t UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT n FROM r",
        "WITH RECURSIVE r(n) MAX RECURSION LEVEL 9 AS (SELECT k FROM t UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT n FROM r",
    ),
    "a part used twice": (
        "WITH d AS (SELECT g, sum(x) AS n FROM t GROUP BY g) SELECT n FROM d UNION ALL SELECT n FROM d",
        "WITH d AS (SELECT g, sum(x) AS n FROM t GROUP BY g) SELECT n FROM d UNION ALL SELECT g FROM d",
    ),
}


@headrace.function(returns="INT", deterministic=True)
def twice(n: int) -> int:
    return 2 * n


@headrace.fold(key=["g"], order_by=["ts"], returns="total BIGINT", start=0, finish=lambda n: (n,))
def total_2(total, event):
    return total + event.x


@pytest.fixture
def functions(planned):
    """Two Python functions for queries: ``twice``, and the fold ``total_2``."""
    for function in (twice, total_2):
        planned.engine.register(planned.engine.prepared(function))
    yield planned
    for function in (twice, total_2):
        planned.engine.unregister(function.key)


def test_digests_are_as_recorded(functions):
    def is_made(query: str) -> bool:
        made = (digest(functions.circuit(query, each)) for each in sorted(Edition, reverse=True))
        return DIGESTS[query] in made

    changed = [query for query in each(3, list(DIGESTS)) if not is_made(query)]
    assert not changed, "views that were stored with these queries would not be opened any more"


def test_a_later_edition_makes_other_circuits(functions):
    query, made = LATER
    assert digest(functions.circuit(query, Edition.FIRST_WITHOUT_NUMBERS)) == made
    assert digest(functions.circuit(query, Edition.TIMES_COMPARED)) == DIGESTS[query] != made


@pytest.mark.parametrize(("one", "other"), PAIRS.values(), ids=PAIRS)
def test_what_is_stored_or_computed_changes_the_digest(one, other):
    assert DIGESTS[one] != DIGESTS[other]


def without_reasons(circuit: Circuit) -> Circuit:
    below = circuit.output.child
    assert isinstance(below, Recompute)
    return replace(
        circuit, output=replace(circuit.output, child=replace(below, reason="another wording"))
    )


def test_how_a_circuit_is_explained_does_not_change_its_digest(planned):
    circuit = planned.circuit("SELECT g, stddev(x) AS m FROM t GROUP BY g")
    assert digest(without_reasons(circuit)) == digest(circuit)


def test_the_structure_of_a_circuit_is_as_its_format_says(planned):
    assert structure(planned.circuit("SELECT k FROM u")) == [
        ["source", [], [2, [0]]],
        ["project", [0], [[0], []]],
        [
            "output",
            [1],
            [[0]],
            [
                "Integrate",
                {
                    "layout": [
                        "Layout",
                        {
                            "key": ["k"],
                            "columns": [["k", "int32", True]],
                            "summed": [["__weight", "int64", True]],
                            "order": [],
                        },
                    ]
                },
            ],
            ["rows"],
            [],
        ],
        False,
    ], "another structure has to have another FORMAT"


def test_a_digest_of_another_format_is_not_compared(planned):
    current = digest(planned.circuit("SELECT k FROM t"))
    assert current.startswith(f"{FORMAT}:")
    assert is_comparable(current)
    assert not is_comparable("0f3a9c1d0f3a9c1d0f3a9c1d0f3a9c1d")


@pytest.mark.parametrize(
    "query",
    [
        (
            "SELECT a.g, b.n, u.v FROM (SELECT g, count(*) AS n FROM t GROUP BY g) a"
            " JOIN (SELECT g, count(*) AS n FROM t GROUP BY g) b ON a.n = b.g LEFT JOIN u ON u.k = b.n"
        ),
        (
            "WITH RECURSIVE r AS (SELECT k, g FROM t UNION ALL SELECT r.k, t.g FROM r JOIN t ON r.g = t.k)"
            " SELECT k, count(*) AS n FROM r GROUP BY k"
        ),
        "SELECT g, row_number() OVER (PARTITION BY g ORDER BY x, k) AS r FROM t WHERE ts > now()",
    ],
)
def test_a_circuit_that_moves_is_that_of_the_same_query_over_other_relations(planned, query):
    before = planned.circuit(query)
    ids = {RelationId(1): RelationId(70), RelationId(2): RelationId(80)}
    after = moved(before, RelationId(90), ids)
    assert after.view == 90
    assert after.reads == {ids[id_] for id_ in before.reads}
    assert digest(after) == digest(before, ids)
    assert digest(after) != digest(before)
    assert len(after.nodes) == len(before.nodes)
    back = moved(after, before.view, {new: old for old, new in ids.items()})
    assert digest(back) == digest(before)
    assert moved(before, before.view, {RelationId(5): RelationId(6)}) is before
