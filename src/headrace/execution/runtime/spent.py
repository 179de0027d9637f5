"""What the time of an epoch is spent on.

One clock runs from the beginning to the end of an epoch, and at any time it counts for one
activity. So the activities add up to the whole, and each costs two readings of the clock. Code that
may run in an epoch says what it does by :class:`Spending`; elsewhere that does nothing.

The tasks of Spark jobs have a clock each, in their workers. Their sum is kept beside the epoch's
own activities: it is a part of the time of jobs, and more than that where tasks run side by side.

How fast a piece of work goes, and how long the rest of it takes.

The work of operators: in one epoch, and added up since the database was opened.
"""

from __future__ import annotations

import math
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from headrace.types import BuildId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from headrace.execution.runtime.step import Report
    from headrace.planning.catalog import Catalog
    from headrace.storage.ledger import Read
    from headrace.types import RelationId


_MEANINGFUL_SECONDS: Final = 0.7
"""The seconds of work after which a rate is meaningful."""


@dataclass(slots=True)
class Pace:
    """The pace of one piece of work since its first report, without the time that it waited.

    ``clock`` returns monotonic seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _first: int | None = None
    """How much had been done at the first report; None before it."""
    _done: int = 0
    _seconds: float = 0.0
    """The seconds of work between the first and the last report."""
    _since: float | None = None
    """When it was last reported; None while it waits."""

    def report(self, done: int) -> None:
        """Record how much is done. If that is less than before, the work has begun again."""
        now = self.clock()
        if self._first is None or done < self._done:
            self._first, self._seconds = done, 0.0
        elif self._since is not None:
            self._seconds += now - self._since
        self._done, self._since = done, now

    def wait(self) -> None:
        """Record that nothing is done from now until the next report."""
        if self._since is not None:
            self._seconds += self.clock() - self._since
            self._since = None

    @property
    def rate(self) -> float | None:
        """How much was done per second of work; None until that is meaningful."""
        made = 0 if self._first is None else self._done - self._first
        if made <= 0 or self._seconds < _MEANINGFUL_SECONDS:
            return None
        return made / self._seconds

    def seconds_left(self, total: int | None) -> float | None:
        """Return the seconds that the rest takes at this rate; None if that is not known."""
        rate = self.rate
        if rate is None or total is None:
            return None
        gone = 0.0 if self._since is None else self.clock() - self._since
        return max(0.0, (total - self._done) / rate - gone)


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


@dataclass(frozen=True, slots=True)
class OperatorWork:
    """What one operator did in ``epochs`` epochs: its rows, and its seconds over all partitions.

    ``changes`` is the number of changes of streams and tables that could reach it in these epochs.
    ``rows_read`` counts the stored rows that it looked up or recomputed.
    """

    epochs: int
    changes: int
    rows_in: int
    rows_out: int
    rows_read: int
    seconds: float

    def plus(self, other: OperatorWork) -> OperatorWork:
        """Return the sum of the work in different epochs."""
        return OperatorWork(
            self.epochs + other.epochs,
            self.changes + other.changes,
            self.rows_in + other.rows_in,
            self.rows_out + other.rows_out,
            self.rows_read + other.rows_read,
            self.seconds + other.seconds,
        )

    @property
    def most_rows(self) -> int:
        """The number of rows in or out, whichever is larger."""
        return max(self.rows_in, self.rows_out)


_NOTHING = OperatorWork(0, 0, 0, 0, 0, 0.0)


@dataclass(frozen=True, slots=True)
class Work:
    """The work of operators by name; added by the thread that makes epochs, read by any."""

    _by_operator: dict[str, OperatorWork] = field(default_factory=dict)

    def add(self, epoch: Mapping[str, OperatorWork]) -> None:
        """Add the work of one committed epoch."""
        for name, here in epoch.items():
            self._by_operator[name] = self._by_operator.get(name, _NOTHING).plus(here)

    def of(self, operator: str) -> OperatorWork | None:
        """Return the work of an operator; None if it has not run since the database was opened."""
        return self._by_operator.get(operator)

    def seconds_by_owner(self, catalog: Catalog) -> dict[RelationId, float]:
        """Return the seconds of all operators of each view and table of the catalog."""
        found: dict[RelationId, float] = {}
        for operator, work in list(self._by_operator.items()):
            owner = owner_of(operator, catalog)
            if owner is not None:
                found[owner] = found.get(owner, 0.0) + work.seconds
        return found


def work_in_epoch(
    reports: Iterable[Report], changes: Callable[[str], int]
) -> dict[str, OperatorWork]:
    """Return the work of each operator in one epoch, over all partitions.

    ``changes`` returns how many changes could reach an operator, by its name.
    """
    found: dict[str, OperatorWork] = {}
    for each in reports:
        here = found.get(each.operator)
        if here is None:
            here = OperatorWork(1, changes(each.operator), 0, 0, 0, 0.0)
        rows = each.rows_in, each.rows_out, each.rows_read
        found[each.operator] = here.plus(OperatorWork(0, 0, *rows, each.seconds))
    return found


def owner_of(operator: str, catalog: Catalog) -> RelationId | None:
    """Return the view or table that an operator maintains, by the operator's name."""
    build, _, _ = operator.partition("/")
    return catalog.by_build.get(BuildId(int(build))) if build.isdecimal() else None


def changes_that_reach(catalog: Catalog, reads: Iterable[Read]) -> Callable[[str], int]:
    """Return a function of an operator's name: the changes in an epoch of what its view reads."""
    counts = {read.relation: read.to_offset - read.from_offset for read in reads}
    known: dict[RelationId, int] = {}

    def changes(operator: str) -> int:
        owner = owner_of(operator, catalog)
        if owner is None:
            return 0
        if owner not in known:
            known[owner] = sum(counts.get(id_, 0) for id_ in catalog.bases([owner]))
        return known[owner]

    return changes


@dataclass(frozen=True, slots=True)
class FanOut:
    """The operator of an epoch that made the most of its rows, and the changes that reached it.

    ``rows`` are those that came in or went out, whichever are more.
    """

    operator: str
    relation: RelationId
    rows: int
    changes: int

    @classmethod
    def of(cls, epoch: Mapping[str, OperatorWork], catalog: Catalog) -> FanOut | None:
        """Return that of an epoch; None if no operator had rows that follow from changes.

        It is the one with the most rows out, each counted as often as the rows in have doubled:
        what follows it may have as many rows, but only because of it.
        """

        def growth(name: str) -> tuple[float, int]:
            work = epoch[name]
            doubled = math.log2(max(work.rows_out, 1) / max(work.rows_in, 1))
            return max(doubled, 0) * work.rows_out, work.most_rows

        name = max((name for name in epoch if epoch[name].changes), key=growth, default=None)
        owner = None if name is None else owner_of(name, catalog)
        if name is None or owner is None:
            return None
        return cls(name, owner, epoch[name].most_rows, epoch[name].changes)
