"""Computed columns and METADATA: stored with the row, and told apart from what arrives."""

from __future__ import annotations

import pytest

import headrace
from asked import refused, rows
from headrace import Code, HeadraceError

pytestmark = pytest.mark.spark


def test_computed_columns_follow_their_rows(tmp_path, spark):
    where = {"spark": spark, "continuous": False, "partitions": 2}
    with headrace.connect(tmp_path / "again", **where) as db:
        db.sql("""
            CREATE TABLE lines (id INT, price DECIMAL(8,2), total AS price * qty COMMENT 'in all',
              qty INT, big AS coalesce(qty, 0) > 2, PRIMARY KEY (id));
            CREATE MATERIALIZED VIEW sums AS SELECT big, sum(total) AS total FROM lines GROUP BY big;
            INSERT INTO lines VALUES (1, 1.50, 2), (2, 2.00, 3), (3, NULL, NULL);
            INSERT INTO lines (qty, id, price) VALUES (10, 4, 1.00)
        """)
        db.insert("lines", [{"id": 5, "price": None, "qty": 1}])
        assert [column for column, _ in db.columns("lines")] == [
            "id",
            "price",
            "total",
            "qty",
            "big",
        ]
        found = "SELECT id, cast(total AS STRING), big FROM lines ORDER BY id"
        assert db.sql(found).fetchall() == [
            (1, "3.00", False),
            (2, "6.00", True),
            (3, None, False),
            (4, "10.00", True),
            (5, None, False),
        ]
    with headrace.connect(tmp_path / "again", **where) as db:
        db.sql("UPDATE lines SET qty = qty + 1 WHERE id < 3; DELETE FROM lines WHERE id = 4")
        assert db.sql(found).fetchall()[:2] == [(1, "4.50", True), (2, "8.00", True)]
        path = tmp_path / "more.csv"
        path.write_text("id,price,qty\n6,2.00,1\n")
        db.sql(f"COPY lines FROM '{path}'")
        assert db.sql(found).fetchall()[-1] == (6, "2.00", False)
        assert {verdict for *_, verdict in db.sql("VERIFY")} == {"equal to batch"}
        assert {n: note for n, _, note in db.sql("DESCRIBE lines")}["big"] == (
            "computed: coalesce(qty, 0) > 2"
        )
        for statement in (
            "INSERT INTO lines (id, total) VALUES (9, 1)",
            "UPDATE lines SET total = 1",
        ):
            error = refused(db, statement)
            assert (error.code, error.span.source) == (Code.INVALID, "total")
        assert refused(db, "INSERT INTO lines VALUES (9, 1, 1, 1, true)").code is Code.INVALID
        with pytest.raises(HeadraceError):
            db.insert("lines", [{"id": 7, "total": 1}])
        db.sql("CREATE TABLE bag (k INT, twice AS k * 2); INSERT INTO bag VALUES (1), (1), (2)")
        db.sql("UPDATE bag SET k = 5 WHERE k = 2; DELETE FROM bag WHERE twice = 2")
        assert rows(db, "SELECT * FROM bag") == [(5, 10)]


def test_metadata_tells_where_a_row_came_from(db):
    db.sql("""
        CREATE STREAM s (v INT, at TIMESTAMP METADATA FROM 'timestamp', topic STRING METADATA VIRTUAL,
          `partition` INT METADATA, place BIGINT METADATA FROM 'offset', headers MAP<STRING, BINARY> METADATA)
          WITH (connector = 'kafka', topic = 'numbers');
        INSERT INTO s VALUES (10), (11);
        INSERT INTO s VALUES (12)
    """)
    assert rows(db, "SELECT v, topic, `partition`, place, headers FROM s") == [
        (10, "numbers", 0, 0, None),
        (11, "numbers", 0, 1, None),
        (12, "numbers", 0, 2, None),
    ]
    assert rows(db, "SELECT count(DISTINCT at) FROM s") == [(2,)]


