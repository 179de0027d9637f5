"""Rounds of several recursions at once, in all partitions, and with a failure in one of them."""

from __future__ import annotations

from random import Random

import pytest

from headrace import HeadraceError
from headrace.errors import Code
from headrace.execution.serving import Contents

pytestmark = pytest.mark.spark

REACHED = """WITH RECURSIVE reached(node, via) AS (
  SELECT node, 'start' FROM starts
  UNION ALL SELECT e.b, r.via FROM reached r JOIN edges e ON r.node = e.a)
SELECT node, via FROM reached"""


SEVERAL = {
    # One over another, and one that takes another, finished, in each of its levels.
    "over": """WITH RECURSIVE
        reached(node) AS (
          SELECT node FROM starts
          UNION ALL SELECT e.b FROM reached r JOIN e ON r.node = e.a AND e.a < e.b),
        flown(node, far) AS (
          SELECT node, 0 FROM reached
          UNION ALL SELECT f.b, far + 1 FROM flown JOIN f ON flown.node = f.a AND f.a < f.b),
        met(node, n) AS (
          SELECT node, 0 FROM starts
          UNION ALL SELECT r.node, n + 1 FROM met JOIN (SELECT DISTINCT node FROM reached) r
            ON r.node = met.node + 1)
        SELECT node, far, 'flown' AS what FROM flown UNION ALL SELECT node, n, 'met' FROM met""",
    "twice": """WITH RECURSIVE reached(node, hops) AS (
          SELECT node, 0 FROM starts
          UNION ALL SELECT e.b, hops + 1 FROM reached r JOIN e ON r.node = e.a AND e.a < e.b)
        SELECT x.node, x.hops, y.hops AS other FROM reached x
        LEFT JOIN reached y ON x.node = y.node AND x.hops < y.hops
        WHERE x.node NOT IN (SELECT node FROM reached WHERE hops = 3 AND node IS NOT NULL)""",
    "below": """WITH RECURSIVE reached(node, hops) AS (
          SELECT node, 0 FROM starts
          UNION ALL SELECT e.b, hops + 1 FROM reached r JOIN e ON r.node = e.a AND e.a < e.b)
        SELECT node, hops FROM reached""",
    "chained": """WITH RECURSIVE flown(node, hops, far) AS (
          SELECT node, hops, 0 FROM below
          UNION ALL SELECT f.b, hops, far + 1 FROM flown JOIN f ON flown.node = f.a AND f.a < f.b)
        SELECT node, hops, far FROM flown""",
    "stepped": """WITH RECURSIVE s(node) AS (
          SELECT b FROM f
          UNION ALL SELECT b.node FROM s JOIN below b ON b.node = s.node + 1 AND b.hops > 0)
        SELECT node, count(*) AS n FROM s GROUP BY node""",
}


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_recursions_over_recursions_in_one_query_and_in_views(oracle):
    run = oracle(rows_per_change=4000)
    run.table("e", "id INT, a INT, b INT", key="id")
    run.table("f", "id INT, a INT, b INT", key="id")
    run.table("starts", "node INT")
    run.insert("e", [(1, 1, 2), (2, 2, 3), (3, 1, 3), (4, 5, 6)])
    run.insert("f", [(1, 3, 4), (2, 4, 6), (3, 6, 7)])
    run.insert("starts", [(1,)])
    for name, query in SEVERAL.items():
        run.view(name, query)
    assert run.rows("below") == [(1, 0), (2, 1), (3, 1), (3, 2)]
    assert run.rows("twice") == [(1, 0, None), (2, 1, None), (3, 1, 2), (3, 2, None)]
    assert (7, 2, 3) in run.rows("chained")
    # Edges of both levels come, go and move, all in one epoch.
    run.log("e", [(-1, (2, 2, 3)), (1, (5, 3, 5)), (1, (3, 1, 4))])
    run.log("f", [(-1, (2, 4, 6)), (1, (4, 2, 5)), (1, (3, 5, 7))])
    run.epoch()
    assert [(n, h) for n, h, far in run.rows("chained") if far == 2] == [(7, 1)]
    # What went comes again, and so does a start.
    run.log("e", [(1, (2, 2, 3))])
    run.log("f", [(1, (2, 4, 6)), (-1, (4, 2, 5))])
    run.log("starts", [(1, (1,)), (1, (5,))])
    run.epoch()
    run.truncate("starts")
    run.epoch()
    assert run.rows("chained") == []
    run.log("starts", [(1, (1,))])
    run.epoch()
    run.verify(*run.views)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_recursions_in_all_partitions_and_filled_in_parts(oracle):
    run = oracle(rows_per_change=4000, small_rows=0, fill_rows=7)
    run.table("e", "id INT, a INT, b INT", key="id")
    run.table("starts", "node INT")
    random = Random(37)
    pairs = [sorted(random.sample(range(12), 2)) for _ in range(30)]
    run.insert("e", [(i, a, b) for i, (a, b) in enumerate(pairs)])
    run.insert("starts", [(0,), (3,), (3,)])
    run.view("below", SEVERAL["below"])
    run.view(
        "ends",
        """WITH RECURSIVE s(node, hops) AS (
          SELECT DISTINCT node, 0 FROM below
          UNION ALL
          SELECT DISTINCT e.b, hops + 1 FROM s JOIN e ON s.node = e.a AND e.a < e.b
            WHERE EXISTS (SELECT 1 FROM below WHERE below.node = e.b))
        SELECT hops, count(*) AS n, max(node) AS far FROM s GROUP BY hops""",
    )
    moved = [(i, *sorted(random.sample(range(12), 2))) for i in range(0, 30, 5)]
    gone = [(i, *pairs[i]) for i in range(1, 30, 4) if i % 5]
    run.log("e", [*((-1, row) for row in gone), *((1, row) for row in moved)])
    run.log("starts", [(-1, (3,)), (1, (2,))])
    run.epoch()
    assert run.rounds > 2
    run.log("e", [(1, row) for row in gone])
    run.log("starts", [(-1, (0,))])
    run.epoch()
    run.finish()


