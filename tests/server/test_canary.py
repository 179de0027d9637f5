"""A secret is nowhere: in no answer, listing, error, metric or log, whichever option has it."""

from __future__ import annotations

import logging
from dataclasses import fields
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace.errors import HeadraceError
from headrace.interfaces.server.routes import ROUTES
from headrace.io.connectors.every import SYSTEMS
from headrace.io.connectors.options import SecretName, _types
from headrace.planning.sql import Listing
from served import Client, served
from sessions import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

CANARY = "canary-51d0e7"


def secret_keys(options: type[Any]) -> set[str]:
    """Return all keys of the options that are secrets."""
    types = _types(options)
    return {
        key
        for each in fields(options)
        if types[each.name] is SecretName
        for key in each.metadata.get("keys") or (each.name,)
    }


WRITTEN = [
    *(
        f"CREATE STREAM s (x INT) WITH (connector = '{each.name}', topic = 't', '{key}' = '{CANARY}')"
        for system in SYSTEMS
        for each in (system.source, system.sink)
        if each is not None
        for key in sorted(secret_keys(each.options))
    ),
    *(
        f"CREATE SINK k FROM shown WITH (connector = '{each.name}', '{key}' = '{CANARY}')"
        for system in SYSTEMS
        for each in (system.source, system.sink)
        if each is not None
        for key in sorted(secret_keys(each.options))
    ),
    *(
        f"CREATE CONNECTION c TO {kind.name} (HOST 'h', {key.upper().replace('.', ' ')} {between}'{CANARY}')"
        for kind in (system.connection for system in SYSTEMS)
        if kind is not None
        for key in sorted(secret_keys(kind.options))
        for between in ("", "= ")
        if "." not in key
    ),
    f"CREATE SECRET s AS '{CANARY}'",
    f"SET password = '{CANARY}'",
    f"CREATE STREAM s (x INT) WITH (topic = 't', 'sasl.jaas.config' = 'password=\"{CANARY}\";')",
]
"""Secrets where they may not be: each is refused, and what is said of it does not have it."""


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> Iterator[tuple[headrace.Database, Client, str]]:
    directory = tmp_path_factory.mktemp("canary")
    (directory / "secret").write_text(CANARY)
    with (
        headrace.connect(directory / "db", spark=spark, partitions=PARTITIONS) as database,
        served(database) as running,
    ):
        database.sql(
            f"CREATE SECRET canary FROM FILE '{directory / 'secret'}';"
            "CREATE CONNECTION kept TO KAFKA (BROKER 'localhost:1', SECURITY PROTOCOL 'SASL_SSL',"
            " SASL MECHANISMS 'PLAIN', SASL USERNAME 'u', SASL PASSWORD SECRET canary);"
            "CREATE STREAM shown (x INT);"
            "CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n FROM shown"
        )
        made = database.sql("CREATE TOKEN owner")
        assert isinstance(made, headrace.Result)
        database.sql("GRANT OWNER ON DATABASE TO owner")
        secret = made.to_arrow()["secret"][0].as_py()
        yield database, running.client.having(secret), secret


@pytest.mark.parametrize("sql", WRITTEN)
def test_a_secret_in_a_statement_is_in_no_error(
    place: tuple[headrace.Database, Client, str], sql: str, caplog: pytest.LogCaptureFixture
):
    database, client, _ = place
    caplog.set_level(logging.DEBUG)
    for each in (sql, f"{sql}; SELEC", f"EXPLAIN {sql}"):
        answer = client.sql(each)
        assert CANARY.encode() not in answer.body, answer.body
        if answer.status != 200:
            with pytest.raises(HeadraceError) as raised:
                database.sql(each)
            assert CANARY not in str(raised.value)
    logged = [r for r in caplog.records if not r.name.startswith(("py4j", "asyncio"))]
    assert not any(CANARY in record.getMessage() for record in logged)


def test_secrets_are_in_nothing_that_is_shown(place: tuple[headrace.Database, Client, str]):
    _, client, token = place
    statements = [f"SHOW {listing.upper()}" for listing in Listing if listing != Listing.ERRORS]
    statements += ["SHOW PROPERTIES", "EXPLAIN counted", "SHOW GRANTS FOR owner"]
    statements += ["SHOW ERRORS FOR counted"]
    for name in ("shown", "counted"):
        statements += [f"DESCRIBE EXTENDED {name}", f"SHOW CREATE {name}"]
    tables = client.rows(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'information_schema'"
    )
    names = [row[0] for row in tables] or ["tables", "columns", "views", "streams", "sinks", "jobs"]
    statements += [f"SELECT * FROM information_schema.{name}" for name in names]
    answers = [client.sql(sql) for sql in statements]
    assert all(answer.status == 200 for answer in answers), [
        (sql, a.body) for sql, a in zip(statements, answers, strict=True) if a.status != 200
    ]
    shown = [answer.body for answer in answers]
    for route in ROUTES:
        if route.method == "GET" and "{path" not in route.path:
            path = route.path.replace("{name}", "counted")
            shown.append(
                b"".join(islice(client.connected_to(path), 20))
                if path == "/v1/status"
                else client.ask("GET", path, reads=path != "/v1/subscribe").body
            )
    for hidden in (CANARY.encode(), token.encode(), token[4:].encode()):
        assert not any(hidden in body for body in shown)
    assert any(b'"canary"' in body for body in shown)  # the reference is shown
