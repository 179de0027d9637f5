"""Linear aggregates: exact totals by group, while rows are inserted, updated and deleted."""

from __future__ import annotations

from decimal import Decimal

import pytest

from headrace.errors import HeadraceError
from histories import History
from length import some, thorough

pytestmark = pytest.mark.spark

COLUMNS = """g INT, h STRING, i8 TINYINT, i16 SMALLINT, i32 INT, i64 BIGINT, m DECIMAL(10,2),
    wide DECIMAL(38,6), whole DECIMAL(20,0), f DOUBLE, st STRUCT<a: INT, b: STRING>, day DATE,
    flag BOOLEAN, arr ARRAY<INT>"""

GROUPED = {
    "counts": "SELECT g, count(*) AS n, count(h) AS c, count(g, h) AS cc, count_if(flag) AS i FROM t GROUP BY g",
    "sums": """SELECT g, sum(i8) AS a, sum(i16) AS b, sum(i32) AS c, sum(i64) AS d, sum(m) AS e,
        sum(wide) AS f, sum(whole) AS h FROM t GROUP BY g""",
    "averages": """SELECT g, avg(i8) AS a, avg(i16) AS b, avg(i32) AS c, avg(i64) AS d,
        avg(m) AS e, avg(whole) AS f, mean(i32) AS h FROM t GROUP BY g""",
    "filters": """SELECT h, count(*) FILTER (WHERE i32 > 10) AS a, sum(m) FILTER (WHERE flag) AS b,
        avg(i8) FILTER (WHERE h <> 'a') AS c, count(i8) FILTER (WHERE i8 IS NULL) AS d
        FROM t GROUP BY h""",
    "guarded": """SELECT g, sum(100 div i32) FILTER (WHERE i32 <> 0) AS a, min(100 div i32) FILTER (WHERE i32 <> 0) AS b,
        max(i8 % i32) FILTER (WHERE i32 <> 0) AS c, count(100 div i32) FILTER (WHERE i32 <> 0) AS d,
        avg(CAST(h AS INT)) FILTER (WHERE h RLIKE '^[0-9]$') AS e, bool_or(1 div i8 = 0) FILTER (WHERE i8 <> 0) AS f,
        max(h) AS m, max(h) FILTER (WHERE flag) AS n FROM t GROUP BY g""",
    "having_both": "SELECT g, sum(i32) AS s FROM t GROUP BY g HAVING sum(i32) > 20 AND count(*) < 9",
    "having_only": "SELECT g FROM t GROUP BY g HAVING count(h) > 2",
    "arithmetic": """SELECT g + 1 AS x, sum(i32) / count(*) AS a, sum(m) - avg(m) * 2 AS b, 1 + count(*) * 2 AS c,
        coalesce(sum(i8), 0) AS d, concat(h, ':', count(*)) AS e FROM t GROUP BY g, h""",
    "by_expression": "SELECT upper(h) AS u, i32 % 3 AS r, count(*) AS n FROM t GROUP BY upper(h), i32 % 3",
    "by_position": "SELECT h, g % 2, count(*) AS n FROM t GROUP BY 1, 2",
    "by_alias": "SELECT year(day) AS y, count(*) AS n FROM t GROUP BY y",
    "by_struct": "SELECT st, count(*) AS n, sum(i32) AS s FROM t GROUP BY st",
    "by_array": "SELECT arr, count(*) AS n FROM t GROUP BY arr",
    "by_map": """SELECT to_json(array_sort(map_entries(if(flag, map('b', i32, 'a', g), map('a', g, 'b', i32))))) AS m,
        count(*) AS n FROM t GROUP BY 1""",
    "by_float": "SELECT f, count(*) AS n, sum(i32) AS s FROM t GROUP BY f",
    "by_null_literal": "SELECT count(*) AS n FROM t GROUP BY CAST(NULL AS INT)",
    "by_literal": "SELECT 'x' AS x, count(*) AS n, sum(i32) AS s FROM t GROUP BY 'x'",
    "by_repeated": "SELECT g, g AS again, count(*) AS n FROM t GROUP BY g, g, g + 0",
    "by_folded": "SELECT g, 1 + 1 AS two, count(*) AS n FROM t GROUP BY g, 1 + 1",
    "by_all": "SELECT g, h, count(*) AS n FROM t GROUP BY ALL",
    "unselected": "SELECT count(*) AS n FROM t GROUP BY g, h",
    "no_function": "SELECT g, h FROM t GROUP BY g, h",
    "same_twice": "SELECT g, sum(i32) AS a, sum(i32) AS b, sum(i32 + 0) AS c FROM t GROUP BY g",
    "nested": """SELECT n, count(*) AS groups, sum(s) AS s FROM
        (SELECT g, h, count(*) AS n, sum(i32) AS s FROM t GROUP BY g, h) GROUP BY n""",
    "of_constant": "SELECT g, sum(1) AS a, sum(2.5) AS b, avg(3) AS c, count(NULL) AS d FROM t GROUP BY g",
    "sets": "SELECT g, h, count(*) AS n, grouping_id() AS i FROM t GROUP BY GROUPING SETS ((g, h), (g))",
    "rollup": "SELECT g, h, sum(i32) AS s FROM t GROUP BY ROLLUP (g, h) HAVING g IS NOT NULL",
}

