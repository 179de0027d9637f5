"""One named test for each class of defect that engines of this kind have had."""

from __future__ import annotations

import pytest

import headrace
from length import some

pytestmark = pytest.mark.spark


@pytest.fixture
def run(oracle):
    made = oracle(rows_per_change=200)
    made.table("l", "k INT, x INT")
    made.table("r", "k INT, y INT")
    made.table("t", "id INT, g INT, v INT", key="id")
    return made


@pytest.mark.long
def test_pairs_are_not_counted_twice_when_both_sides_change(run):
    run.view("j", "SELECT l.k, x, y FROM l JOIN r ON l.k = r.k")
    run.view("n", "SELECT count(*) AS n FROM l JOIN r ON l.k = r.k")
    run.insert("l", [(1, 1), (1, 2)])
    run.insert("r", [(1, 10), (1, 20)])
    run.epoch()
    assert run.rows("n") == [(4,)]
    run.log("l", [(-1, (1, 1)), (1, (1, 3))])
    run.log("r", [(-1, (1, 10)), (1, (1, 30))])
    run.epoch()
    assert run.rows("n") == [(4,)]
    run.finish()


@pytest.mark.long
def test_a_semi_join_sees_the_side_as_it_was_for_rows_that_go(run):
    run.view("s", "SELECT * FROM l WHERE k IN (SELECT k FROM r)")
    run.view("a", "SELECT * FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k = l.k)")
    run.insert("l", [(1, 1), (2, 2)])
    run.insert("r", [(1, 10)])
    run.epoch()
    assert (run.rows("s"), run.rows("a")) == ([(1, 1)], [(2, 2)])
    # The row goes, and so does its partner; another partner comes for the other row.
    run.log("l", [(-1, (1, 1))])
    run.log("r", [(-1, (1, 10)), (1, (2, 20))])
    run.epoch()
    assert (run.rows("s"), run.rows("a")) == ([(2, 2)], [])
    run.finish()


@pytest.mark.long
def test_an_expression_is_computed_from_rows_that_are_there_together(run):
    """What leaves never meets what comes: a pair that never was may be an error."""
    by_key = "l JOIN r ON l.k = r.k"
    views = {
        "pairs": f"SELECT x, x DIV y AS q FROM {by_key}",
        "met": f"SELECT x FROM {by_key} AND x DIV y > 0",
        "below": "SELECT x DIV y AS q FROM l JOIN r ON l.k > r.k - 1 AND l.k < r.k + 1",
        "kept": "SELECT l.k, x DIV coalesce(y, l.k - 1) AS q FROM l LEFT JOIN r ON l.k = r.k",
        "lone": "SELECT l.k, y FROM l FULL JOIN r ON l.k = r.k AND x DIV y > 0",
        "there": "SELECT x FROM l WHERE EXISTS (SELECT 1 FROM r WHERE l.k = r.k AND x DIV y > 0)",
        "absent": "SELECT 6 DIV (k - 1) AS q FROM l WHERE k NOT IN (SELECT r.k FROM r)",
        "sums": f"SELECT r.k, sum(x DIV y) AS q FROM {by_key} GROUP BY r.k",
        "over": "SELECT x DIV s AS q FROM l NATURAL JOIN (SELECT k, sum(y) AS s FROM r GROUP BY k)",
        "one": "SELECT x, (SELECT y FROM r WHERE r.k = l.k) AS y FROM l",
        "value": "SELECT x DIV (SELECT min(y) FROM r) AS q FROM l",
    }
    for name, query in some(views, "met kept there over one value").items():
        run.view(name, query)
    stays, leaves = [(1, (1, 10)), (-1, (5, 10))], [(-1, (1, 10)), (1, (5, 10))]
    for of_l, of_r in (
        ([(1, (1, 10)), (1, (2, 10))], [(1, (1, 10)), (1, (2, 20))]),
        (leaves, [(-1, (1, 10)), (1, (1, 30)), (1, (1, -30))]),
        (stays, [(-1, (1, 30)), (-1, (1, -30)), (1, (1, 7))]),
        (leaves, [(1, (1, 8))]),
        (stays, [(-1, (1, 8))]),
        ([(-1, (1, 10)), (-1, (2, 10))], [(-1, (1, 7)), (1, (1, 0))]),
        ([(1, (1, 10)), (1, (2, 10))], [(1, (1, 7)), (-1, (1, 0))]),
        ([(-1, (1, 10)), (-1, (2, 10))], [(-1, (1, 7)), (-1, (2, 20))]),
        ([(1, (1, 10)), (1, (2, 10))], [(1, (1, 7)), (1, (2, 20))]),
    ):
        run.log("l", of_l)
        run.log("r", of_r)
        run.epoch()
    assert sorted(run.rows("one")) == [(10, 7), (10, 20)]
    run.finish()


