"""Opens runs: ranges of packs, memory-mapped, verified once per machine, cached while in use.

A pack is mapped once as long as one of its runs is open. A run is verified by itself.

A register of verified runs, shared by the processes of this machine.

A run is identified by its pack's device, inode, time of last change and size, by its position and
its checksum, so what is changed, copied or restored from a backup is verified again, and so is
every run after a restart of the machine. The register is a file in the machine's temporary
directory; without it, each process verifies for itself.
"""

from __future__ import annotations

import os
import tempfile
from collections import OrderedDict, defaultdict, deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeAlias
from weakref import WeakValueDictionary

import pyarrow as pa
import xxhash

from headrace.algebra.spine.run import Run
from headrace.algebra.spine.stored import lacks_columns, opened
from headrace.errors import Code, HeadraceError
from headrace.files.mounts import fetch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.algebra.spine.run import RunFile
    from headrace.algebra.zset import Layout


LEAST_BYTES: Final = 1 << 16
"""The least size of registered runs: smaller ones are verified faster than looked up."""

_MOST_BYTES: Final = 1 << 23
"""The size of the register at which it is emptied."""

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def register_path() -> Path:
    """Return the path of this user's register since the machine was started."""
    try:
        boot = _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        boot = "0"
    return Path(tempfile.gettempdir()) / f"headrace-{os.getuid()}" / f"checked-{boot}"


@dataclass(slots=True)
class Register:
    """The runs that this user's processes have verified or written. Thread-safe.

    Entries are lines; each is added by one write. A process reads the lines that others have added
    since its last read.
    """

    path: Path = field(default_factory=register_path)
    _lock: Lock = field(default_factory=Lock)
    _known: set[bytes] = field(default_factory=set)
    _read: int = 0
    _inode: int = 0

    def knows(self, path: str, checksum: str, position: int = 0) -> bool:
        """Return whether a run, as its pack is now, has been verified against this checksum."""
        try:
            entry = _entry(path, checksum, position)
            with self._lock:
                return entry in self._known or entry in self._updated()
        except OSError:
            return False

    def add(self, path: str, checksum: str, position: int = 0) -> None:
        """Register a run whose bytes, from a position on, have this checksum."""
        with suppress(OSError):
            entry = _entry(path, checksum, position)
            with self._lock:
                if entry not in self._updated():
                    self._append(entry)
                    self._known.add(entry)

    def _updated(self) -> set[bytes]:
        """Return all entries, after reading newly added ones."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            self._known.clear()
            return self._known
        try:
            found = os.fstat(descriptor)
            if found.st_uid != os.getuid():
                return set()
            if found.st_ino != self._inode or found.st_size < self._read:
                self._known.clear()
                self._read, self._inode = 0, found.st_ino
            added = os.pread(descriptor, found.st_size - self._read, self._read)
            whole = added.rfind(b"\n") + 1
            self._known.update(added[:whole].splitlines())
            self._read += whole
        finally:
            os.close(descriptor)
        return self._known

    def _append(self, entry: bytes) -> None:
        self.path.parent.mkdir(mode=0o700, exist_ok=True)
        if self.path.parent.stat().st_uid != os.getuid():
            return
        if self._read > _MOST_BYTES:
            self.path.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags, 0o600)
        try:
            os.write(descriptor, entry + b"\n")
        finally:
            os.close(descriptor)


def _entry(path: str, checksum: str, position: int) -> bytes:
    """Return the entry that identifies a run in a file."""
    found = Path(path).stat()
    known_by = (
        found.st_dev,
        found.st_ino,
        found.st_ctime_ns,
        found.st_size,
        position,
        checksum,
    )
    return ":".join(map(str, known_by)).encode("ascii")


REGISTER: Final = Register()
"""The register of this machine."""


OPEN_RUNS = 16_384
"""How many runs one process keeps open; the least recently used one is dropped first."""

VERIFIED_RUNS = 65_536
"""How many runs one process remembers as verified."""


KEPT_BYTES = 1 << 24
"""The most bytes of runs that a process has written and reads from memory instead of its file."""

_FILE = b"ARROW1"
"""What an Arrow file begins with: small runs of earlier versions are files, not streams."""
END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""What an Arrow stream ends with."""

_Key: TypeAlias = "tuple[str, int]"
"""The path of a pack, and the position of a run in it."""


@dataclass(frozen=True, slots=True)
class _Opened:
    """An open run, and the memory that it is in: that of its pack, or its own bytes."""

    file: RunFile
    run: Run
    memory: pa.Buffer


