"""The first rows of streams: rows that can never be among them are not stored."""

from __future__ import annotations

import random

import pytest

from length import choose, some

QUERIES = {
    "latest": """SELECT k, id, v FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY id DESC, v) AS n
        FROM s) WHERE n = 1""",
    "least": """SELECT k, id, v, n FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v, id) AS n
        FROM s) WHERE n <= 3""",
    "ties": """SELECT k, v FROM (SELECT *, rank() OVER (PARTITION BY k ORDER BY v NULLS LAST) AS n FROM s)
        WHERE n <= 2""",
    "dense": """SELECT k, v, n FROM (SELECT *, dense_rank() OVER (ORDER BY v DESC) AS n FROM s)
        WHERE n <= 2""",
    "limited": "SELECT id, v FROM s WHERE v > 2 ORDER BY v, id, k LIMIT 4",
    "skipped": "SELECT id, v FROM s ORDER BY v DESC, id, k LIMIT 3 OFFSET 2",
    "joined": """SELECT k, v, w FROM (SELECT s.k, s.v, r.w, row_number() OVER (
        PARTITION BY s.k ORDER BY r.w DESC, s.v, s.id) AS n FROM s JOIN r ON s.k = r.k) WHERE n = 1""",
    "both": """SELECT * FROM (SELECT k, v FROM s UNION ALL SELECT k, w FROM r)
        ORDER BY v NULLS LAST, k LIMIT 5""",
    "of_first": """SELECT v, count(*) AS n FROM (SELECT k, v FROM s ORDER BY v DESC, id, k LIMIT 6) GROUP BY v""",
}
OTHERS = {
    "of_joined_tables": "SELECT s.id, t.w FROM s JOIN t ON s.k = t.k ORDER BY t.w, s.id, s.v LIMIT 3",
    "of_groups": "SELECT k, count(*) AS n FROM s GROUP BY k ORDER BY n DESC, k LIMIT 2",
    "of_limited": """SELECT v FROM (SELECT v, id, k FROM s ORDER BY v DESC, id, k LIMIT 6)
        ORDER BY v, id, k LIMIT 2""",
    "unpaired": "SELECT s.id FROM s LEFT ANTI JOIN r ON s.k = r.k ORDER BY s.id, s.v, s.k LIMIT 2",
}
KEPT = "other rows are not stored"


SHORT = "latest least ties skipped joined both of_joined_tables of_limited unpaired"


def rows(chance: random.Random, first: int, count: int) -> list[tuple]:
    return [
        (chance.choice(["a", "b", "c", None]), chance.choice([None, *range(9)]), first + n // 2)
        for n in range(count)
    ]


@pytest.mark.long
def test_rows_that_come_change_the_first(oracle):
    run = oracle(rows_per_change=80)
    run.stream("s", "k STRING, v INT, id INT")
    run.stream("r", "k STRING, w INT")
    run.table("t", "k STRING, w INT", key="k")
    chance = random.Random(5)
    run.insert("s", rows(chance, 0, 30))
    run.insert("r", [("a", 1), ("b", 5)])
    run.insert("t", [("a", 1), ("b", 5)])
    for name, query in some(QUERIES | OTHERS, SHORT).items():
        run.view(name, query)
        explained = "\n".join(row[0] for row in run.db.sql(f"EXPLAIN {query}").fetchall())
        found = [line for line in explained.split("\n") if "FirstRows" in line]
        first = [KEPT in line for line in found]
        assert any(first) if name in {*QUERIES, "of_limited"} else not any(first), explained
        assert not all(first) or name != "of_limited", explained
    for epoch in range(choose(3, 8)):
        run.insert("s", rows(chance, 15 + epoch, 1 if epoch % 2 else 12))
        if epoch % 3 == 1:
            run.insert("r", [(chance.choice(["a", "b", "c"]), epoch), ("c", 3)])
            run.insert("t", [("a", epoch), ("c", 1)])
        run.epoch()
    run.finish()
