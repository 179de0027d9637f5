"""A sink that writes the changes of each epoch to files: lines of JSON, CSV or Parquet.

A file or directory is written under a hidden name, synced, and renamed, so it is either complete or
missing. The newest one shows the last written epoch, so no change is written twice. An epoch
without changes, such as the first one of an empty view, has no JSON file: many readers refuse empty
files.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.algebra.spine import sync_directory
from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError, meant
from headrace.io.connectors import s3
from headrace.io.connectors.files.change_files import (
    ChangeFile,
    OutputFormat,
    Partitions,
    require_format,
)
from headrace.io.connectors.options import Alters, option
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import PurePath

    from headrace.execution.runtime.ports import RefusedRow
    from headrace.io.connectors.sinks import SinkContext


def sink_path(text: str) -> str:
    """Return the path of a sink's directory: relative to the directory for sinks, or absolute.

    Raises:
        HeadraceError: ``invalid`` if a part of it consists of dots, or has a backslash.
    """
    parts = text.removeprefix("/").split("/")
    if not all(part.strip(". ") for part in parts) or "\\" in text or "\0" in text:
        raise HeadraceError(
            Code.INVALID,
            f"'{text}' is outside of the directory for sinks",
            hint="Use a relative path without dots, such as 'orders/daily', or an absolute one"
            " below a directory of the setting sink_roots.",
        )
    return text


def path_or_location(text: str) -> str:
    """Return the path of a sink's directory, or a prefix in S3.

    Raises:
        HeadraceError: ``invalid`` or ``unsupported`` if it is neither.
    """
    return s3.location(text) if s3.is_location(text) else sink_path(text)


def _columns(text: str) -> str:
    if not all(name.strip() for name in text.split(",")):
        raise HeadraceError(
            Code.INVALID, f"'{text}' are not columns", hint="Write names separated by commas."
        )
    return text


class Content(StrEnum):
    """The content of the files."""

    CHANGELOG = "changelog"
    """The changes of each epoch."""
    SNAPSHOT = "snapshot"
    """All rows, as of an epoch."""


@dataclass(frozen=True, slots=True)
class Placed(s3.Access):
    """Options for the target: ``path`` is a directory below ``sinks/`` or a root, or an S3 prefix.

    ``sinks/`` is in the data directory; an absolute path must be below one of the roots for sinks.
    """

    path: str = option(convert=path_or_location, alters=Alters.NEVER)

    def __post_init__(self) -> None:
        """Refuse S3 options for a local directory.

        Raises:
            HeadraceError: ``invalid``.
        """
        s3.Access.__post_init__(self)
        if not s3.is_location(self.path):
            self.require_no_store("write to path = 's3://bucket/prefix'")


@dataclass(frozen=True, slots=True)
class Options(Placed):
    """The options of a sink into files.

    ``partition_by`` are columns separated by commas: an epoch is then a directory that contains
    directories by the values of these columns.
    """

    format: OutputFormat = option(default=OutputFormat.JSON, alters=Alters.NEVER)
    partition_by: str | None = option(default=None, convert=_columns, alters=Alters.NEVER)
    content: Content = option(default=Content.CHANGELOG, alters=Alters.NEVER)

    @property
    def partitions(self) -> tuple[str, ...]:
        """The columns of ``partition_by``."""
        return tuple(name.strip() for name in (self.partition_by or "").split(",") if name)


def place(path: str, context: SinkContext) -> Path:
    """Return the directory to which a sink writes, with symbolic links resolved.

    Raises:
        HeadraceError: ``invalid`` if an absolute path is not below a root for sinks, or if a
            symbolic link leads out of the directory for sinks.
    """
    if path.startswith("/"):
        return _below_roots(Path(path).resolve(), context)
    root = (context.directory / "sinks").resolve()
    found = (root / path).resolve()
    if not found.is_relative_to(root):
        raise HeadraceError(
            Code.INVALID,
            f"'{path}' is outside of the directory for sinks",
            f"A symbolic link leads to {found}.",
            "Remove the link, or use another path.",
        )
    return found


def _below_roots(found: Path, context: SinkContext) -> Path:
    roots = [root.resolve() for root in context.roots]
    own = found.is_relative_to(context.directory.resolve())
    if not own and any(found != root and found.is_relative_to(root) for root in roots):
        return found
    listed = ", ".join(map(str, roots))
    raise HeadraceError(
        Code.INVALID,
        f"'{found}' is outside of the directories for sinks",
        f"Outside of the data directory, sinks write below: {listed}." if roots else None,
        "Use a relative path, which is below sinks/ in the data directory; or open the database"
        " with the setting sink_roots, a directory above this one.",
    )


def path_of(options: Options, context: SinkContext) -> PurePath:
    """Return the directory, or S3 endpoint, bucket and key, of a sink, to compare sinks."""
    if s3.is_location(options.path):
        return s3.Prefix(options.path, options, context.secrets.value).path
    return place(options.path, context)


def check(options: Options, context: SinkContext) -> None:
    """Refuse columns that the format cannot hold, and partitions by unknown columns.

    Raises:
        HeadraceError: ``unsupported`` or ``invalid``, with the first such column.
    """
    schema = context.schema.arrow
    require_format(schema, options.format)
    for name in options.partitions:
        if name not in schema.names:
            raise HeadraceError(
                Code.INVALID,
                f'column "{name}" to partition by does not exist',
                hint=meant(name, schema.names, f"There are: {', '.join(schema.names)}."),
            )


def opened(options: Options, context: SinkContext) -> FileSink:
    """Return the writer of a sink."""
    return FileSink(
        place(options.path, context),
        options.format,
        context.schema.arrow.append(pa.field(WEIGHT, pa.int64())),
        context.key,
        options.partitions,
        context.stops,
    )


@dataclass(frozen=True, slots=True)
class FileSink:
    """Writes ``<epoch>.jsonl``, ``.csv`` or ``.parquet``, each part ordered by operation.

    With ``partitions`` it writes the directory ``epoch=<epoch>``. ``schema`` is that of changes.
    ``key`` are the columns of a unique key of the rows, empty if it is unknown. With ``stops``, an
    epoch that has a refused row is not written.
    """

    directory: Path
    format: OutputFormat
    schema: pa.Schema
    key: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    stops: bool = False

    @property
    def guarantee(self) -> str:
        """Exactly once: see :class:`headrace.execution.runtime.ports.SinkWriter`."""
        return f"exactly once: one {'directory' if self.partitions else 'file'} per epoch"

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        """Write the file or directory of an epoch.

        Raises:
            HeadraceError: ``invalid`` if the directory has become a symbolic link.
        """
        self._require_directory()
        self.directory.mkdir(parents=True, exist_ok=True)
        draft = new_draft(self.directory, epoch)
        if self.partitions:
            refused = self._directory(epoch, parts, draft)
        else:
            refused = self._file(epoch, parts, draft)
            if not draft.stat().st_size:
                remove(draft)
                return refused
        if refused and self.stops:
            remove(draft)
            return refused
        draft.replace(self.directory / self._name(epoch))
        sync_directory(self.directory)
        return refused

    def _file(self, epoch: Epoch, parts: Iterable[pa.Table], draft: Path) -> Sequence[RefusedRow]:
        self._opened(epoch, draft).write_all(parts)
        return ()

    def _directory(
        self, epoch: Epoch, parts: Iterable[pa.Table], draft: Path
    ) -> Sequence[RefusedRow]:
        draft.mkdir()
        files = Partitions(
            draft, self.partitions, lambda place: self._opened(epoch, place), self.format.ending
        )
        return files.write(epoch, parts)

    def durable(self) -> Epoch | None:
        """Remove leftover drafts; return the epoch of the newest file or directory."""
        remove_drafts(self.directory)
        found = self._written()
        return Epoch(max(found)) if found else None

    def stored(self) -> Iterator[pa.Table] | None:
        """Return None: the files contain changes, not rows."""
        return None

    def clear(self) -> None:
        """Remove the sink's files or directories, and drafts."""
        self._require_directory()
        remove_drafts(self.directory)
        for written in self._written().values():
            remove(written)
        if self.directory.exists():
            sync_directory(self.directory)

    def close(self) -> None:
        """Do nothing: no file is held open."""

    def _opened(self, epoch: Epoch, place: Path) -> ChangeFile:
        return ChangeFile(place, self.format, epoch, self.key, self.schema)

    def _name(self, epoch: Epoch) -> str:
        return f"epoch={epoch:020d}" if self.partitions else f"{epoch:020d}.{self.format.ending}"

    def _written(self) -> dict[Epoch, Path]:
        """Return the paths of written files or directories, by epoch."""
        if self.partitions:
            return epoch_directories(self.directory)
        return _by_epoch({p.stem: p for p in self.directory.glob(f"*.{self.format.ending}")})

    def _require_directory(self) -> None:
        if self.directory.resolve() != self.directory:
            raise HeadraceError(
                Code.INVALID,
                f'directory "{self.directory}" has become a symbolic link',
                hint="Put the directory back.",
            )


def new_draft(directory: Path, epoch: Epoch, kind: str = "draft") -> Path:
    """Return the path to which an epoch is written before it is renamed; nothing exists there.

    Its name begins with a dot: readers of directories skip such names.
    """
    found = directory / f".{epoch:020d}.{kind}"
    remove(found)
    return found


_DRAFT: Final = re.compile(r"\.?\d{20}\.(draft|changes)")
"""The names of drafts; earlier versions wrote them without a dot."""


def epoch_directories(directory: Path) -> dict[Epoch, Path]:
    """Return the directories ``epoch=<epoch>`` that sinks have written, by epoch."""
    return _by_epoch({p.name.removeprefix("epoch="): p for p in directory.glob("epoch=*")})


def _by_epoch(found: Mapping[str, Path]) -> dict[Epoch, Path]:
    return {Epoch(int(name)): path for name, path in found.items() if name.isdigit()}


def remove_drafts(directory: Path) -> None:
    """Remove drafts that an earlier process has left in a directory, which need not exist."""
    for each in directory.iterdir() if directory.is_dir() else ():
        if _DRAFT.fullmatch(each.name):
            remove(each)


def remove(place: Path) -> None:
    """Remove a file, directory or symbolic link, if it exists; the target of a link stays."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
