"""Sinks into key-value stores, by SQL: the items are the view's rows, epoch by epoch."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from asked import refused
from headrace import Code
from servers.cassandra import PASSWORD, USER

if TYPE_CHECKING:
    from headrace.database import Database
    from servers.cassandra import Cassandra
    from servers.redis import Redis

pytestmark = pytest.mark.spark


@pytest.fixture
def shop(db: Database) -> Database:
    db.sql("""
        CREATE TABLE orders (id INT, user STRING, amount DECIMAL(8,2), PRIMARY KEY (id));
        INSERT INTO orders VALUES (1, 'ann', 10.00), (2, 'bob', 20.00);
        CREATE MATERIALIZED VIEW spent AS SELECT user, sum(amount) AS total FROM orders GROUP BY user;
        CREATE MATERIALIZED VIEW top AS SELECT id, CAST(amount AS DOUBLE) AS amount FROM orders
          ORDER BY amount DESC, id LIMIT 2
    """)
    return db


def test_redis_has_the_rows_of_views(shop: Database, redis: Redis) -> None:
    name, client = uuid4().hex[:8], redis.client()
    reached = f"connector = 'redis', host = '127.0.0.1', port = {redis.port}"
    made = shop.sql(f"CREATE SINK s FROM spent WITH ({reached}, pattern = '{name}:{{user}}')")
    assert made.message.startswith("created sink s: exact effect")
    shop.sql(
        f"CREATE SINK j FROM spent WITH ({reached}, pattern = '{name}j{{user}}', form = 'json')"
    )
    shop.sql(
        f"CREATE SINK t FROM top WITH ({reached}, pattern = '{name}-top', form = 'sorted_set',"
        " member = '{id}', score = 'amount')"
    )
    shop.sql("FLUSH")
    assert client.hget(f"{name}:ann", "total") == "10.00"
    shop.sql("INSERT INTO orders VALUES (3, 'ann', 50.50); DELETE FROM orders WHERE id = 2; FLUSH")
    item = client.hgetall(f"{name}:ann")
    assert item.pop("__epoch").isdigit()
    assert item == {"user": "ann", "total": "60.50"}
    assert client.keys(f"{name}:*") == [f"{name}:ann"]
    assert json.loads(client.get(f"{name}jann"))["total"] == "60.50"
    assert client.zrange(f"{name}-top", 0, -1, withscores=True) == [("1", 10.0), ("3", 50.5)]
    error = refused(shop, f"CREATE SINK u FROM spent WITH ({reached}, pattern = '{name}:{{user}}')")
    assert error.code is Code.CONFLICT
    assert shop.sql("SHOW CREATE s").fetchall()


@pytest.mark.long
def test_cassandra_has_the_rows_of_a_view(
    shop: Database, cassandra_node: Cassandra, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_TEST_PASSWORD_OF_CASSANDRA", PASSWORD)
    name = f"t{uuid4().hex[:8]}"
    made = shop.sql(f"""
        CREATE SECRET pw FROM ENV 'HEADRACE_TEST_PASSWORD_OF_CASSANDRA';
        CREATE SINK s FROM spent WITH (connector = 'cassandra', hosts = '127.0.0.1',
          port = {cassandra_node.port}, user = '{USER}', password = SECRET pw,
          keyspace = 'k', table = '{name}', create_table = true)
    """)
    assert made.message.startswith("created sink s: exact effect")
    shop.sql("INSERT INTO orders VALUES (3, 'ann', 50.50); DELETE FROM orders WHERE id = 2; FLUSH")
    found = cassandra_node.query(f"SELECT user, total FROM k.{name}")
    assert [tuple(row) for row in found] == [("ann", Decimal("60.50"))]
