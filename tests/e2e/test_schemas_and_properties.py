"""Qualified names and schemas; properties of the session."""

from __future__ import annotations

from decimal import Decimal

import pytest

import headrace
from asked import refused, rows
from headrace import Code
from length import each

pytestmark = pytest.mark.spark


@pytest.fixture
def gold(db):
    db.sql("""
        CREATE TABLE gold.orders (id INT, user INT, amount DECIMAL(6,2), PRIMARY KEY (id));
        CREATE TABLE silver.orders (id INT, amount INT);
        CREATE TABLE users (id INT, name STRING, PRIMARY KEY (id));
        INSERT INTO gold.orders VALUES (1, 1, 10.00), (2, 2, 20.00);
        INSERT INTO silver.orders VALUES (1, 7), (2, 8);
        INSERT INTO users VALUES (1, 'ann'), (2, 'bob')
    """)
    return db


@pytest.mark.parametrize(
    ("query", "found"),
    each(
        4,
        [
            ("SELECT id FROM gold.orders", [(1,), (2,)]),
            ("SELECT gold.orders.id FROM gold.orders WHERE orders.id = 2", [(2,)]),
            ("SELECT o.id FROM `gold`.`orders` AS o WHERE o.amount > 10", [(2,)]),
            ("SELECT gold.orders.* FROM Gold.Orders", [(1, 1, Decimal(10)), (2, 2, Decimal(20))]),
            ("TABLE silver.orders", [(1, 7), (2, 8)]),
            (
                """SELECT gold.orders.id, silver.orders.amount FROM gold.orders
               JOIN silver.orders ON gold.orders.id = silver.orders.id""",
                [(1, 7), (2, 8)],
            ),
            (
                """WITH orders AS (SELECT 5 AS id)
               SELECT id FROM orders UNION ALL SELECT max(id) FROM gold.orders""",
                [(2,), (5,)],
            ),
            (
                "SELECT name FROM users WHERE id IN (SELECT user FROM gold.orders o)",
                [("ann",), ("bob",)],
            ),
        ],
    ),
)
def test_a_qualified_name_is_read_wherever_spark_reads_one(gold, query, found):
    assert rows(gold, query) == found


@pytest.mark.long
def test_views_with_qualified_names_are_kept_verified_and_restored(tmp_path, spark):
    where = {"spark": spark, "continuous": False, "partitions": 2}
    with headrace.connect(tmp_path / "again", **where) as db:
        db.sql("""
            CREATE TABLE gold.t (k INT, v INT, PRIMARY KEY (k));
            CREATE VIEW gold.p AS SELECT t.k, gold.t.v FROM gold.t;
            CREATE MATERIALIZED VIEW top.m AS SELECT sum(gold.p.v) AS v FROM gold.p;
            INSERT INTO gold.t VALUES (1, 5), (2, 6)
        """)
        db.sql("UPDATE gold.t SET v = 7 WHERE k = 1; DELETE FROM gold.t WHERE k = 2")
        assert rows(db, "SELECT * FROM top.m") == [(7,)]
    with headrace.connect(tmp_path / "again", **where) as db:
        db.sql("INSERT INTO gold.t VALUES (3, 3)")
        assert rows(db, "SELECT * FROM top.m") == [(10,)]
        assert {verdict for *_, verdict in db.sql("VERIFY top.m")} == {"equal to batch"}
        assert rows(db, "SHOW SCHEMAS") == [("gold",), ("information_schema",), ("top",)]


def test_names_may_have_any_characters(tmp_path, spark):
    view = 'SELECT "a""b" AS "select", sum("x`y") AS `tick``ed` FROM "a`b" GROUP BY "a""b"'
    with headrace.connect(tmp_path / "odd", spark=spark, continuous=False) as db:
        db.sql('CREATE TABLE `a``b` (`a"b` INT PRIMARY KEY, `x``y` INT)')
        db.sql(f"CREATE MATERIALIZED VIEW `größe`.`it's ``n``` AS {view}")
        db.sql("CREATE VIEW `日 本` AS SELECT `tick``ed` AS `;--` FROM `größe`.`it's ``n```")
        db.sql("INSERT INTO `a``b` VALUES (1, 5), (2, 7)")
        assert rows(db, "SELECT `;--` FROM `日 本`") == [(5,), (7,)]
        db.sql("ALTER TABLE `a``b` RENAME TO `c``d`.`from`")
    with headrace.connect(tmp_path / "odd", spark=spark, continuous=False) as db:
        db.sql('DELETE FROM `c``d`.`from` WHERE `a"b` = 2')
        assert rows(db, "SELECT `select` FROM `größe`.`it's ``n```") == [(1,)]
        assert {verdict for *_, verdict in db.sql("VERIFY")} == {"equal to batch"}