GLOBAL = {
    "guarded_all": """SELECT min(100 div i32) FILTER (WHERE i32 <> 0) AS a, sum(100 div i32) FILTER (WHERE i32 <> 0) AS b,
        count(DISTINCT h) AS c FROM t""",
    "count_all": "SELECT count(*) AS n FROM t",
    "totals": """SELECT count(h) AS c, sum(i32) AS s, avg(m) AS a, sum(m) AS m, sum(wide) AS w,
        count_if(flag) AS f FROM t""",
    "filtered_away": "SELECT count(*) AS n, sum(i32) AS s FROM t WHERE i32 > 1000000",
    "global_having": "SELECT sum(i32) AS s FROM t HAVING count(*) > 3",
    "of_nothing": "SELECT count(1) AS n FROM (SELECT 1 FROM t)",
    "arithmetic": "SELECT sum(i32) + count(*) AS a, 'all' AS x FROM t",
    "of_groups": "SELECT count(*) AS groups, sum(n) AS n FROM (SELECT g, count(*) AS n FROM t GROUP BY g)",
    "under_projection": "SELECT n + 1 AS m FROM (SELECT count(*) AS n FROM t) WHERE n >= 0",
    "exploded": "SELECT n, x FROM (SELECT count(*) AS n FROM t) LATERAL VIEW explode(array(1, 2)) AS x",
    "of_both": "SELECT count(*) AS n FROM (SELECT g FROM t UNION ALL SELECT i32 FROM t)",
    "beside_groups": "SELECT count(*) AS n FROM t UNION ALL SELECT count(*) FROM t GROUP BY g",
    "cube": "SELECT flag, count(*) AS n FROM t GROUP BY CUBE (flag) HAVING flag IS NOT NULL OR grouping(flag) = 1",
}

MANY = ", ".join(map(str, range(30)))
ALIKE = {
    "long": f"SELECT g, sum(greatest(i32, {MANY}, 31)) AS a, sum(greatest(i32, {MANY}, 310)) AS b FROM t GROUP BY g",
    "commas": """SELECT g, count(if(concat_ws('', h, 'b, c') = 'bbc', NULL, 1)) AS a,
        count(if(concat_ws('', h, 'b', 'c') = 'bbc', NULL, 1)) AS b FROM t GROUP BY g""",
    "least": """SELECT g, min(concat_ws('', h, 'b, c')) AS a, min(concat_ws('', h, 'b', 'c')) AS b
        FROM t GROUP BY g""",
    "types": "SELECT g, count(DISTINCT 6) AS a, min(6L) AS b, max(6.0) AS c, min('6') AS d, max(6.0D) AS e FROM t GROUP BY g",
    "conditions": """SELECT g, sum(i32) FILTER (WHERE concat_ws('', h, 'b, c') = 'bbc') AS a,
        sum(i32) FILTER (WHERE concat_ws('', h, 'b', 'c') = 'bbc') AS b FROM t GROUP BY g""",
}


