"""A view and its candidate exchange what computes them: the swap, the rollback, and what refuses."""

from __future__ import annotations

import json

import pytest

from headrace.errors import Code, HeadraceError
from headrace.interfaces.statements.defining.view_options import without_swap
from headrace.lifecycle.definitions.definer import Definer
from headrace.planning.sql import parse
from histories import History
from length import choose
from spoiling import spoil
from views.test_replacing import ABOVE, BASE

pytestmark = pytest.mark.spark

TABLE = "CREATE TABLE t (k INT PRIMARY KEY, g INT)"
VIEW = "CREATE MATERIALIZED VIEW v AS SELECT g, count(*) AS n FROM t GROUP BY g"
CANDIDATE = """CREATE OR REPLACE MATERIALIZED VIEW v WITH (auto_swap = false) AS
SELECT g, count(*) AS n FROM t WHERE k > 1 GROUP BY g"""


@pytest.mark.long
@pytest.mark.parametrize("small_rows", [20_000, pytest.param(0, marks=pytest.mark.long)])
def test_views_above_follow_swaps_and_rollbacks_and_equal_batch(oracle, small_rows):
    run = oracle(rows_per_change=200, small_rows=small_rows)
    run.table("t", "id INT, g INT, x INT", key="id")
    run.stream("s", "g INT, y INT")
    run.view("base", BASE[0])
    above = choose(["again", "outer_"], list(ABOVE))
    for name in above:
        run.view(name, ABOVE[name])
    history = History(run, 5, domain=7)
    history.write(["t", "s"], 40)
    for query in choose((BASE[2],), (*BASE[1:], BASE[0])):
        run.candidate("base", query)
        for statement in choose(("SWAP",), ("SWAP", "ROLLBACK", "SWAP")):
            history.write(["t", "s"], 12)
            run.swap("base", statement)
            history.write(["t", "s"], 12)
            run.epoch()
    run.finish()
    run.reopen()
    history.write(["t"], 5)
    run.swap("base", "ROLLBACK")
    history.write(["t"], 5)
    run.epoch()
    run.verify("base", *above)


def test_subscribers_get_the_difference_and_keep_their_place(db):
    db.sql(TABLE)
    db.sql(VIEW)
    db.sql("INSERT INTO t VALUES (1, 1), (2, 1), (3, 2)")
    db.flush()
    with db.subscribe("v") as changes:
        assert len(changes.poll()) == 2
        at = changes.epoch
        assert str(db.sql(CANDIDATE)) == (
            "filled a candidate of materialized view v from 3 changes: SWAP VIEW v lets it serve"
        )
        assert changes.poll() == []
        db.sql("INSERT INTO t VALUES (4, 2)")
        db.flush()
        assert str(db.sql("SWAP VIEW v")).startswith("swapped view v: 2 rows changed in epoch ")
        found = [(change.operation, tuple(change.row.values())) for change in changes.poll()]
        assert found == [("-U", (2, 1)), ("+U", (2, 2)), ("-U", (1, 2)), ("+U", (1, 1))]
        db.sql("ROLLBACK VIEW v")
        found = [(change.operation, tuple(change.row.values())) for change in changes.poll()]
        assert found == [("-U", (1, 1)), ("+U", (1, 2))]
    with db.subscribe("v", after=at) as resumed:
        assert sum(change.weight * change.row["n"] for change in resumed.poll()) == 1
    assert "WHERE" not in str(db.sql("SHOW CREATE v").fetchall())
    db.sql("SWAP VIEW v")
    shown = str(db.sql("SHOW CREATE v").fetchall())
    assert "WHERE" in shown
    assert "auto_swap" not in shown


def test_a_swap_counts_its_own_changes_while_others_write(db, monkeypatch):
    db.sql(TABLE)
    db.sql(VIEW)
    db.sql("INSERT INTO t VALUES (1, 1), (2, 1)")
    db.sql(CANDIDATE)
    committed = Definer._require_stored

    def write(self, view):
        db.sql(f"INSERT INTO t VALUES ({100 + db.parts.ledger.head.epoch}, 1)")
        db.flush()
        committed(self, view)

    monkeypatch.setattr(Definer, "_require_stored", write)
    for statement in ("SWAP VIEW v", "ROLLBACK VIEW v"):
        epoch = db.parts.ledger.head.epoch + 1
        assert f"v: 2 rows changed in epoch {epoch}" in str(db.sql(statement))
        assert db.parts.ledger.head.epoch > epoch


