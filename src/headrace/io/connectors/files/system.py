"""Declares files: a source that watches a directory, and a sink into a directory or S3 prefix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.io.connectors.files import sink
from headrace.io.connectors.files.watched import METADATA, DirectorySource, FileColumns, Options
from headrace.io.connectors.lake import snapshots
from headrace.io.connectors.systems import SinkConnector, SourceConnector, System, of_path
from headrace.types import Schema

if TYPE_CHECKING:
    from headrace.io.connectors.systems import SourceContext


def _source(options: Options, context: SourceContext) -> DirectorySource:
    # Files have no message keys: a KEY column is an ordinary column of the rows.
    metadata = tuple((name, key) for name, key in context.metadata if key != "key")
    apart = {name for name, _ in metadata}
    value = Schema(tuple(c for c in context.schema.columns if c.name not in apart))
    columns = FileColumns(context.schema, value, metadata)
    return DirectorySource(options, columns, context.notes)


SYSTEM: Final = System(
    source=SourceConnector(
        "filesystem",
        Options,
        also=("file",),
        open=_source,
        check=lambda options, context: _source(options, context).check(),
        addresses=("path",),
        groups=("scan.", "source.", "csv."),
        metadata=METADATA,
        dataset=lambda options, root: of_path(options.path, root),
    ),
    sink=SinkConnector(
        "file",
        sink.Options,
        also=("filesystem",),
        open=snapshots.opened,
        check=snapshots.check,
        place=sink.path_of,
        over=("s3",),
        dataset=lambda options, root: of_path(options.path, root),
    ),
)
