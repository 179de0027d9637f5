"""External systems: a folder or module for each, with typed options; and secrets."""

from headrace.connectors.change_format import ChangeFormat, format_of, is_captured
from headrace.connectors.connections import Connections, NamedConnection
from headrace.connectors.options import Given
from headrace.connectors.postgres.captures import Captures, PostgresCapture
from headrace.connectors.postgres.source import PostgresSource, stopped_with
from headrace.connectors.postgres.tables import (
    CapturedTable,
    Reference,
    inferred_columns,
    require_declared,
)
from headrace.connectors.registry import (
    REFERENCE,
    feeding_connector,
    is_misspelt,
    known_kind,
    outgoing_connector,
    secrets_of,
    sink_connector,
    source_connector,
)
from headrace.connectors.secrets import Secret, Secrets
from headrace.connectors.sinks import RefusalPolicy, SinkContext, SinkOptions
from headrace.connectors.systems import CONNECTOR, SinkConnector, SourceConnector, SourceContext

__all__ = [
    "CONNECTOR",
    "REFERENCE",
    "CapturedTable",
    "Captures",
    "ChangeFormat",
    "Connections",
    "Given",
    "NamedConnection",
    "PostgresCapture",
    "PostgresSource",
    "Reference",
    "RefusalPolicy",
    "Secret",
    "Secrets",
    "SinkConnector",
    "SinkContext",
    "SinkOptions",
    "SourceConnector",
    "SourceContext",
    "feeding_connector",
    "format_of",
    "inferred_columns",
    "is_captured",
    "is_misspelt",
    "known_kind",
    "outgoing_connector",
    "require_declared",
    "secrets_of",
    "sink_connector",
    "source_connector",
    "stopped_with",
]
