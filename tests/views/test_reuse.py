"""Fills that take over state of other views in place of reading all of their inputs."""

from __future__ import annotations

import pytest

import headrace
from headrace.algebra.spine import forget_runs
from histories import History
from length import choose, some

pytestmark = pytest.mark.spark

PAIRS = {
    "groups": (
        "SELECT g, sum(z) AS z, count(*) AS n FROM s GROUP BY g",
        (
            "SELECT g, n, z + 1 AS z FROM (SELECT g, sum(z) AS z, count(*) AS n FROM s GROUP BY g)"
            " WHERE n > 3"
        ),
    ),
    "parts": (
        (
            "SELECT g, min(x) AS lo, max(x) AS hi, count(DISTINCT h) AS d, sum(DISTINCT x) AS e"
            " FROM t GROUP BY g"
        ),
        (
            "SELECT g, -min(x) AS lo, max(x) AS hi, 1 / count(DISTINCT h) AS d, sum(DISTINCT x) AS e"
            " FROM t GROUP BY g HAVING count(DISTINCT h) > 1"
        ),
    ),
    "grows": (
        "SELECT g, min(z) AS lo, sum(m) AS m, max(z) AS hi FROM s GROUP BY g",
        "SELECT g, max(z) + 1 AS hi, count(m) AS n, sum(m) AS m, min(z) AS lo FROM s GROUP BY g",
    ),
    "others": (
        "SELECT g, count(DISTINCT x) AS x, min(h) AS h FROM t GROUP BY g",
        "SELECT g, max(h) AS k, min(x) AS x, count(DISTINCT h) AS h FROM t GROUP BY g",
    ),
    "total": (
        "SELECT count(*) AS n, min(x) AS x, sum(m) AS m FROM t",
        "SELECT count(*) AS n, min(x) AS x, sum(m) AS m FROM t HAVING count(*) > 0",
    ),
    "joined": (
        "SELECT t.h, sum(s.z) AS z FROM s JOIN t ON s.g = t.g GROUP BY t.h",
        "SELECT t.h, sum(s.z) * 2 AS z FROM s JOIN t ON s.g = t.g GROUP BY t.h",
    ),
    "sides": (
        "SELECT s.z, t.h FROM s JOIN t ON s.g = t.g WHERE s.z > 2",
        "SELECT t.h, max(s.z) AS z FROM s JOIN t ON s.g = t.g WHERE s.z > 2 GROUP BY t.h",
    ),
    "outer_": (
        "SELECT t.h, count(s.z) AS z FROM t LEFT JOIN s ON s.g = t.g AND s.z > t.x GROUP BY t.h",
        "SELECT t.h, 1 + count(s.z) AS z FROM t LEFT JOIN s ON s.g = t.g AND s.z > t.x GROUP BY t.h",
    ),
    "starts": (
        (
            "SELECT g, z FROM (SELECT *, row_number() OVER (PARTITION BY g ORDER BY z, m) AS r FROM s)"
            " WHERE r <= 2"
        ),
        (
            "SELECT g, sum(z) AS z FROM"
            " (SELECT *, row_number() OVER (PARTITION BY g ORDER BY z, m) AS r FROM s)"
            " WHERE r <= 2 GROUP BY g"
        ),
    ),
    "windows": (
        "SELECT g, z, sum(z) OVER (PARTITION BY g ORDER BY z) AS a FROM s",
        (
            "SELECT g, max(a) AS a FROM (SELECT g, sum(z) OVER (PARTITION BY g ORDER BY z) AS a FROM s)"
            " GROUP BY g"
        ),
    ),
    "nested": (
        "SELECT n, count(*) AS c FROM (SELECT g, count(*) AS n FROM s GROUP BY g) GROUP BY n",
        (
            "SELECT a.n, a.c, b.n AS m FROM"
            " (SELECT n, count(*) AS c FROM (SELECT g, count(*) AS n FROM s GROUP BY g) GROUP BY n) a"
            " JOIN (SELECT h, count(*) AS n FROM t GROUP BY h) b ON a.n = b.h"
        ),
    ),
    "compared": (
        "SELECT avg(z) AS z FROM s",
        "SELECT g, z FROM s WHERE z > (SELECT avg(z) FROM s)",
    ),
}
"""By name: the query of a view, and another one that takes over some of its state."""


def taken_over(db) -> int:
    """Return how many rows of state the last epoch's fill has taken over."""
    (record,) = db.parts.ledger.epochs.newest(1)
    return record.counters.get("taken_over", 0)


