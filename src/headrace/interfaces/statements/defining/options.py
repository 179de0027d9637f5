"""``WITH (...)`` and ``OPTIONS (...)``: the known options, and notes about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError, masked, unknown
from headrace.interfaces.statements.defining.on_error import ON_ERROR
from headrace.interfaces.statements.defining.stream_options import (
    AUTO_SWAP,
    EFFECTIVE_FROM,
    RETENTION,
    REUSE,
)
from headrace.interfaces.statements.defining.view_options import (
    HISTORY,
    REFRESH_OPTIONS,
    TTL_OPTIONS,
)
from headrace.io.connectors import (
    CONNECTOR,
    Given,
    NamedConnection,
    feeding_connector,
    is_misspelt,
    outgoing_connector,
    source_connector,
)
from headrace.planning.sql import EMBEDDED_METADATA

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.planning.sql import ColumnDefinition, Option


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
    "topic-pattern",
    "type",
    "url",
    "username",
    "value_delimiter",
    "value_format",
    "wrap_single_value",
)
"""Options of external systems, which have no effect without a configured broker."""

_EXTERNAL_GROUPS = (
    "avro-confluent.",
    "avro.",
    "canal-json.",
    "csv.",
    "debezium-json.",
    "debezium.",
    "json.",
    "key.",
    "lookup.",
    "maxwell-json.",
    "properties.",
    "protobuf-confluent.",
    "scan.",
    "schema.registry.",
    "sink.",
    "value.",
)
_ADDRESSES = (
    "properties.bootstrap.servers",
    "bootstrap.servers",
    "brokers",
    "hostname",
    "hosts",
    "url",
    "uri",
    "endpoint",
    "aws.endpoint",
    "aws.region",
    "stream.arn",
    "path",
)
"""Options with the address of an external system, for any connector."""
_NEVER_EMBEDDED = frozenset({"faker"})
"""Connectors that generate rows and have no address."""

_SINCE, _EARLIEST = "since", "earliest"
"""The option of a view over only the events that streams still have, and its only value."""

_OTHERS = {
    "append_only": "CREATE STREAM instead: its rows are never changed.",
    "connectors": "Give one connector and its options, as in WITH (connector = 'kafka', topic ="
    " 'orders', brokers = '...'); what a view is written to is a sink: CREATE SINK name FROM view"
    " WITH (...).",
    "materialized": "Leave it out: the rows of tables and of materialized views are stored.",
    "skip_unused_columns": "Leave it out: views read only the columns that their queries use.",
}
"""Options of other systems, each with the alternative."""

_OF_RELATIONS = (EFFECTIVE_FROM, RETENTION, "description", "friendly_name", *_EXTERNAL)
_OF_VIEWS = (
    *REFRESH_OPTIONS,
    AUTO_SWAP,
    _SINCE,
    "allow_non_incremental_definition",
    "description",
    "friendly_name",
    HISTORY,
    "max_staleness",
    ON_ERROR,
    REUSE,
    *TTL_OPTIONS,
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
    """Raise if a stream or table has unknown options, or options for views only."""
    for option in options:
        if option.key.lower() in TTL_OPTIONS:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'option "{option.key}" of a stream or table is not supported',
                "Its rows do not leave it as time passes.",
                "Give ttl to the materialized views over it; a stream's retention says how long its"
                " events are kept, and the rows that views computed from them stay.",
                option.span,
            )
    name = _connector_name(options)
    connector = feeding_connector(name) or outgoing_connector(name, (o.key for o in options))
    own = [] if connector is None else [o.key.lower() for o in options if connector.accepts(o.key)]
    _check(options, (*_OF_RELATIONS, *own))


def require_known(options: tuple[Option, ...], *known: str) -> None:
    """Raise ``invalid``, at its place, for an option that a statement does not have."""
    for option in options:
        if option.key.lower() not in known:
            hint = f"{'There are' if len(known) > 1 else 'There is'}: {', '.join(known)}."
            raise unknown("option", option.key, known, hint, option.span)


def check_view_options(options: tuple[Option, ...]) -> None:
    """Raise if a view has unknown options, invalid values, or an external address."""
    _check(options, _OF_VIEWS)
    for option in options:
        if option.key.lower() in {"connection", *_ADDRESSES}:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'option "{option.key}" of a query that is maintained is not supported',
                "Its rows would not be written there.",
                "Leave the option out: the rows are stored here, and CREATE SINK delivers them.",
                option.span,
            )


def begins_earliest(options: tuple[Option, ...]) -> bool:
    """Whether a view may begin with the events that its streams still have.

    Raises:
        HeadraceError: ``invalid``, at the option, for another value.
    """
    given = next((option for option in options if option.key.lower() == _SINCE), None)
    if given is None:
        return False
    if given.value.lower() != _EARLIEST:
        raise HeadraceError(
            Code.INVALID,
            f"'{given.value}' is not a value of since",
            hint="Use 'earliest': the view is over all events that its streams still have.",
            span=given.span,
        )
    return True


def source_of(
    options: tuple[Option, ...], connection: NamedConnection | None
) -> tuple[tuple[str, str], ...]:
    """Return a relation's connector and its options, for the catalog; empty without one.

    The options of the connection come first, then the relation's own. A topic needs a broker, and a
    directory a path: without an address, the relation is in the embedded log.

    Raises:
        HeadraceError: ``invalid``, at its place, for an option that the connector lacks;
            ``unsupported`` for a connector with an address that cannot be read.
    """
    name = _connector_name(options) or ("kafka" if connection is not None else "")
    connector = feeding_connector(name)
    if connector is None:
        _refuse_address(name, options)
        return ()
    given = connection.given if connection is not None else []
    if connector.addresses and not given and value_of(options, *connector.addresses) is None:
        return ()
    of_connector = [option for option in options if connector.accepts(option.key)]
    return connector.stored(connector.read([*given, *Given.of(of_connector)]))


def check_metadata(
    columns: Iterable[ColumnDefinition], source: tuple[tuple[str, str], ...]
) -> None:
    """Raise if a relation's connector has no values for a METADATA column.

    Raises:
        HeadraceError: ``invalid``, at the column.
    """
    connector = source_connector(dict(source)[CONNECTOR]) if source else None
    for column in columns:
        key = column.metadata
        if key is None or (key in EMBEDDED_METADATA if connector is None else connector.has(key)):
            continue
        keys = EMBEDDED_METADATA if connector is None else connector.metadata
        of = "the embedded log has" if connector is None else f"{connector.name} has"
        known = ", ".join(f"{each}<name>" if each.endswith(".") else each for each in keys)
        raise HeadraceError(
            Code.INVALID,
            f'{of} no metadata "{key}"',
            hint=f"There are: {known}." if known else "Leave the column out.",
            span=column.span,
        )


def _connector_name(options: tuple[Option, ...]) -> str:
    topic = value_of(options, "topic", "kafka_topic")
    named = value_of(options, "connector", "type")
    return (named or ("kafka" if topic is not None else "")).lower()


def _refuse_address(name: str, options: tuple[Option, ...]) -> None:
    """Raise if the connector is misspelt, or missing or unknown while there is an address.

    Raises:
        HeadraceError: ``unsupported``, at the connector or the address; ``invalid`` without a
            connector.
    """
    if is_misspelt(name):
        source_connector(name, next(o.span for o in options if o.value.lower() == name))
    address = next((option for option in options if option.key.lower() in _ADDRESSES), None)
    if name in _NEVER_EMBEDDED:
        address = next(o for o in options if o.value.lower() == name)
    if address is None:
        return
    if not name:
        raise HeadraceError(
            Code.INVALID,
            f'option "{address.key}" is an address, but no connector is named',
            "Rows would not be read from there.",
            "Name a topic, as in topic = 'orders', or a connector, as in connector = 'filesystem'.",
            address.span,
        )
    try:
        source_connector(name, address.span)
    except HeadraceError as error:
        raise HeadraceError(
            error.code,
            error.primary,
            "Its rows would not be read from there.",
            f"{error.hint} Without an address, the relation lives in the embedded log.",
            error.span,
        ) from error


def needs_broker(options: tuple[Option, ...]) -> bool:
    """Whether options name a topic or a connector, with or without its address."""
    return value_of(options, "connector", "topic", "kafka_topic", "type") is not None


def writes_outside(options: tuple[Option, ...]) -> bool:
    """Whether options name a connector that only delivers, for a table's rows."""
    return outgoing_connector(_connector_name(options), (o.key for o in options)) is not None


def is_external(options: tuple[Option, ...]) -> bool:
    """Whether options name an external system or its address."""
    return needs_broker(options) or any(
        o.key.lower() in {"connection", *_ADDRESSES} for o in options
    )


def broker_note(options: tuple[Option, ...]) -> str:
    """Return the note for a relation with a topic or connector but no configured broker."""
    return " in the embedded log: no broker is configured" if needs_broker(options) else ""


def storage_note(options: tuple[Option, ...]) -> str:
    """Return the note for a view whose options name a topic or a connector."""
    return f", stored{broker_note(options)}" if needs_broker(options) else ""


def _check(options: tuple[Option, ...], known: tuple[str, ...]) -> None:
    for option in options:
        key = option.key.lower()
        if key in known or key.startswith(_EXTERNAL_GROUPS):
            continue
        other = _OTHERS.get(key)
        if other is not None:
            what = f'option "{option.key}" is not supported'
            raise HeadraceError(Code.UNSUPPORTED, what, hint=other, span=option.span)
        raise unknown("option", option.key, known, f"There are: {', '.join(known)}.", option.span)
