"""Declares Kinesis: a source of streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.io.connectors.kinesis.access import Options
from headrace.io.connectors.kinesis.source import METADATA, KinesisSource, RecordColumns
from headrace.io.connectors.message_formats import change_decoder
from headrace.io.connectors.systems import SourceConnector, System, of_kinesis

if TYPE_CHECKING:
    from headrace.io.connectors.systems import SourceContext


def _source(options: Options, context: SourceContext) -> KinesisSource:
    decoder = change_decoder(
        context.relation,
        context.value,
        lambda schema: options.decoder(context.format, schema, context.secrets.value),
    )
    columns = RecordColumns(context.schema, context.metadata)
    return KinesisSource(options, columns, decoder, context.secrets.value)


SYSTEM: Final = System(
    source=SourceConnector(
        "kinesis",
        Options,
        open=_source,
        check=lambda options, context: _source(options, context).check(),
        addresses=("aws.region", "aws.endpoint", "stream.arn"),
        groups=("aws.", "scan.", "schema.registry.", "avro.", "avro-confluent."),
        metadata=METADATA,
        dataset=lambda options, _root: of_kinesis(options),
    ),
)
