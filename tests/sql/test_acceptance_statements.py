"""Statements of four dialects, as their users wrote them."""

from __future__ import annotations

import pytest

from headrace.planning.sql import (
    CreateMaterializedView,
    CreateStream,
    CreateTable,
    CreateTableAs,
    CreateView,
    Insert,
    Query,
    parse,
)
from sql.statement_text import one, plain

A1 = (
    "CREATE TABLE orders ( order_id STRING, user_id STRING, amount DECIMAL(10,2), status STRING,"
    " order_time TIMESTAMP(3), WATERMARK FOR order_time AS order_time - INTERVAL '5' SECOND )"
    " WITH ( 'connector' = 'kafka', 'topic' = 'orders', 'format' = 'json' );"
)
A4 = """CREATE TABLE orders_raw ( order_id STRING, user_id STRING, amount DECIMAL, \
created_at TIMESTAMP(3), op STRING -- 'c' (create), 'u' (update), 'd' (delete) from Debezium
) WITH (connector = 'kafka', topic = 'postgres.public.orders', format = 'debezium-json');"""
A6 = (
    "SELECT o.order_id, o.product_id, o.amount, i.stock_remaining FROM orders o"
    " JOIN inventory_updates i ON o.product_id = i.product_id AND o.order_time BETWEEN"
    " i.update_time AND i.update_time + INTERVAL '1' MINUTE"
    " WHERE o.order_time >= CURRENT_TIMESTAMP - INTERVAL '1' HOUR"
)
A7 = (
    "SELECT country, title_id, COUNT(*) AS views FROM viewing_events GROUP BY"
    " HOP(event_time, INTERVAL \u20181\u2019 MINUTE, INTERVAL \u20185\u2019 MINUTE),"
    " country, title_id"
)
B7_EVENTS = """CREATE STREAM shopping_cart_events ( customer VARCHAR, item VARCHAR, qty INT, \
op VARCHAR -- 'add', 'remove'
) WITH (kafka_topic='shopping_cart_events', value_format='json', partitions=1);"""
B7_CART = (
    "SELECT customer, item, SUM(CASE WHEN op = 'add' THEN qty ELSE -qty END) AS quantity FROM"
    " shopping_cart_events GROUP BY customer, item"
    " HAVING SUM(CASE WHEN op = 'add' THEN qty ELSE -qty END) > 0"
)
USER_STATS = (
    "SELECT user_id, COUNT(*) AS order_count, SUM(amount) AS total_spend, MAX(order_time) AS"
    " last_order_time FROM orders GROUP BY user_id"
)


def columns(statement: CreateTable | CreateStream) -> dict[str, str]:
    return {column.name: column.type.text for column in statement.columns}


def test_a1_a_flink_table_over_kafka_with_a_watermark() -> None:
    statement = one(A1)
    assert isinstance(statement, CreateTable)
    assert columns(statement) == {
        "order_id": "STRING",
        "user_id": "STRING",
        "amount": "DECIMAL(10,2)",
        "status": "STRING",
        "order_time": "TIMESTAMP",
    }
    assert plain(statement.watermark) == {
        "is": "WatermarkClause",
        "column": "order_time",
        "expression": "order_time - INTERVAL '5' SECOND",
    }
    assert plain(statement.options) == (
        ("connector", "kafka"),
        ("topic", "orders"),
        ("format", "json"),
    )


@pytest.mark.parametrize("query", [A6, A7, USER_STATS, B7_CART])
def test_a2_a6_a7_a_query_is_kept_as_written(query: str) -> None:
    assert plain(one(query + ";")) == {"is": "Query", "text": query}
    emitted = one(query + " EMIT CHANGES;")
    assert plain(emitted) == {"is": "Query", "text": query, "emit_changes": True}


def test_a3_a_view_and_a_sink() -> None:
    view, insert = parse(
        f"CREATE VIEW user_order_stats AS {USER_STATS};\n"
        "INSERT INTO user_stats_sink SELECT * FROM user_order_stats;"
    )
    assert isinstance(view, CreateView)
    assert (view.name.dotted, view.query.text) == ("user_order_stats", USER_STATS)
    assert isinstance(insert, Insert)
    assert plain(insert.target) == "user_stats_sink"
    assert insert.query.text == "SELECT * FROM user_order_stats"


def test_a4_comments_unquoted_keys_and_a_decimal_that_keeps_cents() -> None:
    statement = one(A4)
    assert isinstance(statement, CreateTable)
    assert columns(statement)["amount"] == "DECIMAL(38,9)"
    assert columns(statement)["op"] == "STRING"
    assert plain(statement.options) == (
        ("connector", "kafka"),
        ("topic", "postgres.public.orders"),
        ("format", "debezium-json"),
    )