class CrashError(BaseException):
    """Stands for the end of the process."""


class Fault:
    """Raises an error at the given rounds: 1 is the first that is reached."""

    def __init__(self, error, *rounds):
        self.error, self.rounds, self.reached = error, rounds, 0

    def __call__(self, stage):
        if stage == "round":
            self.reached += 1
            if self.reached in self.rounds:
                raise self.error


@pytest.mark.long
def test_a_fault_between_rounds_leaves_what_was(oracle):
    run = oracle(rows_per_change=60)
    run.table("edges", "id INT, a INT, b INT", key="id")
    run.table("starts", "node INT")
    run.insert("edges", [(1, 1, 2), (2, 2, 3), (3, 3, 4)])
    run.insert("starts", [(1,)])
    run.epoch()
    run.db.parts.loop.fault = Fault(CrashError(), 2)
    with pytest.raises(CrashError):
        run.db.sql(f"CREATE MATERIALIZED VIEW reached AS {REACHED}")
    run.view("reached", REACHED)
    run.view("counted", "SELECT via, count(*) AS n FROM reached GROUP BY via")
    loop = run.db.parts.loop

    def as_it_is():
        """Read what is stored; a query would make the epoch."""
        found = []
        for name in ("reached", "counted"):
            state, relation = loop.published.current, loop.catalog.resolve(name)
            rows = Contents.of(loop.directory, state, relation).whole().to_pylist()
            found.append(sorted(tuple(row.values()) for row in rows))
        return found

    def stored():
        return {path.name for path in (run.directory / "runs").iterdir()}

    def named():
        return set(run.db.parts.ledger.files.known().packs)

    before = as_it_is()
    assert before == [[(n, "start") for n in (1, 2, 3, 4)], [("start", 4)]]
    run.log("edges", [(-1, (1, 1, 2)), (1, (4, 4, 5)), (1, (5, 1, 3))])
    broken = HeadraceError(Code.UNAVAILABLE, "a task was lost")
    for fault, error in (
        (Fault(CrashError(), 1), CrashError),
        (Fault(CrashError(), 3), CrashError),
        (Fault(broken, 1, 3, 6), HeadraceError),  # in the 1st, 2nd and 3rd round of 3 attempts
    ):
        loop.fault = fault
        with pytest.raises(error):
            run.epoch()
        assert fault.reached == fault.rounds[-1]
        assert as_it_is() == before
        assert not loop.stopped()
        assert stored() == named(), "an attempt that failed has removed what it wrote"
    loop.fault = Fault(None)
    assert run.epoch() == 1
    assert loop.fault.reached == run.rounds == 4
    assert [n for n, _ in run.rows("reached")] == [1, 3, 4, 5]
    run.finish()
    run.reopen()
    # Nothing is left of the attempts that failed.
    parts = run.db.parts
    assert stored() == named()
    # An attempt that fails is followed by another, within the same epoch.
    parts.loop.fault = Fault(broken, 2)
    run.db.sql("DELETE FROM edges WHERE id = 3")
    found = run.db.sql("SELECT node FROM reached").fetchall()
    assert sorted(found) == [(1,), (3,)]
    assert run.db.sql("SELECT n FROM counted").fetchall() == [(2,)]
    assert [row[2:4] for row in run.db.sql("VERIFY").fetchall()] == [(0, "equal to batch")] * 2
