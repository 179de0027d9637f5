"""Connections: named once, checked when they are created, and used by streams."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from headrace.errors import Code, HeadraceError
from servers.machine import free_port

if TYPE_CHECKING:
    import headrace
    from servers.kafka import Kafka
    from servers.postgres import Postgres


LISTED = (
    "properties.bootstrap.servers = a:9092,b:9092, properties.security.protocol = sasl_plaintext,"
    " properties.sasl.mechanism = PLAIN, properties.sasl.username = u,"
    " properties.sasl.password = pw"
)


def refused(db: headrace.Database, sql: str) -> HeadraceError:
    with pytest.raises(HeadraceError) as error:
        db.sql(sql)
    return error.value


def test_a_connection_is_kept_listed_and_dropped_with_its_secret_in_use(
    db: headrace.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_TEST_PASSWORD_OF_A_BROKER", "s3cr3t")
    db.sql(
        "CREATE SECRET pw FROM ENV 'HEADRACE_TEST_PASSWORD_OF_A_BROKER';"
        " CREATE CONNECTION prod TO KAFKA (BROKERS ('a:9092', 'b:9092'), SASL MECHANISMS 'PLAIN',"
        " SASL USERNAME = 'u', SASL PASSWORD SECRET pw, SECURITY PROTOCOL SASL_PLAINTEXT);"
        " CREATE CONNECTION other WITH (type = 'kafka', 'properties.bootstrap.servers' = 'c:9092')"
    )
    assert db.sql("SHOW CONNECTIONS").fetchall() == [
        ("other", "kafka", "properties.bootstrap.servers = c:9092"),
        (
            "prod",
            "kafka",
            LISTED,
        ),
    ]
    (prod,) = [each for each in db.parts.connections if each.name == "prod"]
    assert prod.options.client(db.parts.secrets.value)["sasl.password"] == "s3cr3t"
    assert refused(db, "DROP SECRET pw").primary == 'secret "pw" is used by connection prod'
    assert "exists" in db.sql("CREATE CONNECTION IF NOT EXISTS prod TO KAFKA (BROKER 'x')").message
    assert refused(db, "CREATE CONNECTION prod TO KAFKA (BROKER 'x')").code is Code.CONFLICT
    db.sql("DROP CONNECTION prod; DROP SECRET pw")
    assert "does not exist" in db.sql("DROP CONNECTION IF EXISTS prod").message
    assert refused(db, "DROP CONNECTION othr").hint == 'Did you mean "other"?'


@pytest.mark.parametrize(
    ("sql", "primary"),
    [
        ("CREATE CONNECTION c TO KAFCA (BROKER 'x')", 'connections of kind "kafca"'),
        ("CREATE CONNECTION c TO KAFKA (BROKR 'x')", 'option "brokr"'),
        ("CREATE CONNECTION c TO KAFKA (SASL USERNAME 'x')", "a kafka connection has no"),
        (
            "CREATE CONNECTION c TO KAFKA (BROKER 'x', SASL PASSWORD SECRET nope)",
            'secret "nope" does not exist',
        ),
        (
            "CREATE CONNECTION c TO KAFKA (BROKER 'x', SASL PASSWORD 'plain')",
            'option "sasl password" is a secret',
        ),
        ("CREATE CONNECTION c TO POSTGRES (HOST 'h')", "a postgres connection has no database"),
        ("CREATE STREAM s (v INT) WITH (connection = nope, topic = 't')", 'connection "nope"'),
    ],
)
def test_what_is_wrong_with_a_connection_is_said_and_nothing_is_created(
    db: headrace.Database, sql: str, primary: str
) -> None:
    error = refused(db, sql)
    assert error.primary.startswith(primary)
    assert error.span is not None or error.hint
    assert db.sql("SHOW CONNECTIONS").fetchall() == []


def test_postgres_is_asked_when_a_connection_is_created(
    db: headrace.Database, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_TEST_PASSWORD_OF_ANN", "right")
    monkeypatch.setenv("HEADRACE_TEST_PASSWORD_OF_BOB", "wrong")
    with postgres_server.connect() as session:
        session.execute("CREATE ROLE ann LOGIN PASSWORD 'right'")
    db.sql(
        "CREATE SECRET ann FROM ENV 'HEADRACE_TEST_PASSWORD_OF_ANN';"
        " CREATE SECRET bob FROM ENV 'HEADRACE_TEST_PASSWORD_OF_BOB'"
    )

    def statement(port: int, database: str, secret: str) -> str:
        return (
            f"CREATE CONNECTION pg TO POSTGRES (HOST '127.0.0.1', PORT {port},"
            f" DATABASE '{database}', USER 'ann', PASSWORD SECRET {secret})"
        )

    port = postgres_server.port
    wrong = refused(db, statement(port, "postgres", "bob"))
    assert (wrong.code, "password authentication" in wrong.detail) == (Code.INVALID, True)
    missing = refused(db, statement(port, "nowhere", "ann"))
    assert (missing.code, '"nowhere" does not exist' in missing.detail) == (Code.INVALID, True)
    silent = refused(db, statement(free_port(), "postgres", "ann"))
    assert (silent.code, "refused" in silent.detail) == (Code.UNAVAILABLE, True)
    db.sql(statement(port, "postgres", "ann"))
    assert refused(
        db, "CREATE STREAM s (v INT) WITH (connection = pg, topic = 't')"
    ).primary.endswith('"pg" is of kind postgres, not kafka')


def test_a_stream_is_read_over_a_connection(db: headrace.Database, broker: Kafka) -> None:
    topic = broker.create(f"over-{uuid4().hex[:8]}")
    broker.produce(topic, [{"value": b'{"v": %d}' % n} for n in range(3)])
    db.sql(
        f"CREATE CONNECTION k TO KAFKA (BROKER '{broker.address}');"
        f" CREATE STREAM a (v INT) FROM KAFKA CONNECTION k (TOPIC '{topic}');"
        f" CREATE STREAM b (v INT) WITH (connection = k, topic = '{topic}')"
    )
    until = time.monotonic() + 30
    while sum(db.parts.ledger.head.ends.values()) < 6:
        assert time.monotonic() < until, db.sql("SHOW SOURCES").fetchall()
        time.sleep(0.02)
    assert db.sql("SELECT sum(a.v) FROM a JOIN b ON a.v = b.v").fetchall() == [(3,)]
    assert refused(db, "DROP CONNECTION k").primary == 'connection "k" is used by a, b'
    db.sql("DROP STREAM a; DROP STREAM b; DROP CONNECTION k")