def test_a_replacement_names_the_options_that_the_view_has_no_longer(db):
    db.sql(TABLE)
    view = VIEW.replace(" v AS", " v WITH (history = '30 days') AS")
    db.sql(view)
    again = view.replace("CREATE", "CREATE OR REPLACE")
    assert "without" not in str(db.sql(again))
    assert str(db.sql(CANDIDATE)).endswith("; without history = '30 days', which it had")
    assert "without" not in str(db.sql("ALTER MATERIALIZED VIEW v AS SELECT g, 1L AS n FROM t"))
    said = str(db.sql("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT g, 2L AS n FROM t"))
    assert said.endswith("; without history = '30 days', which it had")


def test_what_a_swap_would_change_is_shown_by_kind_and_column(db):
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, g INT, x INT)")
    query = "SELECT g, count(*) AS n, sum(x) AS x FROM t WHERE {} GROUP BY g"
    replace = f"CREATE OR REPLACE MATERIALIZED VIEW v WITH (auto_swap = false) AS {query}"
    db.sql(f"CREATE MATERIALIZED VIEW v AS {query.format('g > 0')}")
    db.sql(replace.format("k <> 2 AND g < 3"))
    assert [row[:3] for row in db.sql("SHOW DIFF v").fetchall()] == [
        ("added", None, 0),
        ("gone", None, 0),
        ("changed", None, 0),
    ]
    db.sql("INSERT INTO t VALUES (1, 1, 5), (2, 1, 0), (3, 3, 1), (4, 0, 1), (5, 2, 2)")
    assert [
        (change, column, rows, json.loads(examples))
        for change, column, rows, examples in db.sql("SHOW DIFF OF VIEW v").fetchall()
    ] == [
        ("added", None, 1, [{"g": 0, "n": 1, "x": 1}]),
        ("gone", None, 1, [{"g": 3, "n": 1, "x": 1}]),
        ("changed", None, 1, []),
        ("changed", "n", 1, [[{"g": 1, "n": 2, "x": 5}, {"g": 1, "n": 1, "x": 5}]]),
    ]
    assert not [*(db.directory / "attempts").iterdir()]
    db.sql("CREATE OR REPLACE MATERIALIZED VIEW bag AS SELECT g FROM t")
    db.sql(
        "CREATE OR REPLACE MATERIALIZED VIEW bag WITH (auto_swap = false) AS SELECT x AS g FROM t"
    )
    assert [row[:3] for row in db.sql("SHOW DIFF bag").fetchall()] == [
        ("added", None, 1),
        ("gone", None, 1),
        ("changed", None, 0),
    ]


def test_a_swap_that_fails_changes_nothing_and_leaves_no_file(db, monkeypatch):
    db.sql(TABLE)
    db.sql(VIEW)
    db.sql("INSERT INTO t VALUES (1, 1), (2, 1)")
    db.sql(CANDIDATE)
    packs = {path.name for path in (db.directory / "runs").iterdir()}

    def fault(stage):
        if stage == "exchange":
            raise HeadraceError(Code.UNAVAILABLE, "the disk is full")

    monkeypatch.setattr(db.parts.loop, "fault", fault)
    with pytest.raises(HeadraceError, match="the disk is full"):
        db.sql("SWAP VIEW v")
    monkeypatch.undo()
    assert {path.name for path in (db.directory / "runs").iterdir()} == packs
    assert db.sql("SELECT * FROM v").fetchall() == [(1, 2)]
    db.sql("SWAP VIEW v")
    assert db.sql("SELECT * FROM v").fetchall() == [(1, 1)]


def test_a_candidate_is_compared_with_its_query(db):
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, g INT)")
    db.sql(VIEW)
    db.insert("t", [(k, k % 500) for k in range(1, 2000)])
    db.sql(CANDIDATE)
    for statement, least, most in (
        *choose([], [("VALIDATE VIEW v", 500, 500)]),
        ("VALIDATE v ALL", 500, 500),
        ("VALIDATE VIEW v SAMPLE 20 PERCENT", 40, 200),
    ):
        ((what, rows, differences, verdict),) = db.sql(statement).fetchall()
        assert (what, differences, verdict) == ("candidate of v", 0, "equal to batch")
        assert least <= rows <= most
    candidate = db.parts.reader.catalog.candidate(db.parts.reader.catalog.resolve("v").id)
    spoil(db, candidate.name, lambda row: {**row, "n": row["n"] + 1})
    for statement in ("VALIDATE VIEW v", *choose([], ["VALIDATE VIEW v SAMPLE 50 PERCENT"])):
        ((_, _, differences, verdict),) = db.sql(statement).fetchall()
        assert differences > 0
        assert verdict.startswith("differs: ")
    with pytest.raises(HeadraceError, match="a percentage above 0"):
        db.sql("VALIDATE VIEW v SAMPLE 0 PERCENT")


