"""A sink that writes all rows of a view to Parquet files, in a new directory for each write.

For partitions that an epoch changes, files are written from the previous directory's rows and the
changes; for others, they are hard links to the previous files. The directory is renamed when it is
complete; the newest one has the current rows of the view.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.algebra.spine import sync_directory
from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.io.connectors import s3
from headrace.io.connectors.files import s3_sink as s3_file_sink
from headrace.io.connectors.files import sink as file_sink
from headrace.io.connectors.files.change_files import ChangeFile, OutputFormat, Partitions
from headrace.io.connectors.files.sink import (
    Content,
    Options,
    epoch_directories,
    new_draft,
    place,
    remove,
    remove_drafts,
)
from headrace.io.connectors.lake import delta as delta_sink
from headrace.io.connectors.lake.tables import among, require_types, table_schema
from headrace.io.connectors.sinks import TableContents, moved_on, require_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from headrace.execution.runtime.ports import RefusedRow
    from headrace.io.connectors.files.s3_sink import ObjectSink
    from headrace.io.connectors.files.sink import FileSink
    from headrace.io.connectors.sinks import SinkContext
    from headrace.types import Epoch


_KEPT: Final = 2
"""The number of directories kept, so that readers of the previous one can finish."""
_BATCH_ROWS: Final = 65_536


def check(options: Options, context: SinkContext) -> None:
    """Raise if rows cannot be written to files.

    Raises:
        HeadraceError: ``unsupported`` or ``invalid``, with the first wrong column or option.
    """
    file_sink.check(options, context)
    if s3.is_location(options.path):
        s3_file_sink.check(options, context)
        return
    if options.content is Content.CHANGELOG:
        return
    if options.format is not OutputFormat.PARQUET:
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"content = 'snapshot' in format '{options.format}' is not supported",
            hint="Use format = 'parquet', which is read again when rows change.",
        )
    require_types(context.schema, delta_sink.MAPPING, "files of Parquet")
    require_key(context, "a directory of rows")


def opened(options: Options, context: SinkContext) -> FileSink | SnapshotSink | ObjectSink:
    """Return the writer of a sink: into S3, of local changes, or of snapshots."""
    if s3.is_location(options.path):
        return s3_file_sink.opened(options, context)
    if options.content is Content.CHANGELOG:
        return file_sink.opened(options, context)
    return SnapshotSink(
        place(options.path, context),
        table_schema(context.schema, TableContents.UPSERT),
        context.key,
        options.partitions,
        context.stops,
    )


@dataclass(slots=True)
class SnapshotSink:
    """Writes directories ``epoch=<epoch>`` with all rows, divided by the columns ``partitions``."""

    directory: Path
    schema: pa.Schema
    key: tuple[str, ...]
    partitions: tuple[str, ...]
    stops: bool
    guarantee: str = "exactly once: one directory per epoch, with all rows"
    _reached: Epoch | None = None
    """The last epoch in the directory, as far as this writer knows."""

    @property
    def target(self) -> str:
        """The directory, for messages."""
        return f'the directory "{self.directory.name}"'

    def durable(self) -> Epoch | None:
        """Remove leftover drafts; return the epoch of the newest directory."""
        remove_drafts(self.directory)
        self._reached = max(epoch_directories(self.directory), default=None)
        return self._reached

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        """Write the directory of an epoch.

        Raises:
            HeadraceError: ``unavailable`` if another process has written one.
        """
        written = epoch_directories(self.directory)
        before = max(written, default=None)
        if before != self._reached:
            raise moved_on(self.target, before, self._reached)
        self.directory.mkdir(parents=True, exist_ok=True)
        draft = new_draft(self.directory, epoch)
        changes = new_draft(self.directory, epoch, "changes")
        refused = self._staged(epoch, parts, changes)
        if refused and self.stops:
            shutil.rmtree(changes)
            return refused
        draft.mkdir()
        former = None if before is None else written[before]
        changed = {each.parent.relative_to(changes) for each in changes.rglob("*.parquet")}
        for partition in sorted(changed):
            self._merged(former, changes, partition, draft)
        for file in [] if former is None else former.rglob("*.parquet"):
            partition = file.parent.relative_to(former or file)
            if partition not in changed:
                (draft / partition).mkdir(parents=True, exist_ok=True)
                os.link(file, draft / partition / file.name)
        for directory in {draft, *(each for each in draft.rglob("*") if each.is_dir())}:
            sync_directory(directory)
        shutil.rmtree(changes)
        draft.replace(self.directory / f"epoch={epoch:020d}")
        sync_directory(self.directory)
        self._reached = epoch
        for old in sorted(epoch_directories(self.directory))[:-_KEPT]:
            remove(self.directory / f"epoch={old:020d}")
        return refused

    def stored(self) -> Iterator[pa.Table] | None:
        """Yield the rows of the newest directory."""
        written = epoch_directories(self.directory)
        return self._rows(written[max(written)]) if written else iter(())

    def clear(self) -> None:
        """Remove all directories."""
        remove_drafts(self.directory)
        for each in epoch_directories(self.directory).values():
            remove(each)
        self._reached = None

    def close(self) -> None:
        """Do nothing: no file is held open."""

    # -- pieces ----------------------------------------------------------------------------

    def _staged(
        self, epoch: Epoch, parts: Iterable[pa.Table], changes: Path
    ) -> Sequence[RefusedRow]:
        """Write the changes to files by partition; return those refused by :class:`Partitions`."""
        changes.mkdir()
        schema = self.schema.append(pa.field(WEIGHT, pa.int64()))
        files = Partitions(
            changes,
            self.partitions,
            lambda place: ChangeFile(place, OutputFormat.PARQUET, epoch, self.key, schema),
            OutputFormat.PARQUET.ending,
        )
        return files.write(epoch, parts)

    def _merged(self, former: Path | None, changes: Path, partition: Path, draft: Path) -> None:
        """Write the rows of a partition: the previous ones of unchanged keys, and the new ones."""
        keys = self._read(changes / partition, self.key)
        changed = pa.concat_tables([*keys, _no_rows(self.schema, self.key)])
        with _NewFile(draft / partition / "0.parquet", self.schema) as file:
            for rows in [] if former is None else self._read(former / partition):
                file.write(rows.filter(pa.array(~among(rows, changed, self.key))))
            for rows in self._read(changes / partition, [*self.schema.names, WEIGHT]):
                file.write(rows.filter(pc.greater(rows[WEIGHT], 0)))

    def _rows(self, directory: Path) -> Iterator[pa.Table]:
        for partition in sorted({each.parent for each in directory.rglob("*.parquet")}):
            yield from self._read(partition)

    def _read(self, partition: Path, names: Sequence[str] = ()) -> Iterator[pa.Table]:
        """Yield columns, by default all, of the files in a partition."""
        for file in sorted(partition.glob("*.parquet")):
            with pq.ParquetFile(file) as opened_:
                wanted = list(names or self.schema.names)
                for batch in opened_.iter_batches(_BATCH_ROWS, columns=wanted):
                    yield pa.Table.from_batches([batch]).select(wanted)


def _no_rows(schema: pa.Schema, names: Sequence[str]) -> pa.Table:
    return pa.schema([schema.field(name) for name in names]).empty_table()


class _NewFile:
    """A Parquet file that is created when the first row is written, and synced at the end."""

    def __init__(self, place: Path, schema: pa.Schema) -> None:
        self._place = place
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        return self

    def write(self, rows: pa.Table) -> None:
        """Write rows."""
        if not rows.num_rows:
            return
        if self._writer is None:
            self._place.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._place, self._schema, compression="zstd")
        self._writer.write_table(rows.select(self._schema.names).cast(self._schema))

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()
            with self._place.open("rb") as file:
                os.fsync(file.fileno())