@dataclass(slots=True)
class _Process:
    """The runs that this process has opened and verified, least recently used first.

    ``packs`` are the mapped packs that have open runs. ``written`` are those among the runs whose
    own bytes are kept, with their sizes. ``read_to_check`` counts the bytes that this process has
    read to verify runs. ``to_look_at`` are the paths of packs; the first one is looked at next.
    """

    runs: OrderedDict[_Key, _Opened] = field(default_factory=OrderedDict)
    positions: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Those of the open runs, by the path of their pack."""
    packs: WeakValueDictionary[str, pa.Buffer] = field(default_factory=WeakValueDictionary)
    written: OrderedDict[_Key, int] = field(default_factory=OrderedDict)
    verified: OrderedDict[tuple[str, int, str], None] = field(default_factory=OrderedDict)
    to_look_at: deque[str] = field(default_factory=deque)
    lock: Lock = field(default_factory=Lock)
    forgotten: int = 0
    kept_bytes: int = 0
    read_to_check: int = 0

    def keep(self, key: _Key, opened: _Opened) -> None:
        """Keep an open run, and drop the least recently used ones; the lock is held."""
        self.drop(key)
        self.runs[key] = opened
        self.positions[key[0]].add(key[1])
        while len(self.runs) > OPEN_RUNS:
            self.drop(next(iter(self.runs)))

    def drop(self, key: _Key) -> None:
        """Drop a run, which stays valid for its users; the lock is held."""
        self.kept_bytes -= self.written.pop(key, 0)
        if self.runs.pop(key, None) is None:
            return
        others = self.positions[key[0]]
        others.remove(key[1])
        if not others:
            del self.positions[key[0]]

    def drop_packs(self, paths: Iterable[str]) -> None:
        """Drop the runs of packs, looking at no others; the lock is held."""
        for path in paths:
            for position in [*self.positions.get(path, ())]:
                self.drop((path, position))

    def take_pack(self, path: str, memory: pa.Buffer) -> None:
        """Take a mapped pack, and look at two others; the lock is held.

        The disk keeps the bytes of a pack that another process has removed while it is mapped.
        """
        if self.packs.get(path) is memory:
            return
        self.packs[path] = memory
        self.to_look_at.append(path)
        for _ in range(min(2, len(self.to_look_at) - 1)):
            other = self.to_look_at.popleft()
            if other not in self.packs:
                continue
            if os.path.lexists(other):
                self.to_look_at.append(other)
            else:
                self.drop_packs([other])


_process = _Process()


def open_run(directory: Path, file: RunFile, layout: Layout) -> Run:
    """Map a run and check it; later calls in this process return the open run.

    A run that is dropped from the cache stays valid for its users, even after its pack is removed.
    Its bytes are read if no process of this machine has read or written them since the pack was
    last changed. Raises ``corrupt`` if the pack is missing or ends before the run does, its bytes
    differ from those written, or it does not have the columns of ``layout``.
    """
    (run,) = open_all(directory, (file,), layout)
    return run


def open_all(directory: Path, files: Iterable[RunFile], layout: Layout) -> tuple[Run, ...]:
    """Open runs of one layout, each as :func:`open_run` does."""
    within, process, found = f"{directory}/", _process, list[Run]()
    missing: list[tuple[int, _Key, RunFile]] = []
    with process.lock:
        for file in files:
            key = within + file.pack, file.position
            known = process.runs.get(key)
            if (
                known is not None
                and (known.file is file or known.file == file)
                and (known.run.layout is layout or known.run.layout == layout)
            ):
                process.runs.move_to_end(key)
                found.append(known.run)
            else:
                missing.append((len(found) + len(missing), key, file))
    for place, key, file in missing:
        found.insert(place, _open(key, file, layout))
    return tuple(found)


def _open(key: _Key, file: RunFile, layout: Layout) -> Run:
    """Map a run, check it, and keep it open."""
    path, verified = key[0], (*key, file.checksum) in _process.verified
    if not verified and file.bytes >= LEAST_BYTES:
        verified = REGISTER.knows(path, file.checksum, file.position)
    run, memory = _from_pack(path, file, layout, _process.packs.get(path), verified=verified)
    with _process.lock:
        _process.take_pack(path, memory)
        _process.keep(key, _Opened(file, run, memory))
        _process.verified[*key, file.checksum] = None
        while len(_process.verified) > VERIFIED_RUNS:
            _process.verified.popitem(last=False)
    return run


def keep_written(
    directory: Path, file: RunFile, layout: Layout, batch: pa.RecordBatch, data: pa.Buffer
) -> None:
    """Open a run that this process has just written, until others need the memory.

    It has the rows of the batch, unless they keep others in memory: then it is opened from its
    bytes. It is read from its pack afterwards.
    """
    key = f"{directory}/{file.pack}", file.position
    if batch.get_total_buffer_size() <= data.size and batch.schema.equals(layout.schema):
        run = Run.of_batches(layout, (batch,))
    else:
        run = Run.of_batches(layout, opened(_batches(data, layout, file.rows), layout) or ())
    with _process.lock:
        _process.keep(key, _Opened(file, run, data))
        _process.written[key] = data.size
        _process.kept_bytes += data.size
        while _process.kept_bytes > KEPT_BYTES:
            _process.drop(next(iter(_process.written)))


def unchecked_bytes(directory: Path, files: Iterable[RunFile]) -> int:
    """Return the number of bytes that opening runs would read to verify them."""
    found = [(f"{directory}/{file.pack}", file) for file in files]
    with _process.lock:
        unknown = [
            (path, file)
            for path, file in found
            if (path, file.position, file.checksum) not in _process.verified
            and (path, file.position) not in _process.written
        ]
    known = REGISTER.knows
    return sum(
        file.bytes
        for path, file in unknown
        if file.bytes < LEAST_BYTES or not known(path, file.checksum, file.position)
    )


def check_run(directory: Path, file: RunFile, layout: Layout) -> None:
    """Read every byte of a run, verified or not; raise ``corrupt`` as :func:`open_run`."""
    path = f"{directory}/{file.pack}"
    _from_pack(path, file, layout, None, verified=False)


def read_to_check() -> int:
    """Return the number of bytes of runs that this process has read to verify them."""
    return _process.read_to_check


def forget_runs() -> None:
    """Drop all open runs of this process, and the record of verified ones."""
    with _process.lock:
        _process.runs.clear()
        _process.positions.clear()
        _process.packs.clear()
        _process.to_look_at.clear()
        _process.written.clear()
        _process.verified.clear()
        _process.kept_bytes = 0
        _process.forgotten += 1


def let_go(directory: Path, packs: Iterable[str]) -> None:
    """Drop the runs of packs that are about to be removed; their users keep them open."""
    with _process.lock:
        _process.drop_packs(f"{directory}/{pack}" for pack in packs)


def times_forgotten() -> int:
    """Return how often :func:`forget_runs` was called: runs opened before are not used again."""
    return _process.forgotten


def _from_pack(
    path: str, file: RunFile, layout: Layout, known: pa.Buffer | None, *, verified: bool
) -> tuple[Run, pa.Buffer]:
    """Return a run and its pack's memory; a pack that a cache lacks or has damaged is fetched."""
    try:
        memory = _mapped(path, file, known)
        return _read(path, file, layout, memory, verified=verified), memory
    except HeadraceError as error:
        if error.code is not Code.CORRUPT or not fetch(path):
            raise
    memory = _mapped(path, file, None)
    return _read(path, file, layout, memory, verified=False), memory