def test_a5_a_chain_of_views_into_a_sink() -> None:
    view, table, insert = parse(
        "CREATE VIEW active_orders AS SELECT order_id, user_id, amount, created_at"
        " FROM orders_raw WHERE op <> 'd'; "
        "CREATE TABLE user_revenue AS SELECT user_id, SUM(amount) AS total_revenue"
        " FROM active_orders GROUP BY user_id; "
        "INSERT INTO user_revenue_cassandra_sink SELECT * FROM user_revenue;"
    )
    assert isinstance(view, CreateView)
    assert isinstance(table, CreateTableAs)
    assert (table.kind, table.query.emit_changes) == ("table", False)
    assert isinstance(insert, Insert)


def test_b1_a_ksqldb_stream_with_its_message_key() -> None:
    statement = one(
        "CREATE STREAM readings ( sensor VARCHAR KEY, area VARCHAR, reading INT ) WITH"
        " ( kafka_topic = 'readings', partitions = 2, value_format = 'json' );"
    )
    assert isinstance(statement, CreateStream)
    assert columns(statement) == {"sensor": "STRING", "area": "STRING", "reading": "INT"}
    assert (statement.message_key, statement.primary_key) == (("sensor",), ())
    assert plain(statement.options) == (
        ("kafka_topic", "readings"),
        ("partitions", "2"),
        ("value_format", "json"),
    )


def test_b2_a_row_is_inserted() -> None:
    statement = one(
        "INSERT INTO readings (sensor, area, reading) VALUES ('sensor-1', 'wheel', 45);"
    )
    assert plain(statement) == {
        "is": "Insert",
        "target": "readings",
        "columns": ("sensor", "area", "reading"),
        "query": {"is": "Query", "text": "VALUES ('sensor-1', 'wheel', 45)"},
    }


@pytest.mark.parametrize("ending", ["", " EMIT CHANGES"])
def test_b3_a_setting_then_a_table_of_averages(ending: str) -> None:
    query = "SELECT sensor, AVG(reading) AS avg FROM readings GROUP BY sensor"
    setting, table = parse(
        f"SET 'auto.offset.reset' = 'earliest';\nCREATE TABLE avg_readings AS {query}{ending}"
    )
    assert plain(setting) == {"is": "SetOption", "key": "auto.offset.reset", "value": "earliest"}
    assert isinstance(table, CreateTableAs)
    assert (table.query.text, table.query.emit_changes) == (query, bool(ending))


def test_b4_pull_and_push() -> None:
    query = "SELECT * FROM avg_readings WHERE sensor='sensor-1'"
    pull, push = parse(f"{query}; {query} EMIT CHANGES;")
    assert isinstance(pull, Query)
    assert isinstance(push, Query)
    assert (pull.text, pull.emit_changes) == (query, False)
    assert (push.text, push.emit_changes) == (query, True)


def test_b7_a_cart_with_a_having() -> None:
    stream, table = parse(B7_EVENTS + f"\nCREATE TABLE cart_contents AS {B7_CART} EMIT CHANGES;")
    assert isinstance(stream, CreateStream)
    assert columns(stream) == {
        "customer": "STRING",
        "item": "STRING",
        "qty": "INT",
        "op": "STRING",
    }
    assert isinstance(table, CreateTableAs)
    assert (table.query.text, table.query.emit_changes) == (B7_CART, True)


def test_c1_a_bigquery_view_with_options() -> None:
    query = (
        "SELECT order_date, user_segment, COUNT(*) AS orders, SUM(amount) AS revenue"
        " FROM gold.fact_orders GROUP BY order_date, user_segment"
    )
    statement = one(
        "CREATE MATERIALIZED VIEW gold.daily_order_summary"
        f" OPTIONS (refresh_interval_minutes = 60) AS {query};"
    )
    assert isinstance(statement, CreateMaterializedView)
    assert statement.name.parts == ("gold", "daily_order_summary")
    assert plain(statement.options) == (("refresh_interval_minutes", "60"),)
    assert statement.query.text == query


def test_d1_a_materialize_view_of_joins() -> None:
    query = (
        "SELECT o.order_id, o.amount, u.user_tier, u.country, p.product_category, o.order_time"
        " FROM orders o JOIN users u ON o.user_id = u.user_id"
        " JOIN products p ON o.product_id = p.product_id"
    )
    statement = one(f"CREATE MATERIALIZED VIEW enriched_orders AS {query};")
    assert isinstance(statement, CreateMaterializedView)
    assert (statement.name.dotted, statement.query.text) == ("enriched_orders", query)
