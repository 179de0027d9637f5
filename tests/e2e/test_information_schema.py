"""``information_schema``: what is known about the database, read by SELECT."""

from __future__ import annotations

import pytest

from asked import rows
from headrace import Code, HeadraceError

pytestmark = pytest.mark.spark


@pytest.fixture
def told(db):
    db.sql("""
        CREATE TABLE lab.orders (id INT, user STRING, PRIMARY KEY (id));
        CREATE STREAM clicks (user STRING) WITH (kafka_topic = 'clicks');
        CREATE VIEW named AS SELECT user FROM lab.orders;
        CREATE MATERIALIZED VIEW per_user AS SELECT user, count(*) AS n FROM named GROUP BY user;
        CREATE SINK s FROM per_user WITH (connector = 'blackhole');
        INSERT INTO lab.orders VALUES (1, 'ann'), (2, 'ann');
        FLUSH
    """)
    return db


@pytest.mark.long
def test_each_relation_tells_what_there_is(told):
    assert rows(
        told,
        "SELECT table_schema, table_name, table_type, primary_key, state"
        " FROM information_schema.tables",
    ) == [
        ("default", "clicks", "STREAM", None, "running"),
        ("default", "named", "VIEW", None, "not stored"),
        ("default", "per_user", "MATERIALIZED VIEW", "user", "running"),
        ("lab", "orders", "BASE TABLE", "id", "running"),
    ]
    assert rows(told, "SELECT table_name, connector, log_end FROM information_schema.streams") == [
        ("clicks", "kafka", 0)
    ]
    assert rows(
        told,
        "SELECT column_name, ordinal_position, data_type, is_key"
        " FROM information_schema.columns WHERE table_name = 'per_user'",
    ) == [
        ("n", 2, "bigint", False),
        ("user", 1, "string", True),
    ]
    assert rows(told, "SELECT table_name, is_materialized FROM information_schema.views") == [
        ("named", False),
        ("per_user", True),
    ]
    assert rows(told, "SELECT name, source, state, error FROM information_schema.sinks") == [
        ("s", "per_user", "running", None)
    ]
    assert rows(told, "SELECT schema_name FROM information_schema.schemata") == [
        ("default",), ("information_schema",), ("lab",)
    ]  # fmt: skip
    assert rows(told, "SELECT changes_behind, state FROM information_schema.freshness") == [
        (0, "running")
    ]


def test_relations_join_and_agree_with_each_other(told):
    assert rows(
        told,
        """
        SELECT d.name, d.depends_on, t.table_type FROM information_schema.dependencies d
        JOIN information_schema.tables t ON d.depends_on = t.table_name ORDER BY 1
    """,
    ) == [("per_user", "named", "VIEW"), ("s", "per_user", "MATERIALIZED VIEW")]
    assert rows(
        told,
        """
        SELECT owner, rows, dead_bytes FROM information_schema.arrangements WHERE is_contents
    """,
    ) == [("lab.orders", 2, 0), ("per_user", 1, 0)]
    last = told.parts.ledger.head.epoch
    assert rows(told, "SELECT max(epoch), count(*) FROM information_schema.epochs") == [
        (last, last)
    ]
    assert rows(
        told,
        "SELECT f.epoch = e.epoch FROM information_schema.freshness f"
        " CROSS JOIN (SELECT max(epoch) AS epoch FROM information_schema.epochs) e",
    ) == [(True,)]
    told.sql("CREATE TABLE seen (n BIGINT)")
    told.sql("INSERT INTO seen SELECT count(*) FROM information_schema.columns")
    assert rows(told, "SELECT * FROM seen") == [(6 + 1,)]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM information_schema.tables",
        "CREATE VIEW v AS SELECT table_name FROM information_schema.tables",
        "SELECT table_name FROM information_schema.tables EMIT CHANGES",
        "INSERT INTO information_schema.tables VALUES ('a')",
        "DELETE FROM information_schema.tables",
        "DROP TABLE information_schema.tables",
        "CREATE TABLE information_schema.mine (k INT)",
    ],
)
def test_it_is_only_read(db, statement):
    with pytest.raises(HeadraceError) as caught:
        db.sql(statement)
    assert caught.value.code in (Code.INVALID, Code.UNSUPPORTED)
    assert caught.value.span is not None
