"""Declares Kafka: a source and a sink for topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.io.connectors.kafka import sink
from headrace.io.connectors.kafka.options import Access, Options
from headrace.io.connectors.kafka.sink_options import Options as SinkOptions
from headrace.io.connectors.kafka.source import KafkaSource, MessageColumns
from headrace.io.connectors.message_formats import OF_VALUES, change_decoder
from headrace.io.connectors.systems import (
    ConnectionKind,
    SinkConnector,
    SourceConnector,
    System,
    of_topic,
)

if TYPE_CHECKING:
    from headrace.io.connectors.systems import SourceContext


def _source(options: Options, context: SourceContext) -> KafkaSource:
    of_messages = tuple(pair for pair in context.metadata if not pair[1].startswith(OF_VALUES))
    columns = MessageColumns(context.schema, context.value, of_messages)
    decoder = change_decoder(
        context.relation,
        context.value,
        lambda schema: options.decoder(context.format, schema, context.secrets.value),
    )
    timed = context.relation.declaration.rowtime
    return KafkaSource(options, columns, decoder, context.secrets.value, timed)


SYSTEM: Final = System(
    source=SourceConnector(
        "kafka",
        Options,
        also=("upsert-kafka",),
        open=_source,
        check=lambda options, context: _source(options, context).check(),
        addresses=("properties.bootstrap.servers", "bootstrap.servers", "brokers"),
        groups=("properties.", "scan.", "schema.registry.", "avro.", "avro-confluent."),
        metadata=("topic", "partition", "offset", "timestamp", "headers", OF_VALUES),
        dataset=lambda options, _root: of_topic(options),
    ),
    sink=SinkConnector(
        "kafka",
        SinkOptions,
        open=sink.opened,
        check=sink.check,
        target=("topic",),
        dataset=lambda options, _root: of_topic(options),
    ),
    connection=ConnectionKind("kafka", Access),
)
