"""The ids that a stream has had within a horizon, so that no event is appended twice.

An index that can be rebuilt from the log: each block has the 128-bit hashes of the ids in an offset
range, sorted, with their append times. Blocks are merged as they grow; large ones are memory-mapped
files, which a reopened database reads instead of the log. A file's name contains its range and
checksum, so a damaged file, or one of other offsets, is not used. The ids of changes that retention
has removed from the log are all in files.

Watermarks: a bound on event time, by the slowest active partition of a source.

The watermark is the least, over the partitions, of their newest event time less a delay. A
partition from which nothing has arrived for a while is idle, and not waited for. A row is *late* if
its time is before the watermark, less the allowed lateness.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from headrace.errors import BACKUPS, Code, HeadraceError
from headrace.files import mounts
from headrace.storage.ledger import CheckedRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray


Partitions: TypeAlias = "Sequence[str] | NDArray[np.object_]"
"""The partition of each of some rows."""
NEVER: Final = np.iinfo(np.int64).min
"""The event time of a row that has none."""


@dataclass(slots=True)
class Watermark:
    """The watermark of one stream, from the newest event time of each of its partitions.

    All times are in microseconds; event times may be before 1970. ``delay`` is subtracted from the
    newest event time; a partition without rows for ``idle`` is not waited for.
    """

    delay: int
    idle: int
    newest: dict[str, int] = field(default_factory=dict)
    heard: dict[str, int] = field(default_factory=dict)
    """When rows of each partition last arrived; missing partitions are idle."""

    def now(self, clock: int) -> int | None:
        """Return the watermark; None if no rows have arrived yet.

        If all partitions are idle, it is that of the most advanced one.
        """
        known = [self.newest[p] for p in self._active(clock) if p in self.newest]
        if known:
            return min(known) - self.delay
        newest = list(self.newest.values())
        return max(newest) - self.delay if newest else None

    def late(
        self,
        times: NDArray[np.int64],
        partitions: Partitions,
        allowed: int,
        clock: int,
    ) -> NDArray[np.bool_]:
        """Return a mask of the rows late by more than ``allowed``, given the rows before each.

        ``partitions`` has the partition of each row. The watermark does not change; see
        :meth:`advance`.
        """
        names, of = np.unique(np.array(partitions, object), return_inverse=True)
        active = self._active(clock) | set(names)
        low = np.full(len(times), np.iinfo(np.int64).max, np.int64)
        for name in active:
            newest = self.newest.get(name, NEVER)
            if name in names:
                own = np.where(of == np.flatnonzero(names == name)[0], times, NEVER)
                before = np.maximum.accumulate(np.concatenate([[newest], own[:-1]]))
            else:
                before = np.full(len(times), newest)
            low = np.where(before == NEVER, low, np.minimum(low, before))
        nothing = low == np.iinfo(np.int64).max
        bound = np.where(nothing, NEVER, low - (0 if nothing.all() else self.delay + allowed))
        found: NDArray[np.bool_] = (times != NEVER) & ~nothing & (times < bound)
        return found

    def advance(
        self, times: NDArray[np.int64], partitions: Partitions, clock: int
    ) -> dict[str, int]:
        """Advance by the times of appended rows; return the newest time by partition."""
        names, of = np.unique(np.array(partitions, object), return_inverse=True)
        found = {}
        for number, name in enumerate(names):
            self.heard[name] = clock
            newest = int(times[of == number].max())
            if newest > self.newest.get(name, NEVER):
                self.newest[name] = found[name] = newest
        return found

    def _active(self, clock: int) -> set[str]:
        # Copied first: other threads read while rows arrive.
        return {name for name, at in list(self.heard.items()) if clock - at < self.idle}


Ids: TypeAlias = "NDArray[np.uint64]"
"""Shape (2, n): the two 64-bit halves of the hash of each of n ids."""

Times: TypeAlias = "NDArray[np.uint64]"

_KEYS: Final = ("headrace.seen.01", "headrace.seen.02")
_MIXED: Final = np.uint64(0x9E3779B97F4A7C15)
FILED_IDS: Final = 1 << 18
"""Blocks of at least this many ids are stored as files."""
DRAFT: Final = ".draft"
"""The suffix of a file that is being written."""
_HEADER_BYTES: Final = 10
"""The bytes of an npy file (format 1.0) up to the length of its header, in the last two of them."""
_MOST_IDS: Final = 1 << 22
"""Blocks are not merged beyond this."""


def ids_of(rows: pa.Table, columns: Sequence[str]) -> tuple[Ids, NDArray[np.bool_]]:
    """Return the hashes of ids, and a mask of the rows with an id: no column is NULL."""
    import pandas as pd  # noqa: PLC0415  (it takes long to import, and few streams have ids)

    halves = np.zeros((2, rows.num_rows), np.uint64)
    present = np.ones(rows.num_rows, bool)
    for name in columns:
        values = rows[name]
        if not pa.types.is_binary(values.type) and not pa.types.is_string(values.type):
            values = values.cast(pa.string())
        present &= pc.is_valid(values).to_numpy(zero_copy_only=False)
        objects = values.to_numpy(zero_copy_only=False)
        for half, key in enumerate(_KEYS):
            hashed = pd.util.hash_array(objects, hash_key=key, categorize=False)
            halves[half] = halves[half] * _MIXED + hashed
    return halves, present


@dataclass(frozen=True, slots=True)
class _Block:
    """The ids of the offsets ``[first, end)``: sorted ``high`` words, ``low`` words and times.

    ``at`` has the append times in microseconds. ``file`` is the file that stores them, or None.
    """

    first: int
    end: int
    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    at: NDArray[np.uint64]
    file: Path | None = None

    @classmethod
    def of(cls, first: int, end: int, ids: Ids, at: NDArray[np.uint64]) -> _Block:
        order = np.argsort(ids[0], kind="stable")
        return cls(first, end, ids[0][order], ids[1][order], at[order])

    @property
    def newest(self) -> int:
        return int(self.at.max()) if len(self.at) else 0

    def holds(self, ids: Ids, since: int) -> NDArray[np.bool_]:
        """Return a mask of the ids that are in the block and not older than ``since``."""
        found = np.zeros(ids.shape[1], bool)
        at = np.searchsorted(self.high, ids[0])
        left = np.arange(ids.shape[1])
        while left.size:
            left = left[at[left] < len(self.high)]
            left = left[self.high[at[left]] == ids[0][left]]
            here = at[left]
            found[left[(self.low[here] == ids[1][left]) & (self.at[here] >= since)]] = True
            left = left[~found[left]]
            at[left] += 1
        return found

    def merged(self, later: _Block) -> _Block:
        ids = np.stack(
            [np.concatenate([self.high, later.high]), np.concatenate([self.low, later.low])]
        )
        return _Block.of(self.first, later.end, ids, np.concatenate([self.at, later.at]))


@dataclass(slots=True)
class Seen:
    """The index of one stream; not thread-safe.

    ``name`` is the prefix of its files in ``directory``. ``logged`` yields the ids of the log's
    offsets ``[first, end)``, not older than a time in microseconds, in parts: the end of each, and
    the append times of its ids. ``horizon`` is in microseconds; None is unlimited. ``start``
    returns the log's first offset. ``require_newest`` raises if another process writes the log now.
    It is called once those files are known that are not needed any more, before they are removed:
    what is listed, or replaced, by then is nothing that the other process relies on.
    """

    directory: Path
    name: str
    horizon: int | None
    logged: Callable[[int, int, int], Iterable[tuple[int, Ids, Times]]]
    start: Callable[[], int] = lambda: 0
    require_newest: Callable[[], None] = lambda: None
    _blocks: list[_Block] = field(default_factory=list)
    _replaced: list[tuple[int, _Block]] = field(default_factory=list)
    """The blocks whose files a merged one replaces, once the log has reached its end."""
    _end: int | None = None
    """The offset to which the index is complete; None until it was opened."""

    def new(self, ids: Ids, present: NDArray[np.bool_], end: int, now: int) -> NDArray[np.bool_]:
        """Return a mask of the rows to append at offset ``end``: the first of each new id.

        They are added to the index. If they are not appended after all, the next call notices it by
        its ``end``, and reads the log again.
        """
        self._continue_to(end, now)
        since = 0 if self.horizon is None else max(0, now - self.horizon)
        kept = _first_of_each(ids) | ~present
        for block in self._blocks:
            kept &= ~(block.holds(ids, since) & present)
        count = int(kept.sum())
        fresh = kept & present
        self._add(end + count, ids[:, fresh], np.full(int(fresh.sum()), now, np.uint64))
        self._end = end + count
        return kept

    def keep(self, upto: int, end: int, now: int) -> None:
        """Store the ids before an offset durably; retention is about to remove their changes."""
        self._continue_to(end, now)
        before = [block for block in self._blocks if block.first < upto]
        kept: list[_Block] = []
        merged: list[_Block] = []
        for each in before:
            block = each
            while kept and (kept[-1].file is block.file is None or _merges(kept[-1], block)):
                merged.append(kept.pop())
                block = merged[-1].merged(block)
            kept.append(block)
        filed = [block if block.file is not None else self._filed(block) for block in kept]
        self._blocks = [*filed, *self._blocks[len(before) :]]
        gone = (b for b in (*before, *merged) if all(b is not each for each in filed))
        self._remove(gone)

    def _continue_to(self, end: int, now: int) -> None:
        """Extend the index to cover the log up to ``end``, and remove expired ids."""
        since = 0 if self.horizon is None else max(0, now - self.horizon)
        replaced, self._replaced = self._replaced, []
        self._remove(block for upto, block in replaced if upto <= end)
        if self._end is None:
            stored, strays = _stored(self.directory, self.name, self.start(), end)
            if strays:
                self.require_newest()
                mounts.delete(self.directory, strays)
            if self.horizon is None and self.start() and (not stored or stored[0].first):
                raise _lost(self.directory / self.name, "A file of it is missing.")
            self._end = stored[-1].end if stored else 0
            if stored:  # ids before the files are too old, or were too few for a file
                for upto, ids, at in self.logged(0, stored[0].first, since):
                    self._add(upto, ids, at)
            self._blocks += stored
        elif self._end > end:
            self._blocks = [block for block in self._blocks if block.end <= end]
            self._end = self._blocks[-1].end if self._blocks else 0
        expired = 0
        while expired < len(self._blocks) and self._blocks[expired].newest < since:
            expired += 1
        self._remove(self._blocks[:expired])
        self._blocks = self._blocks[expired:]
        if self._end < end:
            for upto, ids, at in self.logged(self._end, end, since):
                self._add(upto, ids, at)
            self._end = end

    def _add(self, end: int, ids: Ids, times: Times) -> None:
        """Add the ids of the next offsets up to ``end``, which may not be appended yet.

        Ids of changes that the log no longer has stay in separate files.
        """
        if not ids.shape[1]:
            return
        # A block also covers the offsets before it that have no ids.
        block = _Block.of(self._blocks[-1].end if self._blocks else 0, end, ids, times)
        start, merged = self.start(), []
        while self._blocks and self._blocks[-1].first >= start and _merges(self._blocks[-1], block):
            merged.append(self._blocks.pop())
            block = merged[-1].merged(block)
        self._blocks.append(self._filed(block) if len(block.high) >= FILED_IDS else block)
        self._replaced += [(end, before) for before in merged if before.file is not None]

    def _remove(self, blocks: Iterable[_Block]) -> None:
        """Remove the files of those blocks that have one."""
        files = [block.file.name for block in blocks if block.file is not None]
        if files:
            self.require_newest()
            mounts.delete(self.directory, files)

    def _filed(self, block: _Block) -> _Block:
        """Return a block that is mapped from a file."""
        self.directory.mkdir(exist_ok=True)
        whole = np.stack([block.high, block.low, block.at])
        checksum = xxhash.xxh3_64(whole.data).hexdigest()
        path = self.directory / f"{self.name}-{block.first}-{block.end}-{checksum}.npy"
        draft = path.with_suffix(DRAFT)
        with draft.open("wb") as file:
            np.save(file, whole)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        mounts.keep(path)
        mounts.sync_directory(self.directory)
        mapped = np.load(path, mmap_mode="r")
        return _Block(block.first, block.end, mapped[0], mapped[1], mapped[2], path)


def checked_part(path: Path) -> CheckedRange:
    """Return the part of a file of ids whose checksum the file's name has: all but its header.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    begins = _HEADER_BYTES + int.from_bytes(header[-2:], "little")
    return CheckedRange(begins, path.stat().st_size - begins, path.stem.rpartition("-")[2])


