"""A sink that writes one file per epoch to a directory: the delta of a view, as JSON lines or CSV.

A file is written under a temporary name, synced, and renamed, so it is either complete or missing.
Writing an epoch again replaces its file by an equal one, so the directory has each change once.
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

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.types import Epoch


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
    """Writes ``<epoch>.jsonl`` or ``<epoch>.csv``, in the order of :func:`with_operations`."""

    directory: Path
    format: FileFormat
    key: tuple[str, ...] = ()
    """The columns of a unique key of the rows; empty if none is known."""
    guarantee: str = "exactly once: one file per epoch"

    def write(self, epoch: Epoch, changes: pa.Table) -> None:
        """Write the file of an epoch, replacing an existing one.

        Raises:
            HeadraceError: ``invalid`` if the directory has become a link to another.
        """
        if self.directory.resolve() != self.directory:
            raise HeadraceError(
                Code.INVALID,
                f'directory "{self.directory}" has become a symbolic link',
                hint="Put the directory back.",
            )
        self.directory.mkdir(parents=True, exist_ok=True)
        ending = "jsonl" if self.format is FileFormat.JSON else "csv"
        place = self.directory / f"{epoch:020d}.{ending}"
        draft = place.with_suffix(".draft")
        draft.unlink(missing_ok=True)
        with draft.open("xb") as file:  # never through a link
            if self.format is FileFormat.CSV:
                pa_csv.write_csv(with_operations(changes, self.key), file)
            else:
                for line in json_lines(epoch, changes, self.key):
                    file.write(f"{line}\n".encode())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(place)
        sync_directory(self.directory)