def _mapped(path: str, file: RunFile, known: pa.Buffer | None) -> pa.Buffer:
    """Return the memory of a pack that has a run; ``known`` may be from before it was written."""
    if known is not None and known.size >= file.end:
        return known
    try:
        mapped = pa.memory_map(path)
    except FileNotFoundError as error:
        raise _corrupt(file, "is missing") from error
    except OSError as error:
        raise _corrupt(file, "cannot be read", str(error)) from error
    size = mapped.size()
    if size < file.end:
        raise _corrupt(file, f"has {max(0, size - file.position)} bytes instead of {file.bytes}")
    return mapped.read_buffer()


def _read(path: str, file: RunFile, layout: Layout, memory: pa.Buffer, *, verified: bool) -> Run:
    data = memory.slice(file.position, file.bytes)
    if not verified:
        if xxhash.xxh3_64(data).hexdigest() != file.checksum:
            raise _corrupt(file, "does not match its checksum")
        _process.read_to_check += file.bytes
        if file.bytes >= LEAST_BYTES:
            REGISTER.add(path, file.checksum, file.position)
    try:
        found = _batches(data, layout, file.rows)
    except pa.ArrowException as error:
        raise _corrupt(file, "is not an Arrow file", str(error)) from error
    batches = opened(found, layout)
    if batches is None:
        raise _corrupt(
            file,
            "does not have the columns of its arrangement",
            f"It has {_columns(found[0].schema)}; expected are {_columns(layout.schema)}.",
        )
    run = Run.of_batches(layout, batches)
    if run.rows != file.rows:
        raise _corrupt(file, f"has {run.rows} rows instead of {file.rows}")
    return run.added_up() if layout.stored and lacks_columns(found, layout) else run


def _batches(data: pa.Buffer, layout: Layout, rows: int) -> list[pa.RecordBatch]:
    """Return the batches of a run of so many rows.

    A stream of one batch that begins with the layout's schema is read without reading that, which
    would take longest.
    """
    schema, head = layout.stored_schema
    if data.size > len(head) and data.slice(0, len(head)).to_pybytes() == head:
        batch = pa.ipc.read_record_batch(data.slice(len(head)), schema)
        if batch.num_rows == rows:
            return [batch]
    if data.slice(0, len(_FILE)).to_pybytes() == _FILE:
        reader = pa.ipc.open_file(data)
        return [reader.get_batch(i) for i in range(reader.num_record_batches)]
    source, found = pa.BufferReader(data), list[pa.RecordBatch]()
    while source.tell() < data.size:
        found += list(pa.ipc.open_stream(source))
    return found


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in schema)


def _corrupt(file: RunFile, what: str, detail: str | None = None) -> HeadraceError:
    return HeadraceError(
        Code.CORRUPT,
        f'run file "{file.name}" {what}',
        detail=detail,
        hint="REPAIR rebuilds the rows of the file.",
    )