def require_header(path: Path) -> None:
    """Check that a file of ids begins as the library writes it: no checksum has that part.

    Raises:
        OSError: the file cannot be read.
        HeadraceError: CORRUPT if it begins otherwise.
    """
    written = io.BytesIO()
    try:
        ids = np.load(path, mmap_mode="r")
    except OSError:
        raise
    except Exception as error:  # whatever its parser makes of a changed header
        raise HeadraceError(Code.CORRUPT, f'file "{path}" cannot be read', f"{error}.") from error
    header = np.lib.format.header_data_from_array_1_0(ids)
    np.lib.format.write_array_header_1_0(written, header)
    begin = written.getvalue()
    with path.open("rb") as file:
        same = file.read(len(begin)) == begin
    if not same or path.stat().st_size != len(begin) + ids.nbytes:
        raise HeadraceError(Code.CORRUPT, f'file "{path}" is damaged', "Its header was changed.")


def _first_of_each(ids: Ids) -> NDArray[np.bool_]:
    """Return a mask of the first occurrence of each id."""
    order = np.lexsort((np.arange(ids.shape[1]), ids[1], ids[0]))
    high, low = ids[0][order], ids[1][order]
    first = np.ones(ids.shape[1], bool)
    first[order[1:]] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    return first


def _merges(before: _Block, block: _Block) -> bool:
    """Return whether two blocks are merged: those of similar size, so that few remain."""
    together = len(before.high) + len(block.high)
    return len(before.high) < 2 * len(block.high) and together <= _MOST_IDS


