"""Copies files, several at a time, and checks what is read."""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

import xxhash

from headrace.errors import Code, HeadraceError
from headrace.objects.places import PIECE_BYTES
from headrace.spine.pack import ALIGNMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from headrace.ledger import CheckedRange

T = TypeVar("T")

_THREADS: Final = 6
"""Object stores take tens of milliseconds for each file, whatever its size."""
_REPORT_SECONDS: Final = 0.1


@dataclass(slots=True)
class Meter:
    """Counts the bytes that threads have copied, and ends their work."""

    done: int = 0
    stopped: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, size: int) -> None:
        """Count bytes.

        Raises:
            HeadraceError: ``cancelled`` if the work was stopped.
        """
        with self._lock:
            self.done += size
        if self.stopped:
            raise HeadraceError(Code.CANCELLED, "copying was cancelled")


@dataclass(slots=True)
class Digest:
    """The size and the checksum of the bytes that have passed."""

    size: int = 0
    _hash: xxhash.xxh3_64 = field(default_factory=xxhash.xxh3_64)

    @property
    def checksum(self) -> str:
        """The XXH3 of the bytes (64 bits, in hexadecimal)."""
        return self._hash.hexdigest()

    def of(self, pieces: Iterable[bytes], meter: Meter) -> Iterator[bytes]:
        """Yield pieces, and count them."""
        for piece in pieces:
            self._hash.update(piece)
            self.size += len(piece)
            meter.count(len(piece))
            yield piece


class DamagedFileError(HeadraceError):
    """A file does not have the bytes that the ledger says it has."""


def checked_pieces(path: Path, size: int, ranges: Iterable[CheckedRange]) -> Iterator[bytes]:
    """Yield the first ``size`` bytes of a file; check the ranges, which are in order.

    Raises:
        DamagedFileError: it is missing or short, or a range has another checksum.
    """
    try:
        with path.open("rb", buffering=0) as file:
            yield from checked(file.read, path, size, ranges)
    except OSError as error:
        raise _damaged(path, f"{error.strerror}.") from error


def checked(
    read: Callable[[int], bytes], path: Path, size: int, ranges: Iterable[CheckedRange]
) -> Iterator[bytes]:
    """Yield what ``read`` returns of the file at a path, as :func:`checked_pieces`."""
    at = 0
    for each in ranges:
        yield from _between(read, path, at, each.position)
        hashed = xxhash.xxh3_64()
        for piece in _pieces(read, path, each.bytes):
            hashed.update(piece)
            yield piece
        if hashed.hexdigest() != each.checksum:
            raise _damaged(path, f"Its bytes from {each.position} on have been changed.")
        at = each.position + each.bytes
    yield from _pieces(read, path, size - at)


def _between(read: Callable[[int], bytes], path: Path, at: int, position: int) -> Iterator[bytes]:
    """Yield the bytes between two ranges: of what is needed no longer, or zeros that align them."""
    aligns = position - at < ALIGNMENT
    for piece in _pieces(read, path, position - at):
        if aligns and any(piece):
            raise _damaged(path, f"Its bytes from {at} on have been changed.")
        yield piece


def _pieces(read: Callable[[int], bytes], path: Path, size: int) -> Iterator[bytes]:
    left = size
    while left > 0:
        piece = read(min(left, PIECE_BYTES))
        if not piece:
            raise _damaged(path, f"It ends {left} bytes too early.")
        left -= len(piece)
        yield piece


def _damaged(path: Path, detail: str) -> DamagedFileError:
    return DamagedFileError(
        Code.CORRUPT,
        f'file "{path}" is damaged',
        detail,
        "Run REPAIR, which rebuilds views and tables from the log; a damaged file of the log has to"
        " be restored from an earlier backup.",
    )


def run_all(
    tasks: Iterable[Callable[[], T]], meter: Meter, report: Callable[[int], None]
) -> list[T]:
    """Run tasks on threads; return their results, in the order in which they end.

    ``report`` is called on this thread with the bytes that were counted so far. What it raises, and
    what a task raises, ends all of them.
    """
    results: list[T] = []
    left = iter(tasks)
    with ThreadPoolExecutor(_THREADS, "headrace-copying") as pool:
        running = {pool.submit(task) for task in islice(left, 2 * _THREADS)}
        try:
            while running:
                ended, running = wait(running, _REPORT_SECONDS, FIRST_COMPLETED)
                results += [each.result() for each in ended]
                running |= {pool.submit(task) for task in islice(left, len(ended))}
                report(meter.done)
        except BaseException:
            meter.stopped = True
            pool.shutdown(cancel_futures=True)
            raise
    return results
