"""A register of verified runs, shared by the processes of this machine.

A run is identified by its pack's device, inode, time of last change and size, by its position and
its checksum, so what is changed, copied or restored from a backup is verified again, and so is
every run after a restart of the machine. The register is a file in the machine's temporary
directory; without it, each process verifies for itself.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Final

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
