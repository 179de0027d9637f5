"""Sinks into key-value stores, by SQL: the items are the view's rows, epoch by epoch."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING
from uuid import uuid4

import boto3
import pytest

from asked import refused
from headrace import Code
from servers.cassandra import PASSWORD, USER
from servers.dynamodb import RIGHTS

if TYPE_CHECKING:
    from headrace.interfaces.database import Database
    from servers.cassandra import Cassandra
    from servers.dynamodb import DynamoDB
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


def test_redis_and_dynamodb_have_the_rows_of_views(
    shop: Database, redis: Redis, dynamo: DynamoDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_TEST_KEY_OF_DYNAMODB", "test")
    name, client = uuid4().hex[:8], redis.client()
    shop.sql(f"CREATE CONNECTION r TO REDIS (HOST '127.0.0.1', PORT {redis.port})")
    made = shop.sql(f"CREATE SINK s FROM spent INTO CONNECTION r (PATTERN '{name}:{{user}}')")
    assert made.message.startswith("created sink s: exact effect")
    shop.sql(f"CREATE SINK j FROM spent INTO CONNECTION r (PATTERN '{name}j{{user}}', FORM json)")
    shop.sql(
        f"CREATE SINK t FROM top INTO CONNECTION r (PATTERN '{name}-top', FORM sorted_set,"
        " MEMBER '{id}', SCORE amount)"
    )
    shop.sql(f"""
        CREATE SECRET pw FROM ENV 'HEADRACE_TEST_KEY_OF_DYNAMODB';
        CREATE CONNECTION d TO DYNAMODB (ENDPOINT '{dynamo.endpoint}', ACCESS KEY 'test',
          SECRET KEY SECRET pw);
        CREATE SINK d FROM spent INTO CONNECTION d (TABLE '{name}', CREATE_TABLE true)
    """)
    shop.sql("FLUSH")
    assert client.hget(f"{name}:ann", "total") == "10.00"
    shop.sql("INSERT INTO orders VALUES (3, 'ann', 50.50); DELETE FROM orders WHERE id = 2; FLUSH")
    item = client.hgetall(f"{name}:ann")
    assert item.pop("__epoch").isdigit()
    assert item == {"user": "ann", "total": "60.50"}
    assert client.keys(f"{name}:*") == [f"{name}:ann"]
    assert json.loads(client.get(f"{name}jann"))["total"] == "60.50"
    assert client.zrange(f"{name}-top", 0, -1, withscores=True) == [("1", 10.0), ("3", 50.5)]
    error = refused(shop, f"CREATE SINK u FROM spent INTO CONNECTION r (PATTERN '{name}:{{user}}')")
    assert error.code is Code.CONFLICT
    for altered in ("PATTERN = 'other:{user}'", "form = 'json'", "connector = 'file'"):
        assert "cannot change" in refused(shop, f"ALTER SINK s SET ({altered})").primary
    shop.sql("ALTER SINK s SET (ttl = '1 day')")
    client.hset(f"{name}:ann", "total", "0.00")
    client.delete(f"{name}jann")
    shop.sql("RECONCILE SINK s; RECONCILE SINK j")
    assert client.hget(f"{name}:ann", "total") == "60.50"
    assert client.ttl(f"{name}:ann") > 0
    assert json.loads(client.get(f"{name}jann"))["total"] == "60.50"
    client.delete(f"{name}:ann", f"headrace:sink:{name}:{{user}}")  # as if flushed or restored
    shop.sql("INSERT INTO orders VALUES (4, 'bob', 1.00); DROP SINK t; PAUSE SINK s; RESUME SINK s")
    assert "has lost changes" in refused(shop, "RECONCILE SINK s CHECK").primary
    shop.sql("RECONCILE SINK s; FLUSH")
    assert client.hget(f"{name}:ann", "total") == "60.50"
    assert client.hget(f"{name}:bob", "total") == "1.00"
    shop.sql("DELETE FROM orders WHERE id = 4; RESET SINK d; FLUSH")
    found = boto3.client("dynamodb", "us-east-1", endpoint_url=dynamo.endpoint, **RIGHTS)
    found = [i for i in found.scan(TableName=name)["Items"] if "__deleted" not in i]
    assert [(i["user"], i["total"]) for i in found] == [({"S": "ann"}, {"N": "60.50"})]


@pytest.mark.long
def test_cassandra_has_the_rows_of_a_view(
    shop: Database, cassandra_node: Cassandra, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_TEST_PASSWORD_OF_CASSANDRA", PASSWORD)
    name = f"t{uuid4().hex[:8]}"
    made = shop.sql(f"""
        CREATE SECRET pw FROM ENV 'HEADRACE_TEST_PASSWORD_OF_CASSANDRA';
        CREATE CONNECTION c TO CASSANDRA (HOSTS '127.0.0.1', PORT {cassandra_node.port},
          USER '{USER}', PASSWORD SECRET pw);
        CREATE SINK s FROM spent INTO CONNECTION c
          (KEYSPACE 'k', TABLE '{name}', CREATE_TABLE true)
    """)
    assert made.message.startswith("created sink s: exact effect")
    shop.sql("INSERT INTO orders VALUES (3, 'ann', 50.50); DELETE FROM orders WHERE id = 2; FLUSH")
    found = cassandra_node.query(f"SELECT user, total FROM k.{name}")
    assert [tuple(row) for row in found] == [("ann", Decimal("60.50"))]
    cassandra_node.query(f"UPDATE k.{name} SET total = 0 WHERE user = 'ann'")
    cassandra_node.query(f"INSERT INTO k.{name} (user, total) VALUES ('eve', 1)")
    (found,) = shop.sql("RECONCILE SINK s").fetchall()
    assert found[2:] == (1, 0, 1, 1, 0, "repaired")
    found = cassandra_node.query(f"SELECT user, total FROM k.{name}")
    assert [tuple(row) for row in found] == [("ann", Decimal("60.50"))]
    shop.sql("RESET SINK s; INSERT INTO orders VALUES (4, 'bob', 1.00); FLUSH")
    found = cassandra_node.query(f"SELECT user, total FROM k.{name}")
    assert {tuple(row) for row in found} == {("ann", Decimal("60.50")), ("bob", Decimal("1.00"))}
