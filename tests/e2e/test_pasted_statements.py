"""Statements as users of other systems write them, beside those of the acceptance list."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import headrace
from headrace import Code, HeadraceError

pytestmark = pytest.mark.spark


def rows(db, text):
    return sorted(db.sql(text).fetchall())


def refused(db, text):
    with pytest.raises(HeadraceError) as caught:
        db.sql(text)
    return caught.value


@pytest.mark.long
def test_texts_of_a_length_are_texts(tmp_path, spark):
    where = {"spark": spark, "continuous": False, "partitions": 2}
    with headrace.connect(tmp_path / "again", **where) as db:
        db.sql("""
            CREATE TABLE users (id INTEGER PRIMARY KEY, name CHARACTER VARYING(255) NOT NULL, code CHAR(3),
              tags ARRAY<VARCHAR(9)>, `varchar(3)` INT);
            CREATE MATERIALIZED VIEW by_code AS SELECT code, count(*) AS n FROM users GROUP BY code;
            INSERT INTO users VALUES (1, 'ann', 'nok', ARRAY('a'), 1), (2, 'bob', 'x', NULL, 2)
        """)
        assert rows(db, "SELECT id FROM users WHERE code = 'x'") == [(2,)]
    with headrace.connect(tmp_path / "again", **where) as db:
        assert rows(db, "SELECT * FROM by_code") == [("nok", 1), ("x", 1)]
        assert dict(db.columns("users")) == {
            "id": "int",
            "name": "string",
            "code": "string",
            "tags": "array<string>",
            "varchar(3)": "int",
        }
        error = refused(db, "SELECT CAST(name AS VARCHAR(2)) FROM users")
        assert "CAST(x AS STRING) for the whole text, as Spark has it" in error.hint


@pytest.mark.long
def test_statements_of_ksqldb(db):
    db.sql("""
        CREATE SOURCE STREAM clicks (user VARCHAR KEY, page VARCHAR) WITH (KAFKA_TOPIC='clicks', VALUE_FORMAT='JSON');
        CREATE SOURCE TABLE users (id BIGINT PRIMARY KEY, name VARCHAR) WITH (KAFKA_TOPIC='users', VALUE_FORMAT='JSON');
        INSERT INTO clicks (user, page) VALUES ('u1', 'b'), ('u1', 'a'), ('u2', 'c'), ('u1', 'b');
        CREATE TABLE pages AS SELECT user, COLLECT_LIST(page) AS l, COLLECT_SET(page) AS s FROM clicks GROUP BY user EMIT CHANGES
    """)
    assert rows(db, "SELECT * FROM pages") == [
        ("u1", ["b", "a", "b"], ["b", "a"]),
        ("u2", ["c"], ["c"]),
    ]
    assert rows(db, "DESCRIBE pages EXTENDED")[0][0] == "# bytes stored"
    assert db.sql("EXPLAIN pages").fetchall()[0] == ("-- Circuit",)
    assert db.sql("DROP TABLE pages DELETE TOPIC").message == "dropped materialized view pages"
    assert {kind for _, kind, *_ in db.sql("SHOW TABLES")} == {"stream", "table"}


def test_statements_of_flink_and_bigquery(db):
    db.sql("""
        CREATE DATABASE IF NOT EXISTS shop;
        CREATE TABLE shop.orders (id INT, amount DECIMAL(8,2), PRIMARY KEY (id) NOT ENFORCED) OPTIONS (description = 'x');
        CREATE TABLE total (amount DECIMAL(20,2)) WITH ('connector' = 'jdbc');
        INSERT INTO total SELECT SUM(amount) FROM shop.orders;
        CREATE MATERIALIZED VIEW shop.m OPTIONS (max_staleness = INTERVAL "4:0:0" HOUR TO SECOND) AS SELECT count(*) AS n FROM shop.orders
    """)
    assert rows(db, "SHOW DATABASES") == [("information_schema",), ("shop",)]
    told = db.sql("EXPLAIN PLAN FOR SELECT id FROM shop.orders").fetchall()
    assert ("No part is recomputed: the work of an epoch is proportional to its changes.",) in told
    assert ("-- Spark's optimised plan",) in told
    assert db.sql("STOP JOB 'insert_into_total'").message == "dropped sink insert_into_total"
    assert refused(db, "DROP TABLE shop.orders").hint == (
        "Use DROP TABLE shop.orders CASCADE to drop these too."
    )
    db.sql("DROP DATABASE shop CASCADE")


@pytest.mark.long
def test_windows_appear_once_they_have_ended_by_the_clock(tmp_path, spark):
    now = [datetime(2025, 1, 1, 10, 30, tzinfo=UTC)]
    clock = lambda: int(now[0].timestamp() * 1e6)  # noqa: E731
    where = {"spark": spark, "continuous": False, "partitions": 2}
    with headrace.connect(tmp_path / "db", clock=clock, **where) as db:
        db.sql("CREATE STREAM s (k STRING, at TIMESTAMP, WATERMARK FOR at AS at)")
        db.sql("""
            CREATE MATERIALIZED VIEW m AS SELECT k, TUMBLE_END(at, INTERVAL '1' HOUR) AS until, COUNT(*) AS n
            FROM s GROUP BY k, TUMBLE(at, INTERVAL '1' HOUR)
            HAVING TUMBLE_END(at, INTERVAL '1' HOUR) <= now() - INTERVAL 10 MINUTES;
            INSERT INTO s VALUES ('a', TIMESTAMP '2025-01-01 10:01:00'), ('a', TIMESTAMP '2025-01-01 10:02:00')
        """)
        with db.sql("SUBSCRIBE m") as followed:
            told = lambda: [(c.operation, c.row["n"]) for c in followed.poll() or []]  # noqa: E731
            assert told() == []
            now[0] += timedelta(minutes=39)
            db.sql("INSERT INTO s VALUES ('a', TIMESTAMP '2025-01-01 10:59:00'); FLUSH")
            assert told() == []
            now[0] += timedelta(minutes=1)
            db.sql("FLUSH")
            assert told() == [("+I", 3)]
            db.sql("INSERT INTO s VALUES ('a', TIMESTAMP '2025-01-01 10:00:00'); FLUSH")
            assert told() == [("-U", 3), ("+U", 4)]
        assert {verdict for *_, verdict in db.sql("VERIFY")} == {"equal to batch"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("query", "said"),
    [
        pytest.param(
            "SELECT to_date(v, 'yyyy') AS d FROM t", "could not be parsed", marks=pytest.mark.long
        ),
        ("SELECT 1 / (length(v) - 1) AS d FROM t", "division by zero"),
    ],
)
def test_a_value_that_does_not_fit_is_the_fault_of_the_data(db, query, said):
    db.sql("CREATE TABLE t (v STRING); INSERT INTO t VALUES ('x')")
    error = refused(db, query)
    assert error.code is Code.INVALID
    assert said in error.primary
    assert "spark." not in error.primary
    db.sql("DELETE FROM t")
    db.sql(f"CREATE MATERIALIZED VIEW m AS {query}; INSERT INTO t VALUES ('x'); FLUSH")
    assert rows(db, "SELECT view FROM (SELECT table_name AS view, state FROM information_schema.tables) WHERE state = 'stopped'") == [("m",)]  # fmt: skip


@pytest.mark.long
def test_names_between_double_quotes_where_a_query_shows_that_it_has_them(db):
    db.sql("""
        CREATE TABLE users (id INT, name STRING, PRIMARY KEY (id));
        CREATE STREAM "clicks" ("user" STRING, n INT);
        INSERT INTO "users" ("id", "name") VALUES (1, 'ann'), (2, "bob");
        INSERT INTO clicks VALUES ('u', 1);
        CREATE MATERIALIZED VIEW m AS SELECT upper("name") AS "Name", count(*) AS "n" FROM users GROUP BY "name"
    """)
    assert rows(db, "SELECT * FROM m") == [("ANN", 1), ("BOB", 1)]
    for query, found in [
        ('SELECT "id", "name" FROM "users"', [(1, "ann"), (2, "bob")]),
        ('SELECT u."id" FROM users u WHERE "name" = \'ann\'', [(1,)]),
        ('SELECT "users"."id" FROM users JOIN "clicks" ON "n" = "id"', [(1,)]),
        ('SELECT (SELECT max("n") FROM "clicks") AS m FROM users', [(1,), (1,)]),
        ('SELECT LATEST_BY_OFFSET("n") AS n FROM "clicks"', [(1,)]),
        # Texts, as in Spark and BigQuery.
        ('SELECT id FROM users WHERE name = "ann"', [(1,)]),
        ('SELECT trim(BOTH "x" FROM "xay") AS t FROM users WHERE id IS DISTINCT FROM "2"', [("ay",)]),
    ]:  # fmt: skip
        assert rows(db, query) == found
    error = refused(db, 'SELECT "nme" FROM "users"')
    assert (error.hint, error.span.source) == ('Did you mean "name"?', '"nme"')
    assert db.sql('DELETE FROM "users" WHERE "name" = \'bob\'').message == "1 row deleted"
    assert db.sql('UPDATE users SET "name" = upper("name")').message == "1 row updated"
    assert rows(db, "SELECT * FROM users") == [(1, "ANN")]
    assert {verdict for *_, verdict in db.sql("VERIFY")} == {"equal to batch"}


def test_spark_reads_no_name_between_double_quotes(spark):
    for query in ('SELECT 1 AS "x"', 'SELECT x FROM "t"', 'SELECT "t".x FROM VALUES (1) AS t(x)'):
        with pytest.raises(Exception, match=r"PARSE_SYNTAX_ERROR|INVALID_EXTRACT"):
            spark.sql(query)


@pytest.mark.long
def test_names_of_columns_may_have_any_characters(tmp_path, spark):
    where = {"spark": spark, "continuous": False, "partitions": 2}
    with headrace.connect(tmp_path / "again", **where) as db:
        db.sql("""
            CREATE TABLE `t 1` (`a b` INT, `c.d` INT, `e``f` INT, `select` INT, PRIMARY KEY (`a b`));
            CREATE TABLE bag (`c.d` INT, `e``f` INT);
            CREATE MATERIALIZED VIEW m AS SELECT `c.d`, max(`a b`) AS `a.b`, sum(`e``f`) AS `e``f`,
              max(`select`) AS `order` FROM `t 1` GROUP BY `c.d`;
            CREATE MATERIALIZED VIEW j AS SELECT l.`c.d` AS `x.y`, r.`e``f` FROM `t 1` l JOIN bag r ON l.`a b` = r.`c.d`;
            INSERT INTO `t 1` VALUES (1, 2, 3, 4), (2, 2, 5, 6);
            INSERT INTO bag VALUES (1, 7), (1, 7), (2, 8)
        """)
        assert rows(db, "SELECT * FROM m") == [(2, 2, 8, 6)]
        db.sql(
            "UPDATE `t 1` SET `c.d` = `c.d` + 1 WHERE `a b` = 1; DELETE FROM bag WHERE `e``f` = 8"
        )
    with headrace.connect(tmp_path / "again", **where) as db:
        db.sql("INSERT INTO `t 1` VALUES (3, 1, 5, 6)")
        assert rows(db, "SELECT * FROM m") == [(1, 3, 5, 6), (2, 2, 5, 6), (3, 1, 3, 4)]
        assert rows(db, "SELECT `a.b` FROM m WHERE `c.d` = 3") == [(1,)]
        assert rows(db, "SELECT * FROM j") == [(3, 7), (3, 7)]
        assert {verdict for *_, verdict in db.sql("VERIFY")} == {"equal to batch"}


def test_a_type_that_cannot_be_kept_is_refused_at_its_place_and_leaves_nothing(tmp_path, spark):
    where = {"spark": spark, "continuous": False, "partitions": 2}
    with headrace.connect(tmp_path / "again", **where) as db:
        for kind in ("STREAM", "TABLE"):
            for type_ in ("INTERVAL YEAR TO MONTH", "STRUCT<a INT, b VARIANT>"):
                error = refused(db, f"CREATE {kind} t (k INT, a {type_})")
                assert (error.code, error.span.source) == (Code.UNSUPPORTED, type_)
    with headrace.connect(tmp_path / "again", **where) as db:
        assert len(db.sql("SHOW TABLES")) == 0


@pytest.mark.long
def test_structs_and_maps_of_ksqldb(db):
    db.sql("""
        CREATE STREAM s (k VARCHAR KEY, v STRUCT<a INT, b VARCHAR>, m MAP<VARCHAR, INT>) WITH (kafka_topic='s', value_format='json');
        INSERT INTO s VALUES ('x', STRUCT(a := 1 + 1, b := concat('p', 'q')), MAP('k' := 1, 'l' := 2));
        CREATE MATERIALIZED VIEW w AS SELECT STRUCT(key := k, `n n` := v->a) AS r, m['l'] AS l FROM s
    """)
    assert rows(db, "SELECT * FROM w") == [({"key": "x", "n n": 2}, 2)]
    assert rows(db, "SELECT v->b FROM s") == [("pq",)]
    assert refused(db, "SELECT STRUCT('a' := 1) FROM s").code is Code.INVALID


@pytest.mark.long
def test_arrays_of_ksqldb_begin_at_1_wherever_they_stand(db):
    db.sql("""
        CREATE STREAM n (id INT KEY, p STRUCT<first VARCHAR, tags ARRAY<VARCHAR>, m MAP<VARCHAR, INT>, s ARRAY<STRUCT<x INT>>>)
          WITH (kafka_topic='n', value_format='json', wrap_single_value=true, value_delimiter='|');
        INSERT INTO n VALUES (1, STRUCT(first := 'a', tags := ARRAY['x', 'y'], m := MAP('k' := 5), s := ARRAY[STRUCT(x := 7)]));
        CREATE STREAM t AS SELECT id, p->tags[1] AS a, p->tags[-1] AS b, p->tags[5] AS c, p->m['k'] AS d, p->s[1]->x AS e,
          p.tags[1] AS f, TRANSFORM(p->tags, x => x || '!') AS g, transform(array(p.tags), z -> z[1]) AS h FROM n PARTITION BY id
    """)
    assert rows(db, "SELECT * FROM t") == [(1, "x", "y", None, 5, 7, "x", ["x!", "y!"], ["x"])]
    assert {verdict for *_, verdict in db.sql("VERIFY")} == {"equal to batch"}


@pytest.mark.long
def test_the_quick_start_of_ksqldb(db):
    db.sql("""
        CREATE STREAM riderLocations (profileId VARCHAR, latitude DOUBLE, longitude DOUBLE)
          WITH (kafka_topic='locations', value_format='json', partitions=1);
        CREATE TABLE currentLocation AS SELECT profileId, LATEST_BY_OFFSET(latitude) AS la, LATEST_BY_OFFSET(longitude) AS lo
          FROM riderlocations GROUP BY profileId EMIT CHANGES;
        CREATE TABLE ridersNearMountainView AS SELECT ROUND(GEO_DISTANCE(la, lo, 37.4133, -122.1162), -1) AS distanceInKm,
          SORT_ARRAY(COLLECT_LIST(profileId)) AS riders, COUNT(*) AS count
          FROM currentLocation GROUP BY ROUND(GEO_DISTANCE(la, lo, 37.4133, -122.1162), -1)
    """)
    for rider, latitude, longitude in [
        ("c2309eec", 37.7877, -122.4205), ("18f4ea86", 37.3903, -122.0643), ("4ab5cbad", 37.3952, -122.0813),
        ("8b6eae59", 37.3944, -122.0813), ("4a7c7b41", 37.4049, -122.0822), ("4ddad000", 37.7857, -122.4011),
    ]:  # fmt: skip
        db.sql(f"INSERT INTO riderLocations (profileId, latitude, longitude) VALUES ('{rider}', {latitude}, {longitude})")  # fmt: skip
    assert rows(db, "SELECT * FROM ridersNearMountainView WHERE distanceInKm <= 10") == [
        (0.0, ["4a7c7b41", "4ab5cbad", "8b6eae59"], 3),
        (10.0, ["18f4ea86"], 1),
    ]
    followed = db.sql(
        "SELECT * FROM riderLocations WHERE GEO_DISTANCE(latitude, longitude, 37.4133, -122.1162) <= 5 EMIT CHANGES LIMIT 3"
    )
    assert sorted(change.row["profileId"] for change in followed) == ["4a7c7b41", "4ab5cbad", "8b6eae59"]  # fmt: skip


@pytest.mark.long
def test_the_quick_start_of_materialize(db):
    db.sql("""
        CREATE TABLE auctions (id BIGINT, seller BIGINT, item TEXT, end_time TIMESTAMPTZ);
        CREATE TABLE bids (id BIGINT, buyer BIGINT, auction_id BIGINT, amount INT, bid_time TIMESTAMP WITH TIME ZONE);
        INSERT INTO auctions VALUES (1, 7, 'Pen', '2024-01-01 10:00:00'), (2, 6, 'Ink', '2124-01-01 11:00:00'),
          (3, 6, 'Cap', '2024-01-01 10:00:00');
        INSERT INTO bids VALUES (1, 5, 1, 10, '2024-01-01 09:59:00'), (2, 6, 1, 12, '2024-01-01 09:59:30'),
          (3, 6, 2, 3, '2024-01-01 09:59:30'), (4, 8, 3, 20, '2024-01-01 09:00:00'), (5, 8, 3, 99, '2024-01-01 10:00:01');
        CREATE VIEW winning_bids AS SELECT DISTINCT ON (auctions.id) bids.*, auctions.item, auctions.seller
          FROM auctions, bids WHERE auctions.id = bids.auction_id AND bids.bid_time < auctions.end_time
          AND mz_now() >= auctions.end_time ORDER BY auctions.id, bids.amount DESC, bids.bid_time, bids.buyer;
        CREATE VIEW fraud_activity AS SELECT w2.seller, w2.item AS seller_item, w2.amount AS seller_amount, w1.item buyer_item,
          w1.amount buyer_amount FROM winning_bids w1, winning_bids w2 WHERE w1.buyer = w2.seller AND w2.amount > w1.amount;
        CREATE MATERIALIZED VIEW funds_movement IN CLUSTER quickstart AS SELECT id, SUM(credits) as credits, SUM(debits) as debits
          FROM (SELECT seller as id, amount as credits, 0 as debits FROM winning_bids
          UNION ALL SELECT buyer as id, 0 as credits, amount as debits FROM winning_bids) GROUP BY id
    """)
    assert rows(db, "SELECT * FROM winning_bids WHERE item = 'Pen'")[0][:4] == (2, 6, 1, 12)
    assert rows(db, "SELECT * FROM fraud_activity") == [(6, "Cap", 20, "Pen", 12)]
    assert rows(db, "SELECT SUM(credits), SUM(debits) FROM funds_movement") == [(32, 32)]
    assert rows(db, "SELECT id FROM bids WHERE auction_id = ANY (SELECT id FROM auctions WHERE seller = 6)") == [(3,), (4,), (5,)]  # fmt: skip
    assert rows(db, "SELECT id FROM bids WHERE buyer = ANY(ARRAY[5, 8]) AND id <> ALL(ARRAY[4, 5])") == [(1,)]  # fmt: skip
    with db.sql("SUBSCRIBE TO (SELECT id, credits FROM funds_movement) WITH (SNAPSHOT = false)") as followed:  # fmt: skip
        assert not followed.poll()
        db.sql("INSERT INTO bids VALUES (6, 5, 1, 13, '2024-01-01 09:59:40'); FLUSH")
        told = sorted((c.weight, *c.row.values()) for c in followed.poll())
        assert told == [(-1, 7, 12), (1, 5, 0), (1, 7, 13)]
    assert {verdict for *_, verdict in db.sql("VERIFY")} == {"equal to batch"}


@pytest.mark.long
def test_queries_of_snowflakes_quick_start(db):
    db.sql("""
        CREATE OR REPLACE TABLE trips (trip_id INTEGER, tripduration INTEGER, starttime TIMESTAMP_NTZ, station STRING, gender INTEGER);
        INSERT INTO trips VALUES (1, 300, '2018-01-01 10:15:00', 'a', 1), (2, 600, '2018-01-02 11:15:00', 'b', 2), (3, 900, '2018-01-02 11:30:00', 'b', 2)
    """)
    assert db.sql("SELECT TOP 2 trip_id FROM trips ORDER BY tripduration DESC").fetchall() == [(3,), (2,)]  # fmt: skip
    db.sql("CREATE MATERIALIZED VIEW longest AS SELECT TOP 1 trip_id, tripduration FROM trips ORDER BY tripduration DESC")  # fmt: skip
    assert rows(db, "SELECT * FROM longest") == [(3, 900)]
    db.sql("DELETE FROM trips WHERE trip_id = 3")
    assert rows(db, "SELECT * FROM longest") == [(2, 600)]
    assert rows(db, 'SELECT dayname(starttime) AS "day", count(*) AS "num trips", avg(tripduration)/60 AS "mins" FROM trips GROUP BY 1') == [("Mon", 1, 5.0), ("Tue", 1, 10.0)]  # fmt: skip
    db.sql("CREATE VIEW gold.busy AS SELECT station FROM trips")
    assert rows(db, "SHOW VIEWS IN SCHEMA gold LIKE 'b%'") == [("gold.busy", "plain view", "", "not stored")]  # fmt: skip
    assert rows(db, "SHOW TABLES FROM gold LIKE 'x%'") == []
    assert refused(db, "SHOW TABLES IN god").hint == 'Did you mean "gold"?'
    assert db.sql("EXPLAIN OPTIMIZED PLAN FOR SELECT station FROM trips").fetchall()
    error = refused(db, "CREATE TABLE made (a INT) WITH ('connector' = 'faker')")
    assert (error.code, error.span.source) == (Code.UNSUPPORTED, "'connector' = 'faker'")
    error = refused(
        db, "CREATE TABLE made (a INT) WITH ('connector' = 'postgres-cdc', 'hostname' = 'h')"
    )
    assert (error.code, error.span.source) == (Code.UNSUPPORTED, "'hostname' = 'h'")
    assert "lives in the embedded log" in error.hint
