"""Durable files with checksums: they are on disk before the ledger names them."""

from __future__ import annotations

import io
import os
from typing import IO, TYPE_CHECKING, Any

import xxhash

if TYPE_CHECKING:
    from pathlib import Path


class ChecksummedWriter(io.RawIOBase):
    """Writes to the end of an open file; computes the checksum and the number of the bytes."""

    def __init__(self, file: IO[bytes]) -> None:
        """Begin where the file is."""
        self._file = file
        self.digest = xxhash.xxh3_64()
        self.bytes = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Write bytes; return their number, which is that of all of them."""
        with memoryview(data) as view:
            self.digest.update(view)
            at = 0
            while at < view.nbytes:  # an unbuffered file may write a part of them
                at += self._file.write(view[at:])
            self.bytes += at
        return at


class ChecksummedFile(ChecksummedWriter):
    """A new file that computes the checksum and the number of the written bytes."""

    def __init__(self, path: Path) -> None:
        """Create the file, which must not exist."""
        super().__init__(path.open("xb"))

    def sync(self) -> None:
        """Make the bytes written so far durable."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()
