"""``CREATE VIEW``: a named query, part of every query that names it."""

from __future__ import annotations

import pytest

import headrace
from asked import refused, rows
from headrace import Code

pytestmark = pytest.mark.spark


@pytest.fixture
def shop(db):
    db.sql("""
        CREATE TABLE orders (id INT, user STRING, amount INT, PRIMARY KEY (id));
        CREATE STREAM clicks (user STRING);
        INSERT INTO orders VALUES (1, 'ann', 10), (2, 'bob', 20), (3, 'ann', 30);
        INSERT INTO clicks VALUES ('ann'), ('ann'), ('cid');
        CREATE VIEW big (number, buyer, paid) AS SELECT id, user, amount FROM orders WHERE amount > 15
    """)
    return db


def test_a_plain_view_is_read_like_a_relation_and_follows_its_inputs(shop):
    assert rows(shop, "SELECT * FROM big") == [(2, "bob", 20), (3, "ann", 30)]
    assert rows(shop, "SELECT paid FROM big WHERE number = 2") == [(20,)]
    shop.sql("INSERT INTO orders VALUES (4, 'cid', 40); DELETE FROM orders WHERE id = 2")
    assert rows(shop, "SELECT buyer, paid FROM big b") == [("ann", 30), ("cid", 40)]
    assert rows(shop, "SELECT a.number FROM big a JOIN big b ON a.number = b.number") == [
        (3,),
        (4,),
    ]


@pytest.mark.long
def test_views_over_plain_views_are_kept_and_verified(shop):
    shop.sql("""
        CREATE VIEW bigger AS SELECT buyer, paid FROM big WHERE paid > 25;
        CREATE MATERIALIZED VIEW totals AS
          SELECT buyer, sum(paid) AS paid, count(*) AS n FROM bigger GROUP BY buyer;
        CREATE VIEW shown AS SELECT concat(buyer, '!') AS who, paid FROM totals;
        CREATE MATERIALIZED VIEW pairs AS
          SELECT s.who, b.paid FROM shown s JOIN bigger b ON s.paid = b.paid;
        INSERT INTO orders VALUES (5, 'dan', 50), (3, 'ann', 35)
    """)
    assert rows(shop, "SELECT * FROM totals") == [("ann", 35, 1), ("dan", 50, 1)]
    assert rows(shop, "SELECT * FROM pairs") == [("ann!", 35), ("dan!", 50)]
    assert rows(shop, "SELECT * FROM shown") == [("ann!", 35), ("dan!", 50)]
    assert {verdict for *_, verdict in shop.sql("VERIFY")} == {"equal to batch"}


@pytest.mark.long
def test_dependants_are_counted_through_plain_views(shop):
    shop.sql("""
        CREATE VIEW bigger AS SELECT * FROM big;
        CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM bigger
    """)
    for statement, needed in [
        ("DROP VIEW bigger", '"n"'),
        ("DROP VIEW big", '"bigger", "n"'),
        ("DROP TABLE orders", '"big", "bigger", "n"'),
        ("CREATE OR REPLACE VIEW big AS SELECT 1 AS one", "plain view"),
    ]:
        error = refused(shop, statement)
        assert error.code is Code.CONFLICT
        assert needed in error.primary
    message = shop.sql("DROP TABLE orders CASCADE").message
    assert message == 'dropped table orders and "big", "bigger", "n" over it'
    assert [name for _, name in shop.relations()] == ["clicks"]


@pytest.mark.long
def test_a_plain_view_can_be_replaced_and_kept(shop):
    assert "exists already" in shop.sql("CREATE VIEW IF NOT EXISTS big AS SELECT 1 AS x").message
    error = refused(shop, "CREATE VIEW big AS SELECT 1 AS x")
    assert error.code is Code.CONFLICT
    shop.sql("CREATE OR REPLACE VIEW big AS SELECT user FROM clicks")
    assert rows(shop, "SELECT * FROM big") == [("ann",), ("ann",), ("cid",)]
    shop.sql("DROP VIEW big; DROP VIEW IF EXISTS big")
    assert "does not exist" in refused(shop, "SELECT * FROM big").primary


