"""Sinks into PostgreSQL by SQL: made over a connection, altered, paused, reset and reconciled."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from asked import refused, rows
from headrace import Code

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.interfaces.database import Database
    from servers.postgres import Postgres

pytestmark = pytest.mark.spark


@pytest.fixture
def target(postgres_server: Postgres) -> Any:
    with postgres_server.connect(postgres_server.create("by_sinks")) as session:
        yield session
    with postgres_server.connect() as session:
        session.execute("DROP DATABASE by_sinks WITH (FORCE)")


def shown(db: Database) -> dict[str, Any]:
    asked = "SELECT * FROM information_schema.sinks"
    return {row["name"]: row for row in db.sql(asked).to_arrow().to_pylist()}


@pytest.mark.long
def test_a_sink_is_made_changed_and_mended_by_statements(
    db: Database, postgres_server: Postgres, target: Any
) -> None:
    def there() -> list[Any]:
        db.sql("FLUSH")
        return list(target.execute("SELECT * FROM spent ORDER BY 1").fetchall())

    db.sql(f"""
        CREATE TABLE orders (id INT, user STRING, amount DECIMAL(8,2), PRIMARY KEY (id));
        INSERT INTO orders VALUES (1, 'ann', 10.00), (2, 'bob', 20.00);
        CREATE MATERIALIZED VIEW spent AS
          SELECT user, count(*) AS orders, sum(amount) AS total FROM orders GROUP BY user;
        CREATE CONNECTION pg TO POSTGRES (
          HOST '127.0.0.1', PORT {postgres_server.port}, DATABASE 'by_sinks', USER 'postgres')
    """)
    over = "CREATE SINK s FROM spent INTO CONNECTION pg"
    error = refused(db, f"{over} (TABLE 'spent')")
    assert (error.code, '"total" numeric(18, 2)' in (error.hint or "")) == (Code.INVALID, True)
    assert (
        "no unique key"
        in refused(
            db, "CREATE SINK s INTO CONNECTION pg (TABLE 'x') AS SELECT amount FROM orders"
        ).primary
    )
    error = refused(db, f"{over} (TABLE 'spent') WITH (key = 'orders')")
    assert "not known to be unique by (orders)" in error.primary
    assert refused(db, f"{over} (TABEL 'spent')").code is Code.INVALID
    assert (
        "kind postgres, not kafka"
        in refused(db, "CREATE SINK s FROM spent INTO KAFKA CONNECTION pg").primary
    )
    message = db.sql(f"{over} (TABLE 'spent', CREATE_TABLE true)").message
    assert message == "created sink s: exactly once: one transaction per epoch, which records it"
    assert refused(db, "DROP CONNECTION pg").code is Code.CONFLICT
    assert there() == [("ann", 1, Decimal("10.00")), ("bob", 1, Decimal("20.00"))]

    # A query that is replaced is the exact difference in the target.
    db.sql("INSERT INTO orders VALUES (3, 'ann', 5.50); DELETE FROM orders WHERE id = 2")
    assert there() == [("ann", 2, Decimal("15.50"))]
    db.sql("""
        CREATE OR REPLACE MATERIALIZED VIEW spent AS
          SELECT user, count(*) AS orders, sum(amount) AS total FROM orders WHERE id <> 1 GROUP BY user
    """)
    assert there() == [("ann", 1, Decimal("5.50"))]

    db.sql("PAUSE SINK s; INSERT INTO orders VALUES (4, 'cid', 7.00)")
    assert there() == [("ann", 1, Decimal("5.50"))]
    row = shown(db)["s"]
    assert (row["state"], row["target"], row["rows_behind"]) == ("paused", "postgres", 1)
    assert row["seconds_behind"] > 0
    assert refused(db, "RECONCILE SINK s").code is Code.INVALID
    db.sql("RESUME SINK s")
    assert there() == [("ann", 1, Decimal("5.50")), ("cid", 1, Decimal("7.00"))]
    assert db.sql("RESUME SINK s").message == "sink s is running"

    target.execute("UPDATE spent SET total = 0 WHERE \"user\" = 'ann'")
    target.execute("INSERT INTO spent VALUES ('eve', 1, 1)")
    checked = rows(db, "RECONCILE SINK s CHECK")
    assert [c[2:] for c in checked] == [(2, 0, 1, 1, 0, "different")]
    assert [c[2:] for c in rows(db, "RECONCILE SINK s")] == [(2, 0, 1, 1, 0, "repaired")]
    assert [c[2:] for c in rows(db, "RECONCILE SINK s")] == [(2, 0, 0, 0, 0, "equal")]
    assert there() == [("ann", 1, Decimal("5.50")), ("cid", 1, Decimal("7.00"))]


@pytest.mark.long
def test_a_row_that_is_refused_is_counted_or_stops_the_sink(
    db: Database, postgres_server: Postgres, target: Any
) -> None:
    def there() -> list[Any]:
        db.sql("FLUSH")
        return list(target.execute("SELECT * FROM spent ORDER BY 1").fetchall())

    db.sql(f"""
        CREATE TABLE spent (user STRING, total DECIMAL(8,2), PRIMARY KEY (user));
        INSERT INTO spent VALUES ('ann', 10.00), ('cid', 20.00);
        CREATE SINK s FROM spent WITH (connector = 'postgres', host = '127.0.0.1',
          port = {postgres_server.port}, database = 'by_sinks', user = 'postgres', table = 'spent',
          create_table = true)
    """)
    target.execute("ALTER TABLE spent ADD CHECK (total < 100)")
    db.sql("INSERT INTO spent VALUES ('dan', 100.00), ('fay', 1.00)")
    assert [user for user, *_ in there()] == ["ann", "cid", "fay"]
    assert (shown(db)["s"]["refused"], shown(db)["s"]["state"]) == (1, "running")
    ((source, line, _, error, _),) = rows(db, "SHOW ERRORS FOR s")
    assert (source, "dan" in line, "check constraint" in error) == ("spent", True, True)
    assert rows(db, "SHOW REJECTS") == []
    for _ in range(2):  # refused again, the row is still one
        assert rows(db, "RECONCILE SINK s")[0][2:] == (4, 1, 0, 0, 1, "different")
        assert (shown(db)["s"]["refused"], len(rows(db, "SHOW ERRORS FOR s"))) == (1, 1)
    db.sql("UPDATE spent SET total = 300.00 WHERE user = 'ann'; FLUSH")
    said = [each[1].replace(" ", "") for each in rows(db, "SHOW ERRORS FOR s")]
    assert ['"op":"+U"' in each for each in said] == [False, True]
    db.sql("UPDATE spent SET total = 10.00 WHERE user = 'ann'; FLUSH")
    db.sql("ALTER SINK s SET (on_error = 'stop', batch_rows = 100)")
    db.sql("INSERT INTO spent VALUES ('gus', 200.00)")
    ((_, made),) = rows(db, "SHOW CREATE s")
    assert made.endswith(");\nALTER SINK s SET (on_error = 'stop', batch_rows = 100)")
    again = made.partition(";")[0].replace("CREATE SINK", "CREATE OR REPLACE SINK")
    assert db.sql(again).message == "sink s is unchanged, and continues as it was altered"
    assert [user for user, *_ in there()] == ["ann", "cid", "fay"]
    stopped = db.sql("ALTER SINK s SET (batch_rows = 200)").message
    assert stopped == "altered sink s, which is stopped: RESUME SINK it"
    error = refused(db, "ALTER SINK s SET (onerror = 'stop')")
    assert (error.hint, error.span.source) == ('Did you mean "on_error"?', "onerror = 'stop'")
    assert refused(db, "ALTER SINK s SET (xyzzy = 1)").hint.startswith("There are: on_error, batch")
    for given in ("table = 'spent'", "mode = 'append'", "connector = 'file'"):
        error = refused(db, f"ALTER SINK s SET ({given})")
        assert ("cannot change" in error.primary, "another place" in error.hint) == (True, True)
    postgres_server.create("elsewhere")
    error = refused(db, "ALTER SINK s SET (database = 'elsewhere')")
    assert (error.code, "does not exist" in error.primary) == (Code.INVALID, True)
    assert (shown(db)["s"]["state"], "gus" in shown(db)["s"]["error"]) == ("stopped", True)
    target.execute("ALTER TABLE spent DROP CONSTRAINT spent_total_check")
    db.sql("RESUME SINK s")
    assert [user for user, *_ in there()] == ["ann", "cid", "fay", "gus"]
    assert rows(db, "RECONCILE SINK s")[0][2:] == (5, 1, 0, 0, 0, "repaired")
    assert rows(db, "SHOW ERRORS FOR s") == []
    target.execute("INSERT INTO spent VALUES ('x', 0)")
    db.sql("RESET SINK s")
    assert there() == sorted(rows(db, "SELECT * FROM spent"))
    assert shown(db)["s"]["refused"] == 0
    error = refused(db, "ALTER SINK s SET (snapshot = false)")
    assert "cannot change" in error.primary
    assert refused(db, "PAUSE SINK spent").code is Code.INVALID


@pytest.mark.long
def test_a_sink_goes_on_after_a_restart(
    tmp_path: Path, spark: Any, postgres_server: Postgres, target: Any
) -> None:
    where = {"spark": spark, "continuous": False, "partitions": 2}
    to = (
        f"connector = 'postgres', host = '127.0.0.1', port = {postgres_server.port},"
        " database = 'by_sinks', user = 'postgres', table = 'changes'"
    )
    with headrace.connect(tmp_path / "db", **where) as db:
        db.sql(f"""
            CREATE TABLE t (k INT, v ARRAY<STRING>, PRIMARY KEY (k));
            INSERT INTO t VALUES (1, array('a,"b"', NULL));
            CREATE SINK s FROM t WITH ({to}, mode = 'append', create_table = true, snapshot = false);
            FLUSH;
            INSERT INTO t VALUES (2, array());
            FLUSH;
            PAUSE SINK s
        """)
    with headrace.connect(tmp_path / "db", **where) as db:
        db.sql("INSERT INTO t VALUES (1, NULL); FLUSH")
        assert shown(db)["s"]["state"] == "paused"
        db.sql("RESUME SINK s; FLUSH")
        found = target.execute(
            "SELECT k, v, headrace_op FROM changes ORDER BY headrace_epoch, 3 DESC"
        )
        assert found.fetchall() == [(2, [], "+I"), (1, ['a,"b"', None], "-U"), (1, None, "+U")]
        assert refused(db, "RECONCILE SINK s").code is Code.UNSUPPORTED


@pytest.mark.long
def test_a_table_whose_options_name_a_server_is_written_there(
    db: Database, postgres_server: Postgres, target: Any
) -> None:
    where = (
        f"connector = 'postgres', host = '127.0.0.1', port = {postgres_server.port},"
        " database = 'by_sinks', user = 'postgres', table = 'revenue', create_table = true"
    )
    db.sql("""
        CREATE TABLE orders (id INT, user STRING, amount DECIMAL(8,2), PRIMARY KEY (id));
        CREATE VIEW active AS SELECT * FROM orders WHERE amount > 0;
        CREATE TABLE user_revenue AS SELECT user, sum(amount) AS revenue FROM active GROUP BY user
    """)
    columns = "(who STRING, revenue DECIMAL(20,2), PRIMARY KEY (who) NOT ENFORCED)"
    assert (
        "no unique key"
        in refused(
            db, f"CREATE TABLE out_there (who STRING, revenue DECIMAL(20,2)) WITH ({where})"
        ).primary
    )
    assert (
        refused(db, f"CREATE TABLE out_there {columns} WITH ({where}, tabel = 'x')").code
        is Code.INVALID
    )
    message = db.sql(f"CREATE TABLE out_there {columns} WITH ({where})").message
    again = f"CREATE TABLE IF NOT EXISTS out_there {columns} WITH ({where})"
    assert db.sql(again).message == '"out_there" exists already'
    assert message.startswith("created table out_there, which sink out_there_to_postgres delivers:")
    db.sql("""
        INSERT INTO out_there SELECT * FROM user_revenue;
        INSERT INTO orders VALUES (1, 'ann', 10.00), (2, 'bob', 20.00);
        FLUSH;
        DELETE FROM orders WHERE id = 2;
        FLUSH
    """)
    found = target.execute("SELECT * FROM revenue").fetchall()
    assert found == rows(db, "SELECT * FROM out_there") == [("ann", Decimal("10.00"))]
    assert len(db.sql("SHOW REJECTS")) == 0
    assert [row[0] for row in db.sql("SHOW SINKS")] == [
        "out_there_to_postgres", "insert_into_out_there",
    ]  # fmt: skip