def test_dirty_rows_go_with_what_served_and_are_repaired_before_it_serves_again(db):
    db.sql(TABLE)
    db.sql(VIEW)
    db.sql("INSERT INTO t VALUES (1, 1), (2, 1), (3, 2)")
    db.sql(CANDIDATE)
    spoil(db, "v", lambda row: {**row, "n": row["n"] + 1})
    db.sql("INVALIDATE VIEW v WHERE g = 1 BECAUSE 'it is wrong'")
    db.sql("SWAP VIEW v")
    assert sorted(db.sql("SELECT * FROM v").fetchall()) == [(1, 1), (2, 1)]
    assert [row[0] for row in db.sql("SHOW DIRTY").fetchall()] == ["the candidate of v"]
    with pytest.raises(HeadraceError, match="rows of a candidate are not right"):
        db.sql("ROLLBACK VIEW v")
    db.sql("INVALIDATE VIEW v BECAUSE 'all is asked for'")
    db.sql("REPAIR v")
    assert db.sql("SHOW DIRTY").fetchall() == []
    db.sql("ROLLBACK VIEW v")
    assert (1, 2) in db.sql("SELECT * FROM v").fetchall()


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ("WITH (auto_swap = false)", ""),
        ("WITH (on_error = 'stop', auto_swap = false)", "WITH (on_error = 'stop')"),
        ("WITH (auto_swap = false , on_error = 'stop')", "WITH (on_error = 'stop')"),
        ("WITH ( auto_swap=FALSE )", ""),
    ],
)
def test_a_definition_that_was_swapped_does_not_ask_for_a_candidate(options, left):
    text = f"CREATE OR REPLACE MATERIALIZED VIEW v {options} AS SELECT 1 AS one"
    (statement,) = parse(text)
    left = f"{left} " if left else ""
    assert without_swap(statement.span, statement.options) == (
        f"CREATE OR REPLACE MATERIALIZED VIEW v {left}AS SELECT 1 AS one"
    )


def test_a_candidate_is_hidden_and_goes_with_its_view(db):
    db.sql(TABLE)
    db.sql(VIEW)
    before = [relation.id for relation in db.parts.reader.catalog]
    for _ in range(2):  # the second takes the place of the first
        db.sql(CANDIDATE)
        assert len(db.parts.reader.catalog.by_id) == len(before) + 1
    assert [row[0] for row in db.sql("SHOW MATERIALIZED VIEWS").fetchall()] == ["v"]
    assert str(db.sql("DROP CANDIDATE OF VIEW v")) == "dropped the candidate of view v"
    assert [relation.id for relation in db.parts.reader.catalog] == before
    db.sql(CANDIDATE)
    db.sql("SWAP VIEW v")
    db.sql("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT k, g, 1 AS one FROM t")
    assert len(db.parts.reader.catalog.by_id) == len(before)
    db.sql("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT g, count(*) AS n FROM t GROUP BY g")
    db.sql(CANDIDATE)
    db.sql("DROP MATERIALIZED VIEW v")
    assert len(db.parts.reader.catalog.by_id) == len(before) - 1


def test_what_cannot_be_swapped_is_refused(db):
    db.sql(TABLE)
    db.sql(VIEW)
    for statement, code, said in (
        ("SWAP VIEW v", Code.INVALID, 'view "v" has no candidate'),
        ("DROP CANDIDATE OF t", Code.INVALID, 'table "t" has no candidate'),
        ("ROLLBACK", Code.UNSUPPORTED, "ROLLBACK"),
        ("REBUILD VIEW t", Code.INVALID, "not a materialized view"),
        ("REBUILD VIEW v WITH (reuse = false)", Code.INVALID, 'option "reuse" does not exist'),
        (
            "CREATE OR REPLACE MATERIALIZED VIEW v WITH (auto_swap = later) AS SELECT g FROM t",
            Code.INVALID,
            "is not a value of auto_swap",
        ),
    ):
        with pytest.raises(HeadraceError, match=said) as refused:
            db.sql(statement)
        assert refused.value.code is code
    db.sql("CREATE MATERIALIZED VIEW above AS SELECT g, n FROM v")
    with pytest.raises(HeadraceError, match='view "v" would depend on itself'):
        db.sql("ALTER MATERIALIZED VIEW v WITH (auto_swap = false) AS SELECT g, n FROM above")
    db.sql(CANDIDATE)
    with pytest.raises(HeadraceError, match="has not served yet"):
        db.sql("ROLLBACK VIEW v")
    db.sql("SWAP VIEW v")
    with pytest.raises(HeadraceError, match="has served already"):
        db.sql("SWAP VIEW v")


