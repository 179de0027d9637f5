"""Sinks: a view's changelog in another table or in files, exactly once, whenever it stops."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

import headrace
from asked import refused, rows
from headrace import Code
from headrace.errors import HeadraceError
from headrace.interfaces.database import Database
from headrace.interfaces.settings import Settings

pytestmark = pytest.mark.spark


@pytest.fixture
def shop(db):
    db.sql("""
        CREATE TABLE orders (id INT, user STRING, amount DECIMAL(8,2), PRIMARY KEY (id));
        INSERT INTO orders VALUES (1, 'ann', 10.00), (2, 'bob', 20.00);
        CREATE MATERIALIZED VIEW spent AS SELECT user, sum(amount) AS spent FROM orders GROUP BY user;
        CREATE TABLE out (user STRING, spent DECIMAL(20,2)) WITH (connector = 'kafka', topic = 'out')
    """)
    return db


def files(db, name):
    return [
        json.loads(line)
        for path in sorted((db.directory / "sinks" / name).iterdir())
        for line in path.read_text().splitlines()
    ]


@pytest.mark.long
def test_an_insert_of_a_query_into_a_table_with_a_connector_goes_on(shop):
    message = shop.sql("INSERT INTO out SELECT * FROM spent").message
    assert message == "started job insert_into_out: exactly once: one transaction per epoch"
    assert rows(shop, "SELECT * FROM out") == [("ann", Decimal(10)), ("bob", Decimal(20))]
    shop.sql("INSERT INTO orders VALUES (3, 'ann', 5.50); DELETE FROM orders WHERE id = 2")
    assert rows(shop, "SELECT * FROM out") == [("ann", Decimal("15.50"))]
    shop.sql("CREATE MATERIALIZED VIEW over_it AS SELECT sum(spent) AS s FROM out")
    shop.sql("INSERT INTO orders VALUES (4, 'cid', 1.00)")
    assert rows(shop, "SELECT * FROM over_it") == [(Decimal("16.50"),)]
    assert {verdict for *_, verdict in shop.sql("VERIFY")} == {"equal to batch"}
    shop.sql("DROP JOB insert_into_out; INSERT INTO orders VALUES (5, 'dan', 9.00)")
    assert len(shop.sql("SELECT * FROM out")) == 2


@pytest.mark.long
def test_an_insert_of_rows_or_into_a_plain_table_is_done_once(shop):
    shop.sql("CREATE TABLE copy (user STRING, spent DECIMAL(20,2))")
    assert "2 rows inserted" in shop.sql("INSERT INTO copy SELECT user, spent FROM spent").message
    assert "1 row inserted" in shop.sql("INSERT INTO out VALUES ('x', 1)").message
    assert "1 row inserted" in shop.sql("INSERT INTO out SELECT 'y', 2").message
    assert len(shop.sql("SHOW JOBS")) == 0


@pytest.mark.long
def test_a_job_fills_the_columns_it_names_and_casts_what_differs(shop):
    shop.sql("""
        CREATE VIEW counted AS SELECT user, count(*) AS n FROM orders GROUP BY user;
        CREATE TABLE mail.boxes (who STRING, note STRING, n INT, PRIMARY KEY (who)) WITH (connector = 'jdbc');
        INSERT INTO mail.boxes (n, who) SELECT n, user FROM counted WHERE n > 0
    """)
    assert rows(shop, "SELECT * FROM mail.boxes") == [("ann", None, 1), ("bob", None, 1)]
    shop.sql("INSERT INTO orders VALUES (7, 'ann', 1.00); DELETE FROM orders WHERE id = 2")
    assert rows(shop, "SELECT * FROM mail.boxes") == [("ann", None, 2)]
    assert rows(shop, "SHOW VIEWS") == [
        ("counted", "plain view", "", "not stored"),
        ("spent", "view", "user", "running"),
    ]
    assert refused(shop, "DROP VIEW counted").code is Code.CONFLICT
    shop.sql("TERMINATE insert_into_mail_boxes; DROP VIEW counted")


def test_rows_that_one_key_would_hide_are_refused(shop):
    shop.sql("CREATE TABLE by_amount (spent DECIMAL(20,2), user STRING, PRIMARY KEY (spent))"
             " WITH (connector = 'cassandra')")  # fmt: skip
    error = refused(shop, "INSERT INTO by_amount SELECT spent, user FROM spent")
    assert "not known to be unique" in error.primary
    assert "(user)" in error.detail
    assert len(shop.sql("SHOW JOBS")) == 0
    assert refused(shop, "INSERT INTO out SELECT user FROM spent").code is Code.INVALID
    assert len(shop.parts.reader.catalog.views_in_order()) == 1


def test_what_would_be_read_again_for_ever_is_refused(shop):
    shop.sql("CREATE VIEW again AS SELECT user, spent + 1 AS spent FROM out WHERE spent > 100")
    assert "read by the query" in refused(shop, "INSERT INTO out SELECT * FROM again").primary
    assert "read by the query" in refused(shop, "CREATE SINK s INTO out FROM out").primary
    shop.sql("CREATE TABLE next (user STRING, spent DECIMAL(20,2)) WITH (connector = 'kafka')")
    shop.sql("CREATE SINK s INTO next FROM out")
    error = refused(shop, "INSERT INTO out SELECT user, spent FROM next")
    assert error.code is Code.INVALID
    assert len(shop.sql("SHOW JOBS")) == 1
    assert len(shop.parts.reader.catalog.views_in_order()) == 1
    shop.sql(
        "INSERT INTO out SELECT * FROM spent; INSERT INTO orders VALUES (8, 'eve', 2.00); FLUSH"
    )
    assert rows(shop, "SELECT * FROM next") == rows(shop, "SELECT * FROM spent")


@pytest.mark.long
def test_a_file_sink_has_one_file_per_epoch(shop):
    shop.sql(
        "CREATE SINK f FROM spent WITH (connector = 'file', path = 'spent/all', format = json)"
    )
    shop.sql("INSERT INTO orders VALUES (3, 'ann', 5.50); FLUSH")
    shop.sql("DELETE FROM orders WHERE id = 2; FLUSH")
    found = [
        (c["op"], c["weight"], c["row"]["user"], c["row"]["spent"])
        for c in files(shop, "spent/all")
    ]
    assert sorted(found[:2]) == [("+I", 1, "ann", "10.00"), ("+I", 1, "bob", "20.00")]
    assert found[2:] == [
        ("-U", -1, "ann", "10.00"),
        ("+U", 1, "ann", "15.50"),
        ("-D", -1, "bob", "20.00"),
    ]


@pytest.mark.long
def test_a_changelog_without_a_key_has_no_updates(shop):
    shop.sql("CREATE MATERIALIZED VIEW amounts AS SELECT amount FROM orders")
    shop.sql("CREATE SINK f FROM amounts WITH (connector = 'file', path = 'a'); FLUSH")
    shop.sql("UPDATE orders SET amount = 11 WHERE id = 1; FLUSH")
    assert [(c["op"], c["row"]["amount"]) for c in files(shop, "a")[2:]] == [
        ("-D", "10.00"),
        ("+I", "11.00"),
    ]


@pytest.mark.long
def test_csv_tells_the_operations_too(shop):
    shop.sql("CREATE SINK f FROM spent WITH (connector = 'file', path = 'a', format = csv); FLUSH")
    shop.sql("INSERT INTO orders VALUES (3, 'ann', 5.50), (4, 'cid', 1.00); FLUSH")
    *_, last = sorted((shop.directory / "sinks" / "a").iterdir())
    head, *lines = last.read_text().splitlines()
    assert head == '"user","spent","__weight","__op"'
    assert sorted(lines) == sorted(
        ['"ann",10.00,-1,"-U"', '"ann",15.50,1,"+U"', '"cid",1.00,1,"+I"']
    )
    assert lines.index('"ann",10.00,-1,"-U"') + 1 == lines.index('"ann",15.50,1,"+U"')


@pytest.mark.long
def test_a_sink_is_replaced_and_the_new_one_begins_with_what_there_is(tmp_path, spark):
    where = {"spark": spark, "continuous": False, "partitions": 2}
    with headrace.connect(tmp_path / "again", **where) as db:
        db.sql("""
            CREATE TABLE t (k INT, v INT, PRIMARY KEY (k));
            INSERT INTO t VALUES (1, 1), (2, 2);
            CREATE OR REPLACE SINK s WITH (connector = 'file', path = 'one') AS SELECT k, v FROM t;
            FLUSH
        """)
        again = "create or replace sink  s with (connector = 'file', path = 'one') as select k, v from t"
        assert "is unchanged, and continues" in db.sql(again).message
        assert len(db.parts.reader.catalog.views_in_order()) == 1
        db.sql("""
            CREATE OR REPLACE SINK s WITH (connector = 'file', path = 'two') AS SELECT v FROM t WHERE v > 1;
            INSERT INTO t VALUES (3, 3);
            FLUSH
        """)
        assert [view.query for view in db.parts.reader.catalog.views_in_order()] == [
            "SELECT v FROM t WHERE v > 1"
        ]
    with headrace.connect(tmp_path / "again", **where) as db:
        db.sql("INSERT INTO t VALUES (4, 4); FLUSH")
        assert sorted(c["row"]["k"] for c in files(db, "one")) == [1, 2]
        assert [c["row"]["v"] for c in files(db, "two")] == [2, 3, 4]
        assert rows(db, "SELECT name, source, target FROM information_schema.sinks") == [
            ("s", "a query", "file")
        ]


def test_a_sink_does_not_write_beside_what_another_has_written(shop):
    shop.sql("CREATE SINK s INTO out FROM spent")
    error = refused(shop, "CREATE OR REPLACE SINK s INTO out AS SELECT user, 1 FROM spent")
    assert (error.code, error.span.source) == (Code.CONFLICT, "out")
    assert "DROP SINK s" in error.hint
    assert (
        "is unchanged, and continues"
        in shop.sql("CREATE OR REPLACE SINK s INTO out FROM spent").message
    )
    shop.sql("FLUSH; CREATE OR REPLACE SINK s FROM spent WITH (connector = 'blackhole')")
    assert rows(shop, "SELECT * FROM out") == rows(shop, "SELECT * FROM spent")

    to_file = "CREATE SINK {} FROM spent WITH (connector = 'file', path = 'x')"
    shop.sql(to_file.format("f"))
    error = refused(shop, to_file.format("g"))
    assert (error.code, error.span.source) == (Code.CONFLICT, "path = 'x'")
    assert 'of sink "f"' in error.primary
    shop.sql("FLUSH; DROP SINK f")
    assert "that was dropped" in refused(shop, to_file.format("f")).primary
    assert len(shop.sql("SHOW SINKS")) == 1
    for path in ("x/y", "x/y/z"):
        error = refused(
            shop, f"CREATE SINK g FROM spent WITH (connector = 'file', path = '{path}')"
        )
        assert (error.code, "that was dropped" in error.primary) == (Code.CONFLICT, True)


def test_no_two_sinks_write_into_one_directory_or_table_however_it_is_named(shop):
    shop.sql("CREATE SINK a FROM spent WITH (connector = 'file', path = 'shop/a')")
    table = "CREATE SINK {} FROM spent WITH (connector = 'iceberg', path = '{}', table = 'n.{}')"
    shop.sql(table.format("one", "lake", "one"))
    shop.sql(table.format("two", "lake", "two"))
    inside = {
        "shop/a/b": "connector = 'file'",
        "shop": "connector = 'file', format = 'csv'",
        "shop/a": "connector = 'delta'",
        "lake/n": "connector = 'file'",
        "lake": "connector = 'delta'",
    }
    for path, given in inside.items():
        error = refused(shop, f"CREATE SINK b FROM spent WITH ({given}, path = '{path}')")
        assert (error.code, error.span.source) == (Code.CONFLICT, f"path = '{path}'")
        assert ('sink "a"' in error.primary) == path.startswith("shop")
    assert refused(shop, table.format("three", "shop/a/b", "t")).code is Code.CONFLICT
    error = refused(shop, table.format("three", "lake", "one"))
    assert (error.code, error.primary) == (Code.CONFLICT, 'sink "one" writes there already')
    copied = "CREATE TABLE copy (user STRING PRIMARY KEY, total BIGINT) WITH"
    error = refused(shop, f"{copied} (connector = 'delta', path = 'shop/a')")
    assert error.code is Code.CONFLICT
    assert "copy" not in str(shop.sql("SHOW TABLES").fetchall())
    shop.sql("CREATE SINK c FROM spent WITH (connector = 'file', path = 'shop/c')")


def test_a_sink_that_cannot_be_is_refused(shop):
    for statement, said in [
        ("CREATE SINK f FROM spent", "no destination"),
        ("CREATE SINK f FROM spent WITH (connector = 'file')", "no path"),
        ("CREATE SINK f FROM spent WITH (connector = 'file', path = '../x')", "is outside"),
        ("CREATE SINK f FROM spent WITH (connector = 'file', path = '/etc')", "is outside"),
        ("CREATE SINK f FROM spent WITH (connector = 'file', path = 'x', format = xml)", "format"),
        ("CREATE SINK f FROM spent WITH (conector = 'file')", "does not exist"),
        ("CREATE SINK f FROM spent WITH (connector = 'kafka')", "has no properties.bootstrap"),
        ("CREATE SINK f INTO spent FROM spent", "cannot be written to"),
        ("CREATE SINK f INTO orders FROM spent", "columns are to be filled"),
        ("CREATE SINK spent FROM spent WITH (connector = 'print')", "exists already"),
    ]:
        assert said in refused(shop, statement).primary
    assert len(shop.sql("SHOW SINKS")) == 0


def test_what_was_meant_is_named_at_its_place(shop):
    shop.sql("CREATE SINK files FROM spent WITH (connector = 'print')")
    for statement, hint, place in [
        ("CREATE SINK f FROM spent WITH (connector = 'print', on_eror = stop)", "on_error", "on_"),
        ("CREATE SINK f FROM spent WITH (connector = 'print', batchrows = 1)", "batch_rows", "bat"),
        ("CREATE SINK f INTO out FROM spent WITH (intervall = '1 s')", "interval", "int"),
        ("CREATE SINK f INTO orders FROM spent", None, "spent"),
        ("PAUSE SINK flies", "files", "flies"),
        ("RECONCILE SINK flies", "files", "flies"),
    ]:
        error = refused(shop, statement)
        assert error.hint == (None if hint is None else f'Did you mean "{hint}"?'), statement
        assert error.span is not None
        assert error.span.text == statement
        assert statement[error.span.start :].startswith(place)
    assert refused(shop, "PAUSE SINK x").primary == 'sink "x" does not exist'


def test_sinks_are_listed_and_hold_what_they_are_over(shop, capsys):
    shop.sql("CREATE SINK p FROM spent WITH (connector = 'print'); FLUSH")
    assert '"op":"+I"' in capsys.readouterr().out
    ((name, source, target, guarantee, state, epoch, behind, *_, error),) = shop.sql("SHOW SINKS")
    assert (name, source, target, guarantee) == ("p", "spent", "print", "at least once")
    assert (state, behind, error) == ("running", 0, None)
    assert epoch == shop.parts.ledger.head.epoch
    assert refused(shop, "SELECT * FROM p").code is Code.INVALID
    assert refused(shop, "DROP MATERIALIZED VIEW spent").code is Code.CONFLICT
    assert "dropped sink p" in shop.sql("DROP SINK p").message
    shop.sql("DROP MATERIALIZED VIEW spent")


def test_a_sink_that_fails_delays_only_itself_and_says_why(shop):
    shop.sql("""
        CREATE TABLE strict (user STRING NOT NULL, spent DECIMAL(20,2)) WITH (connector = 'kafka');
        CREATE SINK s INTO strict FROM spent;
        CREATE SINK o INTO out FROM spent;
        INSERT INTO orders VALUES (9, NULL, 3.00)
    """)
    assert len(shop.sql("SELECT * FROM out")) == 3
    states = {name: (state, error) for name, _, _, _, state, *_, error in shop.sql("SHOW JOBS")}
    assert states["o"] == ("running", None)
    assert states["s"][0] == "failing"
    assert 'column "user" of table "strict" is NULL' in states["s"][1]


def test_a_sink_that_cannot_be_opened_shows_that_and_is_resumed_when_it_can(tmp_path, spark):
    where = {"spark": spark, "continuous": False, "partitions": 2}
    with headrace.connect(tmp_path / "db", **where) as db:
        db.sql("""
            CREATE TABLE t (k INT, PRIMARY KEY (k));
            CREATE SINK s FROM t WITH (connector = 'file', path = 'there/rows');
            CREATE SINK o FROM t WITH (connector = 'file', path = 'other')
        """)
    place, away = tmp_path / "db" / "sinks" / "there", tmp_path / "away"
    away.mkdir()
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(away)
    with headrace.connect(tmp_path / "db", **where) as db:
        db.sql("INSERT INTO t VALUES (1); FLUSH")
        states = {name: (state, error) for name, _, _, _, state, *_, error in db.sql("SHOW SINKS")}
        assert states["o"] == ("running", None)
        assert states["s"][0] == "failing"
        assert "outside of the directory" in states["s"][1]
        assert "outside of the directory" in refused(db, "RESUME SINK s").primary
        place.unlink()
        db.sql("RESUME SINK s; FLUSH")
        assert [c["row"]["k"] for c in files(db, "there/rows")] == [1]
    assert list(away.iterdir()) == []


@pytest.mark.long
def test_a_sink_of_a_view_without_rows_goes_on_after_a_restart(tmp_path, spark):
    where = {"spark": spark, "continuous": False, "partitions": 2}
    with headrace.connect(tmp_path / "db", **where) as db:
        db.sql("""
            CREATE TABLE t (k INT, PRIMARY KEY (k));
            CREATE TABLE o (k INT, PRIMARY KEY (k));
            CREATE SINK s INTO o FROM t;
            FLUSH
        """)
    with headrace.connect(tmp_path / "db", **where) as db:
        db.sql("INSERT INTO t VALUES (1)")
        assert rows(db, "SELECT * FROM o") == [(1,)]


class CrashError(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize(
    ("after", "stage"),
    [
        pytest.param(1, "sink", marks=pytest.mark.long),
        pytest.param(1, "sink written", marks=pytest.mark.long),
        pytest.param(4, "sink", marks=pytest.mark.long),
        (4, "sink written"),
    ],
)
def test_a_crash_around_a_write_changes_nothing(tmp_path, spark, stage, after):
    seen = {"left": 0}

    def fault(at):
        if at == stage and seen["left"]:
            seen["left"] -= 1
            if not seen["left"]:
                raise CrashError

    settings = Settings.of({"continuous": False, "partitions": 2})
    db = Database(tmp_path / "db", settings, spark, fault=fault)
    db.sql("""
        CREATE TABLE t (k INT, v INT, PRIMARY KEY (k));
        INSERT INTO t VALUES (1, 1), (2, 2);
        CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n FROM t GROUP BY v;
        CREATE TABLE bag (v INT, n BIGINT) WITH (connector = 'kafka');
        CREATE SINK b INTO bag FROM m;
        CREATE SINK f FROM m WITH (connector = 'file', path = 'm')
    """)
    seen["left"] = after
    inserts = "".join(f"INSERT INTO t VALUES ({k}, {k % 2}); FLUSH;" for k in range(3, 9))
    with pytest.raises(CrashError):
        db.sql(inserts)
    db.close()
    with headrace.connect(tmp_path / "db", spark=spark, continuous=False, partitions=2) as again:
        again.sql("INSERT INTO t VALUES (20, 20); FLUSH")
        expected = rows(again, "SELECT * FROM m")
        assert rows(again, "SELECT * FROM bag") == expected
        assert refused(again, "SELECT * FROM b").code is Code.INVALID
        total = {}
        for change in files(again, "m"):
            row = (change["row"]["v"], change["row"]["n"])
            total[row] = total.get(row, 0) + change["weight"]
        assert sorted(row for row, weight in total.items() if weight) == expected
        assert set(total.values()) <= {0, 1}
        assert [row[4] for row in again.sql("SHOW JOBS")] == ["running", "running"]


def test_a_sink_goes_on_in_the_background(tmp_path, spark):
    with headrace.connect(tmp_path / "db", spark=spark, partitions=2) as db:
        db.sql("""
            CREATE STREAM s (v INT);
            CREATE TABLE o (v INT) WITH (connector = 'kafka');
            INSERT INTO o SELECT v FROM s WHERE v > 1;
            INSERT INTO s VALUES (1), (2), (3);
            FLUSH
        """)
        assert rows(db, "SELECT * FROM o") == [(2,), (3,)]


def test_files_hold_the_json_of_the_shell_and_csv_only_what_it_can_hold(db):
    db.sql("""
        CREATE TABLE t (k INT, f DOUBLE, b BINARY, m MAP<STRING, INT>, a ARRAY<DOUBLE>);
        INSERT INTO t SELECT 1, double('NaN'), X'01FF', map('x', 2), array(double('-Infinity'));
        CREATE SINK s FROM t WITH (connector = 'file', path = 'one')
    """)
    with pytest.raises(HeadraceError, match='column "m" of type map') as caught:
        db.sql("CREATE SINK c FROM t WITH (connector = 'file', path = 'two', format = csv)")
    assert caught.value.code is Code.UNSUPPORTED
    assert [row[0] for row in db.sql("SHOW SINKS")] == ["s"]
    db.flush()
    *_, file = sorted((db.directory / "sinks" / "one").glob("*.jsonl"))
    assert json.loads(file.read_text(), parse_constant=pytest.fail)["row"] == {
        "k": 1,
        "f": "NaN",
        "b": "Af8=",
        "m": {"x": 2},
        "a": ["-Infinity"],
    }


@pytest.mark.long
def test_messages_say_what_was_made_and_dropped_and_no_timeout_is_taken_without_effect(db):
    db.sql("CREATE TABLE t (k INT); INSERT INTO t VALUES (1); UPDATE t SET k = 2")
    assert db.sql("CREATE TABLE m AS SELECT k FROM t").message == (
        "created materialized view m from 3 changes; it is maintained as its inputs change, and"
        " cannot be written to"
    )
    assert db.sql("DROP VIEW m").message == "dropped materialized view m"
    assert db.sql("SHOW REJECTS FROM t").fetchall() == []
    with pytest.raises(HeadraceError, match="is not supported") as caught:
        db.sql("SET statement_timeout = '5s'")
    assert caught.value.code is Code.UNSUPPORTED
    with pytest.raises(HeadraceError, match="syntax error") as caught:
        db.sql("SELECT * FORM t")
    assert caught.value.hint == 'Did you mean FROM instead of "FORM"?'