@pytest.mark.long
def test_nulls_pad_only_rows_that_lose_their_last_partner(run):
    run.view("o", "SELECT l.k, x, y FROM l LEFT JOIN r ON l.k = r.k")
    run.insert("l", [(1, 1)])
    run.insert("r", [(1, 10), (1, 20)])
    run.epoch()
    run.log("r", [(-1, (1, 10))])
    run.epoch()
    assert run.rows("o") == [(1, 1, 20)]
    run.log("r", [(-1, (1, 20)), (1, (1, 30))])
    run.epoch()
    assert run.rows("o") == [(1, 1, 30)]
    run.log("r", [(-1, (1, 30))])
    run.epoch()
    assert run.rows("o") == [(1, 1, None)]
    run.finish()


def test_a_correlated_subquery_follows_its_inner_side_alone(run):
    run.view("c", "SELECT k, x, (SELECT count(*) FROM r WHERE r.k = l.k) AS n FROM l")
    run.view("m", "SELECT k, x FROM l WHERE x < (SELECT max(y) FROM r WHERE r.k = l.k)")
    run.insert("l", [(1, 1), (2, 2)])
    run.epoch()
    assert run.rows("c") == [(1, 1, 0), (2, 2, 0)]
    run.insert("r", [(1, 10)])
    run.epoch()
    assert (run.rows("c"), run.rows("m")) == ([(1, 1, 1), (2, 2, 0)], [(1, 1)])
    run.log("r", [(-1, (1, 10))])
    run.epoch()
    assert (run.rows("c"), run.rows("m")) == ([(1, 1, 0), (2, 2, 0)], [])
    run.finish()


@pytest.mark.long
def test_a_group_vanishes_with_its_last_row_and_the_global_one_stays(run):
    run.view("g", "SELECT g, count(*) AS n, max(v) AS m FROM t GROUP BY g")
    run.view("w", "SELECT count(*) AS n, max(v) AS m, median(v) AS p FROM t")
    run.insert("t", [(1, 7, 5)])
    run.epoch()
    run.log("t", [(-1, (1, 7, 5))])
    run.epoch()
    assert (run.rows("g"), run.rows("w")) == ([], [(0, None, None)])
    run.finish()


@pytest.mark.long
def test_a_deleted_extremum_gives_way_to_the_next(run):
    run.view("m", "SELECT g, min(v) AS a, max(v) AS b FROM t GROUP BY g")
    run.insert("t", [(1, 1, 5), (2, 1, 5), (3, 1, 9), (4, 1, 2)])
    run.epoch()
    run.log("t", [(-1, (3, 1, 9))])
    run.epoch()
    assert run.rows("m") == [(1, 2, 5)]
    run.log("t", [(-1, (1, 1, 5)), (-1, (4, 1, 2))])
    run.epoch()
    assert run.rows("m") == [(1, 5, 5)]
    run.finish()


@pytest.mark.long
def test_rows_that_were_filled_in_are_the_rows_that_are_taken_away(run):
    run.insert("l", [(1, 1), (1, 1), (None, None)])
    run.insert("r", [(1, 10), (None, 5)])
    run.insert("t", [(1, 1, 3), (2, 1, 4)])
    run.view("o", "SELECT l.k, x, y FROM l FULL JOIN r ON l.k = r.k")
    run.view("d", "SELECT count(DISTINCT v) AS n, min(v) AS m FROM t")
    run.view("f", "SELECT id, v FROM t ORDER BY v DESC LIMIT 1")
    run.view("w", "SELECT id, sum(v) OVER (PARTITION BY g ORDER BY id) AS s FROM t")
    run.log("l", [(-1, (1, 1)), (-1, (None, None))])
    run.log("r", [(-1, (None, 5))])
    run.log("t", [(-1, (2, 1, 4))])
    run.epoch()
    assert run.rows("o") == [(1, 1, 10)]
    assert (run.rows("d"), run.rows("f"), run.rows("w")) == ([(1, 3)], [(1, 3)], [(1, 3)])
    run.truncate("l")
    run.truncate("r")
    run.epoch()
    assert run.rows("o") == []
    run.finish()