def test_a_query_is_altered_and_all_else_stays(db):
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, g INT)")
    db.sql("INSERT INTO t VALUES (1, 1), (2, 1), (3, 0)")
    db.sql("""CREATE MATERIALIZED VIEW v (grp, n) WITH (description = 'groups') AS
        SELECT g, count(*) FROM t GROUP BY g""")
    db.sql("ALTER MATERIALIZED VIEW v SET (on_error = 'quarantine')")
    db.sql("CREATE MATERIALIZED VIEW above AS SELECT sum(n) AS n FROM v")
    explained = db.sql(
        "EXPLAIN CHANGE ALTER MATERIALIZED VIEW v AS SELECT g, 7L FROM t GROUP BY g"
    ).fetchall()
    assert [row[0] for row in explained] == ["v", "above"]
    altered = (
        "ALTER MATERIALIZED VIEW v AS SELECT g, 10 * count(*) FROM t WHERE 1 / g > 0 GROUP BY g"
    )
    assert str(db.sql(altered)) == "replaced materialized view v from 3 changes"
    assert db.sql("SELECT grp, n FROM v").fetchall() == [(1, 20)]
    assert db.sql("SELECT n FROM above").fetchall() == [(20,)]
    view = db.parts.reader.catalog.resolve("v")
    assert view.quarantines
    assert "10 * count" in view.created_sql
    assert "description = 'groups'" in view.created_sql
    db.sql("ALTER MATERIALIZED VIEW v WITH (auto_swap = false) AS SELECT g, 5L FROM t GROUP BY g")
    db.sql("SWAP VIEW v")
    assert sorted(db.sql("SELECT grp, n FROM v").fetchall()) == [(0, 5), (1, 5)]
    for statement, said in (
        ("ALTER MATERIALIZED VIEW t AS SELECT 1 AS one", "not a materialized view"),
        ("ALTER MATERIALIZED VIEW none AS SELECT 1 AS one", "does not exist"),
        ("ALTER MATERIALIZED VIEW v AS SELECT g, array(1) FROM t", "cannot follow it"),
        ("ALTER MATERIALIZED VIEW v WITH (ttl = '1 day') AS SELECT g, 5L FROM t", "of ALTER"),
        ("ALTER MATERIALIZED VIEW v WITH (reuze = false) AS SELECT g, 5L FROM t", "not exist"),
    ):
        with pytest.raises(HeadraceError, match=said):
            db.sql(statement)


def test_a_candidate_that_has_stopped_is_named_after_its_view(db):
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, x INT)")
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT k, x FROM t")
    db.sql("ALTER MATERIALIZED VIEW v WITH (auto_swap = false) AS SELECT k, 10 DIV x AS x FROM t")
    db.sql("INSERT INTO t VALUES (1, 5), (2, 0)")
    db.flush()
    assert sorted(db.sql("SELECT * FROM v").fetchall()) == [(1, 5), (2, 0)]
    for statement in ("SHOW DIFF v", "SWAP VIEW v"):
        with pytest.raises(HeadraceError, match="the candidate of v has stopped") as refused:
            db.sql(statement).fetchall()
        assert refused.value.code is Code.UNAVAILABLE
        assert refused.value.hint.endswith("DROP CANDIDATE OF v.")
    db.sql("DROP CANDIDATE OF v")


def test_what_is_refreshed_apart_and_read_is_refused_other_columns_beforehand(db):
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, x INT)")
    db.sql("CREATE MATERIALIZED VIEW v WITH (refresh = 'manual') AS SELECT k, x FROM t")
    db.sql("CREATE MATERIALIZED VIEW above WITH (refresh = 'manual') AS SELECT k FROM v")
    change = "ALTER MATERIALIZED VIEW v AS SELECT k, x, k + x AS y FROM t"
    (row,) = db.sql(f"EXPLAIN CHANGE {change}").fetchall()
    assert row[:2] == ("v", "refused")
    assert row[2].startswith("it is refreshed apart, and others read it")
    with pytest.raises(HeadraceError, match='"v" would have to be filled beside itself'):
        db.sql(change)
