"""A sink that writes one file per epoch to a directory: the delta of a view, as JSON lines or CSV.

A file is written under a temporary name, synced, and renamed, so it is either complete or missing.
The newest file is the last epoch that there is: no change is written twice.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv as pa_csv

from headrace.connectors.lines import json_lines
from headrace.connectors.options import option
from headrace.errors import Code, HeadraceError
from headrace.serving import with_operations
from headrace.spine import sync_directory
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from headrace.runtime.ports import Refused


class FileFormat(StrEnum):
    """The format of the files."""

    JSON = "json"
    CSV = "csv"


def _path(text: str) -> str:
    parts = text.split("/")
    if not all(part.strip(". ") for part in parts) or "\\" in text or "\0" in text:
        raise HeadraceError(
            Code.INVALID,
            f"'{text}' is outside of the directory for sinks",
            hint="Use a relative path without dots, such as 'orders/daily'.",
        )
    return text


@dataclass(frozen=True, slots=True)
class Options:
    """``path`` is a directory under ``sinks/`` in the data directory."""

    path: str = option(convert=_path)
    format: FileFormat = FileFormat.JSON


def place(options: Options, directory: Path) -> Path:
    """Return the directory into which a sink writes; ``directory`` is the data directory.

    Raises:
        HeadraceError: ``invalid`` if a symbolic link leads out of the directory for sinks.
    """
    root = (directory / "sinks").resolve()
    found = (root / options.path).resolve()
    if not found.is_relative_to(root):
        raise HeadraceError(
            Code.INVALID,
            f"'{options.path}' is outside of the directory for sinks",
            f"A symbolic link leads to {found}.",
            "Remove the link, or use another path.",
        )
    return found


def opened(options: Options, directory: Path, key: tuple[str, ...]) -> FileSink:
    """Return the writer of a sink."""
    return FileSink(place(options, directory), options.format, key)


def require_format(schema: pa.Schema, form: FileFormat) -> None:
    """Refuse columns that files of a format cannot hold.

    Raises:
        HeadraceError: ``unsupported``, with the first such column.
    """
    if form is not FileFormat.CSV:
        return
    for column in schema:
        try:
            pa_csv.write_csv(pa.schema([column]).empty_table(), pa.BufferOutputStream())
        except pa.ArrowException as error:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'column "{column.name}" of type {column.type} cannot be written as CSV',
                hint="Use format = 'json'; or select to_json(column), or its elements.",
            ) from error


@dataclass(frozen=True, slots=True)
class FileSink:
    """Writes ``<epoch>.jsonl`` or ``<epoch>.csv``, each part as :func:`with_operations` has it."""

    directory: Path
    format: FileFormat
    key: tuple[str, ...] = ()
    """The columns of a unique key of the rows; empty if none is known."""
    guarantee: str = "exactly once: one file per epoch"

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[Refused]:
        """Write the file of an epoch.

        Raises:
            HeadraceError: ``invalid`` if the directory has become a link to another.
        """
        self._require_directory()
        self.directory.mkdir(parents=True, exist_ok=True)
        place = self.directory / f"{epoch:020d}.{self._ending}"
        draft = place.with_suffix(".draft")
        draft.unlink(missing_ok=True)
        with draft.open("xb") as file:  # never through a link
            for number, part in enumerate(parts):
                if self.format is FileFormat.CSV:
                    rows = with_operations(part, self.key)
                    options = pa_csv.WriteOptions(include_header=not number)
                    pa_csv.write_csv(rows, file, options)
                    continue
                for line in json_lines(epoch, part, self.key):
                    file.write(f"{line}\n".encode())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(place)
        sync_directory(self.directory)
        return ()

    def durable(self) -> Epoch | None:
        """Return the epoch of the newest file."""
        names = [file.stem for file in self._files()]
        return Epoch(int(max(names))) if names else None

    def stored(self) -> Iterator[pa.Table] | None:
        """Return None: the files have changes, not rows."""
        return None

    def clear(self) -> None:
        """Remove the files."""
        self._require_directory()
        for file in self._files():
            file.unlink()
        if self.directory.exists():
            sync_directory(self.directory)

    def close(self) -> None:
        """Do nothing: no file is held open."""

    @property
    def _ending(self) -> str:
        return "jsonl" if self.format is FileFormat.JSON else "csv"

    def _files(self) -> list[Path]:
        return [f for f in self.directory.glob(f"*.{self._ending}") if f.stem.isdigit()]

    def _require_directory(self) -> None:
        if self.directory.resolve() != self.directory:
            raise HeadraceError(
                Code.INVALID,
                f'directory "{self.directory}" has become a symbolic link',
                hint="Put the directory back.",
            )
