"""The connectors: each is one module, with its options and what it opens."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headrace.connectors import plain
from headrace.connectors import webhook as webhook_sink
from headrace.connectors.cassandra import sink as cassandra
from headrace.connectors.change_format import OF_VALUES, change_decoder
from headrace.connectors.datagen import source as datagen
from headrace.connectors.dynamodb import sink as dynamodb
from headrace.connectors.files import sink as file_sink
from headrace.connectors.files import watched as filesystem
from headrace.connectors.kafka import sink as kafka_sink
from headrace.connectors.kafka import sink_options as kafka_sink_options
from headrace.connectors.kafka import source as kafka
from headrace.connectors.kafka.options import Options as KafkaOptions
from headrace.connectors.kinesis import access as kinesis_access
from headrace.connectors.kinesis import source as kinesis
from headrace.connectors.lake import delta as delta_sink
from headrace.connectors.lake import iceberg as iceberg_sink
from headrace.connectors.lake import snapshots as snapshot_sink
from headrace.connectors.lake import tables as lake
from headrace.connectors.lake import warehouse as warehouse_sink
from headrace.connectors.options import (
    Alters,
    Given,
    keys_of,
    prefixes_of,
    read_options,
    required_keys,
    restored_options,
    stored_options,
    used_secrets,
)
from headrace.connectors.postgres import captures
from headrace.connectors.postgres import sink as postgres_sink
from headrace.connectors.redis import sink as redis
from headrace.connectors.sinks import Mode, SinkOptions
from headrace.errors import Code, HeadraceError, nearest
from headrace.types import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import PurePath

    from headrace.catalog import Stream, Table
    from headrace.connectors.secrets import Secrets
    from headrace.connectors.sinks import SinkContext
    from headrace.errors import Span
    from headrace.runtime.ports import LiveSource, SinkWriter

Options = TypeVar("Options")


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What a source is opened with.

    Its rows have ``schema``. Of these, the columns ``value`` come from what the source has, in a
    ``format``; ``metadata`` are pairs of another column and what it has of where a row is from.
    ``relation`` is the one whose rows they become.
    ``notes`` returns the notes that parts of the source of an identity have left.
    """

    schema: Schema
    value: Schema
    metadata: tuple[tuple[str, str], ...]
    format: str
    secrets: Secrets
    relation: Stream | Table
    notes: Callable[[str], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Connector(Generic[Options]):
    """A kind of external system.

    ``options`` is a dataclass. ``open_source`` returns a source, and ``check_source`` raises if it
    cannot be read, when a relation is created. ``open_sink`` returns a writer, and ``check_sink``
    raises if rows cannot be written there, when a sink is created. ``place`` names where a sink
    writes, of sinks into files: two sinks of one directory, or of one prefix in S3, are refused,
    unless the connector ``shares`` it. ``target`` are the options that, with the address, say where
    it writes; without any, many sinks may write there. ``joins``: whether epochs that wait may be
    joined in any case: the target only keeps the newest state.

    A relation is fed by the connector if its options have one of ``addresses``, or if there are
    none to give; otherwise it lives in the embedded log. ``groups`` are what the keys of its
    options begin with, besides those in ``options``. ``metadata`` are the keys of METADATA columns
    that a source has values for; a key that ends in a dot stands for all that begin with it.
    """

    names: tuple[str, ...]
    options: type[Options]
    open_source: Callable[[Options, SourceContext], LiveSource] | None = None
    check_source: Callable[[Options, SourceContext], None] = lambda _options, _context: None
    open_sink: Callable[[Options, SinkContext], SinkWriter] | None = None
    check_sink: Callable[[Options, SinkContext], None] = lambda _options, _context: None
    place: Callable[[Options, SinkContext], PurePath | None] = lambda _options, _context: None
    shares: bool = False
    target: tuple[str, ...] = ()
    joins: Callable[[Options], bool] = lambda _options: False
    addresses: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name by which it is stored."""
        return self.names[0]

    def target_of(self, options: Options) -> tuple[object, ...] | None:
        """Return what tells where a sink writes from all other places; None if nothing does."""
        if not self.target:
            return None
        addresses = [
            getattr(options, each.name)
            for each in fields(options)  # type: ignore[arg-type]
            if each.metadata.get("alters") is Alters.ADDRESS
        ]
        return (self.name, *addresses, *(getattr(options, name) for name in self.target))

    def reads(self, key: str) -> bool:
        """Whether an option of a relation is one of its own."""
        folded = key.lower()
        groups = (*self.groups, *prefixes_of(self.options))
        return folded in keys_of(self.options) or folded.startswith(groups)

    def has(self, key: str) -> bool:
        """Whether a source has values for METADATA columns of a key."""
        return any(
            key.startswith(each) if each.endswith(".") else key == each for each in self.metadata
        )

    def read(self, given: Iterable[Given], use: str) -> Options:
        """Return its options, of all that are given but the connector's name."""
        rest = [each for each in given if each.key.lower() != CONNECTOR]
        others = keys_of(SinkOptions) if use == "sink" else ()
        return read_options(self.options, rest, f"a {self.name} {use}", others)

    def stored(self, options: Options) -> tuple[tuple[str, str], ...]:
        """Return options for the catalog, with the connector's name."""
        return ((CONNECTOR, self.name), *stored_options(options))

    def restored(self, stored: Iterable[tuple[str, str]]) -> Options:
        """Return the options that :meth:`stored` returned."""
        rest = [(key, value) for key, value in stored if key != CONNECTOR]
        return restored_options(self.options, rest, f"a {self.name} connector")


CONNECTOR = "connector"
REFERENCE = "reference"
"""The stored option with the name of a table in another database."""


def _kafka_source(options: KafkaOptions, context: SourceContext) -> kafka.KafkaSource:
    of_messages = tuple(pair for pair in context.metadata if not pair[1].startswith(OF_VALUES))
    columns = kafka.Columns(context.schema, context.value, of_messages)
    decoder = change_decoder(
        context.relation,
        context.value,
        lambda schema: options.decoder(context.format, schema, context.secrets.value),
    )
    return kafka.KafkaSource(options, columns, decoder, context.secrets.value)


def _datagen_source(options: datagen.Options, context: SourceContext) -> datagen.DatagenSource:
    return datagen.DatagenSource(options, context.schema)


def _check_datagen(options: datagen.Options, context: SourceContext) -> None:
    _datagen_source(options, context)


def _directory_source(
    options: filesystem.Options, context: SourceContext
) -> filesystem.DirectorySource:
    # Files have no keys apart from their rows: a KEY column is one of theirs.
    metadata = tuple((name, key) for name, key in context.metadata if key != "key")
    apart = {name for name, _ in metadata}
    value = Schema(tuple(c for c in context.schema.columns if c.name not in apart))
    columns = filesystem.Columns(context.schema, value, metadata)
    return filesystem.DirectorySource(options, columns, context.notes)


def _kinesis_source(
    options: kinesis_access.Options, context: SourceContext
) -> kinesis.KinesisSource:
    decoder = change_decoder(
        context.relation,
        context.value,
        lambda schema: options.decoder(context.format, schema, context.secrets.value),
    )
    columns = kinesis.Columns(context.schema, context.metadata)
    return kinesis.KinesisSource(options, columns, decoder, context.secrets.value)


_ALL: tuple[Connector[Any], ...] = (
    Connector(
        ("file", "filesystem"),
        file_sink.Options,
        open_sink=snapshot_sink.opened,
        check_sink=snapshot_sink.check,
        place=file_sink.path_of,
    ),
    Connector(
        ("filesystem", "file"),
        filesystem.Options,
        open_source=_directory_source,
        check_source=lambda options, context: _directory_source(options, context).check(),
        addresses=("path",),
        groups=("scan.", "source.", "csv."),
        metadata=filesystem.METADATA,
    ),
    Connector(
        ("kafka", "upsert-kafka"),
        KafkaOptions,
        open_source=_kafka_source,
        check_source=lambda options, context: _kafka_source(options, context).check(),
        addresses=("properties.bootstrap.servers", "bootstrap.servers", "brokers"),
        groups=("properties.", "scan.", "schema.registry.", "avro.", "avro-confluent."),
        metadata=("topic", "partition", "offset", "timestamp", "headers", OF_VALUES),
    ),
    Connector(
        ("kafka",),
        kafka_sink_options.Options,
        open_sink=kafka_sink.opened,
        check_sink=kafka_sink.check,
        target=("topic",),
    ),
    Connector(
        ("datagen",),
        datagen.Options,
        open_source=_datagen_source,
        check_source=_check_datagen,
    ),
    Connector(("postgres",), captures.CapturedOptions),
    Connector(
        ("postgres", "postgresql"),
        postgres_sink.SinkTable,
        open_sink=postgres_sink.PostgresSink,
        check_sink=postgres_sink.check,
        target=("table",),
        joins=lambda options: options.mode is Mode.UPSERT,
    ),
    Connector(
        ("kinesis",),
        kinesis_access.Options,
        open_source=_kinesis_source,
        check_source=lambda options, context: _kinesis_source(options, context).check(),
        addresses=("aws.region", "aws.endpoint", "stream.arn"),
        groups=("aws.", "scan.", "schema.registry.", "avro.", "avro-confluent."),
        metadata=kinesis.METADATA,
    ),
    Connector(
        ("redis",),
        redis.Options,
        open_sink=redis.opened,
        check_sink=redis.check,
        target=("pattern",),
        joins=lambda _options: True,
    ),
    Connector(
        ("delta",),
        lake.LakeTable,
        open_sink=delta_sink.opened,
        check_sink=delta_sink.check,
        place=lake.path_of,
        joins=lambda options: options.mode is Mode.UPSERT,
    ),
    Connector(
        ("iceberg",),
        iceberg_sink.IcebergTable,
        open_sink=iceberg_sink.opened,
        check_sink=iceberg_sink.check,
        target=("path", "table"),
        place=iceberg_sink.path_of,
        shares=True,
        joins=lambda options: options.mode is Mode.UPSERT,
    ),
    Connector(
        ("warehouse",),
        warehouse_sink.Options,
        open_sink=warehouse_sink.opened,
        check_sink=warehouse_sink.check,
        target=("warehouse", "table"),
        place=lambda options, context: file_sink.place(options.path, context),
    ),
    Connector(("webhook", "http"), webhook_sink.Options, open_sink=webhook_sink.opened),
    Connector(
        ("cassandra",),
        cassandra.Options,
        open_sink=cassandra.opened,
        check_sink=cassandra.check,
        target=("keyspace", "table"),
        joins=lambda _options: True,
    ),
    Connector(
        ("dynamodb",),
        dynamodb.Options,
        open_sink=dynamodb.opened,
        check_sink=dynamodb.check,
        target=("table",),
        joins=lambda _options: True,
    ),
    Connector(
        ("print",), plain.Options, open_sink=lambda _options, context: plain.Printed(context.key)
    ),
    Connector(
        ("blackhole",), plain.Options, open_sink=lambda _options, _context: plain.Blackhole()
    ),
)


def source_connector(name: str, span: Span | None = None) -> Connector[Any]:
    """Return the connector of a name that can be read from.

    Raises:
        HeadraceError: ``unsupported``, at the span, if there is none.
    """
    readable = {known: each for each in _ALL if each.open_source for known in each.names}
    if name.lower() in readable:
        return readable[name.lower()]
    near = nearest(name.lower(), tuple(readable))
    raise HeadraceError(
        Code.UNSUPPORTED,
        f'connector "{name}" is not supported in a source',
        hint=f'Did you mean "{near}"?' if near else f"There are: {', '.join(readable)}.",
        span=span,
    )


def feeding_connector(name: str) -> Connector[Any] | None:
    """Return the connector of a name that can be read from; None if there is none."""
    return next((each for each in _ALL if name in each.names and each.open_source), None)


def outgoing_connector(name: str, keys: Iterable[str]) -> Connector[Any] | None:
    """Return the connector of a name that can only be written to, if the keys say where that is.

    None if there is none of the name, or none of the options without a default is given.
    """
    if feeding_connector(name) is not None:
        return None
    found = next((each for each in _ALL if name in each.names and each.open_sink), None)
    if found is None or required_keys(found.options).isdisjoint(key.lower() for key in keys):
        return None
    return found


def secrets_of(stored: tuple[tuple[str, str], ...], *, sink: bool = False) -> frozenset[str]:
    """Return the names of the secrets that the stored options of a source or ``sink`` use."""
    if not stored:
        return frozenset()
    name = dict(stored)[CONNECTOR]
    connector = next(each for each in _ALL if name == each.name and sink == bool(each.open_sink))
    return frozenset(used_secrets(connector.restored(stored)))


def sink_connector(name: str, span: Span | None = None) -> Connector[Any]:
    """Return the connector of a name that can be written to.

    Raises:
        HeadraceError: ``unsupported``, at the span, if there is none.
    """
    writable = {known: each for each in _ALL if each.open_sink for known in each.names}
    if name.lower() in writable:
        return writable[name.lower()]
    near = nearest(name.lower(), tuple(writable))
    listed = ", ".join(each.name for each in _ALL if each.open_sink)
    raise HeadraceError(
        Code.UNSUPPORTED,
        f'connector "{name}" is not supported in a sink',
        hint=f'Did you mean "{near}"?'
        if near
        else f"There are: {listed}. Or CREATE SINK name INTO table FROM view, with a table of that"
        " connector: with no broker it lives in the embedded log.",
        span=span,
    )
