"""External systems: one module each, with typed options and what it opens; and secrets."""

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
    "Connection",
    "Connections",
    "Connector",
    "Given",
    "Secret",
    "Secrets",
    "SinkContext",
    "SourceContext",
    "feeding_connector",
    "secrets_of",
    "sink_connector",
    "source_connector",
]
