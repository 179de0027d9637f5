"""Peak memory and processor time of this process and of all that it started, from ``/proc``.

Resident memory counts a page in every process that maps it, so memory-mapped runs count again and
again; the proportional size shares each page among those that map it, and adds up.
"""

from __future__ import annotations

import os
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")
_EVERY = 10
PARTS = ("driver", "jvm", "workers")


@dataclass(frozen=True, slots=True)
class Peak:
    """The most bytes seen at any one moment, each figure by itself."""

    resident: int = 0
    proportional: int = 0

    def or_more(self, resident: int, proportional: int) -> Peak:
        return Peak(max(self.resident, resident), max(self.proportional, proportional))


def anonymous() -> int:
    """Return the bytes of this process's memory without files that it has mapped."""
    status = (_PROC / "self" / "status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) << 10


class Sampler:
    """Samples a tree of processes until the block ends: its root, its JVMs, and the rest.

    In Headrace the root is the driver's Python and the rest are Python workers. Resident memory
    is sampled every ``seconds``: a shorter peak can be missed. A proportional size takes the kernel
    a walk over all pages, so these are sampled every tenth time.
    """

    def __init__(self, pid: int | None = None, seconds: float = 0.25) -> None:
        self._pid = os.getpid() if pid is None else pid
        self._seconds = seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)
        self.peaks = {part: Peak() for part in (*PARTS, "all")}
        self._last = {part: [0, 0] for part in (*PARTS, "all")}
        self._samples = 0
        self._ticks: dict[tuple[int, str], int] = {}

    def to_json(self) -> dict[str, Any]:
        """Return bytes of memory by part."""
        return {part: asdict(peak) for part, peak in self.peaks.items()}

    def processor_seconds(self) -> dict[str, float]:
        """Return the processor time used so far by part. A process's last moments can be missed."""
        self._sample(proportional=False)
        used = {part: sum(t for (_, p), t in self._ticks.items() if p == part) for part in PARTS}
        return {part: ticks / _TICKS for part, ticks in used.items()}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            self._sample(proportional=self._samples % _EVERY == 0)
            self._samples += 1

    def _sample(self, *, proportional: bool) -> None:
        sums = {part: [0, 0] for part in (*PARTS, "all")}
        for process in tree(self._pid):
            part = "workers"
            if process.id == self._pid:
                part = "driver"
            elif process.command == "java":
                part = "jvm"
            self._ticks[process.id, part] = process.ticks
            share = _proportional(process.id) if proportional else 0
            for key in (part, "all"):
                sums[key][0] += process.resident
                sums[key][1] += share
        self.peaks = {part: peak.or_more(*sums[part]) for part, peak in self.peaks.items()}
        self._last = sums

    def resident(self) -> dict[str, int]:
        """Return the bytes of resident memory now, by part."""
        self._sample(proportional=False)
        return {part: found[0] for part, found in self._last.items()}


@dataclass(frozen=True, slots=True)
class Process:
    """A process, with its processor time in ticks and its resident bytes."""

    id: int
    parent: int
    command: str
    ticks: int
    resident: int


def tree(root: int) -> list[Process]:
    """Return a process and all its descendants."""
    children: dict[int, list[Process]] = {}
    found: list[Process] = []
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            before, _, after = (folder / "stat").read_text(encoding="utf-8").rpartition(")")
        except OSError:  # it ended meanwhile
            continue
        rest = after.split()
        pid, parent = int(folder.name), int(rest[1])
        ticks, resident = int(rest[11]) + int(rest[12]), int(rest[21]) * _PAGE
        process = Process(pid, parent, before.partition("(")[2], ticks, resident)
        children.setdefault(parent, []).append(process)
        if pid == root:
            found.append(process)
    for process in found:
        found += children.get(process.id, [])
    return found


def _proportional(pid: int) -> int:
    try:
        rollup = (_PROC / str(pid) / "smaps_rollup").read_text(encoding="utf-8")
    except OSError:
        return 0
    return (
        sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) << 10
    )
