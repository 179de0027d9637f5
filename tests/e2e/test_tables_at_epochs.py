"""``FROM orders VERSION AS OF 17``: one query reads a table at several epochs."""

from __future__ import annotations

from datetime import timedelta
from itertools import product

import pytest

from asked import refused, rows
from headrace.errors import Code
from length import each

pytestmark = pytest.mark.spark


@pytest.mark.long
def test_a_query_reads_the_changes_between_epochs(db):
    db.sql("CREATE TABLE orders (id INT PRIMARY KEY, x INT)")
    db.sql("CREATE MATERIALIZED VIEW total AS SELECT sum(x) AS x FROM orders")
    db.sql("INSERT INTO orders VALUES (1, 10), (2, 20)")
    old = db.sql("FLUSH").epoch
    db.sql("UPDATE orders SET x = 11 WHERE id = 1; INSERT INTO orders VALUES (3, 30)")
    new = db.sql("FLUSH").epoch
    db.sql("DELETE FROM orders WHERE id = 2")
    last = db.sql("FLUSH").epoch
    files = {path.name for path in (db.directory / "runs").iterdir()}

    changes = f"orders FOR CHANGES BETWEEN EPOCH {old} AND {last}"
    found = db.sql(f"SELECT * FROM {changes}").to_arrow()
    assert found.column_names == ["id", "x", "headrace_op", "headrace_weight", "headrace_epoch"]
    found = rows(db, f"SELECT headrace_op, id, x, headrace_weight FROM {changes}")
    assert found == [("+I", 3, 30, 1), ("+U", 1, 11, 1), ("-D", 2, 20, -1), ("-U", 1, 10, -1)]
    assert rows(
        db,
        f"SELECT headrace_epoch, count(*), sum(x * headrace_weight) FROM {changes} c GROUP BY ALL",
    ) == sorted([(new, 3, 31), (last, 1, -20)])
    # By a job, for which the rows are repeated from runs in Spark's workers.
    job = "sum(headrace_weight) OVER (PARTITION BY id ORDER BY headrace_epoch, headrace_op DESC)"
    assert rows(db, f"SELECT id, {job} FROM {changes} WHERE id < 3") == [(1, -1), (1, 0), (2, -1)]
    assert rows(
        db,
        f"SELECT t.x, t.headrace_op FROM total FOR CHANGES FROM EPOCH {new} t"
        " JOIN orders o ON o.id = 1 WHERE t.x > 0",
    ) == [(41, "+I"), (61, "-D")]
    assert rows(
        db,
        f"SELECT id, x FROM (SELECT id, x, 1 AS n FROM orders VERSION AS OF {old}"
        f" UNION ALL SELECT id, x, headrace_weight FROM orders FOR CHANGES FROM EPOCH {old})"
        " GROUP BY id, x HAVING sum(n) <> 0",
    ) == rows(db, "SELECT * FROM orders")
    assert rows(db, f"SELECT * FROM orders FOR CHANGES FROM EPOCH {last}") == []
    assert rows(db, f"SELECT id FROM orders FOR CHANGES FROM EPOCH {new} AS OF EPOCH {new}") == []
    assert {path.name for path in (db.directory / "runs").iterdir()} == files

    first, at = db.sql(
        "SELECT readable_from, readable_from_time FROM information_schema.tables"
        " WHERE table_name = 'total'"
    ).fetchall()[0]
    assert (first, at) == db.sql(
        f"SELECT epoch, committed_at FROM information_schema.epochs WHERE epoch = {first}"
    ).fetchall()[0]
    whole = db.sql(f"SELECT x FROM total FOR CHANGES FROM EPOCH {first} WHERE x IS NOT NULL")
    assert len(whole.fetchall()) == 5
    early = refused(db, f"SELECT * FROM total FOR CHANGES FROM EPOCH {first - 1}")
    assert f"The first epoch at which it can be read is {first}" in early.detail
    for sql, said in {
        f"SELECT * FROM orders FOR CHANGES BETWEEN EPOCH {new} AND {old}": "before it begins",
        "SELECT * FROM orders FOR CHANGES BETWEEN EPOCH 1 AND 999": "does not exist yet",
        f"SELECT y FROM orders FOR CHANGES FROM EPOCH {old}": "y",
        f"CREATE MATERIALIZED VIEW n AS SELECT * FROM {changes}": "FOR CHANGES is not supported",
        f"CREATE VIEW n AS SELECT * FROM {changes}": "FOR CHANGES is not supported",
        f"SELECT * FROM {changes} EMIT CHANGES": "FOR CHANGES is not supported",
    }.items():
        assert said in refused(db, sql).primary, sql


