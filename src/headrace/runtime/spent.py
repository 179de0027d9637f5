"""What the time of an epoch is spent on.

One clock runs from the beginning to the end of an epoch, and at any time it counts for one
activity. So the activities add up to the whole, and each costs two readings of the clock. Code that
may run in an epoch says what it does by :class:`Spending`; elsewhere that does nothing.

The tasks of Spark jobs have a clock each, in their workers. Their sum is kept beside the epoch's
own activities: it is a part of the time of jobs, and more than that where tasks run side by side.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_this_thread = threading.local()


class Activity(Enum):
    """What an epoch spends time on; the value is the name of its counter, in milliseconds."""

    PLANNING = "planning_ms"
    """Choosing what is run over which files; building the programs that are not built yet."""
    READING = "reading_ms"
    """Reading the changes of streams and tables."""
    EXPRESSIONS = "expressions_ms"
    """Evaluating expressions in Python."""
    CROSSINGS = "crossings_ms"
    """Having Catalyst evaluate expressions in the JVM, without a job. In tasks: packing rows for
    other tasks, waiting for them, and unpacking them."""
    OPERATORS = "operators_ms"
    """Stepping operators: lookups and arithmetic."""
    JOBS = "jobs_ms"
    """Waiting for Spark jobs, with all that their tasks do."""
    WRITING = "writing_ms"
    """Writing runs, and making them durable."""
    OTHER = "other_ms"
    """All else until the commit."""
    COMMIT = "commit_ms"
    """The transaction of the ledger."""
    PUBLISHING = "publishing_ms"
    """Showing the new state to readers."""

    __hash__ = object.__hash__  # that of Enum is a Python function, and members are singletons


AFTERWARDS: Final = (Activity.COMMIT, Activity.PUBLISHING)
"""The activities that are over only when the record of their epoch is written."""

TASKS: Final = "tasks"
"""The counter with the milliseconds of the tasks of an epoch's jobs, by activity."""


@dataclass(slots=True)
class Spent:
    """The seconds of one epoch by activity, since it has begun; used by one thread."""

    tasks: dict[str, float] = field(default_factory=dict)
    """The milliseconds of the tasks of jobs by counter, added up."""
    _seconds: dict[Activity, float] = field(default_factory=dict)
    _activity: Activity = Activity.OTHER
    _since: float = field(default_factory=time.perf_counter)

    def turn(self, activity: Activity) -> Activity:
        """Let the clock count for an activity from now on; return the one for which it counted."""
        now, before = time.perf_counter(), self._activity
        self._seconds[before] = self._seconds.get(before, 0.0) + now - self._since
        self._since, self._activity = now, activity
        return before

    def counters(self) -> dict[str, Any]:
        """Return the counters of the epoch's record: its own activities, and those of its tasks."""
        return {**self.milliseconds(), **({TASKS: self.tasks} if self.tasks else {})}

    def milliseconds(self, activities: Iterable[Activity] = Activity) -> Mapping[str, float]:
        """Return the milliseconds until now by counter, of those that took any."""
        self.turn(self._activity)
        return {
            activity.value: round(self._seconds[activity] * 1000, 3)
            for activity in activities
            if activity in self._seconds
        }


@contextmanager
def measured(spent: Spent) -> Iterator[None]:
    """Let what this thread does in a block count for an epoch."""
    before = getattr(_this_thread, "spent", None)
    _this_thread.spent = spent
    try:
        yield
    finally:
        _this_thread.spent = before


def spent_in_tasks(milliseconds: Iterable[Mapping[str, float]]) -> None:
    """Add what the tasks of a job spent, by counter, to this thread's epoch, if there is one."""
    spent: Spent | None = getattr(_this_thread, "spent", None)
    if spent is not None:
        for each in milliseconds:
            for counter, more in each.items():
                spent.tasks[counter] = round(spent.tasks.get(counter, 0.0) + more, 3)


class Spending:
    """Let the clock of this thread's epoch, if there is one, count for an activity during a block.

    Within the block, an activity within another counts for itself only.
    """

    __slots__ = ("_activity", "_before", "_spent")

    def __init__(self, activity: Activity) -> None:
        self._activity = activity

    def __enter__(self) -> None:
        self._spent: Spent | None = getattr(_this_thread, "spent", None)
        if self._spent is not None:
            self._before = self._spent.turn(self._activity)

    def __exit__(self, *_: object) -> None:
        if self._spent is not None:
            self._spent.turn(self._before)
