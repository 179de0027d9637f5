"""Packs, and the partitions of the hash space that runs are written by.

Write packs: immutable files with the runs of one writer, one after the other.

Each run has consolidated rows, begins at an aligned position, so that it can be mapped, and has its
own checksum. It is an Arrow stream for each batch: a small one of a single batch, a large one of
batches in narrower types (:mod:`headrace.algebra.spine.stored`). A pack is durable once
:meth:`PackWriter.finish` has returned *and* its directory is synced (a cache need not be: the store
has it then). Others read its runs once the ledger names them; the process that writes it can open
each run as soon as it is written. A pack is deleted as a whole, when none of its runs is needed any
more.

Partitions of the hash space: contiguous ranges of signed 64-bit integers of about equal size.

The same formula runs in SQL, with long arithmetic and a signed shift: ``hash`` belongs to
``((hash >> 32) + 2147483648) * partitions >> 32``. The product fits for up to 2**31 partitions.

The order in which rows of several runs are added, without comparing what one run has.

The rows of a spine as columns to scan, as :mod:`headrace.algebra.spine.columns` makes them.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import IO, TYPE_CHECKING, Final, Self, TypeAlias
from uuid import uuid4

import numpy as np
import pyarrow as pa

from headrace.algebra.spine.open_runs import END, LEAST_BYTES, REGISTER, keep_written, let_go
from headrace.algebra.spine.run import RunFile
from headrace.algebra.spine.stored import in_files, stored
from headrace.algebra.zset.zset import fresh, in_one_batch, in_one_piece
from headrace.errors import Code, HeadraceError, not_written
from headrace.files.bundles import ChecksummedWriter, name_in
from headrace.files.mounts import delete_units, discard, files_in, keep, mount_of, new_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from headrace.algebra.spine.run import Run
    from headrace.algebra.spine.stored import Batch
    from headrace.algebra.zset import Layout, ZSet
    from headrace.algebra.zset.order import Bools, Ints


LOWEST = -(2**63)
"""The least hash."""

HIGHEST = 2**63 - 1
"""The greatest hash."""

_HALF = 32
_BIAS = 2**31


def partition_of(hashes: Ints, partitions: int) -> Ints:
    """Return the partition, from 0, that owns each hash."""
    upper = (hashes >> np.int64(_HALF)) + np.int64(_BIAS)
    return np.asarray((upper * np.int64(partitions)) >> np.int64(_HALF))


def ranges(partitions: int) -> list[tuple[int, int]]:
    """Return the lowest and highest hash, both inclusive, of each partition in order."""
    # The least upper half u with u * n >> 32 >= p, for n partitions, is p * 2**32 / n rounded up.
    lows = [(-(-(p << _HALF) // partitions) - _BIAS) << _HALF for p in range(partitions)]
    return list(zip(lows, [low - 1 for low in lows[1:]] + [HIGHEST], strict=True))


BATCH_ROWS = 2**20
"""The most rows of one record batch of a run."""
BATCH_BYTES = 2**28
"""The most bytes of one record batch of a run, unless a part has more: Arrow limits columns."""
_AT_ONCE_BYTES: Final = 1 << 20
"""The most bytes of rows that are composed in memory, and kept there to be read."""
_NARROWED_BYTES: Final = 1 << 16
"""From so many bytes on, rows that are merged are stored in narrower types."""
ALIGNMENT: Final = 64
"""Arrow reads mapped buffers without a copy only from such addresses."""


class PackWriter:
    """Writes the runs of one pack. Not thread-safe.

    The file is created with the first run, and ``attempt`` is part of its name. Small runs stay in
    memory if this process is ``to_read`` them. If the directory is the cache of a store, a small
    pack may be in a bundle, unless it is ``alone``. As a context, it is abandoned unless it was
    finished. Errors of the disk are raised as ``unavailable``.
    """

    def __init__(
        self, directory: Path, attempt: str = "", *, to_read: bool = True, alone: bool = False
    ) -> None:
        self._directory = directory
        self._to_read = to_read
        stem = f"{_prefix(attempt)}{uuid4().hex}"
        self._name = name_in(None, stem) if alone else new_name(directory, stem)
        self._path = directory / self._name
        self._file: IO[bytes] | None = None
        self._runs: list[RunFile] = []

    @property
    def is_empty(self) -> bool:
        """Whether no run has been written."""
        return not self._runs

    def write(self, rows: ZSet) -> RunFile:
        """Write a consolidated Z-set as one run."""
        if not _is_small(rows):
            return self._streamed(rows.layout, [rows])
        run, batch, data = self._composed(rows)
        if self._to_read:
            keep_written(self._directory, run, rows.layout, batch, data)
        return run

    def write_parts(self, layout: Layout, parts: Iterable[ZSet]) -> RunFile | None:
        """Write consolidated parts as one run; return None, and write nothing, without rows.

        The hashes of a part are all above those of the parts before it. Buffers up to
        ``BATCH_ROWS`` rows of ``BATCH_BYTES`` besides the current part.
        """
        rest = (part for part in parts if part.rows)
        first, second = next(rest, None), next(rest, None)
        if first is None:
            return None
        if second is None and first.table.nbytes <= _NARROWED_BYTES:
            return self.write(first)
        if second is None:
            return self._streamed(layout, [first])
        return self._streamed(layout, chain([first, second], rest))

    def finish(self) -> None:
        """Make the pack durable, except for its directory entry; nothing is written afterwards.

        A pack without runs has no file.
        """
        if self._file is None:
            return
        try:
            if mount_of(self._directory) is None:
                os.fsync(self._file.fileno())
            self._file.close()
        except OSError as error:
            raise self._error(error) from error
        keep(self._path)
        self._file = None
        for run in self._runs:
            if run.bytes >= LEAST_BYTES:  # not earlier: a file that has grown is another one
                REGISTER.add(str(self._path), run.checksum, run.position)

    def abandon(self) -> None:
        """Remove the pack."""
        self._close()
        remove_packs(self._directory, [self._name])

    def _composed(self, rows: ZSet) -> tuple[RunFile, pa.RecordBatch, pa.Buffer]:
        """Write a run at once, not by Arrow's many small writes; return its rows and bytes too."""
        schema, head = rows.layout.stored_schema
        batch = whole = in_one_batch(rows.table)
        if rows.layout.stored:
            whole = pa.RecordBatch.from_arrays(whole.columns, schema=schema)
        starts = range(0, max(1, rows.rows), BATCH_ROWS)
        parts = [whole] if len(starts) == 1 else [whole.slice(at, BATCH_ROWS) for at in starts]
        data = pa.py_buffer(b"".join((head, *(part.serialize() for part in parts), END)))
        hashes = rows.hashes
        with self._range() as written:
            written.write(data)
        low, high = (int(hashes[0]), int(hashes[-1])) if rows.rows else (0, -1)
        return self._ended(written, rows.rows, low, high), batch, data

    def _streamed(self, layout: Layout, parts: Iterable[ZSet]) -> RunFile:
        batches = _Batches()
        with self._range() as written, pa.PythonFile(written, mode="w") as sink:
            for table in batches.of(parts):
                for batch in table.to_batches(max_chunksize=BATCH_ROWS):
                    kept = in_files(stored(batch, layout), layout)
                    with pa.ipc.new_stream(sink, kept.schema) as arrow:
                        arrow.write_batch(kept)
            sink.flush()
        return self._ended(written, batches.rows, batches.low, batches.high)

    @contextmanager
    def _range(self) -> Iterator[_Range]:
        """Yield where the next run begins, as a file to write its bytes into."""
        try:
            if self._file is None:
                self._file = self._path.open("xb", buffering=0)
            position = -(-self._runs[-1].end // ALIGNMENT) * ALIGNMENT if self._runs else 0
            self._file.seek(position)
            yield _Range(self._file, position)
        except OSError as error:
            raise self._error(error) from error

    def _ended(self, written: _Range, rows: int, low: int, high: int) -> RunFile:
        digest = written.digest.hexdigest()
        run = RunFile(self._name, written.position, rows, written.bytes, digest, low, high)
        self._runs.append(run)
        return run

    def _close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None

    def _error(self, error: OSError) -> HeadraceError:
        return not_written(f'run file "{self._path}"', error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self.abandon()


class _Range(ChecksummedWriter):
    """The bytes of one run in a pack, which begin at ``position``."""

    def __init__(self, file: IO[bytes], position: int) -> None:
        super().__init__(file)
        self.position = position


class _Batches:
    """Gathers parts into batches, and finds the bounds of their hashes."""

    def __init__(self) -> None:
        self.rows = 0
        self.low, self.high = 0, -1

    def of(self, parts: Iterable[ZSet]) -> Iterator[pa.Table]:
        """Yield the rows of parts with ascending hashes in larger tables."""
        pending: list[pa.Table] = []
        rows = size = 0
        for part in parts:
            self._bound(part)
            more = part.table.nbytes
            if pending and (rows >= BATCH_ROWS or size + more > BATCH_BYTES):
                yield _joined(pending, size)
                pending, rows, size = [], 0, 0
            pending.append(part.table)
            rows += part.rows
            size += more
        if pending:
            yield _joined(pending, size)

    def _bound(self, part: ZSet) -> None:
        hashes = part.hashes
        low, high = int(hashes[0]), int(hashes[-1])
        if self.rows and low <= self.high:
            raise HeadraceError(Code.INTERNAL, "the parts of a run are out of order")
        self.low = low if self.rows == 0 else self.low
        self.high = high
        self.rows += part.rows


def write_run(directory: Path, rows: ZSet, attempt: str = "") -> RunFile:
    """Write a consolidated Z-set as the only run of a pack; see :class:`PackWriter`."""
    with PackWriter(directory, attempt, to_read=False, alone=True) as pack:
        run = pack.write(rows)
        pack.finish()
    return run


def write_parts(directory: Path, layout: Layout, parts: Iterable[ZSet]) -> RunFile | None:
    """Write parts as the only run of a pack; see :meth:`PackWriter.write_parts`."""
    with PackWriter(directory, alone=True) as pack:
        run = pack.write_parts(layout, parts)
        pack.finish()
    return run


def remove_packs(directory: Path, packs: Iterable[str]) -> None:
    """Delete packs; who has one of their runs open keeps it."""
    names = frozenset(packs)
    let_go(directory, names)
    discard(directory, names)


def delete_packs(directory: Path, packs: Iterable[str]) -> None:
    """Delete packs that the ledger still names as garbage, and bundles that are all garbage.

    Raises:
        HeadraceError: ``unavailable`` while a store of objects does not answer.
    """
    names = frozenset(packs)
    let_go(directory, names)
    delete_units(directory, names)


def remove_packs_of(directory: Path, attempt: str) -> None:
    """Delete the packs of a failed attempt, also unreported ones."""
    prefix = _prefix(attempt)
    try:
        found = list(files_in(directory, prefix))
    except HeadraceError:  # the sweep deletes them
        found = [path.name for path in directory.iterdir() if path.name.startswith(prefix)]
    remove_packs(directory, found)


def _is_small(rows: ZSet) -> bool:
    """Whether rows are composed in memory."""
    table = rows.table  # counting the bytes of slices takes as long as composing a few rows
    return bool(table.get_total_buffer_size() <= _AT_ONCE_BYTES or table.nbytes <= _AT_ONCE_BYTES)


def _joined(tables: list[pa.Table], size: int) -> pa.Table:
    table = pa.concat_tables(tables)
    return in_one_piece(table) if size <= BATCH_BYTES else table


def _prefix(attempt: str) -> str:
    return f"run-{attempt}-" if attempt else "run-"


def in_blocks_of_runs(rows: ZSet, codes: Ints, runs: Ints) -> tuple[Ints, Bools]:
    """Return :meth:`ZSet.in_blocks` of rows of several runs, one run after the other.

    ``runs`` has the number of each row's run. The rows that a run has of one code are different
    rows, in the order of the layout: they are compared only if another run has rows of that code.
    """
    order = codes.argsort(kind="stable")
    ascending = codes[order]
    runs = runs[order]
    shared = ((ascending[1:] == ascending[:-1]) & (runs[1:] != runs[:-1])).nonzero()[0]
    if not len(shared):
        return order, np.ones(len(order), np.bool_)
    block = fresh(ascending).cumsum() - 1
    several = np.zeros(block[-1] + 1, np.bool_)
    several[block[shared]] = True
    compared = several[block]
    if compared.all():
        return rows.in_blocks(codes)
    some, first = rows.in_blocks(codes, among=order[compared])
    order = np.concatenate([order[~compared], some])
    first = np.concatenate([np.ones(len(order) - len(some), np.bool_), first])
    merged = codes[order].argsort(kind="stable")
    return order[merged], first[merged]


Mask: TypeAlias = "NDArray[np.bool_] | None"


@dataclass(frozen=True, slots=True)
class Flat:
    """The rows of a spine: those of ``runs`` where a mask is true, and those of ``beside``.

    A row of the runs counts once; a mask of None is true everywhere. ``beside`` is consolidated,
    and its rows have weights.
    """

    runs: tuple[tuple[Run, Mask], ...]
    beside: ZSet

    def batches(self) -> Iterator[tuple[Batch, Mask]]:
        """Yield the batches of the runs, each with its mask."""
        for run, counted in self.runs:
            starts = run.offsets.tolist()
            for number, batch in enumerate(run.batches):
                within = slice(starts[number], starts[number + 1])
                yield batch, None if counted is None else counted[within]
