"""Declarations of external systems: their sources, sinks and connections.

Each system declares a :class:`System` in its own folder; :mod:`headrace.io.connectors.every` lists
them. A declaration imports no client library: it is imported when a source or sink is opened.

The names of datasets in external systems, by OpenLineage's naming conventions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from headrace.io.connectors.options import (
    Alters,
    Given,
    keys_of,
    prefixes_of,
    read_options,
    restored_options,
    stored_options,
)
from headrace.io.connectors.sinks import SinkOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path, PurePath

    from headrace.execution.runtime.ports import LiveSource, SinkWriter
    from headrace.io.connectors.cassandra.sink import Options as CassandraTable
    from headrace.io.connectors.kafka.options import Options as KafkaSource
    from headrace.io.connectors.kafka.sink_options import Options as KafkaSink
    from headrace.io.connectors.kinesis.access import Options as KinesisSource
    from headrace.io.connectors.postgres.access import Access
    from headrace.io.connectors.postgres.sink import SinkTable
    from headrace.io.connectors.postgres.tables import Reference
    from headrace.io.connectors.secrets import Secrets
    from headrace.io.connectors.sinks import SinkContext
    from headrace.planning.catalog import Stream, Table
    from headrace.types import Schema


CONNECTOR: Final = "connector"
"""The option that names a connector."""

Options = TypeVar("Options")


@dataclass(frozen=True, slots=True)
class SourceContext:
    """The arguments for opening a source.

    ``schema`` is that of its rows, which become rows of ``relation``. The columns ``value`` are
    decoded from the source's values in ``format``; ``metadata`` are pairs of a further column and
    the metadata key that it contains, such as an offset. ``notes`` returns the stored notes of the
    parts of a source, given its identity.
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
    """A source or sink of a system, with the dataclass of its options.

    ``name`` is its name in statements and in the catalog, ``also`` are other names in statements.
    ``groups`` are prefixes of further keys of options. ``dataset`` returns the external dataset, in
    which relative paths are below the given directory; None if it has no name outside.
    """

    name: str
    options: type[Options]
    also: tuple[str, ...] = field(default=(), kw_only=True)
    groups: tuple[str, ...] = field(default=(), kw_only=True)
    dataset: Callable[[Options, Path], ExternalDataset | None] = field(
        default=lambda _options, _root: None, kw_only=True
    )

    @property
    def names(self) -> tuple[str, ...]:
        """All names in statements."""
        return (self.name, *self.also)

    def accepts(self, key: str) -> bool:
        """Whether an option of a relation, by its key, belongs to the connector."""
        folded = key.lower()
        groups = (*self.groups, *prefixes_of(self.options))
        return folded in keys_of(self.options) or folded.startswith(groups)

    def stored(self, options: Options) -> tuple[tuple[str, str], ...]:
        """Return options for the catalog, with the connector's name."""
        return ((CONNECTOR, self.name), *stored_options(options))

    def restored(self, stored: Iterable[tuple[str, str]]) -> Options:
        """Return the options from the result of :meth:`stored`."""
        rest = [(key, value) for key, value in stored if key != CONNECTOR]
        return restored_options(self.options, rest, f"a {self.name} connector")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConnector(Connector[Options]):
    """A connector that reads from a system.

    ``open`` returns a source; ``check`` raises, when a relation is created, if it cannot be read. A
    relation is fed by the connector if its options include one of ``addresses``, or if
    ``addresses`` is empty; otherwise it is stored in the embedded log. ``metadata`` are the keys of
    METADATA columns that the source supports; one that ends in a dot is a prefix.
    """

    open: Callable[[Options, SourceContext], LiveSource]
    check: Callable[[Options, SourceContext], None] = lambda _options, _context: None
    addresses: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()

    def has(self, key: str) -> bool:
        """Whether the source supports METADATA columns of a key."""
        return any(
            key.startswith(each) if each.endswith(".") else key == each for each in self.metadata
        )

    def read(self, given: Iterable[Given]) -> Options:
        """Parse all given options except the connector's name."""
        return read_options(self.options, _without_name(given), f"a {self.name} source")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkConnector(Connector[Options]):
    """A connector that writes to a system.

    ``open`` returns a writer; ``check`` raises, when a sink is created, if rows cannot be written.
    ``place`` returns the path to which a sink into files writes: two sinks of one directory or S3
    prefix are refused, unless the connector ``shares`` it. ``target`` are the fields of the options
    that identify the target together with its address; if empty, many sinks may write there.
    ``joins``: whether waiting epochs may always be joined, since the target only keeps the newest
    state. ``over`` are the kinds of connections that it can use, by default the one of its name.
    """

    open: Callable[[Options, SinkContext], SinkWriter]
    check: Callable[[Options, SinkContext], None] = lambda _options, _context: None
    place: Callable[[Options, SinkContext], PurePath | None] = lambda _options, _context: None
    shares: bool = False
    target: tuple[str, ...] = ()
    joins: Callable[[Options], bool] = lambda _options: False
    over: tuple[str, ...] = ()

    def target_of(self, options: Options) -> tuple[object, ...] | None:
        """Return the values that identify a sink's target; None if many sinks may write there."""
        if not self.target:
            return None
        addresses = [
            getattr(options, each.name)
            for each in fields(options)  # type: ignore[arg-type]
            if each.metadata.get("alters") is Alters.ADDRESS
        ]
        return (self.name, *addresses, *(getattr(options, name) for name in self.target))

    def read(self, given: Iterable[Given]) -> Options:
        """Parse all given options except the connector's name."""
        own = _without_name(given)
        return read_options(self.options, own, f"a {self.name} sink", keys_of(SinkOptions))