@pytest.mark.parametrize(
    ("fill_rows", "small_rows"),
    [
        (25, 20_000),
        pytest.param(25, 0, marks=pytest.mark.long),
        *(pytest.param(1_000_000, s, marks=pytest.mark.long) for s in (20_000, 0)),
    ],
)
def test_views_filled_from_state_of_others_equal_batch(oracle, fill_rows, small_rows):
    run = oracle(fill_rows=fill_rows, small_rows=small_rows, reuse_rows=1, rows_per_change=9000)
    run.table("t", "g INT, h INT, x INT, m DECIMAL(8,2)")
    run.stream("s", "g INT, z INT, m DECIMAL(9,3)")
    history = History(run, 31, domain=5)
    history.write(["s", "t"], 1200)
    pairs = some(PAIRS, "parts grows joined")
    for name, (query, _) in pairs.items():
        run.view(name, query)
    history.write(["s", "t"], 30)
    for name, (_, query) in pairs.items():
        run.view(f"{name}2", query)
        assert taken_over(run.db) > 0, name
        history.write(["s", "t"], choose(5, 10))
    history.epochs(["s", "t"], choose((20,), (1, 40)))
    run.finish()


GROUPS = "SELECT g, sum(x) AS x, count(*) AS n FROM s GROUP BY g"
MANY = f"SELECT g, x FROM ({GROUPS}) WHERE n > 1"


@pytest.fixture
def grouped(tmp_path, spark):
    with headrace.connect(
        tmp_path / "d", spark=spark, continuous=False, partitions=2, reuse_rows=1
    ) as db:
        db.sql("CREATE STREAM s (g INT, x INT)")
        db.sql(f"CREATE MATERIALIZED VIEW v AS {GROUPS}")
        db.insert("s", [(i % 4, i) for i in range(100)])
        db.flush()
        yield db


def test_explain_says_what_is_taken_over_and_the_option_turns_it_off(grouped):
    db = grouped
    words = "Filled from 4 rows of state of v in place of 100 rows of inputs."
    assert (words,) in db.sql(f"EXPLAIN CREATE MATERIALIZED VIEW w AS {MANY}").fetchall()
    (row,) = db.sql(f"EXPLAIN CHANGE ALTER MATERIALIZED VIEW v AS {MANY}").fetchall()
    assert row[2].endswith(words)
    for apart in ("CREATE MATERIALIZED VIEW w", "CREATE OR REPLACE MATERIALIZED VIEW v"):
        explained = db.sql(f"EXPLAIN {apart} WITH (reuse = false) AS {MANY}").fetchall()
        assert not [line for (line,) in explained if "Filled from" in line]
    db.sql(f"CREATE MATERIALIZED VIEW apart WITH (reuse = false) AS {MANY}")
    assert taken_over(db) == 0
    found = db.sql(f"CREATE MATERIALIZED VIEW w AS {MANY}")
    assert found.message == "created materialized view w from 4 changes"
    assert taken_over(db) == 4
    assert sorted(db.sql("SELECT * FROM w")) == sorted(db.sql("SELECT * FROM apart"))
    with pytest.raises(headrace.HeadraceError, match="'maybe' is not a value of reuse"):
        db.sql(f"CREATE MATERIALIZED VIEW x WITH (reuse = 'maybe') AS {MANY}")


def test_a_view_that_is_computed_again_reads_its_inputs(grouped):
    db = grouped
    explained = db.sql(f"EXPLAIN CREATE OR REPLACE MATERIALIZED VIEW v AS {GROUPS}").fetchall()
    assert not any("rows of state" in line for (line,) in explained)
    for statement in (
        f"CREATE OR REPLACE MATERIALIZED VIEW v AS {GROUPS}",
        f"CREATE OR REPLACE MATERIALIZED VIEW v WITH (auto_swap = false) AS {GROUPS}",
        "SWAP VIEW v; DROP CANDIDATE OF v; REBUILD VIEW v",
    ):
        db.sql(statement)
        assert taken_over(db) == 0
    db.sql(f"ALTER MATERIALIZED VIEW v AS {GROUPS} HAVING count(*) > 1")
    assert taken_over(db) == 4
    db.sql("INVALIDATE VIEW v WHERE g = 1 BECAUSE 'it looks odd'")
    db.sql(f"CREATE MATERIALIZED VIEW w AS {MANY}")
    assert taken_over(db) == 0, "state that may be wrong is left alone"


def test_damaged_state_is_not_taken_over(grouped, tmp_path):
    db = grouped
    (file,) = {run.file for run in db.parts.ledger.spines.runs("2/aggregate1.groups")}
    path = tmp_path / "d" / "runs" / file.pack
    data = bytearray(path.read_bytes())
    data[file.position + file.bytes // 2] ^= 0xFF
    path.write_bytes(data)
    forget_runs()
    db.sql(f"CREATE MATERIALIZED VIEW w AS {MANY}")
    assert taken_over(db) == 0
    sums = [(g, sum(i for i in range(100) if i % 4 == g)) for g in range(4)]
    assert sorted(db.sql("SELECT * FROM w")) == sums