SHORT_GROUPED = "sums averages guarded having_both by_struct sets"
SHORT_GLOBAL = "guarded_all count_all totals global_having exploded cube"


@pytest.mark.long
@pytest.mark.parametrize("seed", [5])
def test_arguments_that_only_look_alike_are_told_apart(oracle, seed):
    run = oracle()
    run.table("t", COLUMNS)
    for name, query in some(ALIKE, "commas least types").items():
        run.view(name, query)
    History(run, seed, domain=9).epochs(["t"], (10, 50))
    run.finish()


@pytest.mark.parametrize("seed", [5])
def test_totals_by_group(oracle, seed):
    run = oracle()
    run.table("t", COLUMNS)
    chosen = some(GROUPED, SHORT_GROUPED)
    for name, query in chosen.items():
        run.view(name, query)
    history = History(run, seed, domain=9)
    history.epochs(["t"], (10, 150))
    if thorough():
        run.update("t", {"g": "g + 1", "h": "coalesce(h, 'was null')"}, "i32 % 2 = 0")
    run.truncate("t")
    run.epoch()
    assert all(run.rows(name) == [] for name in chosen)
    history.epochs(["t"], (3,))
    run.finish()


@pytest.mark.long
def test_totals_without_groups_are_always_one_row(oracle):
    run = oracle()
    run.table("t", COLUMNS)
    for name, query in some(GLOBAL, SHORT_GLOBAL).items():
        run.view(name, query)
    assert run.rows("count_all") == [(0,)]
    assert run.rows("totals") == [(0, None, None, None, None, 0)]
    assert run.rows("global_having") == []
    history = History(run, 6, domain=9)
    history.epochs(["t"], (1, 30, 3))
    run.truncate("t")
    run.epoch()
    assert run.rows("count_all") == [(0,)]
    assert run.rows("totals") == [(0, None, None, None, None, 0)]
    if thorough():
        history.epochs(["t"], (5,))
    run.view("created_later", GLOBAL["totals"])
    run.truncate("t")
    run.finish()


@pytest.mark.long
def test_a_row_that_moves_to_another_group_leaves_the_old_one(oracle):
    run = oracle()
    run.table("t", "id INT, g STRING, x INT", key="id")
    run.view("v", "SELECT g, count(*) AS n, sum(x) AS s FROM t GROUP BY g")
    run.view("big", "SELECT g, sum(x) AS s FROM t GROUP BY g HAVING sum(x) >= 10")
    run.insert("t", [(1, "a", 5), (2, "a", 6), (3, "b", 1)])
    run.epoch()
    assert run.rows("big") == [("a", 11)]
    run.update("t", {"g": "'b'"}, "id = 1")
    run.epoch()
    assert run.rows("v") == [("a", 1, 6), ("b", 2, 6)]
    assert run.rows("big") == []
    run.insert("t", [(2, "b", 6)])
    run.epoch()
    assert run.rows("v") == [("b", 3, 12)]
    assert run.rows("big") == [("b", 12)]
    run.delete("t", "g = 'b'")
    run.epoch()
    assert run.rows("v") == run.rows("big") == []
    run.finish()


def test_null_keys_are_one_group_and_floats_group_as_in_sql(oracle):
    run = oracle()
    run.table("t", "k INT, f DOUBLE, x INT")
    run.view("by_k", "SELECT k, count(*) AS n FROM t GROUP BY k")
    run.view("by_both", "SELECT k, f, sum(x) AS s FROM t GROUP BY k, f")
    run.view("by_f", "SELECT f, count(*) AS n FROM t GROUP BY f")
    nan = float("nan")
    run.insert("t", [(None, 0.0, 1), (None, -0.0, 2), (1, nan, 3), (1, -nan, 4), (None, None, 5)])
    run.epoch()
    assert run.rows("by_k") == [(1, 2), (None, 3)]
    assert {n for _, n in run.rows("by_f")} == {1, 2}
    run.log("t", [(-1, (None, -0.0, 2)), (-1, (1, nan, 3))])
    run.epoch()
    run.truncate("t")
    run.epoch()
    assert run.rows("by_f") == []
    run.finish()