@pytest.mark.long
def test_one_query_reads_tables_and_views_at_epochs_of_their_own(db):
    def epoch():
        return db.sql("FLUSH").epoch

    db.sql("CREATE TABLE orders (id INT PRIMARY KEY, x INT)")
    db.sql("CREATE STREAM events (id INT)")
    db.sql("CREATE VIEW plain AS SELECT * FROM orders")
    db.sql("CREATE MATERIALIZED VIEW total AS SELECT sum(x) AS x FROM orders")
    db.sql("INSERT INTO orders VALUES (1, 10), (2, 20)")
    old = epoch()
    db.sql("UPDATE orders SET x = 11 WHERE id = 1")
    db.sql("INSERT INTO orders VALUES (3, 30)")
    new = epoch()
    db.sql("DELETE FROM orders")
    last = epoch()
    committed = dict(db.sql("SELECT epoch, committed_at FROM information_schema.epochs").fetchall())
    between = committed[old] + timedelta(milliseconds=1)

    clauses = (
        f"VERSION AS OF {old}",
        f"VERSION AS OF '{old}'",
        f"FOR VERSION AS OF {old}",
        f"FOR SYSTEM_VERSION AS OF {old}",
        f"AS OF EPOCH {old}",
        f"TIMESTAMP AS OF '{between}'",
        f"FOR SYSTEM_TIME AS OF TIMESTAMP '{between}'",
        f"AS OF TIMESTAMP '{between}'",
    )
    for clause, alias in each(4, list(product(clauses, ("", " o", " AS o")))):
        name = "o" if alias else "orders"
        found = rows(db, f"SELECT {name}.* FROM orders {clause}{alias} WHERE {name}.x > 0")
        assert found == [(1, 10), (2, 20)], clause + alias

    assert rows(
        db,
        f"SELECT a.id, b.x - a.x AS more FROM orders VERSION AS OF {old} a"
        f" JOIN orders VERSION AS OF {new} AS b ON a.id = b.id",
    ) == [(1, 1), (2, 0)]
    assert rows(
        db, f"SELECT * FROM orders AS OF EPOCH {new} EXCEPT SELECT * FROM orders AS OF EPOCH {old}"
    ) == [(1, 11), (3, 30)]
    assert rows(
        db,
        f"WITH was AS (SELECT * FROM orders VERSION AS OF {new})"
        " SELECT count(*), (SELECT count(*) FROM orders) FROM was",
    ) == [(3, 0)]
    assert rows(
        db, f"SELECT t.x, o.id FROM total VERSION AS OF {old} t, orders AS OF EPOCH {new} o"
    ) == [
        (30, 1),
        (30, 2),
        (30, 3),
    ]
    result = db.sql(f"SELECT * FROM orders VERSION AS OF {new}")
    assert result.epoch == last

    assert (
        "epoch 999 does not exist yet"
        in refused(db, "SELECT * FROM orders VERSION AS OF 999 o").primary
    )
    assert refused(db, f"SELECT y FROM orders VERSION AS OF {old}").code is Code.INVALID
    for sql, said in {
        f"SELECT * FROM plain VERSION AS OF {old}": "Use AS OF at the tables",
        f"SELECT * FROM events VERSION AS OF {old}": "Tables and views can be read",
        f"SELECT id FROM events AS OF EPOCH {last}": "Tables and views can be read",
        f"SELECT * FROM ordes VERSION AS OF {old}": 'Did you mean "orders"',
        f"SELECT * FROM orders o VERSION AS OF {old}": "Write it after the time",
        f"WITH o AS (SELECT 1) SELECT * FROM o VERSION AS OF {old}": "Use AS OF inside it",
        "SELECT * FROM orders TIMESTAMP AS OF now()": "in UTC, or name an epoch",
        "SELECT * FROM orders VERSION AS OF latest": "SHOW EPOCHS lists",
        f"CREATE MATERIALIZED VIEW n AS SELECT * FROM orders VERSION AS OF {old}": "Use it in a SELECT",
        f"CREATE VIEW n AS SELECT * FROM orders AS OF EPOCH {old} WHERE x > 1": "Use it in a SELECT",
        f"SUBSCRIBE TO (SELECT * FROM orders VERSION AS OF {old})": "Use it in a SELECT",
        f"INSERT INTO orders SELECT * FROM orders VERSION AS OF {old}": "Use it in a SELECT",
        "CREATE MATERIALIZED VIEW n AS SELECT o.id FROM events e JOIN orders"
        " FOR SYSTEM_TIME AS OF e.at AS o ON o.id = e.id": "effective_from",
    }.items():
        assert said in (refused(db, sql).hint or ""), sql
