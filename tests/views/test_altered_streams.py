"""Views over streams and tables that are altered: each epoch equals batch, nothing is rebuilt."""

from __future__ import annotations

import pytest

from headrace.errors import Code, HeadraceError
from histories import History
from length import choose

pytestmark = pytest.mark.spark

COLUMNS = "a INT, k STRING, v INT, x STRING"
VIEWS = {
    "totals": "SELECT k, sum(v) AS t, count(*) AS n FROM s GROUP BY k",
    "pairs": "SELECT l.k, l.v, r.g AS w FROM s l JOIN t r ON l.v = r.id WHERE l.v > 0",
    "texts": "SELECT x, max(k) AS k FROM s GROUP BY x",
    "inside": "SELECT k FROM s WHERE EXISTS (SELECT 1 FROM t WHERE t.id = s.v AND v > 1)",
    "ranked": "SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v, x) AS n FROM s",
    "above": "SELECT t, count(*) AS n FROM totals GROUP BY t",
    "twice": "SELECT DISTINCT v FROM s WHERE v IN (SELECT v FROM s GROUP BY v HAVING count(*) > 1)",
    "every": "SELECT * FROM s WHERE v > 2",
}
FEW = ["totals", "pairs", "every"]


def without(places):
    return lambda row: tuple(v for i, v in enumerate(row) if i not in places)


def spelled(query, old, new):
    """Return a query of these tests over a column with another name."""
    plain = query.replace("SELECT *", "SELECT a, k, v, x").replace(f"{old},", f"{old} ,")
    words = []
    for word in plain.split(" "):
        bare = word.strip("(),").removeprefix("l.").removeprefix("s.")
        words.append(word if bare != old else word.replace(old, new))
    return " ".join(words)


@pytest.mark.parametrize("small_rows", [20_000, pytest.param(0, marks=pytest.mark.long)])
def test_views_go_on_as_columns_of_their_stream_are_dropped_renamed_and_widened(oracle, small_rows):
    run = oracle(rows_per_change=400, small_rows=small_rows)
    run.stream("s", COLUMNS)
    run.table("t", "id INT, g INT", key="id")
    names = [n for n in choose(["totals", "pairs", "above"], list(VIEWS)) if n != "every"]
    for name in names:
        run.view(name, VIEWS[name])
    history = History(run, 11, domain=6)
    history.write(["s", "t"], 30)
    run.alter("ALTER STREAM s DROP COLUMN a", "s", "k STRING, v INT, x STRING", without({0}))
    history.write(["s", "t"], 20)
    renamed = {
        "totals": "SELECT k, sum(value) AS t, count(*) AS n FROM s GROUP BY k",
        "pairs": "SELECT l.k, l.value AS v, r.g AS w FROM s l JOIN t r ON l.value = r.id"
        " WHERE l.value > 0",
        "inside": "SELECT k FROM s WHERE EXISTS (SELECT 1 FROM t WHERE t.id = s.value"
        " AND value > 1)",
        "ranked": "SELECT k, value AS v, row_number() OVER (PARTITION BY k ORDER BY value, x) AS n"
        " FROM s",
        "twice": "SELECT DISTINCT value AS v FROM s WHERE value IN (SELECT value FROM s"
        " GROUP BY value HAVING count(*) > 1)",
    }
    run.alter(
        "ALTER STREAM s RENAME COLUMN v TO value",
        "s",
        "k STRING, value INT, x STRING",
        views={n: q for n, q in renamed.items() if n in names},
    )
    history.write(["s", "t"], 20)
    run.epoch()
    run.verify(*names)
    run.alter(
        "ALTER STREAM s ADD COLUMN (v DOUBLE, z INT)",
        "s",
        "k STRING, value INT, x STRING, v DOUBLE, z INT",
        lambda row: (*row, None, None),
    )
    run.alter(
        "ALTER STREAM s ALTER COLUMN z TYPE BIGINT",
        "s",
        "k STRING, value INT, x STRING, v DOUBLE, z BIGINT",
    )
    history.write(["s", "t"], 20)
    run.finish()
    run.reopen()
    history.write(["s", "t"], 10)
    run.epoch()
    run.verify(*names)


@pytest.mark.long
def test_views_go_on_as_their_inputs_and_they_themselves_are_renamed(oracle):
    run = oracle(rows_per_change=400)
    run.stream("s", COLUMNS)
    run.table("t", "id INT, g INT", key="id")
    names = choose(["totals", "pairs", "above"], ["totals", "pairs", "inside", "above", "every"])
    for name in names:
        run.view(name, VIEWS[name])
    history = History(run, 12, domain=6)
    history.write(["s", "t"], 30)
    over = {n: VIEWS[n].replace("FROM s", "FROM events") for n in names if n != "above"}
    over = {n: q.replace("s.v", "events.v") for n, q in over.items()}
    run.alter("ALTER STREAM s RENAME TO events", "s", COLUMNS, views=over, to="events")
    history.write(["events", "t"], 20)
    over = {n: q.replace("JOIN t ", "JOIN groups ").replace("FROM t ", "FROM groups ")
            for n, q in over.items()}  # fmt: skip
    over = {n: q.replace("t.id", "groups.id") for n, q in over.items()}
    run.alter("ALTER TABLE t RENAME TO groups", "t", "id INT, g INT", views=over, to="groups")
    history.write(["events", "groups"], 20)
    run.epoch()
    run.verify(*names)
    run.reopen()
    history.write(["events", "groups"], 20)
    run.epoch()
    run.db.sql("UPDATE groups SET g = g + 1 WHERE id < 3")
    run.verify(*names)


def test_a_column_that_something_uses_is_not_dropped(db):
    db.sql(
        "CREATE STREAM s (a INT, b INT, c INT AS (b + 1), e TIMESTAMP, f STRING, g INT,"
        " WATERMARK FOR e AS e - INTERVAL 1 MINUTE) DEDUPLICATE ON f"
    )
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM s WHERE a > 1")
    db.sql("CREATE VIEW p AS SELECT a + g AS h FROM s")
    for column, users in [
        ("a", 'view "v", plain view "p"'),
        ("b", 'its computed column "c"'),
        ("e", "its watermark"),
        ("f", "its DEDUPLICATE clause"),
        ("g", 'plain view "p"'),
    ]:
        with pytest.raises(HeadraceError) as caught:
            db.sql(f"ALTER STREAM s DROP COLUMN {column}")
        assert caught.value.code is Code.CONFLICT
        assert caught.value.primary == f'column "{column}" of stream "s" is used by {users}'
    assert str(db.sql("ALTER STREAM s DROP COLUMN c")) == 'dropped "c" of stream s'
    db.sql("INSERT INTO s (a, b, e, f, g) VALUES (2, 2, TIMESTAMP '2026-01-01 00:00:00', 'x', 1)")
    assert db.sql("SELECT n FROM v").fetchall() == [(1,)]


def test_a_column_that_a_sink_writes_is_neither_dropped_nor_renamed(db):
    db.sql("CREATE STREAM s (n BIGINT)")
    db.sql("CREATE STREAM other (n INT)")
    db.sql("CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM other")
    db.sql("CREATE SINK w INTO s FROM m")
    db.sql("ALTER STREAM s ADD COLUMN x INT")
    for change in ("DROP COLUMN n", "RENAME COLUMN n TO y"):
        with pytest.raises(HeadraceError, match='sink "w"'):
            db.sql(f"ALTER STREAM s {change}")
    db.sql("ALTER STREAM s DROP COLUMN x")