def _stored(directory: Path, name: str, start: int, end: int) -> tuple[list[_Block], list[str]]:
    """Return the stored blocks, which are consecutive and end at ``end`` or before; other files.

    Raises:
        HeadraceError: CORRUPT if a file with ids from before ``start`` is damaged or missing.
    """
    listed: list[tuple[int, int, Path]] = []
    files = mounts.files_in(directory) if directory.exists() else ()
    for path in (directory / file for file in files):
        if not path.name.startswith(f"{name}-") or path.suffix != ".npy":
            continue
        _, begins, ends, _ = path.stem.rsplit("-", 3)
        listed.append((int(begins), int(ends), path))
    found: list[_Block] = []
    strays: list[str] = []
    at: int | None = None
    # The longest first, of blocks with the same beginning.
    for first, upto, path in sorted(listed, key=lambda each: (each[0], -each[1], each[2])):
        if at is not None and at < min(first, start):
            raise _lost(path, "A file before it is missing.")
        wanted = at in (None, first) and upto <= end
        block = _read(path, first, upto) if wanted else None
        if block is None and wanted and first < start:
            raise _lost(path, "Its contents were changed.")
        if block is None:
            strays.append(path.name)
            continue
        at = upto
        found.append(block)
    return found, strays


def _read(path: Path, first: int, end: int) -> _Block | None:
    """Return the block in a file; None if it is damaged."""
    try:
        if not path.exists():
            mounts.fetch(str(path))
        mapped = np.load(path, mmap_mode="r")
        checksum = xxhash.xxh3_64(np.ascontiguousarray(mapped).data).hexdigest()
    except (OSError, ValueError):
        return None
    if checksum != path.stem.rpartition("-")[2] or mapped.ndim != 2 or len(mapped) != 3:  # noqa: PLR2004
        return None
    return _Block(first, end, mapped[0], mapped[1], mapped[2], path)


def _lost(path: Path, detail: str) -> HeadraceError:
    return HeadraceError(
        Code.CORRUPT,
        f'index "{path}" of the ids of a stream is damaged',
        f"{detail} It has ids of events that the stream's log no longer has.",
        f"Restore it from a backup: without it, events may be appended again. {BACKUPS}",
    )