@pytest.mark.long
def test_duplicates_without_a_key_go_one_by_one(run):
    run.view("d", "SELECT DISTINCT k, x FROM l")
    run.view("e", "SELECT k, x FROM l EXCEPT ALL SELECT k, y FROM r")
    run.view("n", "SELECT k, x, row_number() OVER (PARTITION BY k ORDER BY x) AS i FROM l")
    run.insert("l", [(1, 1)] * 3)
    run.insert("r", [(1, 1)])
    run.epoch()
    assert (run.rows("d"), run.rows("e")) == ([(1, 1)], [(1, 1)] * 2)
    run.log("l", [(-1, (1, 1))])
    run.epoch()
    assert (run.rows("d"), run.rows("e")) == ([(1, 1)], [(1, 1)])
    assert run.rows("n") == [(1, 1, 1), (1, 1, 2)]
    run.log("l", [(-1, (1, 1))] * 2)
    run.epoch()
    assert run.rows("d") == run.rows("e") == run.rows("n") == []
    run.finish()


@pytest.mark.long
def test_the_nulls_of_a_group_key_are_one_group(run):
    run.view("g", "SELECT k, count(*) AS n, count(DISTINCT x) AS d, min(x) AS m FROM l GROUP BY k")
    run.view("p", "SELECT k, percentile(x, 0.5) AS p FROM l GROUP BY k")
    run.insert("l", [(None, 1), (None, 3), (None, None), (0, 2)])
    run.epoch()
    assert run.rows("g") == [(0, 1, 1, 2), (None, 3, 2, 1)]
    run.log("l", [(-1, (None, 1))])
    run.epoch()
    assert run.rows("p") == [(0, 2.0), (None, 3.0)]
    run.finish()


@pytest.mark.long
def test_having_is_crossed_both_ways(run):
    run.view("h", "SELECT k, sum(x) AS s FROM l GROUP BY k HAVING count(*) > 1 AND max(x) < 10")
    run.insert("l", [(1, 1)])
    run.epoch()
    assert run.rows("h") == []
    run.insert("l", [(1, 2)])
    run.epoch()
    assert run.rows("h") == [(1, 3)]
    run.insert("l", [(1, 10)])
    run.epoch()
    assert run.rows("h") == []
    run.log("l", [(-1, (1, 10))])
    run.epoch()
    assert run.rows("h") == [(1, 3)]
    run.log("l", [(-1, (1, 1))])
    run.epoch()
    assert run.rows("h") == []
    run.finish()


@pytest.mark.long
def test_ties_in_first_rows_are_settled_by_the_rows_alone(run):
    run.view("f", "SELECT id, v FROM t ORDER BY v, id LIMIT 2")
    run.view(
        "first_ranked",
        """SELECT g, id FROM (SELECT *, rank() OVER (PARTITION BY g ORDER BY v) AS r FROM t)
        WHERE r <= 1""",
    )
    run.insert("t", [(3, 1, 5), (1, 1, 5), (2, 1, 5)])
    run.epoch()
    assert run.rows("f") == [(1, 5), (2, 5)]
    assert run.rows("first_ranked") == [(1, 1), (1, 2), (1, 3)]
    run.log("t", [(-1, (1, 1, 5))])
    run.epoch()
    assert run.rows("f") == [(2, 5), (3, 5)]
    run.insert("t", [(1, 1, 5), (9, 1, 4)])
    run.epoch()
    assert (run.rows("f"), run.rows("first_ranked")) == ([(1, 5), (9, 4)], [(1, 9)])
    run.finish()


