"""Durable files with checksums: they are on disk before the ledger names them."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any

import xxhash

if TYPE_CHECKING:
    from pathlib import Path


def sync_directory(directory: Path) -> None:
    """Make the names of the files in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class ChecksummedFile(io.RawIOBase):
    """A new file that computes the checksum and the number of the written bytes."""

    def __init__(self, path: Path) -> None:
        """Create the file, which must not exist."""
        self._file = path.open("xb")
        self.digest = xxhash.xxh3_64()
        self.bytes = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Write bytes; return their number."""
        with memoryview(data) as view:
            self.digest.update(view)
            self.bytes += view.nbytes
            return self._file.write(view)

    def sync(self) -> None:
        """Make the bytes written so far durable."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()
