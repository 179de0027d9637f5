"""External systems: a folder or module for each, with typed options; and secrets.

The walk of a message:

1. A thread of ``io/connectors/kafka/arrivals.py`` always waits in a poll of
   ``kafka/client.py``, which asks the brokers. ``kafka/source.py`` takes what has arrived in
   the partitions, from the position that the ledger has, and decodes a backlog ahead of what is
   landed. ``formats`` decodes the values into rows and rejects: ``messages.py`` JSON,
   ``avro.py`` and ``protobuf.py`` by the schemas of a registry,
   ``csv_text.py`` CSV. What messages change in a table is decided in ``io/formats/upserts.py``
   (each is appended, or by ``Upserts`` a message with a key and no value, a
   *tombstone* of Kafka, becomes a row of weight -1) and ``io/formats/captured.py`` (Debezium
   and its like); ``io/connectors/message_formats.py`` chooses among them.
2. Changes of a table that depend on its rows, such as a value that was not sent, are completed
   from them (``lifecycle/inputs/rows.py``).
3. ``execution/runtime/feeds.py`` lands them as one part: ``Log.land`` computes generated
   columns, and one ledger transaction names the segment, moves the end of the log, and stores
   the rejects and the new position. What a source has to remember that grows, such as which
   files of a directory were read (``io/connectors/files/watched.py``), are notes beside the
   position.
4. From there on a message is a row like any other; the epoch replaces and deletes rows by key
   in ``algebra/operators/contents.py`` (decision 21).
"""

from headrace.io.connectors.message_formats import ChangeFormat, format_of, is_captured
from headrace.io.connectors.options import Given
from headrace.io.connectors.postgres.captures import Captures, PostgresCapture
from headrace.io.connectors.postgres.source import PostgresSource, stopped_with
from headrace.io.connectors.postgres.tables import (
    CapturedTable,
    Reference,
    inferred_columns,
    require_declared,
)
from headrace.io.connectors.registry import (
    REFERENCE,
    Connections,
    NamedConnection,
    feeding_connector,
    is_misspelt,
    known_kind,
    outgoing_connector,
    secrets_of,
    sink_connector,
    source_connector,
)
from headrace.io.connectors.secrets import Secret, Secrets
from headrace.io.connectors.sinks import RefusalPolicy, SinkContext, SinkOptions
from headrace.io.connectors.systems import CONNECTOR, SinkConnector, SourceConnector, SourceContext

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
