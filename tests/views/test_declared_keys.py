"""``CREATE MATERIALIZED VIEW v (PRIMARY KEY (id)) AS ...``: checked in every epoch."""

from __future__ import annotations

import pytest

from asked import refused, rows
from headrace.errors import Code

pytestmark = pytest.mark.spark

JOINED = "SELECT o.id, o.item, p.price FROM orders o LEFT JOIN prices p ON p.item = o.item"


@pytest.mark.long
def test_a_declared_key_is_held_by_every_epoch_and_arranges_the_view(oracle):
    run = oracle(rows_per_change=12)
    run.table("orders", "id INT, item STRING", key="id")
    run.stream("prices", "item STRING, price INT")
    run.insert("orders", [(1, "a"), (2, "b")])
    run.view("v", JOINED, options="(PRIMARY KEY (id) NOT ENFORCED)")
    run.view("w", "SELECT id, price FROM v WHERE price > 3")
    run.insert("prices", [("a", 3), ("b", 4)])
    run.epoch()
    run.update("orders", {"item": "'a'"}, "id = 2")
    run.epoch()
    run.delete("orders", "id = 1")
    run.insert("orders", [(3, "c")])
    run.epoch()
    view, above = (run.db.parts.reader.catalog.resolve(name) for name in "vw")
    assert (view.key, view.declares_key, view.checks_key) == (("id",), True, True)
    assert (above.key, above.declares_key) == (("id",), False)
    run.reopen()
    assert run.db.parts.reader.catalog.resolve("v") == view
    run.db.sql("CREATE TABLE kept (id INT PRIMARY KEY, item STRING, price INT)")
    run.db.sql("CREATE SINK s INTO kept FROM v")


def test_two_rows_of_a_declared_key_stop_or_quarantine_and_refuse_what_is_created(db):
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, id INT, x INT)")
    db.sql("INSERT INTO t VALUES (1, 10, 100), (2, 20, 200)")
    db.sql("CREATE MATERIALIZED VIEW v (PRIMARY KEY (id)) AS SELECT id, x FROM t")
    db.sql("CREATE MATERIALIZED VIEW named (a, b, PRIMARY KEY (A)) AS SELECT id, x FROM t")
    db.sql(
        "CREATE MATERIALIZED VIEW q (PRIMARY KEY (id)) WITH (on_error = 'quarantine')"
        " AS SELECT id, x FROM t"
    )
    db.sql("CREATE TABLE summed (PRIMARY KEY (id)) AS SELECT id, sum(x) AS x FROM t GROUP BY id")
    # A key moves from one row to another within an epoch.
    db.sql("UPDATE t SET id = 30 - id")
    assert rows(db, "SELECT * FROM v") == [(10, 200), (20, 100)]
    assert db.sql("SELECT x FROM v WHERE id = 10").fetchall() == [(200,)]
    db.sql("INSERT INTO t VALUES (3, 10, 300)")
    for name, columns in (("v", ("id", "x")), ("named", ("a", "b"))):
        error = refused(db, f"SELECT * FROM {name}")
        assert "its rows break its PRIMARY KEY" in error.primary
        assert "quarantine" not in error.hint, "REPAIR refuses such rows whatever it is set to"
        said = f"{error.primary} {error.detail}"
        assert f'two rows of view "{name}" have the PRIMARY KEY ({columns[0]}) = (10)' in said
        for x in (200, 300):
            assert f'{{"{columns[0]}": 10, "{columns[1]}": {x}}}' in said
    kept = db.sql("SHOW ERRORS FOR q").fetchall()
    assert rows(db, "SELECT * FROM q") in (
        [(10, 200), (20, 100)],
        [(10, 300), (20, 100)],
    )
    assert len(kept) == 1
    assert '"x": 300' in str(kept)
    assert '"x": 200' in str(kept)
    error = refused(db, "CREATE MATERIALIZED VIEW again (PRIMARY KEY (id)) AS SELECT id, x FROM t")
    assert error.code is Code.INVALID
    assert '{"id": 10, "x": 200}' in error.detail
    assert '{"id": 10, "x": 300}' in error.detail
    error = refused(
        db,
        "CREATE OR REPLACE MATERIALIZED VIEW summed (PRIMARY KEY (id)) AS"
        " SELECT id, CAST(x AS BIGINT) AS x FROM t",
    )
    assert 'two rows of view "summed"' in error.primary
    assert rows(db, "SELECT * FROM summed") == [(10, 500), (20, 100)]
    db.sql("DELETE FROM t WHERE k = 3")
    db.sql("REPAIR v")
    db.sql(
        "CREATE OR REPLACE MATERIALIZED VIEW summed (PRIMARY KEY (id)) AS"
        " SELECT id, CAST(x AS BIGINT) AS x FROM t"
    )
    assert rows(db, "SELECT * FROM v") == [(10, 200), (20, 100)]
    db.sql("INSERT INTO t VALUES (4, NULL, 400)")
    assert "has NULL in its PRIMARY KEY (id)" in str(refused(db, "SELECT * FROM v"))

    shown = {column: text for column, text, _ in db.sql("DESCRIBE EXTENDED v").fetchall()}
    assert shown["# key"].startswith("PRIMARY KEY (id): checked in each epoch")
    explained = "\n".join(line for (line,) in db.sql("EXPLAIN summed").fetchall())
    assert (
        "Key: PRIMARY KEY (id): checked in each epoch, by a lookup for each inserted row."
        in explained
    )
    assert "PRIMARY KEY (id)" in db.sql("SHOW CREATE v").fetchall()[0][1]
    found = db.sql("SELECT primary_key FROM information_schema.tables WHERE table_name = 'named'")
    assert found.fetchall() == [("a",)]

    assert "does not exist in the view" in str(
        refused(db, "CREATE MATERIALIZED VIEW n (PRIMARY KEY (idd)) AS SELECT id FROM t")
    )
    assert "of type DOUBLE" in str(
        refused(db, "CREATE MATERIALIZED VIEW n (PRIMARY KEY (d)) AS SELECT 1e0 * id AS d FROM t")
    )
    assert "plain view" in str(refused(db, "CREATE VIEW n (PRIMARY KEY (id)) AS SELECT id FROM t"))
