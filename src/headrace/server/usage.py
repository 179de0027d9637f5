"""What a server uses of its machine: memory of its processes, and disk of its database."""

from __future__ import annotations

import os
import shutil
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import headrace

_KEPT_SECONDS: Final = 60.0
_PROC: Final = Path("/proc")


@dataclass(slots=True)
class MachineUsage:
    """The version, memory and disk of a server; sizes of files are counted once a minute.

    Figures are in bytes; None where the system does not tell them.
    """

    directory: Path
    _counted: tuple[float, int] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def to_json(self) -> dict[str, Any]:
        """Return what is used now, and how much of the disk is free."""
        disk = shutil.disk_usage(self.directory)
        return {
            "version": headrace.__version__,
            "memory": memory_of(os.getpid()),
            "disk": self._stored(),
            "disk_free": disk.free,
        }

    def _stored(self) -> int:
        with self._lock:
            now = time.monotonic()
            if self._counted is None or now - self._counted[0] > _KEPT_SECONDS:
                self._counted = now, stored_bytes(self.directory)
            return self._counted[1]


def stored_bytes(directory: Path) -> int:
    """Return how many bytes the files below a directory have; each is counted once."""
    seen: dict[tuple[int, int], int] = {}
    for place, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):  # it has been deleted since
                found = os.stat(os.path.join(place, name), follow_symlinks=False)  # noqa: PTH116, PTH118 - a Path for each file costs more
                seen[found.st_dev, found.st_ino] = found.st_size
    return sum(seen.values())


def memory_of(process: int) -> int | None:
    """Return the resident memory of a process and of those that it has started."""
    try:
        pages = int((_PROC / str(process) / "statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return None
    found = pages * os.sysconf("SC_PAGE_SIZE")
    for listed in _PROC.glob(f"{process}/task/*/children"):
        with suppress(OSError):
            for child in listed.read_text(encoding="ascii").split():
                found += memory_of(int(child)) or 0
    return found