def test_an_error_points_at_the_qualified_name_as_it_was_written(gold):
    error = refused(gold, "SELECT gold.orders.usr FROM gold.orders")
    assert (error.span.source, error.span.start) == ("gold.orders.usr", 7)
    assert refused(gold, "SELECT * FROM gold.order").hint == 'Did you mean "gold.orders"?'


def test_a_schema_is_created_filled_and_dropped(db):
    db.sql("CREATE SCHEMA lab; CREATE SCHEMA IF NOT EXISTS lab; CREATE TABLE lab.t (k INT)")
    db.sql("CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM lab.t")
    assert refused(db, "CREATE SCHEMA lab").code is Code.CONFLICT
    error = refused(db, "DROP SCHEMA lab")
    assert (error.code, '"lab.t"' in error.primary) == (Code.CONFLICT, True)
    assert '"n"' in error.detail
    message = db.sql("DROP SCHEMA lab CASCADE").message
    assert message == 'dropped schema lab with "lab.t" in it and "n" over it'
    assert db.relations() == []
    assert rows(db, "SHOW SCHEMAS") == [("information_schema",)]
    assert refused(db, "DROP SCHEMA lab").code is Code.INVALID
    assert refused(db, "CREATE TABLE information_schema.t (k INT)").code is Code.INVALID


def test_a_push_query_begins_where_the_session_says(db):
    db.sql("CREATE STREAM s (v INT); INSERT INTO s VALUES (1); SET 'auto.offset.reset' = 'latest'")
    with db.sql("SELECT v + 0 AS v FROM s EMIT CHANGES") as later:
        db.sql("INSERT INTO s VALUES (2); FLUSH")
        assert [change.row["v"] for change in later.poll()] == [2]
    db.sql("RESET 'auto.offset.reset'")
    with db.sql("SELECT v FROM s EMIT CHANGES") as all_of_it:
        assert sorted(change.row["v"] for change in all_of_it.poll()) == [1, 2]


def test_a_bare_select_is_a_push_query_where_the_session_is_streaming(db):
    db.sql("CREATE TABLE t (k INT, PRIMARY KEY (k)); SET 'execution.runtime-mode' = 'streaming'")
    with db.sql("SELECT count(*) AS n FROM t") as following:
        assert following.kind == "changes"
    db.sql("SET 'execution.runtime-mode' = 'batch'")
    assert db.sql("SELECT count(*) AS n FROM t").fetchall() == [(0,)]


