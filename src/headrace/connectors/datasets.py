"""The names of datasets in external systems, by OpenLineage's naming conventions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.connectors.cassandra.sink import Options as CassandraTable
    from headrace.connectors.kafka.options import Options as KafkaSource
    from headrace.connectors.kafka.sink_options import Options as KafkaSink
    from headrace.connectors.kinesis.access import Options as KinesisSource
    from headrace.connectors.postgres.access import Access
    from headrace.connectors.postgres.sink import SinkTable
    from headrace.connectors.postgres.tables import Reference

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
