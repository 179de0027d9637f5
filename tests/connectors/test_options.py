"""Typed options: what may be written, what is stored, and where an error points."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from enum import StrEnum

import pytest

from headrace.errors import Code, HeadraceError, Span
from headrace.io.connectors import Given, SinkOptions, registry
from headrace.io.connectors.every import SYSTEMS
from headrace.io.connectors.options import (
    Alters,
    SecretName,
    alters,
    given_again,
    option,
    read_options,
    restored_options,
    stored_options,
    used_secrets,
)
from headrace.tools.cli.statement_help import STATEMENTS


class Mode(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"


def _short(text: str) -> str:
    if len(text) > 3:
        raise HeadraceError(Code.INVALID, "too long", hint="Shorten it.")
    return text.upper()


@dataclass(frozen=True)
class Example:
    topic: str = option("topic", "kafka_topic")
    mode: Mode = Mode.EARLIEST
    batch: int = option("max.batch", default=10)
    strict: bool = False
    code: str | None = option(convert=_short, default=None)
    password: SecretName | None = None


TEXT = "WITH (topic = 'a', mode = 'lates', password = 'x')"
PLACE = Span(TEXT, 19, 33)


def read(**given: str | Given) -> Example:
    return read_options(
        Example,
        [g if isinstance(g, Given) else Given(key, g, PLACE) for key, g in given.items()],
        "a test source",
    )


def test_options_have_their_types_and_defaults() -> None:
    found = read(KAFKA_TOPIC="a", mode="LATEST", strict="TRUE", code="abc")
    assert found == Example("a", Mode.LATEST, 10, strict=True, code="ABC")


def test_what_is_stored_is_read_back_and_has_no_secret_value() -> None:
    secret = Given("password", "db", PLACE, secret=True)
    found = read(topic="a", mode="latest", strict="true", password=secret)
    stored = stored_options(found)
    assert dict(stored) == {
        "topic": "a",
        "mode": "latest",
        "max.batch": "10",
        "strict": "true",
        "password": "db",
    }
    assert restored_options(Example, stored, "a test source") == found
    assert used_secrets(found) == ["db"]
    assert used_secrets(read(topic="a")) == []


@pytest.mark.parametrize(
    ("given", "primary", "hint"),
    [
        ({"topics": "a"}, 'option "topics" of a test source does not exist', '"topic"?'),
        ({"xyzzy": "a"}, 'option "xyzzy" of a test source does not exist', "There are: topic"),
        ({"topic": "a", "kafka_topic": "b"}, 'option "kafka_topic" is given twice', "once"),
        ({"topic": "a", "mode": "lates"}, "'lates' is not a value of option \"mode\"", '"latest"?'),
        ({"topic": "a", "max_batch": "1"}, 'option "max_batch"', '"max.batch"?'),
        ({"topic": "a", "strict": "maybe"}, "'maybe' is not a value", "true"),
        ({"topic": "a", "code": "abcd"}, "too long", "Shorten"),
        ({"topic": "a", "password": "x"}, 'option "password" is a secret', "CREATE SECRET"),
    ],
)
def test_a_wrong_option_is_refused_at_its_place(
    given: dict[str, str], primary: str, hint: str
) -> None:
    with pytest.raises(HeadraceError) as refused:
        read(**given)
    assert primary in refused.value.primary
    assert hint in (refused.value.hint or "")
    assert refused.value.span == PLACE
    assert "'x'" not in refused.value.primary + (refused.value.hint or "")


def test_a_value_that_is_also_the_name_of_a_secret_is_no_secret() -> None:
    found = read(topic="db", password=Given("password", "db", PLACE, secret=True))
    assert [each.secret for each in given_again(Example, stored_options(found))] == [
        each.key == "password" for each in given_again(Example, stored_options(found))
    ]


def test_a_value_that_is_no_number_a_missing_option_and_a_secret_in_the_wrong_place() -> None:
    with pytest.raises(HeadraceError, match="'-1' is not a value"):
        read_options(Example, [Given("topic", "a"), Given("max.batch", "-1")], "it")
    with pytest.raises(HeadraceError, match="a test source has no topic"):
        read(mode="latest")
    with pytest.raises(HeadraceError, match='option "topic" is not a secret'):
        read(topic=Given("topic", "name", PLACE, secret=True))


@pytest.mark.parametrize(
    "cls", [SinkOptions, *(each.sink.options for each in SYSTEMS if each.sink)]
)
def test_every_option_of_a_sink_says_whether_it_may_be_altered(cls: type[object]) -> None:
    for each in fields(cls):  # type: ignore[arg-type]
        assert isinstance(each.metadata.get("alters"), Alters), (cls, each.name)


def test_the_help_of_create_connection_lists_every_kind() -> None:
    listed = set(re.findall(r"[A-Z0-9]+", STATEMENTS["CREATE CONNECTION"].form))
    assert {each.connection.name.upper() for each in SYSTEMS if each.connection} <= listed


def test_what_is_written_where_cannot_be_altered() -> None:
    """The options by connector; one that is added has to be thought about here as well."""
    free = {
        "file": set(),
        "kafka": {"compression", "transaction_timeout", "registry_user", "registry_password"}
        | {"registry_authority", "protocol", "mechanism", "username", "password"}
        | {"authority", "certificate", "private_key"},
        "postgres": {"user", "password", "ssl_mode", "authority", "certificate", "private_key"},
        "redis": {"ttl", "user", "password", "tls", "authority", "certificate", "private_key"},
        "delta": set(),
        "iceberg": {"catalog_token", "credential", "scope", "oauth_uri", "signing_name"},
        "warehouse": set(),
        "webhook": {"authorization", "api_key", "api_key_header", "signing", "authority"}
        | {"timeout", "headers", "rows"},
        "cassandra": {"datacenter", "user", "password", "tls", "authority", "certificate"}
        | {"private_key", "consistency", "concurrency"},
        "dynamodb": {"concurrency"},
        "print": set(),
        "blackhole": set(),
    }
    store = {"region", "endpoint", "access_key", "secret_key", "session_token"}
    addresses = {
        "kafka": {"brokers"},
        "postgres": {"host", "port", "database"},
        "redis": {"host", "port", "database"},
        "cassandra": {"hosts", "port"},
        "file": store,
        "delta": store,
        "iceberg": store | {"uri", "warehouse"},
        "dynamodb": store,
    }
    for each in [system.sink for system in SYSTEMS if system.sink]:
        of = {f.name: f.metadata["alters"] for f in fields(each.options)}
        assert {n for n, a in of.items() if a is Alters.FREELY} == free[each.name], each.name
        moved = {n for n, a in of.items() if a is Alters.ADDRESS}
        assert moved == addresses.get(each.name, set()), each.name
    assert alters(registry.sink_connector("webhook").options, "header.x-tenant") is Alters.FREELY
    assert alters(registry.sink_connector("postgres").options, "table_name") is Alters.NEVER
    assert alters(registry.sink_connector("postgres").options, "tables") is None