def test_a_double_quoted_text_that_is_a_column_is_refused_or_by_a_property_a_name(db):
    db.sql("CREATE TABLE o (id INT PRIMARY KEY, c STRING); INSERT INTO o VALUES (1, 'a'), (2, 'c')")
    for text in (
        'SELECT "c", count(*) FROM o GROUP BY "c"',
        'SELECT "N" FROM (SELECT count(*) AS n FROM o)',
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM o WHERE upper(\"c\") = 'C'",
        'UPDATE o SET c = "id" WHERE id = 1',
        'INSERT INTO o SELECT 9, "c" FROM o',
    ):
        error = refused(db, text)
        assert error.code is Code.INVALID
        assert "double_quoted_identifiers" in error.hint
        assert error.span.source.startswith('"')
    with pytest.raises(headrace.HeadraceError, match="there is a column of this name"):
        db.subscribe('SELECT "c" FROM o')
    strings = 'SELECT "n" AS label, to_json(named_struct("c", c)), count(*) AS n FROM o WHERE c = "a" GROUP BY c'
    assert rows(db, strings) == [("n", '{"c":"a"}', 1)]
    assert rows(db, 'SELECT o."c" FROM o WHERE "id" = 2') == [("c",)]
    db.sql("SET double_quoted_identifiers = TRUE")
    assert rows(db, 'SELECT "c" FROM o WHERE "id" = 2') == [("c",)]
    assert refused(db, 'SELECT "d" FROM o').span.source == '"d"'
    db.sql('CREATE MATERIALIZED VIEW v AS SELECT "id" FROM o WHERE "c" = \'a\'')
    db.sql('UPDATE "o" SET "c" = \'a\' WHERE "id" = 2')
    assert sorted(rows(db, "SELECT * FROM v")) == [(1,), (2,)]
    assert db.subscribe('SELECT "c" FROM o').columns == ("c",)


def test_properties_are_listed_kept_and_refused(db):
    assert "no effect" in db.sql("SET 'table.exec.mini-batch.enabled' = 'true'").message
    listed = {name: value for name, value, _ in db.sql("SHOW PROPERTIES")}
    assert listed["auto.offset.reset"] == "earliest"
    assert listed["table.exec.mini-batch.enabled"] == "true"
    assert len(db.sql("SET")) == len(db.sql("SHOW ALL")) == len(listed)
    assert db.sql("SHOW auto.offset.reset").fetchall()[0][1] == "earliest"
    assert refused(db, "SET 'auto.ofset.reset' = 'x'").hint == 'Did you mean "auto.offset.reset"?'
    assert "earliest or latest" in refused(db, "SET auto.offset.reset = 'never'").hint
    assert refused(db, "SHOW 'nothing.known'").code is Code.INVALID
    db.sql("RESET ALL; UNSET 'pipeline.name'")
    assert "table.exec.mini-batch.enabled" not in {name for name, *_ in db.sql("SHOW ALL")}


def test_options_of_views_and_tables_are_known_by_name(db):
    db.sql("CREATE SOURCE s (v INT) WITH (connector = 'kafka', topic = 's', format = 'json')")
    message = db.sql(
        "CREATE MATERIALIZED VIEW n OPTIONS (refresh_interval_minutes = 60)"
        " AS SELECT count(*) AS n FROM s"
    ).message
    assert "refreshed every 1 hour" in message
    db.sql("CREATE TABLE inserted_into (v INT)")
    assert rows(db, "SHOW SOURCES") == [
        ("s", "stream", "", "embedded", None, None, 0, None, None, None, None)
    ]
    wrong = "CREATE TABLE t (v INT) WITH (conector = 'kafka')"
    assert refused(db, wrong).hint == 'Did you mean "connector"?'
    wrong = "CREATE MATERIALIZED VIEW m WITH (refresh_interval_minute = 1) AS SELECT v FROM s"
    assert refused(db, wrong).hint == 'Did you mean "refresh_interval_minutes"?'
    wrong = "CREATE MATERIALIZED VIEW m WITH (refresh_interval_minutes = 0) AS SELECT v FROM s"
    assert refused(db, wrong).code is Code.INVALID


@pytest.mark.parametrize(
    ("first", "second", "taken"),
    each(
        6,
        [
            ("STREAM r (v INT)", "STREAM r (v INT, w INT)", True),
            ("STREAM r (v INT)", "SOURCE r (v STRING)", True),
            ("TABLE r (v INT)", "TABLE r (v STRING)", True),
            ("TABLE r (v INT)", "TABLE r AS SELECT v FROM t", True),
            ("TABLE r AS SELECT v FROM t", "MATERIALIZED VIEW r AS SELECT v + 1 AS v FROM t", True),
            ("MATERIALIZED VIEW r AS SELECT v FROM t", "VIEW r AS SELECT v FROM t", True),
            ("VIEW r AS SELECT v FROM t", "MATERIALIZED VIEW r AS SELECT v FROM t", True),
            ("TABLE r (v INT)", "VIEW r AS SELECT v FROM t", False),
            ("TABLE r (v INT)", "MATERIALIZED VIEW r AS SELECT v FROM t", False),
            ("TABLE r (v INT)", "STREAM r (v INT)", False),
            ("STREAM r (v INT)", "SINK r FROM t WITH (connector = 'blackhole')", False),
            ("VIEW r AS SELECT v FROM t", "STREAM r (v INT)", False),
        ],
    ),
)
def test_or_replace_takes_the_place_of_its_own_kind_only(db, first, second, taken):
    db.sql(f"CREATE TABLE t (v INT); CREATE OR REPLACE {first}; INSERT INTO t VALUES (1)")
    if taken:
        db.sql(f"CREATE OR REPLACE {second}")
    else:
        error = refused(db, f"CREATE OR REPLACE {second}")
        assert (error.code, error.span.source) == (Code.CONFLICT, "r")
    created = db.sql("SHOW CREATE r").fetchall()[0][1]
    assert created == f"CREATE OR REPLACE {second if taken else first}"
