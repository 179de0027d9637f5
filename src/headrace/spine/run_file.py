"""Write runs: immutable, uniquely named, checksummed Arrow files of consolidated rows.

A run file is durable once :meth:`RunWriter.finish` has returned *and* its directory is synced.
Others read it only once the ledger names it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

import pyarrow as pa

from headrace.errors import Code, HeadraceError, not_written
from headrace.spine.checked import REGISTER
from headrace.spine.durable import ChecksummedFile
from headrace.zset.zset import in_one_piece

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from headrace.zset import Layout, ZSet

BATCH_ROWS = 2**20
"""The most rows of one record batch of a run."""
BATCH_BYTES = 2**28
"""The most bytes of one record batch of a run, unless a part has more: Arrow limits columns."""


@dataclass(frozen=True, slots=True)
class RunFile:
    """The ledger's description of a run file.

    ``name`` is never reused; ``checksum`` is the XXH3 (64 bits, in hexadecimal) of all bytes;
    ``low`` and ``high`` are the least and the greatest hash. Only without rows, ``low > high``.
    """

    name: str
    rows: int
    bytes: int
    checksum: str
    low: int
    high: int

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value that :meth:`of_json` reads."""
        return asdict(self)

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> RunFile:
        """Return the run file that :meth:`to_json` wrote."""
        return cls(**value)


class RunWriter:
    """Writes one run from consolidated parts in ascending order of hash.

    A context manager: leaving it without :meth:`finish`, as on an error, removes the file. Errors
    of the disk are raised as ``unavailable``. ``attempt`` is part of the file's name. Buffers up to
    ``BATCH_ROWS`` rows of ``BATCH_BYTES`` besides the current part.
    """

    def __init__(self, directory: Path, layout: Layout, attempt: str = "") -> None:
        self._layout = layout
        self._path = directory / f"{_prefix(attempt)}{uuid4().hex}.arrow"
        try:
            self._file = ChecksummedFile(self._path)
        except OSError as error:
            raise not_written(f'run file "{self._path}"', error) from error
        self._sink = pa.PythonFile(self._file, mode="w")
        self._writer = pa.ipc.new_file(self._sink, layout.schema)
        self._pending: list[pa.Table] = []
        self._pending_rows = self._pending_bytes = 0
        self._rows = 0
        self._low, self._high = 0, -1
        self._finished = False

    def append(self, part: ZSet) -> None:
        """Add consolidated rows whose hashes are all above those appended before."""
        if part.rows == 0:
            return
        hashes = part.hashes
        low, high = int(hashes[0]), int(hashes[-1])
        if self._rows and low <= self._high:
            raise HeadraceError(Code.INTERNAL, "the parts of a run are out of order")
        self._low = low if self._rows == 0 else self._low
        self._high = high
        self._rows += part.rows
        size = part.table.nbytes
        if self._pending_bytes + size > BATCH_BYTES:
            self._flush()
        self._pending.append(part.table)
        self._pending_rows += part.rows
        self._pending_bytes += size
        if self._pending_rows >= BATCH_ROWS:
            self._flush()

    def finish(self) -> RunFile:
        """Make the file durable, except for its directory entry, and return what it holds."""
        self._flush()
        self._writer.close()
        self._sink.flush()
        self._file.sync()
        self._finished = True
        checksum = self._file.digest.hexdigest()
        REGISTER.add(str(self._path), checksum)
        return RunFile(
            self._path.name,
            self._rows,
            self._file.bytes,
            checksum,
            self._low,
            self._high,
        )

    def _flush(self) -> None:
        if self._pending_rows:
            table = pa.concat_tables(self._pending)
            if self._pending_bytes <= BATCH_BYTES:
                table = in_one_piece(table)
            self._writer.write_table(table, max_chunksize=BATCH_ROWS)
        self._pending.clear()
        self._pending_rows = self._pending_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._finished:
            # Writing the footer may fail, for example on a full disk: the file is removed anyway.
            with suppress(OSError, pa.ArrowException):
                self._writer.close()
            self._path.unlink(missing_ok=True)
        with suppress(OSError):
            self._file.close()
        if isinstance(error, OSError):
            raise not_written(f'run file "{self._path}"', error) from error


def write_run(directory: Path, rows: ZSet, attempt: str = "") -> RunFile:
    """Write a consolidated Z-set as one run; see :class:`RunWriter`."""
    with RunWriter(directory, rows.layout, attempt) as writer:
        writer.append(rows)
        return writer.finish()


def remove_runs_of(directory: Path, attempt: str) -> None:
    """Delete the runs of a failed attempt, also unreported ones."""
    prefix = _prefix(attempt)
    for path in directory.iterdir():
        if path.name.startswith(prefix):
            path.unlink(missing_ok=True)


def _prefix(attempt: str) -> str:
    return f"run-{attempt}-" if attempt else "run-"