def test_the_largest_decimals_add_up_exactly(oracle):
    run = oracle()
    run.table("t", "g INT, a DECIMAL(38,0), b DECIMAL(38,38), c DECIMAL(38,18), d DECIMAL(1,0)")
    run.view("v", "SELECT g, sum(a) AS a, sum(b) AS b, sum(c) AS c, sum(d) AS d FROM t GROUP BY g")
    run.view(
        "w", "SELECT g, avg(b) AS b, avg(c) AS c, avg(d) AS d, count(a) AS n FROM t GROUP BY g"
    )
    nines, most = Decimal("9" * 37), Decimal("-" + "9" * 38)
    tiny = Decimal("1e-38")
    rows = [
        (1, nines, tiny, Decimal("1234567890123456.123456789012345678"), Decimal(9)),
        (1, nines, Decimal("-3e-38"), Decimal("-0.000000000000000001"), Decimal(-9)),
        (1, most, None, None, None),
        (2, None, None, None, None),
    ]
    run.insert("t", rows)
    run.epoch()
    run.log("t", [(-1, rows[2]), (-1, rows[3])])
    run.epoch()
    run.log("t", [(1, rows[0])])
    run.epoch()
    run.log("t", [(-1, rows[0])])
    run.epoch()
    run.finish()


@pytest.mark.long
def test_sums_of_bigint_pass_64_bits_and_come_back(db):
    most, least = 2**63 - 1, -(2**63)
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, g INT, x BIGINT)")
    averages = "SELECT g, avg(x) AS a, avg(DISTINCT x) AS d, count(x) AS n FROM t GROUP BY g"
    sums = "SELECT g, sum(x) AS s, sum(DISTINCT x) AS d FROM t GROUP BY g"
    db.sql(f"CREATE MATERIALIZED VIEW averages AS {averages}")
    db.sql(f"CREATE MATERIALIZED VIEW sums AS {sums}")
    # Where nothing cancels out: of doubles, as Spark's batch adds them, the rest may be lost.
    positive = "SELECT avg(x) AS a, avg(x) + 1 AS b FROM t WHERE x > 0"
    db.sql(f"CREATE MATERIALIZED VIEW positive AS {positive}")
    # Within the epoch, the sum of the first group leaves 64 bits; the total does not.
    db.sql(
        f"INSERT INTO t VALUES (1, 1, {most}), (2, 1, {most}), (3, 1, {least}), (4, 1, {least}), "
        f"(5, 2, 3), (6, 2, NULL), (7, 3, {least})"
    )
    assert sorted(db.sql("SELECT * FROM sums")) == [(1, -2, -1), (2, 3, 3), (3, least, least)]
    assert sorted(db.sql("SELECT * FROM averages")) == [
        (1, -0.5, -0.5, 4),
        (2, 3.0, 3.0, 1),
        (3, float(least), float(least), 1),
    ]
    db.sql(f"INSERT INTO t VALUES (8, 2, {most}), (9, 2, {most - 7})")
    wide = (most + most - 7 + 3) / 3
    assert (2, wide, wide, 3) in db.sql("SELECT * FROM averages").fetchall()
    assert db.verify("positive").fetchall()[0][:3] == ("positive", 1, 0)
    with pytest.raises(HeadraceError, match='view "sums" stopped') as stopped:
        db.sql("SELECT * FROM sums").fetchall()
    assert stopped.value.detail.startswith("a sum of BIGINT is too large for its type")
    db.sql("DELETE FROM t WHERE id IN (1, 3, 8)")
    assert (2, (most - 4) / 2, (most - 4) / 2, 2) in db.sql("SELECT * FROM averages").fetchall()
    db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW sums AS {sums}")
    assert (2, most - 4, most - 4) in db.sql("SELECT * FROM sums").fetchall()
