"""``WITH (...)`` and ``OPTIONS (...)``: the known options, and notes about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.connectors import Connection, Given, source_connector
from headrace.errors import Code, HeadraceError, masked, nearest
from headrace.statements.defining.versioned import EFFECTIVE_FROM

if TYPE_CHECKING:
    from headrace.sql import Option

REFRESH_MINUTES = "refresh_interval_minutes"

_EXTERNAL = (
    "connection",
    "connector",
    "bootstrap.servers",
    "brokers",
    "database-name",
    "driver",
    "format",
    "hostname",
    "hosts",
    "kafka_topic",
    "key_delimiter",
    "key_format",
    "keyspace",
    "partitions",
    "password",
    "path",
    "port",
    "replicas",
    "retention_ms",
    "schema-name",
    "table",
    "table-name",
    "timestamp",
    "timestamp_format",
    "topic",
    "type",
    "url",
    "username",
    "value_delimiter",
    "value_format",
    "wrap_single_value",
)
"""Options of external systems; without a configured broker they are stored without effect."""

_MADE_UP = frozenset({"datagen", "faker"})
_EXTERNAL_GROUPS = (
    "avro-confluent.",
    "avro.",
    "csv.",
    "debezium-json.",
    "debezium.",
    "json.",
    "key.",
    "lookup.",
    "properties.",
    "scan.",
    "schema.registry.",
    "sink.",
    "value.",
)
_BROKERED = frozenset({"kafka", "upsert-kafka"})
_BROKERS = ("properties.bootstrap.servers", "bootstrap.servers", "brokers")
_GROUPS_OF_BROKERED = ("properties.", "scan.", "schema.registry.", "avro.", "avro-confluent.")
"""Options that only the connector has: one of these that it does not have is a mistake."""

_OF_RELATIONS = (EFFECTIVE_FROM, "description", "friendly_name", *_EXTERNAL)
_OF_VIEWS = (
    REFRESH_MINUTES,
    "allow_non_incremental_definition",
    "description",
    "enable_refresh",
    "friendly_name",
    "max_staleness",
    *_EXTERNAL,
)


def stored_options(options: tuple[Option, ...]) -> tuple[tuple[str, str], ...]:
    """Return the options for the catalog, by key, with the values of secrets masked."""
    return tuple(
        (option.key.lower(), masked(f"{option.key} = '{option.value}'").split("'", 1)[1][:-1])
        for option in options
    )


def value_of(options: tuple[Option, ...], *keys: str) -> str | None:
    """Return the value of the first of these options that is given, or None."""
    found = {option.key.lower(): option.value for option in options}
    return next((found[key] for key in keys if key in found), None)


def check_relation_options(options: tuple[Option, ...]) -> None:
    """Refuse unknown options of streams and tables, and connectors that generate rows."""
    for option in options:
        if option.key.lower() == "connector" and option.value.lower() in _MADE_UP:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f"connector '{option.value}' is not supported",
                detail="It generates rows; Headrace stores rows that are written.",
                hint="Leave it out, and INSERT rows, or COPY them from a file.",
                span=option.span,
            )
    _check(options, _OF_RELATIONS)


def check_view_options(options: tuple[Option, ...]) -> None:
    """Refuse unknown options of views, and invalid values."""
    _check(options, _OF_VIEWS)
    for option in options:
        if option.key.lower() == REFRESH_MINUTES and not _is_positive(option.value):
            raise HeadraceError(
                Code.INVALID,
                f"'{option.value}' is not a number of minutes",
                hint=f"Use {REFRESH_MINUTES} = 60, or leave it out.",
                span=option.span,
            )


def source_of(
    options: tuple[Option, ...], connection: Connection | None
) -> tuple[tuple[str, str], ...]:
    """Return the connector that rows come from, and its options, for the catalog; empty if none.

    They are those of the connection and the relation's own. A topic needs a broker: without one,
    the relation lives in the embedded log.

    Raises:
        HeadraceError: ``invalid``, at its place, for an option that the connector does not have.
    """
    named = value_of(options, "connector", "type")
    topic = value_of(options, "topic", "kafka_topic")
    name = (named or ("kafka" if topic is not None or connection else "")).lower()
    if name not in _BROKERED or (connection is None and value_of(options, *_BROKERS) is None):
        return ()
    connector = source_connector(name)
    of_connector = [
        option
        for option in options
        if option.key.lower() in connector.keys
        or option.key.lower().startswith(_GROUPS_OF_BROKERED)
    ]
    given = [*(connection.given if connection else ()), *Given.of(of_connector)]
    return connector.stored(connector.read(given, "source"))


def broker_note(options: tuple[Option, ...]) -> str:
    """Return the note for a relation that needs a broker, if none is configured."""
    named = value_of(options, "connector", "topic", "kafka_topic", "type")
    return " in the embedded log: no broker is configured" if named is not None else ""


def refresh_note(options: tuple[Option, ...]) -> str:
    """Return the note for a view with a refresh interval."""
    minutes = value_of(options, REFRESH_MINUTES)
    if minutes is None:
        return ""
    return f"; it is maintained as its inputs change, not only every {minutes} minutes"


def _is_positive(value: str) -> bool:
    try:
        return float(value) > 0
    except ValueError:
        return False


def _check(options: tuple[Option, ...], known: tuple[str, ...]) -> None:
    for option in options:
        key = option.key.lower()
        if key in known or key.startswith(_EXTERNAL_GROUPS):
            continue
        close = nearest(key, known)
        raise HeadraceError(
            Code.INVALID,
            f'option "{option.key}" does not exist',
            hint=f'Did you mean "{close}"?' if close else None,
            span=option.span,
        )
