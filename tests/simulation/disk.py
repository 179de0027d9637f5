"""A disk that keeps what was synced when the power fails, and what a dead process has left.

It stands where the operating system stands: :func:`simulated_disk` replaces ``os.fsync`` and
``os.fdatasync`` by notes of what is durable.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.files import mounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from simulation.points import Life


@dataclass(slots=True)
class Disk:
    """What of the files and directories is durable, by path. ``owners`` use the directories."""

    sizes: dict[str, int] = field(default_factory=dict)
    names: dict[str, set[str]] = field(default_factory=dict)
    owners: dict[str, Life] = field(default_factory=dict)

    def sync(self, descriptor: int) -> None:
        """Make a file or the names in a directory durable."""
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_dir():
            self.names[str(path)] = set(os.listdir(path))  # noqa: PTH208  (names)
        else:
            self.sizes[str(path)] = path.stat().st_size

    def unlink(self, directory: Path, names: Iterable[str]) -> None:
        """Delete files of a directory, unless its process has ended."""
        owner = self.owners.get(str(directory))
        if owner is not None:
            owner.require()
        for name in names:
            (directory / name).unlink(missing_ok=True)

    def lose_power(self, directory: Path) -> None:
        """Lose all files and all bytes of a directory that were not synced."""
        durable = self.names.get(str(directory), set())
        for path in directory.iterdir():
            if path.name not in durable:
                path.unlink()
            elif path.stat().st_size > (size := self.sizes.get(str(path), 0)):
                os.truncate(path, size)


@contextmanager
def simulated_disk(disk: Disk) -> Iterator[None]:
    """Have all of this process's syncs and deletions go to a simulated disk."""
    real = os.fsync, os.fdatasync, mounts._unlink
    os.fsync = os.fdatasync = disk.sync  # type: ignore[assignment]
    mounts._unlink = disk.unlink
    try:
        yield
    finally:
        os.fsync, os.fdatasync, mounts._unlink = real