@dataclass(frozen=True, slots=True)
class ConnectionKind:
    """A kind of connections to a system.

    ``name`` is its name in statements and in the catalog, ``also`` are other names in statements.
    ``check`` takes the options and a function that returns a secret's value, and raises if the
    system cannot be reached.
    """

    name: str
    options: type[Any]
    check: Callable[[Any, Callable[[str], str]], None] = lambda _options, _secret: None
    also: tuple[str, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """An external system: its source, sink and kind of connections, None for those it lacks."""

    source: SourceConnector[Any] | None = None
    sink: SinkConnector[Any] | None = None
    connection: ConnectionKind | None = None


def _without_name(given: Iterable[Given]) -> list[Given]:
    return [each for each in given if each.key.lower() != CONNECTOR]


_KAFKA_PORT: Final = "9092"


@dataclass(frozen=True, slots=True)
class ExternalDataset:
    """A topic, table, directory or the like: ``namespace`` is the system that contains it."""

    namespace: str
    name: str

    @property
    def uri(self) -> str:
        """The namespace and the name as one text."""
        if self.namespace == "file":
            return f"file:{self.name}"
        return f"{self.namespace}/{self.name.removeprefix('/')}"


def of_path(path: str, root: Path) -> ExternalDataset:
    """Return a directory, relative to ``root`` unless it is absolute, or a prefix in S3."""
    scheme, separator, rest = path.partition("://")
    if not separator:
        return ExternalDataset("file", str(root / path))
    bucket, _, prefix = rest.partition("/")
    return ExternalDataset(f"{'s3' if scheme == 's3a' else scheme}://{bucket}", prefix)


def of_topic(options: KafkaSource | KafkaSink) -> ExternalDataset | None:
    """Return a topic at the first of the brokers; None for a pattern of topics."""
    if options.topic is None:
        return None
    first = options.brokers.split(",")[0].strip().rpartition("://")[2]
    has_port = first.rpartition(":")[2].isdigit()
    address = first if has_port else f"{first}:{_KAFKA_PORT}"
    return ExternalDataset(f"kafka://{address}", options.topic)


def of_table(access: Access, reference: Reference) -> ExternalDataset:
    """Return a table of PostgreSQL."""
    name = f"{access.database}.{reference}"
    return ExternalDataset(f"postgres://{access.host}:{access.port}", name)


def of_sink_table(options: SinkTable) -> ExternalDataset:
    """Return the table that a sink of PostgreSQL writes to."""
    schema, dot, table = options.table.rpartition(".")
    name = f"{options.database}.{schema if dot else 'public'}.{table}"
    return ExternalDataset(f"postgres://{options.host}:{options.port}", name)


def of_kinesis(options: KinesisSource) -> ExternalDataset:
    """Return a stream of Kinesis; its name may be an ARN, which has the region."""
    region, stream = options.region or "", options.stream
    if stream.startswith("arn:"):
        _, _, _, region, _, stream = stream.split(":", 5)
    return ExternalDataset(f"kinesis://{region}", stream.removeprefix("stream/"))


def of_cassandra(options: CassandraTable) -> ExternalDataset:
    """Return a table of Cassandra at the first of its nodes."""
    host = options.hosts.split(",")[0].strip()
    namespace = f"cassandra://{host}:{options.port}"
    return ExternalDataset(namespace, f"{options.keyspace}.{options.table}")