@pytest.mark.long
def test_generated_columns_have_the_type_that_is_declared(tmp_path, spark):
    where = {"spark": spark, "continuous": False, "partitions": 2}
    with headrace.connect(tmp_path / "again", **where) as db:
        db.sql("""
            CREATE TABLE lines (id INT PRIMARY KEY, price DECIMAL(8,2), qty INT,
              total DECIMAL(12,3) GENERATED ALWAYS AS (price * qty) STORED NOT NULL,
              big BOOLEAN AS (qty > 2) VIRTUAL COMMENT 'more than two',
              label STRING GENERATED ALWAYS AS (SAFE_CAST(id AS STRING)));
            CREATE MATERIALIZED VIEW sums AS SELECT big, sum(total) AS total FROM lines GROUP BY big;
            INSERT INTO lines VALUES (1, 1.50, 2), (2, 2.00, 3)
        """)
    with headrace.connect(tmp_path / "again", **where) as db:
        db.sql("UPDATE lines SET qty = 4 WHERE id = 1; INSERT INTO lines VALUES (3, 1.00, 1)")
        assert rows(db, "SELECT id, cast(total AS STRING), big, label FROM lines") == [
            (1, "6.000", True, "1"),
            (2, "6.000", True, "2"),
            (3, "1.000", False, "3"),
        ]
        assert {verdict for *_, verdict in db.sql("VERIFY")} == {"equal to batch"}
        assert dict(db.columns("lines"))["total"] == "decimal(12,3)"
        for statement, said in [
            ("INSERT INTO lines VALUES (4, NULL, 1)", 'column "total" of table "lines" is NULL'),
            ("INSERT INTO lines VALUES (4, 999999.99, 2000000000)", "does not fit DECIMAL(12,3)"),
            (
                "INSERT INTO lines (id, big) VALUES (4, true)",
                "is generated, so it cannot be written",
            ),
        ]:
            assert said in refused(db, statement).primary
        assert len(db.sql("SELECT * FROM lines")) == 3
        assert rows(
            db,
            "SELECT column_name, generation_expression FROM information_schema.columns"
            " WHERE table_name = 'lines' AND generation_expression IS NOT NULL",
        ) == [("big", "qty > 2"), ("label", "SAFE_CAST(id AS STRING)"), ("total", "price * qty")]


def test_a_computed_value_fits_its_column_exactly_or_the_row_is_refused(db):
    db.sql("CREATE TABLE halves (x INT, y INT GENERATED ALWAYS AS (x / 2.0))")
    db.sql("INSERT INTO halves VALUES (4)")
    assert refused(db, "INSERT INTO halves VALUES (8), (3)").primary.startswith(
        'column "y" in row 2: 1.5'
    )
    assert rows(db, "SELECT * FROM halves") == [(4, 2)]
    other = refused(db, "CREATE TABLE t (x INT, y STRING GENERATED ALWAYS AS (x + 1))")
    assert other.primary == 'column "y" is STRING, its expression INT'


def test_the_key_of_messages_is_recorded_and_told(tmp_path, spark):
    where = {"spark": spark, "continuous": False, "partitions": 2}
    made = (
        "CREATE STREAM s (sensor VARCHAR KEY, reading INT) WITH (kafka_topic = 's', partitions = 2)"
    )
    with headrace.connect(tmp_path / "again", **where) as db:
        db.sql(made)
    with headrace.connect(tmp_path / "again", **where) as db:
        db.sql("INSERT INTO s VALUES ('a', 1), ('a', 2), (NULL, 3)")
        assert len(db.sql("SELECT * FROM s")) == 3
        assert db.sql("DESCRIBE s").fetchall() == [
            ("sensor", "string", "message key"),
            ("reading", "int", ""),
        ]
        assert ("# message key", "sensor", "") in db.sql("DESCRIBE EXTENDED s").fetchall()
        assert db.sql("SHOW CREATE s").fetchall() == [("s", made)]
        assert rows(
            db, "SELECT column_name, is_key, is_message_key FROM information_schema.columns"
        ) == [("reading", False, False), ("sensor", False, True)]


@pytest.mark.parametrize(
    ("statement", "blamed"),
    [
        ("CREATE TABLE t (k INT, x AS nothing + 1)", "nothing"),
        ("CREATE TABLE t (k INT, x AS rand())", "rand()"),
        ("CREATE TABLE t (k INT, x AS (SELECT max(k) FROM other))", "other"),
        ("CREATE TABLE t (k INT, x AS y, y AS k)", "y"),
        ("CREATE TABLE t (k INT, p AS PROCTIME())", "PROCTIME()"),
        ("CREATE TABLE t (x AS 1, k INT, PRIMARY KEY (x))", "x AS 1"),
        ("CREATE TABLE t (k INT, x DATE GENERATED ALWAYS AS (k))", "k"),
        ("CREATE TABLE t (k INT, x INT GENERATED ALWAYS AS (now()))", "now()"),
        ("CREATE TABLE t (k INT METADATA FROM 'ofset')", "'ofset'"),
        ("CREATE TABLE t (k INT, x AS k) WITH (format = 'debezium-json')", "t"),
    ],
)
def test_what_no_column_can_be_is_refused_at_its_place(db, statement, blamed):
    error = refused(db, statement)
    assert error.code in (Code.INVALID, Code.UNSUPPORTED)
    assert error.span.source == blamed
