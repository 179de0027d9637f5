"""Long chains of joins and unions follow their tables."""

from __future__ import annotations

import pytest

from headrace.errors import Code, HeadraceError
from headrace.planning.catalyst import planner

pytestmark = pytest.mark.spark

CHAINS = {
    "outer": "SELECT count(*) AS n FROM t "
    + " ".join(f"FULL OUTER JOIN t AS t{i} USING (v)" for i in range(40)),
    "left": "SELECT count(t0.v) AS n FROM t "
    + " ".join(f"LEFT JOIN t AS t{i} ON t.v = t{i}.v" for i in range(40)),
    "united": "SELECT count(*) AS n FROM ("
    + " UNION ALL ".join(f"SELECT v FROM t WHERE w <> {i}" for i in range(40))
    + ")",
}


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_of_forty_follows_its_table(oracle, name):
    run = oracle(rows_per_change=4000)
    run.table("t", "v INT, w INT")
    run.insert("t", [(1, 1), (2, 2), (3, 3)])
    run.view("chain", CHAINS[name])
    run.insert("t", [(4, 50)])
    run.epoch()
    run.log("t", [(-1, (2, 2)), (1, (4, 5))])
    run.epoch()
    run.truncate("t")
    run.epoch()
    run.finish()


@pytest.mark.long
def test_a_query_that_expands_out_of_bounds_is_refused_at_once(db, monkeypatch):
    monkeypatch.setattr(planner, "MOST_READ", 30)
    db.sql("CREATE TABLE t (v INT, w INT); CREATE VIEW d0 AS SELECT v, w FROM t")
    for i in range(4):
        db.sql(f"CREATE VIEW d{i + 1} AS SELECT a.v, b.w FROM d{i} AS a JOIN d{i} AS b USING (v)")
    twice = "{0} AS (SELECT a.v FROM {1} AS a JOIN {1} AS b USING (v))"
    ctes = ", ".join(twice.format(f"c{i + 1}", f"c{i}") for i in range(5))
    refused = {
        "SELECT a.v FROM d4 AS a JOIN d4 AS b USING (v)": "32 times",
        f"WITH c0 AS (SELECT v FROM t), {ctes} SELECT v FROM c5": "32 times",
        "SELECT v FROM d4 WHERE v IN (SELECT v FROM d4) AND EXISTS (SELECT 1 FROM d2)": "36 times",
    }
    for query, said in refused.items():
        for statement in (
            query,
            f"CREATE MATERIALIZED VIEW m AS {query}",
            f"CREATE VIEW p AS {query}",
        ):
            with pytest.raises(HeadraceError, match=said) as caught:
                db.sql(statement)
            assert caught.value.code is Code.UNSUPPORTED
            assert caught.value.hint is not None
            assert "MATERIALIZED VIEW" in caught.value.hint
    db.sql(
        "DROP VIEW d4; CREATE MATERIALIZED VIEW d4 AS SELECT v, w FROM d3; INSERT INTO t VALUES (1, 2)"
    )
    for query in refused:
        if "d4" in query:
            assert db.sql(query).fetchall() == [(1,)]
