"""Every statement that writes, and the views over the written rows."""

from __future__ import annotations

import pytest

from harness import Oracle
from headrace import HeadraceError
from histories import History

pytestmark = pytest.mark.spark


def watched(run):
    """Create a keyed table and a bag, with views that remember in different ways."""
    run.table("t", "k INT, g STRING, x INT", key="k")
    run.table("b", "g STRING, x INT")
    run.view("rows", "SELECT k, x + 1 AS y FROM t")
    run.view("groups", "SELECT g, count(*) AS n, sum(x) AS s FROM t GROUP BY g")
    run.view("joined", "SELECT t.k, b.x FROM t JOIN b ON t.g = b.g")
    run.view("bag", "SELECT g, x FROM b")
    run.view("total", "SELECT count(*) AS n, sum(x) AS s FROM b")


@pytest.fixture(scope="module")
def warehouse(spark, tmp_path_factory):
    """One database for all tests of this module; it has to be right after all of them, too."""
    run = Oracle(spark, tmp_path_factory.mktemp("warehouse") / "db")
    watched(run)
    yield run
    run.finish()
    run.close()


@pytest.fixture
def run(warehouse):
    """Give a test the database with both tables emptied."""
    warehouse.truncate("t")
    warehouse.truncate("b")
    warehouse.epoch()
    assert all(warehouse.rows(name) == [] for name in ("rows", "groups", "joined", "bag"))
    return warehouse


def test_duplicate_rows_of_a_table_without_a_key(run):
    run.insert("b", [("a", 1)] * 3)
    run.epoch()
    run.log("b", [(-1, ("a", 1))])
    run.epoch()
    assert run.rows("bag") == [("a", 1), ("a", 1)]
    assert run.rows("total") == [(2, 2)]
    assert run.delete("b", "x = 1") == 2
    run.epoch()
    assert run.rows("total") == [(0, None)]


@pytest.mark.long
def test_changes_that_cancel_within_an_epoch_change_nothing(run):
    run.insert("t", [(1, "a", 1)])
    run.insert("b", [("a", 7)])
    run.epoch()
    run.log("b", [(1, ("a", 8)), (-1, ("a", 8)), (-1, ("a", 7)), (1, ("a", 7))])
    run.log("t", [(1, (2, "a", 5)), (-1, (2, None, None)), (1, (1, "a", 1))])
    with run.db.subscribe("joined") as joined:
        joined.poll()
        run.epoch()
        assert joined.poll() == []
    run.update("t", {"x": "x"}, "true")
    run.epoch()


@pytest.mark.long
def test_upserts_of_one_key_in_one_epoch_keep_the_last(run):
    run.insert("b", [("a", 1), ("c", 2), ("c", 2)])
    run.insert("t", [(1, "a", 1), (1, "b", 2), (2, "a", 3)])
    run.insert("t", [(1, "c", 9)])
    run.epoch()
    assert run.rows("rows") == [(1, 10), (2, 4)]
    assert run.rows("joined") == [(1, 2), (1, 2), (2, 1)]
    run.log("t", [(-1, (1, None, None)), (1, (1, "z", 0)), (-1, (1, None, None)), (1, (2, "c", 3))])
    run.epoch()
    assert run.rows("rows") == [(2, 4)]


@pytest.mark.long
def test_deleting_a_key_that_is_absent_changes_nothing(run):
    run.log("t", [(-1, (5, None, None))])
    run.epoch()
    assert run.delete("t", "k = 99") == 0
    assert run.update("t", {"x": "1"}, "k = 99") == 0
    run.log("t", [(-1, (5, None, None)), (1, (6, "a", 1)), (-1, (7, "q", 1))])
    run.epoch()
    assert run.rows("rows") == [(6, 2)]


@pytest.mark.long
def test_an_update_can_move_a_primary_key(run):
    run.insert("b", [("a", 1)])
    run.insert("t", [(k, "a", k) for k in range(5)])
    assert run.update("t", {"k": "k + 1"}) == 5
    run.epoch()
    assert [k for k, _ in run.rows("rows")] == [1, 2, 3, 4, 5]
    assert run.update("t", {"k": "k * 10", "g": "'b'"}, "k > 3") == 2
    run.epoch()
    with pytest.raises(HeadraceError, match="same primary key"):
        run.db.sql("UPDATE t SET k = 1")


@pytest.mark.long
def test_truncate_empties_a_table(run):
    run.insert("t", [(1, "a", 1), (2, None, None)])
    run.insert("b", [("a", 1), ("a", 1), (None, 3)])
    run.epoch()
    assert run.truncate("b") == 3
    assert run.truncate("t") == 2
    run.epoch()
    assert run.truncate("t") == 0
    run.insert("t", [(1, "a", 1)])
    run.epoch()
    assert run.rows("groups") == [("a", 1, 1)]


@pytest.mark.long
def test_updates_by_expression_over_old_values(run):
    run.insert("t", [(k, "ab"[k % 2], k) for k in range(6)] + [(9, None, None)])
    run.insert("b", [("a", 1), ("a", 1), ("b", 2)])
    assert run.update("t", {"x": "x * 2", "g": "concat(g, x)"}, "x < 4") == 4
    assert run.update("b", {"x": "x + 1"}, "g = 'a'") == 2
    run.epoch()
    assert run.update("t", {"g": "NULL"}, "g IS NULL OR x > 3") == 5


@pytest.mark.long
@pytest.mark.parametrize("epoch_rows", [1, pytest.param(7, marks=pytest.mark.long)])
def test_a_backlog_read_in_small_epochs_gives_the_same(oracle, epoch_rows):
    run = oracle(epoch_rows=epoch_rows)
    watched(run)
    history, statements = History(run, 12, domain=5), 4
    for _ in range(statements):
        run.log("t", history.changes(run.models["t"], 4))
        run.log("b", history.changes(run.models["b"], 2))
    made = run.epoch()
    assert made == (2 * statements if epoch_rows == 1 else statements)
    run.update("t", {"g": "upper(g)"})
    run.delete("b", "x > 1")
    run.finish()


def test_no_epoch_reads_half_of_a_statement(oracle):
    run = oracle(epoch_rows=3)
    watched(run)
    run.insert("b", [("a", x) for x in range(20)])
    assert run.epoch() == 1
    run.update("b", {"g": "'z'"})  # 20 rows go and 20 come
    assert run.epoch() == 1
    run.log("t", [(1, (1, "z", 1)), (1, (2, "z", 2))])
    run.log("t", [(1, (1, "z", 3)), (1, (3, "z", 4))])
    assert run.epoch() == 2
    run.finish()
