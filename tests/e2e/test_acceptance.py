"""Statements as their users wrote them, run in order, with the results that are stated for them.

What only names things that the statements need, such as their input tables, is ours.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

import headrace
from asked import rows

pytestmark = pytest.mark.spark


def after(db, statement, *followed):
    """Run a statement, and return what each subscription is told then."""
    db.sql(statement)
    db.flush()
    return [
        [(change.operation, *change.row.values()) for change in each.poll() or ()]
        for each in followed
    ]


A1 = """CREATE TABLE orders ( order_id STRING, user_id STRING, amount DECIMAL(10,2), status STRING,
    order_time TIMESTAMP(3), WATERMARK FOR order_time AS order_time - INTERVAL '5' SECOND )
    WITH ( 'connector' = 'kafka', 'topic' = 'orders', 'format' = 'json' );"""
A2 = """SELECT user_id, COUNT(*) AS order_count, SUM(amount) AS total_spend FROM orders
    WHERE status = 'completed' GROUP BY user_id;"""
A3_VIEW = """CREATE VIEW user_order_stats AS SELECT user_id, COUNT(*) AS order_count,
    SUM(amount) AS total_spend, MAX(order_time) AS last_order_time FROM orders GROUP BY user_id;"""
A3_JOB = "INSERT INTO user_stats_sink SELECT * FROM user_order_stats;"


@pytest.mark.long
def test_flink_orders_a_continuous_query_and_a_sink(db):
    assert "in the embedded log: no broker is configured" in db.sql(A1).message
    db.sql("SET 'execution.runtime-mode' = 'streaming'")
    with db.sql(A2) as changelog:
        found = changelog.poll()
        for id_, amount, status in [
            (1, "99.99", "completed"),
            (2, "7", "open"),
            (3, "149.99", "completed"),
        ]:
            db.sql(
                f"INSERT INTO orders VALUES ('o-{id_}', 'u-001', {amount}, '{status}',"
                f" TIMESTAMP '2025-01-01 10:0{id_}:00'); FLUSH"
            )
            found += changelog.poll()
    one = {"user_id": "u-001", "order_count": 1, "total_spend": Decimal("99.99")}
    two = {"user_id": "u-001", "order_count": 2, "total_spend": Decimal("249.98")}
    assert [(c.word, c.row) for c in found] == [
        ("INSERT", one),
        ("UPDATE_BEFORE", one),
        ("UPDATE_AFTER", two),
    ]
    assert [c.operation for c in found] == ["+I", "-U", "+U"]
    assert db.parts.reader.catalog.views_in_order() == ()

    db.sql("SET 'execution.runtime-mode' = 'batch'")
    db.sql("""CREATE TABLE user_stats_sink ( user_id STRING, order_count BIGINT,
        total_spend DECIMAL(20,2), last_order_time TIMESTAMP(3), PRIMARY KEY (user_id) NOT ENFORCED )
        WITH ( 'connector' = 'kafka', 'topic' = 'user-stats', 'format' = 'json' )""")
    db.sql(A3_VIEW)
    db.sql(A3_JOB)
    assert [row[:3] for row in rows(db, "SELECT * FROM user_stats_sink")] == [
        ("u-001", 3, Decimal("256.98"))
    ]
    db.sql(
        "DELETE FROM orders WHERE order_id = 'o-3'; INSERT INTO orders VALUES"
        " ('o-4', 'u-002', 1.00, 'open', TIMESTAMP '2025-01-01 11:00:00')"
    )
    assert rows(
        db,
        "SELECT user_id, order_count, total_spend, date_format(last_order_time, 'HH:mm')"
        " FROM user_stats_sink",
    ) == [
        ("u-001", 2, Decimal("106.99"), "10:02"),
        ("u-002", 1, Decimal("1.00"), "11:00"),
    ]
    assert {verdict for *_, verdict in db.sql("VERIFY")} == {"equal to batch"}


A4 = """CREATE TABLE orders_raw ( order_id STRING, user_id STRING, amount DECIMAL, created_at TIMESTAMP(3), op STRING -- 'c' (create), 'u' (update), 'd' (delete) from Debezium
) WITH (connector = 'kafka', topic = 'postgres.public.orders', format = 'debezium-json');"""
A5 = [
    """CREATE VIEW active_orders AS SELECT order_id, user_id, amount, created_at
       FROM orders_raw WHERE op <> 'd';""",
    """CREATE TABLE user_revenue AS SELECT user_id, SUM(amount) AS total_revenue
       FROM active_orders GROUP BY user_id;""",
    "INSERT INTO user_revenue_cassandra_sink SELECT * FROM user_revenue;",
]


def order(id_, user, amount):
    return {"order_id": id_, "user_id": user, "amount": amount, "created_at": "2025-01-01 10:00:00"}


def envelope(op, before, after_):
    return {"op": op, "before": before, "after": after_, "ts_ms": 1735725600000}


@pytest.mark.long
def test_debezium_orders_revenue_and_its_sink(db, tmp_path):
    db.sql(A4)
    db.sql(
        "CREATE TABLE user_revenue_cassandra_sink (user_id STRING, total_revenue DECIMAL,"
        " PRIMARY KEY (user_id)) WITH (connector = 'cassandra')"
    )
    for statement in A5:
        db.sql(statement)

    def capture(name, *envelopes):
        path = tmp_path / name
        path.write_text("\n".join(e if isinstance(e, str) else json.dumps(e) for e in envelopes))
        return db.sql(f"COPY orders_raw FROM '{path}'").message

    first, second = order("o-1", "ann", 10.25), order("o-2", "ann", 5)
    capture(
        "1.json",
        envelope("c", None, first),
        envelope("r", None, second),
        envelope("c", None, order("o-3", "bob", 99.99)),
    )
    sink = "SELECT * FROM user_revenue_cassandra_sink"
    assert rows(db, sink) == [("ann", Decimal("15.25")), ("bob", Decimal("99.99"))]

    raised = order("o-1", "ann", 20.5)
    message = capture(
        "2.json",
        envelope("u", first, raised),
        envelope("d", order("o-3", "bob", 99.99), None),
        "{not json",
        envelope("x", None, first),
        envelope("d", order("o-9", "eve", 1), None),
        {"payload": envelope("c", None, order("o-4", "cid", "7.01"))},
    )
    assert message == "3 rows copied, 3 rejected: see SHOW REJECTS"
    assert rows(db, sink) == [("ann", Decimal("25.50")), ("cid", Decimal("7.01"))]
    assert rows(db, "SELECT order_id, op, amount FROM orders_raw") == [
        ("o-1", "u", Decimal("20.5")),
        ("o-2", "r", Decimal(5)),
        ("o-4", "c", Decimal("7.01")),
    ]
    rejects = rows(db, "SHOW REJECTS FOR orders_raw")
    assert [(line, reason[:20]) for _, _, line, _, reason, *_ in rejects] == [
        (3, "not JSON: Expecting "),
        (4, "op 'x': an envelope "),
        (5, "no row equals the on"),
    ]
    assert {verdict for *_, verdict in db.sql("VERIFY")} == {"equal to batch"}


A6 = """SELECT o.order_id, o.product_id, o.amount, i.stock_remaining FROM orders o
    JOIN inventory_updates i ON o.product_id = i.product_id
    AND o.order_time BETWEEN i.update_time AND i.update_time + INTERVAL '1' MINUTE
    WHERE o.order_time >= CURRENT_TIMESTAMP - INTERVAL '1' HOUR;"""


def test_flink_interval_join_whose_rows_leave_as_time_passes(tmp_path, spark):
    now = [datetime(2025, 1, 1, 12, 0, tzinfo=UTC)]
    where = {"spark": spark, "continuous": False, "partitions": 2}
    clock = lambda: int(now[0].timestamp() * 1e6)  # noqa: E731
    with headrace.connect(tmp_path / "db", clock=clock, **where) as db:
        db.sql("""
            CREATE TABLE orders (order_id STRING, product_id STRING, amount DECIMAL(10,2), order_time TIMESTAMP(3));
            CREATE TABLE inventory_updates (product_id STRING, stock_remaining INT, update_time TIMESTAMP(3));
            SET 'execution.runtime-mode' = 'streaming'
        """)
        with db.sql(A6) as followed:
            assert followed.poll() == []
            (found,) = after(
                db,
                """
                INSERT INTO inventory_updates VALUES ('p1', 7, TIMESTAMP '2025-01-01 11:29:30');
                INSERT INTO orders VALUES ('o1', 'p1', 5.00, TIMESTAMP '2025-01-01 11:30:00'),
                  ('o2', 'p1', 5.00, TIMESTAMP '2025-01-01 11:31:00')
            """,
                followed,
            )
            assert found == [("+I", "o1", "p1", Decimal("5.00"), 7)]
            now[0] += timedelta(minutes=30)
            assert after(db, "FLUSH", followed) == [[]]
            now[0] += timedelta(seconds=1)
            (found,) = after(db, "FLUSH", followed)
            assert found == [("-D", "o1", "p1", Decimal("5.00"), 7)]


B1 = """CREATE STREAM readings ( sensor VARCHAR KEY, area VARCHAR, reading INT )
    WITH ( kafka_topic = 'readings', partitions = 2, value_format = 'json' );"""
READINGS = [
    ("sensor-1", "wheel", 45),
    ("sensor-2", "motor", 41),
    ("sensor-1", "wheel", 92),
    ("sensor-2", "engine", 13),
    ("sensor-2", "engine", 90),
    ("sensor-4", "motor", 95),
    ("sensor-3", "engine", 67),
    ("sensor-3", "wheel", 52),
    ("sensor-4", "engine", 55),
    ("sensor-3", "engine", 37),
]
B3 = "CREATE TABLE avg_readings AS SELECT sensor, AVG(reading) AS avg FROM readings GROUP BY sensor"
B6 = """CREATE TABLE user_order_stats AS SELECT user_id, COUNT(*) AS order_count,
    SUM(amount) AS total_spend FROM orders_stream GROUP BY user_id EMIT CHANGES;"""
B7 = [
    """CREATE STREAM shopping_cart_events ( customer VARCHAR, item VARCHAR, qty INT, op VARCHAR -- 'add', 'remove'
) WITH (kafka_topic='shopping_cart_events', value_format='json', partitions=1);""",
    """CREATE TABLE cart_contents AS SELECT customer, item,
    SUM(CASE WHEN op = 'add' THEN qty ELSE -qty END) AS quantity FROM shopping_cart_events
    GROUP BY customer, item HAVING SUM(CASE WHEN op = 'add' THEN qty ELSE -qty END) > 0 EMIT CHANGES;""",
]


@pytest.mark.long
def test_ksqldb_readings_orders_and_carts(db):
    db.sql(B1)
    db.sql("SET 'auto.offset.reset' = 'earliest';")
    db.sql(B3)
    pushed = db.sql("SELECT * FROM avg_readings WHERE sensor='sensor-1' EMIT CHANGES;")
    steps = pushed.poll()
    for sensor, area, reading in READINGS:
        db.sql(
            "INSERT INTO readings (sensor, area, reading)"
            f" VALUES ('{sensor}', '{area}', {reading});"
        )
        db.flush()
        steps += pushed.poll() or []
    pushed.close()
    assert [c.row["avg"] for c in steps if c.weight > 0] == [45, 68.5]
    assert db.sql("SELECT * FROM avg_readings WHERE sensor='sensor-1';").fetchall() == [
        ("sensor-1", 68.5)
    ]
    averages = {"sensor-1": 68.5, "sensor-2": 48, "sensor-3": 52, "sensor-4": 75}
    assert dict(rows(db, "SELECT * FROM avg_readings")) == averages
    db.sql("DROP TABLE avg_readings")
    db.sql(f"{B3} EMIT CHANGES;")
    assert dict(rows(db, "SELECT * FROM avg_readings")) == averages
    db.sql(f"{B3.replace('sensor', 'area').replace('avg_readings', 'by_area')}")
    assert dict(rows(db, "SELECT * FROM by_area")) == {"wheel": 63, "motor": 68, "engine": 52.4}
    assert rows(db, "SELECT * FROM readings WHERE sensor='sensor-1';") == [
        ("sensor-1", "wheel", 45),
        ("sensor-1", "wheel", 92),
    ]

    db.sql("CREATE STREAM orders_stream (user_id VARCHAR, amount DECIMAL(10,2))")
    db.sql(B6)
    db.sql("INSERT INTO orders_stream VALUES ('u-1', 10), ('u-1', 2.5), ('u-2', 1)")
    assert rows(db, "SELECT * FROM user_order_stats") == [
        ("u-1", 2, Decimal("12.50")),
        ("u-2", 1, Decimal("1.00")),
    ]

    for statement in B7:
        db.sql(statement)
    with db.sql("SELECT * FROM cart_contents EMIT CHANGES") as cart:
        cart.poll()
        insert = "INSERT INTO shopping_cart_events VALUES ('ann', 'tea', {}, '{}')"
        assert after(db, insert.format(2, "add"), cart) == [[("+I", "ann", "tea", 2)]]
        assert after(db, insert.format(1, "remove"), cart) == [
            [("-U", "ann", "tea", 2), ("+U", "ann", "tea", 1)]
        ]
        assert after(db, insert.format(1, "remove"), cart) == [[("-D", "ann", "tea", 1)]]
        assert after(db, insert.format(3, "add"), cart) == [[("+I", "ann", "tea", 3)]]
    assert {verdict for *_, verdict in db.sql("VERIFY")} == {"equal to batch"}


C1 = """CREATE MATERIALIZED VIEW gold.daily_order_summary OPTIONS (refresh_interval_minutes = 60) AS
    SELECT order_date, user_segment, COUNT(*) AS orders, SUM(amount) AS revenue
    FROM gold.fact_orders GROUP BY order_date, user_segment;"""
D1 = """CREATE MATERIALIZED VIEW enriched_orders AS SELECT o.order_id, o.amount, u.user_tier,
    u.country, p.product_category, o.order_time FROM orders o JOIN users u ON o.user_id = u.user_id
    JOIN products p ON o.product_id = p.product_id;"""


@pytest.mark.long
def test_bigquery_daily_summary_and_materialize_enriched_orders(db):
    db.sql(
        "CREATE TABLE gold.fact_orders (id INT, order_date DATE, user_segment STRING,"
        " amount DECIMAL(10,2), PRIMARY KEY (id))"
    )
    assert "refreshed every 1 hour, and by REFRESH" in db.sql(C1).message
    db.sql(
        "INSERT INTO gold.fact_orders VALUES (1, DATE '2025-01-01', 'pro', 10), (2, DATE"
        " '2025-01-01', 'pro', 5), (3, DATE '2025-01-02', 'new', 1)"
    )
    db.sql("UPDATE gold.fact_orders SET amount = 7 WHERE id = 2")
    assert rows(db, "SELECT count(*) FROM gold.daily_order_summary") == [(0,)]
    db.sql("REFRESH MATERIALIZED VIEW gold.daily_order_summary")
    assert rows(
        db,
        "SELECT cast(order_date AS STRING), user_segment, orders, revenue"
        " FROM gold.daily_order_summary",
    ) == [
        ("2025-01-01", "pro", 2, Decimal("17.00")),
        ("2025-01-02", "new", 1, Decimal("1.00")),
    ]

    db.sql("""
        CREATE TABLE orders (order_id INT, user_id INT, product_id INT, amount INT, order_time STRING, PRIMARY KEY (order_id));
        CREATE TABLE users (user_id INT, user_tier STRING, country STRING, PRIMARY KEY (user_id));
        CREATE TABLE products (product_id INT, product_category STRING, PRIMARY KEY (product_id));
        INSERT INTO users VALUES (1, 'silver', 'no'), (2, 'gold', 'it');
        INSERT INTO products VALUES (1, 'tea'), (2, 'cup');
        INSERT INTO orders VALUES (10, 1, 1, 5, 't1'), (11, 1, 2, 6, 't2'), (12, 2, 2, 7, 't3')
    """)
    db.sql(D1)
    with db.sql("SUBSCRIBE enriched_orders") as followed:
        assert len(followed.poll()) == 3
        (added,) = after(db, "INSERT INTO orders VALUES (13, 2, 1, 8, 't4')", followed)
        assert added == [("+I", 13, 8, "gold", "it", "tea", "t4")]
        (moved,) = after(db, "UPDATE users SET user_tier = 'gold' WHERE user_id = 1", followed)
        assert sorted(moved) == [
            ("+U", 10, 5, "gold", "no", "tea", "t1"),
            ("+U", 11, 6, "gold", "no", "cup", "t2"),
            ("-U", 10, 5, "silver", "no", "tea", "t1"),
            ("-U", 11, 6, "silver", "no", "cup", "t2"),
        ]
    assert {verdict for *_, verdict in db.sql("VERIFY")} == {"equal to batch"}


def test_balances_are_the_sum_of_their_steps_and_their_changelog_gives_them_back(db):
    db.sql("CREATE STREAM steps (user STRING, amount INT)")
    db.sql(
        "CREATE MATERIALIZED VIEW balance AS SELECT user, sum(amount) AS balance FROM steps GROUP BY user"
    )
    with db.sql("SUBSCRIBE balance") as followed:
        followed.poll()
        told = [
            after(db, f"INSERT INTO steps VALUES ('{user}', {amount})", followed)[0]
            for user, amount in [
                ("u-001", 0),
                ("u-001", 100),
                ("u-001", 350),
                ("u-001", -100),
                ("u-002", 120),
            ]
        ]
    assert told == [
        [("+I", "u-001", 0)],
        [("-U", "u-001", 0), ("+U", "u-001", 100)],
        [("-U", "u-001", 100), ("+U", "u-001", 450)],
        [("-U", "u-001", 450), ("+U", "u-001", 350)],
        [("+I", "u-002", 120)],
    ]
    assert rows(db, "SELECT * FROM balance") == [("u-001", 350), ("u-002", 120)]


@pytest.mark.long
def test_an_account_is_its_events_and_a_new_read_model_replays_them(db):
    db.sql("CREATE STREAM account_events (seq INT, account STRING, kind STRING, amount INT)")
    db.sql("""CREATE MATERIALIZED VIEW accounts AS SELECT account,
        sum(CASE WHEN kind = 'withdraw' THEN -amount ELSE amount END) AS balance
        FROM account_events GROUP BY account""")
    for seq, (kind, amount) in enumerate(
        [("opened", 0), ("deposit", 100), ("deposit", 50), ("withdraw", 100)]
    ):
        db.sql(f"INSERT INTO account_events VALUES ({seq}, 'a1', '{kind}', {amount})")
    assert rows(db, "SELECT * FROM accounts") == [("a1", 50)]
    db.sql("""CREATE MATERIALIZED VIEW statement AS SELECT account, kind, count(*) AS n,
        sum(amount) AS amount FROM account_events GROUP BY account, kind""")
    assert rows(db, "SELECT * FROM statement") == [
        ("a1", "deposit", 2, 150),
        ("a1", "opened", 1, 0),
        ("a1", "withdraw", 1, 100),
    ]
    assert {verdict for *_, verdict in db.sql("VERIFY")} == {"equal to batch"}


@pytest.mark.long
def test_read_models_of_one_log_of_commands(db):
    db.sql("""
        CREATE STREAM commands (seq INT, command STRING, order_id INT, user_id STRING, amount INT, status STRING);
        CREATE MATERIALIZED VIEW order_states AS
          SELECT order_id, max(user_id) AS user_id, max(amount) AS amount,
            max_by(CASE command WHEN 'place_order' THEN 'placed' WHEN 'cancel_order' THEN 'cancelled'
              ELSE status END, seq) AS status
          FROM commands GROUP BY order_id;
        CREATE MATERIALIZED VIEW order_by_user AS
          SELECT user_id, sort_array(collect_list(order_id)) AS orders FROM order_states GROUP BY user_id;
        CREATE MATERIALIZED VIEW order_by_status AS
          SELECT status, count(*) AS n FROM order_states GROUP BY status;
        CREATE MATERIALIZED VIEW user_dashboard AS
          SELECT user_id, named_struct('orders', count(*), 'open', count_if(status <> 'cancelled'),
            'spent', sum(CASE WHEN status <> 'cancelled' THEN amount ELSE 0 END)) AS totals
          FROM order_states GROUP BY user_id;
        INSERT INTO commands VALUES (1, 'place_order', 1, 'ann', 10, NULL),
          (2, 'place_order', 2, 'ann', 20, NULL), (3, 'place_order', 3, 'bob', 30, NULL)
    """)
    with db.sql("SUBSCRIBE order_by_status") as followed:
        assert [tuple(c.row.values()) for c in followed.poll()] == [("placed", 3)]
        (told,) = after(
            db,
            "INSERT INTO commands VALUES (4, 'update_status', 3, NULL, NULL,"
            " 'shipped'), (5, 'cancel_order', 2, NULL, NULL, NULL)",
            followed,
        )
        assert sorted(told) == [
            ("+I", "cancelled", 1),
            ("+I", "shipped", 1),
            ("+U", "placed", 1),
            ("-U", "placed", 3),
        ]
    assert rows(db, "SELECT * FROM order_by_user") == [("ann", [1, 2]), ("bob", [3])]
    assert dict(rows(db, "SELECT * FROM user_dashboard")) == {
        "ann": {"orders": 2, "open": 1, "spent": 10},
        "bob": {"orders": 1, "open": 1, "spent": 30},
    }
    assert {verdict for *_, verdict in db.sql("VERIFY")} == {"equal to batch"}
