"""The settings of the runtime."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class OnDifference(StrEnum):
    """What is done about rows that differ, besides keeping evidence and marking them dirty."""

    REPAIR = "repair"
    """They are recomputed, and compared again."""
    QUARANTINE = "quarantine"
    """The view stops: it is neither maintained nor read until REPAIR has filled it again."""
    REPORT = "report"
    """Nothing: the view goes on."""


_ONE_TASK_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """Limits of epochs and of history.

    ``epoch_rows``: about how many changes one epoch reads. A longer backlog takes more epochs, but
    the changes of one statement are never split.
    ``small_rows``: an epoch of at most this many changes is stepped in this process: starting tasks
    costs more than other cores save. If it is 0, each step is a job.
    ``gather_ms``: how many milliseconds at most changes gather after a small epoch, so that the
    next one reads several. After a pause the first change is read at once.
    ``fill_rows``: about how many rows each step of filling a view reads.
    ``reuse_rows``: from how many rows of inputs on a fill looks for state of other views that it
    can take over in place of reading all of them.
    ``refresh_views``: how many views that are refreshed one step takes at most.
    ``wide_steps``: how many steps, each of one connected set, run at once beside epochs.
    ``history_epochs``: how many epochs back a view or table can still be read.
    ``attempts``: how often a step is tried before its failure counts.
    ``recursion_rows``: by how many rows the recursions of one set of views may change in an epoch,
    in all rounds together. It stops recursions that grow without bound.
    ``quarantine_rows``: how many different rows one step may add to the quarantines of a view.
    ``keep_former``: for how many seconds what served before a swap is kept; None: until it is
    dropped.
    """

    epoch_rows: int = 1_000_000
    small_rows: int = 100_000
    gather_ms: int = 100
    fill_rows: int = 1_000_000
    reuse_rows: int = 100_000
    refresh_views: int = 64
    wide_steps: int = 2
    history_epochs: int = 256
    attempts: int = 3
    recursion_rows: int = 4_000_000
    quarantine_rows: int = 1_000
    keep_former: int | None = None

    @property
    def rows_of_one_task(self) -> int:
        """The most rows of a job with one task, or of work here that is no faster than a job's."""
        return min(self.small_rows, _ONE_TASK_ROWS)
