"""Peak memory of this process and of all that it started, from ``/proc``.

Resident memory counts a page in every process that maps it, so memory-mapped runs count again and
again; the proportional size shares each page among those that map it, and adds up.
"""

from __future__ import annotations

import os
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")
PARTS = ("driver", "jvm", "workers")


@dataclass(frozen=True, slots=True)
class Peak:
    """The most bytes seen at any one moment, each figure by itself."""

    resident: int = 0
    proportional: int = 0

    def or_more(self, resident: int, proportional: int) -> Peak:
        return Peak(max(self.resident, resident), max(self.proportional, proportional))


class Sampler:
    """Samples a tree of processes until the block ends: its root, its JVMs, and the rest.

    In Headrace the root is the driver's Python and the rest are Python workers. Samples are taken
    ``seconds`` apart: a shorter peak can be missed.
    """

    def __init__(self, pid: int | None = None, seconds: float = 0.25) -> None:
        self._pid = os.getpid() if pid is None else pid
        self._seconds = seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)
        self.peaks = {part: Peak() for part in (*PARTS, "all")}

    def to_json(self) -> dict[str, Any]:
        return {part: asdict(peak) for part, peak in self.peaks.items()}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            self._sample()

    def _sample(self) -> None:
        sums = {part: [0, 0] for part in (*PARTS, "all")}
        for pid, name in _tree(self._pid).items():
            part = "driver" if pid == self._pid else "jvm" if name == "java" else "workers"
            found = _memory(pid)
            for key in (part, "all"):
                sums[key][0] += found[0]
                sums[key][1] += found[1]
        self.peaks = {part: peak.or_more(*sums[part]) for part, peak in self.peaks.items()}


def _tree(root: int) -> dict[int, str]:
    """Return a process and all its descendants, with their commands."""
    children: dict[int, list[int]] = {}
    names: dict[int, str] = {}
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            before, _, after = (folder / "stat").read_text(encoding="utf-8").rpartition(")")
        except OSError:  # it ended meanwhile
            continue
        pid = int(folder.name)
        names[pid] = before.partition("(")[2]
        children.setdefault(int(after.split()[1]), []).append(pid)
    found: dict[int, str] = {}
    pending = [root]
    while pending:
        pid = pending.pop()
        found[pid] = names.get(pid, "")
        pending += children.get(pid, [])
    return found


def _memory(pid: int) -> tuple[int, int]:
    try:
        resident = int((_PROC / str(pid) / "statm").read_text(encoding="utf-8").split()[1]) * _PAGE
        rollup = (_PROC / str(pid) / "smaps_rollup").read_text(encoding="utf-8")
    except OSError:
        return 0, 0
    shares = [line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:")]
    return resident, int(shares[0]) * 1024 if shares else resident