@pytest.mark.long
def test_a_view_and_its_base_change_in_one_epoch(run):
    run.view("n", "SELECT g, count(*) AS n FROM t GROUP BY g")
    run.view("j", "SELECT t.id, n.n FROM t JOIN n ON t.g = n.g")
    run.view("a", "SELECT t.id FROM t WHERE g NOT IN (SELECT g FROM n WHERE n > 1)")
    run.insert("t", [(1, 1, 0), (2, 1, 0), (3, 2, 0)])
    run.epoch()
    assert (run.rows("j"), run.rows("a")) == ([(1, 2), (2, 2), (3, 1)], [(3,)])
    run.log("t", [(1, (2, 2, 0))])
    run.epoch()
    assert (run.rows("j"), run.rows("a")) == ([(1, 1), (2, 2), (3, 2)], [(1,)])
    run.finish()


@pytest.mark.long
def test_changes_that_cancel_within_an_epoch_change_nothing(run):
    run.view("o", "SELECT l.k, x, y FROM l LEFT JOIN r ON l.k = r.k")
    run.view("m", "SELECT k, max(x) AS m, count(DISTINCT x) AS n FROM l GROUP BY k")
    run.insert("l", [(1, 1)])
    run.epoch()
    run.log("l", [(1, (1, 9)), (-1, (1, 9))])
    run.log("r", [(1, (1, 5)), (-1, (1, 5))])
    run.epoch()
    assert (run.rows("o"), run.rows("m")) == ([(1, 1, None)], [(1, 1, 1)])
    run.finish()


@pytest.mark.long
def test_a_column_that_is_selected_twice_is_kept_once(run):
    run.view(
        "w",
        """SELECT x, sum(1) OVER (PARTITION BY k ORDER BY 1 RANGE BETWEEN 2 PRECEDING AND CURRENT ROW)
        AS a, dense_rank() OVER (PARTITION BY x ORDER BY k) AS b FROM l""",
    )
    run.view(
        "j",
        "SELECT p.*, r.k AS rk, r.y FROM (SELECT k, x, k AS i, x AS j FROM l) p JOIN r ON p.i = r.k",
    )
    run.insert("l", [(1, 1), (1, 2), (2, 1)])
    run.insert("r", [(1, 5)])
    run.epoch()
    assert run.rows("j") == [(1, 1, 1, 1, 1, 5), (1, 2, 1, 2, 1, 5)]
    run.finish()


def test_a_relation_that_makes_no_difference_to_a_view_is_named_by_it_all_the_same(run):
    run.db.sql("CREATE STREAM unused (k INT)")
    run.db.sql(
        "CREATE MATERIALIZED VIEW v AS SELECT DISTINCT l.x FROM l LEFT JOIN unused USING (k)"
    )
    run.db.insert("unused", [(1,), (2,)])
    run.db.insert("l", [(1, 10)])
    run.db.flush()
    assert run.db.sql("SELECT * FROM v").fetchall() == [(10,)]
    with pytest.raises(headrace.HeadraceError, match='used by "v"'):
        run.db.sql("DROP STREAM unused")
    run.db.close()
    with headrace.connect(run.directory, spark=run.spark, **run.settings) as again:
        assert again.sql("SELECT * FROM v").fetchall() == [(10,)]


@pytest.mark.long
def test_truncate_empties_every_kind_of_view(run):
    run.view("o", "SELECT l.k, x, y FROM l FULL JOIN r ON l.k = r.k AND l.x < r.y")
    run.view("m", "SELECT k, max(x) AS m, median(x) AS p FROM l GROUP BY k")
    run.view("f", "SELECT k, x FROM l ORDER BY x, k LIMIT 2")
    run.insert("l", [(1, 1), (2, 2), (2, 2)])
    run.insert("r", [(1, 10), (3, 0)])
    run.epoch()
    run.truncate("l")
    run.epoch()
    assert run.rows("o") == [(None, None, 0), (None, None, 10)]
    assert run.rows("m") == run.rows("f") == []
    run.truncate("r")
    run.epoch()
    assert run.rows("o") == []
    run.insert("l", [(1, 1)])
    run.epoch()
    assert run.rows("o") == [(1, 1, None)]
    run.finish()
