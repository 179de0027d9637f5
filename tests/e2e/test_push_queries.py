"""Push queries that end by themselves, PRINT, and listings of what is named like a pattern."""

from __future__ import annotations

import pytest

import headrace

pytestmark = pytest.mark.spark


def told(changes):
    return [(c.operation, c.weight, *c.row.values()) for c in changes]


def hidden(db):
    return [relation.name for relation in db.parts.reader.catalog if relation.name.startswith("__")]


def test_a_push_query_with_a_limit_ends_after_so_many_rows(db):
    db.sql("CREATE TABLE t (k INT, v INT, PRIMARY KEY (k))")
    db.sql("INSERT INTO t VALUES (1, 1)")
    followed = db.sql("SELECT v, k FROM t EMIT CHANGES LIMIT 4")
    assert hidden(db)
    assert told(followed.poll()) == [("+I", 1, 1, 1)]
    db.sql("UPDATE t SET v = 2")
    db.flush()
    assert told(followed.poll()) == [("-U", -1, 1, 1), ("+U", 1, 2, 1)]
    assert followed.is_open
    db.sql("DELETE FROM t")
    db.flush()
    assert told(followed.poll()) == [("-D", -1, 2, 1)]
    db.sql("INSERT INTO t VALUES (2, 5), (3, 5), (4, 5)")
    db.flush()
    assert len(followed.poll()) == 1
    assert not followed.is_open
    assert followed.poll(timeout=60) is None
    assert not hidden(db)
    assert list(followed) == []


def test_copies_of_a_row_are_counted_one_by_one(db):
    db.sql("CREATE STREAM s (k INT); INSERT INTO s VALUES (1), (1), (1), (1)")
    db.sql("CREATE MATERIALIZED VIEW m AS SELECT k FROM s WHERE k > 0")
    followed = db.subscribe("SELECT * FROM m EMIT CHANGES LIMIT 6")
    assert [c.row for c in followed.poll()] == [{"k": 1}] * 4
    db.sql("INSERT INTO s VALUES (2), (2), (2)")
    db.flush()
    assert told(followed.poll()) == [("+I", 2, 2)]
    assert not followed.is_open
    assert [c.row for c in db.sql("SELECT * FROM m EMIT CHANGES LIMIT 1")] == [{"k": 1}]


def test_print_follows_a_topic_from_now_on_or_from_its_first_row(db):
    db.sql(
        "CREATE STREAM clicks (page STRING) WITH (kafka_topic = 'Web-Clicks', value_format = 'json');"
        "INSERT INTO clicks VALUES ('a'), ('b')"
    )
    db.sql("SET 'auto.offset.reset' = 'latest'")
    now = db.sql("PRINT 'Web-Clicks' LIMIT 1")
    all_of_it = db.sql("PRINT clicks FROM BEGINNING")
    assert not now.poll()
    assert sorted(c.row["page"] for c in all_of_it.poll()) == ["a", "b"]
    db.sql("INSERT INTO clicks VALUES ('c')")
    db.flush()
    assert told(now.poll()) == told(all_of_it.poll()) == [("+I", 1, "c")]
    assert (now.is_open, all_of_it.is_open) == (False, True)
    all_of_it.close()
    assert not hidden(db)
    with pytest.raises(headrace.HeadraceError, match='"web-click" does not exist') as caught:
        db.sql("PRINT 'Web-Click'")
    assert caught.value.span.source == "'Web-Click'"


def test_what_is_shown_may_be_like_a_pattern(db):
    db.sql(
        "CREATE TABLE order_items (k INT); CREATE TABLE orders (k INT); CREATE STREAM `Orders%` (k INT);"
        "CREATE SCHEMA gold; CREATE MATERIALIZED VIEW gold.orders AS SELECT k FROM orders;"
        "CREATE SINK out FROM gold.orders WITH (connector = 'blackhole')"
    )

    def names(statement):
        return sorted(row[0] for row in db.sql(statement))

    assert names("SHOW TABLES LIKE 'order%'") == ["order_items", "orders", "orders%"]
    assert names("SHOW TABLES LIKE 'ORDER_'") == ["orders"]
    assert names(r"SHOW STREAMS LIKE '%\%'") == ["orders%"]
    assert names(r"SHOW TABLES LIKE 'order\_%'") == ["order_items"]
    assert names("SHOW MATERIALIZED VIEWS LIKE 'gold.%'") == ["gold.orders"]
    assert names("SHOW SINKS LIKE '%u%'") == ["out"]
    assert names("SHOW SCHEMAS LIKE 'g%'") == ["gold"]
    assert names("SHOW FUNCTIONS LIKE '%'") == []
    assert names("SHOW TABLES LIKE ''") == []
