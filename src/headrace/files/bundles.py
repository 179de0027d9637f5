"""Bundles: objects with many small files each, since a store costs time and money per object.

The name of a small file ends with that of its bundle, so whoever knows a file knows which object
has it, without a directory. A file may also be an object of its own, under its own name.

Durable files with checksums: they are on disk before the ledger names them.
"""

from __future__ import annotations

import io
import json
import os
from typing import IO, TYPE_CHECKING, Any, Final

import xxhash

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Mapping
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


DIGITS: Final = 20
"""The length of the id of a bundle, in hexadecimal digits."""
MARK: Final = "-b"
SUFFIX: Final = ".arrow"
ENDING: Final = len(MARK) + DIGITS + len(SUFFIX)
"""The length of what the name of a file in a bundle ends with."""
_BUNDLE: Final = "bundle-"
_LENGTH_BYTES: Final = 8
_CHECKSUM: Final = ""
"""The entry of an index with the checksum, which those of former versions lack."""
_HEX: Final = frozenset("0123456789abcdef")


def name_in(bundle: str | None, stem: str) -> str:
    """Return the name of a file in a bundle; without one, of a file of its own."""
    return f"{stem}{MARK}{bundle}{SUFFIX}" if bundle else f"{stem}{SUFFIX}"


def bundle_of(name: str) -> str | None:
    """Return the id of the bundle that a file may be in; None if it is in none."""
    ending = name[-ENDING:]
    bundle = ending[len(MARK) : -len(SUFFIX)]
    in_one = (
        len(bundle) == DIGITS
        and ending.startswith(MARK)
        and ending.endswith(SUFFIX)
        and _HEX.issuperset(bundle)
    )
    return bundle if in_one else None


def unit_of(name: str) -> str:
    """Return what a file is deleted with: the id of its bundle, or its own name."""
    return bundle_of(name) or name


def object_of(bundle: str) -> str:
    """Return the name of the object that a bundle is."""
    return f"{_BUNDLE}{bundle}"


def bundle_of_object(name: str) -> str | None:
    """Return the id of the bundle that an object is; None if it is another object."""
    bundle = name.removeprefix(_BUNDLE)
    return bundle if bundle != name else None


def composed(files: Mapping[str, bytes]) -> bytes:
    """Return files as one object: the length of the index, the index, and their bytes in order.

    The index has the lengths of the files by name, and a checksum of all that follows its own.
    """
    lengths = {name: len(body) for name, body in files.items()}
    index = json.dumps({_CHECKSUM: _checksum(lengths, *files.values()), **lengths}).encode()
    return b"".join([len(index).to_bytes(_LENGTH_BYTES), index, *files.values()])


def _checksum(lengths: Mapping[str, int], *bodies: bytes | memoryview) -> str:
    hashed = xxhash.xxh3_64(json.dumps(lengths).encode())
    for body in bodies:
        hashed.update(body)
    return hashed.hexdigest()


def members(data: bytes, name: str) -> dict[str, memoryview]:
    """Return the files of an object by name; ``name`` is that of the object, for the error.

    Raises:
        HeadraceError: ``corrupt`` if it is not what :func:`composed` returned.
    """
    begins = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES])
    try:
        index = json.loads(data[_LENGTH_BYTES:begins])
        checksum = index.pop(_CHECKSUM, None)
        sizes: dict[str, int] = {str(file): int(size) for file, size in index.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise _damaged(name, "Its index cannot be read.") from error
    found, view = {}, memoryview(data)
    if checksum is not None and checksum != _checksum(sizes, view[begins:]):
        raise _damaged(name, "Its bytes have been changed.")
    for file, size in sizes.items():
        found[file] = view[begins : begins + size]
        begins += size
    if begins != len(data):
        raise _damaged(name, f"It has {len(data):,} bytes instead of {begins:,}.")
    return found


def _damaged(name: str, detail: str) -> HeadraceError:
    return HeadraceError(Code.CORRUPT, f'object "{name}" is damaged', detail)
