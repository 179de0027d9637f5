"""What tests of crashes share: the crash, where it happens, and what views should be."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runtime.pure import Change

EPOCH_STAGES = ["step", "stepped", "commit", "before commit", "after commit", "publish"]
REFRESH_STAGES = ["refresh", "refreshed", "refresh follows", "before commit", "after commit"]
REPLAY_STAGES = ["fill", "catch up", "replace", "replaced", "before commit", "after commit"]


class Crash(BaseException):
    """The process has ended here."""


class Faults:
    """Ends the process at the next time that a stage is reached."""

    def __init__(self) -> None:
        self.stage: str | None = None

    def __call__(self, reached: str) -> None:
        if reached == self.stage:
            self.stage = None
            raise Crash(reached)


def table_after(log: list[Change]) -> dict[int, int]:
    """Return the group of each key after changes."""
    rows: dict[int, int] = {}
    for key, group, weight in log:
        rows.pop(key, None)
        if weight > 0:
            rows[key] = group
    return rows


def counted(groups: Iterable[int], first: int = 0) -> Counter[tuple[int, int]]:
    """Return how often each group occurs, from the first one on: one row each."""
    found = Counter(group for group in groups if group >= first)
    return Counter(dict.fromkeys(found.items(), 1))
