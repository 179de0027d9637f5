"""Opens run files: memory-mapped, verified once per machine, cached while in use."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

import pyarrow as pa
import xxhash

from headrace.errors import Code, HeadraceError
from headrace.spine.checked import LEAST_BYTES, REGISTER
from headrace.spine.run import Run

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from headrace.spine.run_file import RunFile
    from headrace.zset import Layout

OPEN_RUNS = 1024
"""How many runs one process keeps open; the least recently used one is dropped first."""

VERIFIED_RUNS = 65_536
"""How many files one process remembers as verified."""


@dataclass(slots=True)
class _Process:
    """The runs that this process has opened and verified, least recently used first.

    ``read_to_check`` counts the bytes that this process has read to verify files.
    """

    runs: OrderedDict[str, tuple[RunFile, Run]] = field(default_factory=OrderedDict)
    verified: OrderedDict[tuple[str, str], None] = field(default_factory=OrderedDict)
    lock: Lock = field(default_factory=Lock)
    forgotten: int = 0
    read_to_check: int = 0


_process = _Process()


def open_run(directory: Path, file: RunFile, layout: Layout) -> Run:
    """Map a run file and check it; later calls in this process return the open run.

    A run that is dropped from the cache stays valid for its users, even after its file is removed.
    Its bytes are read if no process of this machine has read or written them since the file was
    last changed. Raises ``corrupt`` if the file is missing, its bytes differ from those written, or
    it does not have the columns of ``layout``.
    """
    path = f"{directory}/{file.name}"
    with _process.lock:
        known = _process.runs.get(path)
        if known is not None and known[0] == file and known[1].layout == layout:
            _process.runs.move_to_end(path)
            return known[1]
        verified = (path, file.checksum) in _process.verified
    if not verified and file.bytes >= LEAST_BYTES:
        verified = REGISTER.knows(path, file.checksum)
    run = _opened(path, file, layout, verified=verified)
    with _process.lock:
        _process.runs[path] = (file, run)
        _process.verified[path, file.checksum] = None
        while len(_process.runs) > OPEN_RUNS:
            _process.runs.popitem(last=False)
        while len(_process.verified) > VERIFIED_RUNS:
            _process.verified.popitem(last=False)
    return run


def unchecked_bytes(directory: Path, files: Iterable[RunFile]) -> int:
    """Return the number of bytes that opening files would read to verify them."""
    with _process.lock:
        known = _process.verified
        unknown = [f for f in files if (f"{directory}/{f.name}", f.checksum) not in known]
    registered = REGISTER.knows
    return sum(f.bytes for f in unknown if not registered(f"{directory}/{f.name}", f.checksum))


def check_run(directory: Path, file: RunFile, layout: Layout) -> None:
    """Read every byte of a run file, verified or not; raise ``corrupt`` as :func:`open_run`."""
    _opened(f"{directory}/{file.name}", file, layout, verified=False)


def read_to_check() -> int:
    """Return the number of bytes of run files that this process has read to verify them."""
    return _process.read_to_check


def forget_runs() -> None:
    """Drop all open runs of this process, and the record of verified files."""
    with _process.lock:
        _process.runs.clear()
        _process.verified.clear()
        _process.forgotten += 1


def let_go(directory: Path, files: Iterable[RunFile]) -> None:
    """Drop files that are about to be removed from the cache; their users keep them open."""
    with _process.lock:
        for file in files:
            _process.runs.pop(f"{directory}/{file.name}", None)


def times_forgotten() -> int:
    """Return how often :func:`forget_runs` was called: runs opened before are not used again."""
    return _process.forgotten


def _opened(path: str, file: RunFile, layout: Layout, *, verified: bool) -> Run:
    try:
        mapped = pa.memory_map(path)
    except FileNotFoundError as error:
        raise _corrupt(file, "is missing") from error
    except OSError as error:
        raise _corrupt(file, "cannot be read", str(error)) from error
    if mapped.size() != file.bytes:
        raise _corrupt(file, f"has {mapped.size()} bytes instead of {file.bytes}")
    buffer = mapped.read_buffer()
    if not verified:
        if xxhash.xxh3_64(buffer).hexdigest() != file.checksum:
            raise _corrupt(file, "does not match its checksum")
        _process.read_to_check += file.bytes
        REGISTER.add(path, file.checksum)
    try:
        reader = pa.ipc.open_file(buffer)
        batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
    except pa.ArrowException as error:
        raise _corrupt(file, "is not an Arrow file", str(error)) from error
    if not reader.schema.equals(layout.schema):
        raise _corrupt(
            file,
            "does not have the columns of its arrangement",
            f"It has {_columns(reader.schema)}; expected are {_columns(layout.schema)}.",
        )
    run = Run.of_batches(layout, batches)
    if run.rows != file.rows:
        raise _corrupt(file, f"has {run.rows} rows instead of {file.rows}")
    return run


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in schema)


def _corrupt(file: RunFile, what: str, detail: str | None = None) -> HeadraceError:
    return HeadraceError(
        Code.CORRUPT,
        f'run file "{file.name}" {what}',
        detail=detail,
        hint="REPAIR rebuilds the rows of the file.",
    )