@pytest.mark.long
def test_plain_views_are_there_after_a_restart(tmp_path, spark):
    where = {"spark": spark, "continuous": False, "partitions": 2}
    with headrace.connect(tmp_path / "again", **where) as db:
        db.sql("""
            CREATE TABLE t (k INT, v INT, PRIMARY KEY (k));
            CREATE VIEW p AS SELECT k, v + 1 AS w FROM t;
            CREATE MATERIALIZED VIEW m AS SELECT sum(w) AS w FROM p;
            CREATE VIEW q AS SELECT w FROM m;
            INSERT INTO t VALUES (1, 1)
        """)
    with headrace.connect(tmp_path / "again", **where) as db:
        assert rows(db, "SELECT * FROM q") == [(2,)]
        db.sql("INSERT INTO t VALUES (2, 5)")
        assert rows(db, "SELECT * FROM q") == [(8,)]
        assert refused(db, "DROP VIEW p").code is Code.CONFLICT
        assert {verdict for *_, verdict in db.sql("VERIFY")} == {"equal to batch"}


@pytest.mark.long
def test_following_a_plain_view_keeps_it_for_as_long_as_somebody_reads(shop):
    with shop.sql("SELECT * FROM big EMIT CHANGES") as following:
        assert {change.row["number"] for change in following.poll()} == {2, 3}
        shop.sql("INSERT INTO orders VALUES (9, 'eve', 90); FLUSH")
        (change,) = following.poll()
        assert (change.operation, change.row) == ("+I", {"number": 9, "buyer": "eve", "paid": 90})
    assert len(shop.parts.reader.catalog.views_in_order()) == 0


def test_an_error_in_a_plain_view_points_into_its_text(shop):
    shop.sql("CREATE VIEW lists AS SELECT user, collect_set(id) AS ids FROM orders GROUP BY user")
    shop.sql("CREATE VIEW above AS SELECT * FROM lists")
    error = refused(shop, "CREATE MATERIALIZED VIEW m AS SELECT user, ids[0] AS id FROM above")
    assert error.code is Code.UNSUPPORTED
    assert error.span.source == "collect_set(id)"
    assert '--> view "lists":1:14' in str(error)


def test_an_error_at_a_use_of_a_plain_view_points_at_the_use(shop):
    error = refused(shop, "SELECT pid FROM big")
    assert (error.span.source, error.hint) == ("pid", 'Did you mean "paid"?')


def test_what_a_plain_view_cannot_be(shop):
    assert refused(shop, "CREATE VIEW v AS SELECT rand() AS r FROM orders").code is Code.UNSUPPORTED
    assert refused(shop, "CREATE VIEW v AS SELECT * FROM nothing").code is Code.INVALID
    assert refused(shop, "CREATE VIEW v (a) AS SELECT 1 AS x, 2 AS y").code is Code.INVALID
    assert refused(shop, "INSERT INTO big VALUES (1, 'a', 2)").code is Code.INVALID
    assert refused(shop, "DROP TABLE big").hint == "Use DROP VIEW big."
    assert refused(shop, "DROP MATERIALIZED VIEW big").hint == "Use DROP VIEW big."
    assert refused(shop, "VERIFY big").code is Code.INVALID


def test_a_plain_view_is_listed_described_and_explained(shop):
    assert shop.sql("SHOW VIEWS").fetchall() == [("big", "plain view", "", "not stored")]
    assert [row[:2] for row in shop.sql("DESCRIBE big")] == [
        ("number", "int"), ("buyer", "string"), ("paid", "int")
    ]  # fmt: skip
    assert len(shop.sql("EXPLAIN VIEW big")) > 3
    assert len(shop.sql("SHOW MATERIALIZED VIEWS")) == 0
