"""External systems: one module each, with typed options and what it opens; and secrets."""

from headrace.connectors.change_format import ChangeFormat, format_of, is_captured
from headrace.connectors.connections import Connection, Connections
from headrace.connectors.options import Given
from headrace.connectors.registry import (
    CONNECTOR,
    Connector,
    SinkContext,
    SourceContext,
    feeding_connector,
    secrets_of,
    sink_connector,
    source_connector,
)
from headrace.connectors.secrets import Secret, Secrets

__all__ = [
    "CONNECTOR",
    "ChangeFormat",
    "Connection",
    "Connections",
    "Connector",
    "Given",
    "Secret",
    "Secrets",
    "SinkContext",
    "SourceContext",
    "feeding_connector",
    "format_of",
    "is_captured",
    "secrets_of",
    "sink_connector",
    "source_connector",
]
