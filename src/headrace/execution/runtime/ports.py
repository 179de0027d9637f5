"""The protocols that layers above the runtime implement, and the values they exchange."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from headrace.algebra.zset import Layout, Restriction
    from headrace.execution.runtime.fill_parts import Sizes, Takeover
    from headrace.execution.runtime.step import Report, Share, Step
    from headrace.storage.ledger import DeliveryRecord, LoadProgress, Reject
    from headrace.types import ArrangementId, BuildId, Epoch, Offset, RelationId


LEAF: Final = "leaf "
"""The prefix of a report's operator if it is a leaf that reads a slice. Its rows in are the rows
that it searched, its rows out those that it read."""


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """A recursion of a view, and the arrangements to which a round writes.

    A round writes the delta of the recursion to ``feedback``: it is the input of the next round.
    Rows of levels from ``limit`` on are written to ``over_limit``, which must be empty in the end.
    """

    view: RelationId
    feedback: ArrangementId
    over_limit: ArrangementId
    layout: Layout
    limit: int


class Reach(Enum):
    """How much of a fill a program can do in this process, without a job."""

    NONE = "nothing"
    """Nothing."""
    FEW = "few rows"
    """Few rows: each takes a job, a crossing to the JVM or a call of a function."""
    WHOLE = "all rows at once"
    """Many rows, if one step reads all of them: it recomputes groups, in each step again."""
    MANY = "many rows"
    """Many rows, part by part."""


class MoreRowsError(Exception):
    """A step planned for few rows reads many: it was undone, and has to be read in parts."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The inputs that a step of some views reads, and the arrangements it reads and writes.

    ``globals`` names the operators that emit one row even for an empty input. ``shared`` are the
    arrangements that operators read as the contents of a relation. ``loops`` are the recursions of
    the step; ``arrangements`` does not contain those of recursions. ``jobs`` is the number of jobs
    that it runs, ``scans`` how often it reads the share of each relation: once, where it is not
    said. ``guards`` are the quarantines among the arrangements. If it is ``interpreted``, few rows
    are run without a job. ``restrictions`` say what leaves read of a slice, by their names.
    ``reach`` is how much of a fill is done in this process.
    """

    reads: frozenset[RelationId]
    arrangements: Mapping[ArrangementId, Layout]
    globals: frozenset[str]
    shared: Mapping[ArrangementId, RelationId]
    loops: tuple[LoopPlan, ...] = ()
    jobs: int = 1
    scans: Mapping[RelationId, int] = field(default_factory=dict)
    guards: frozenset[ArrangementId] = frozenset()
    interpreted: bool = False
    restrictions: Mapping[str, Restriction] = field(default_factory=dict)
    reach: Reach = Reach.NONE

    def scanned(self, shares: Mapping[RelationId, Share]) -> int:
        """Return how many rows of shares the step reads, each as often as it is read."""
        return sum(share.rows * self.scans.get(id_, 1) for id_, share in shares.items())


@dataclass(frozen=True, slots=True)
class Stepped:
    """What a step has done: the reports of its tasks, and the number of Spark jobs that it took."""

    reports: tuple[Report, ...]
    jobs: int


class StepRunner(Protocol):
    """Runs the steps of connected sets of views, each as one job if plans do not repeat much."""

    @property
    def jobs_wait(self) -> bool:
        """Whether a job would wait now: for Spark to start, or for an executor."""
        ...

    def plan_live(
        self,
        changed: frozenset[RelationId],
        without: frozenset[RelationId],
        partitions: int,
        looping: frozenset[RelationId] = frozenset(),
        given: frozenset[RelationId] = frozenset(),
        *,
        few: bool = False,
    ) -> StepPlan:
        """Return the plan of an epoch's step in which the relations ``changed`` have changes.

        A view in ``changed`` is one whose rows may change by the clock alone. Views in ``without``
        and their dependants are left out. ``partitions`` is the number of partitions of the step,
        which may differ from the number that wrote the runs. The recursions of views in
        ``looping`` read the feedback of the round before. The deltas of the views ``given`` are
        shares of the step, and not computed by it. A step of ``few`` changes is narrow: it runs in
        this process, and has one partition.
        """
        ...

    def run_live(
        self,
        step: Step,
        changed: frozenset[RelationId],
        without: frozenset[RelationId],
        looping: frozenset[RelationId] = frozenset(),
        given: frozenset[RelationId] = frozenset(),
    ) -> Stepped:
        """Run the step of an epoch; every run that it wrote is durable when this returns.

        Raises:
            MoreRowsError: a narrow step has more rows on its way than this process should hold.
        """
        ...

    def unfit(
        self, changed: frozenset[RelationId], without: frozenset[RelationId], *, few: bool
    ) -> Mapping[RelationId, HeadraceError]:
        """Plan the views that changes can reach, which may take long for each.

        If changes are ``few``, views whose programs of narrow steps are stored are not planned.

        Returns the errors of those that cannot be run: their query cannot be planned, or their
        stored state belongs to another circuit. Views in ``without`` and those above are left out.
        """
        ...

    def plan_fill(
        self,
        build: BuildId,
        partitions: int,
        *,
        looping: bool = False,
        ticks: bool = False,
        here: bool = False,
    ) -> StepPlan:
        """Return the plan of the steps that fill a build of a view from the contents of its inputs.

        ``partitions`` is the number of partitions of the steps. With ``looping``, return the plan
        of a further round of its recursions, which reads no inputs; with ``ticks``, of a step in
        which time passes; with ``here``, of steps in this process, as far as the plan's ``reach``
        says. All of them write the same arrangements.
        """
        ...

    def taking_over(
        self, build: BuildId, kept: Iterable[RelationId], rows: Sizes
    ) -> AbstractContextManager[Takeover | None]:
        """Let steps that fill a build read state of ``kept`` views for the duration of a block.

        ``rows`` returns the number of rows of their arrangements, and of relations. Yields what
        the plans and steps of the block read of it; None if reading the inputs costs less.
        """
        ...

    def run_fill(
        self, step: Step, build: BuildId, *, looping: bool = False, ticks: bool = False
    ) -> tuple[Report, ...]:
        """Run one step of filling a build; see :meth:`plan_fill`.

        A step of ``few`` rows that a plan reaches in this process is run there.

        Raises:
            MoreRowsError: such a step has more rows on its way than this process should hold.
        """
        ...

    def sieve(self, step: Step, build: BuildId, quarantine: ArrangementId) -> Mapping[int, str]:
        """Return the rows of a relation on which an expression of a build fails for the row alone.

        The step has the rows as the arrangement ``quarantine``, with its columns. The result has
        the error by the hash of a row. Some of the failing rows may be missing.
        """
        ...

    def run_difference(self, step: Step, build: BuildId) -> tuple[Report, ...]:
        """Write the difference between the recomputed slice of a build and what is stored.

        The step has the arrangements as stored, and the runs of those that were recomputed. The
        rows out of a report are those that differ.
        """
        ...


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a source: rows, those that were refused, and where the source continues after it.

    ``position`` is a JSON object that only the source understands, without the keys ``rows`` and
    ``parts``, which :class:`Ingest` adds. ``done`` of ``total`` units of the source have been read,
    for progress; ``total`` is None where it is not known. ``origin`` returns the place of a row by
    its number, as rejects name it; None where it is not known. ``origins`` returns those of all
    rows, as text and int64, where that is faster. Event time is followed by place, or by what
    ``partition`` returns for a place.

    ``times`` are those of the rows, as the source has them; where it is None or NULL, a row has
    the time at which it is landed.

    The rows of a table have weights: 1 replaces the row of its key, -1 deletes it. ``unchanged``
    are the cells, by column, that have the value of the row before; ``emptied`` are the numbers of
    the rows before which all rows of the table are deleted, in order. Without a key, -1 deletes a
    row that agrees in all columns but those of ``unchanged``, and is a reject if there is none. A
    row of weight -1 and one of weight 1 right after it that have the same origin are one update.
    ``payload`` returns what a row was decoded from, by its number, for rejects.

    ``notes`` are JSON values by name that are stored with the position, each until one of its name
    comes: what a source has to remember that grows, and must not be written whole each time.
    """

    rows: pa.Table
    rejects: tuple[Reject, ...]
    position: Mapping[str, Any]
    done: int = 0
    total: int | None = None
    origin: Callable[[int], tuple[str, int]] | None = None
    partition: Callable[[str], str] | None = None
    times: pa.Array | None = None
    unchanged: Mapping[str, pa.BooleanArray] = field(default_factory=dict)
    emptied: tuple[int, ...] = ()
    payload: Callable[[int], str] | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    origins: Callable[[], tuple[pa.Array, pa.Array]] | None = None


class Source(Protocol):
    """An external source of rows, which can be read again from any of its positions."""

    @property
    def identity(self) -> str:
        """The text that identifies the source among all sources; for a file, also its version."""
        ...

    def parts(self, position: Mapping[str, Any] | None) -> Iterator[Part]:
        """Yield the parts from a position on; None is the beginning.

        Raises:
            HeadraceError: CONFLICT if the source is no longer what it was at the position.
        """
        ...


class LiveSource(Source, Protocol):
    """A source without an end: its parts go on until it is closed.

    Where nothing arrives for a while, it yields a part without rows, so that its reader can act.
    """

    def close(self) -> None:
        """Have :meth:`parts` end soon; may be called on another thread."""
        ...


@dataclass(frozen=True, slots=True)
class Moment:
    """Parts of several relations that are landed together: no reader sees some without the others.

    Positions of relations without a part stay as they are. A moment that is not ``whole`` is
    continued by the next one: its parts consist of insertions of new rows, and are kept aside until
    then. ``done`` of ``total`` units of the source have been read when it has been landed.
    """

    parts: tuple[tuple[RelationId, Part], ...]
    done: int = 0
    total: int | None = None
    whole: bool = True


class AppendRows(Protocol):
    """Appends changes to the log of one relation, with the load and rejects of that transaction."""

    def __call__(self, rows: pa.Table, *, load: LoadProgress, rejects: Sequence[Reject]) -> Offset:
        """Append durably; return the log's end."""
        ...


class Changelog(Protocol):
    """The rows of a view or table at an epoch, and their changes, in parts of bounded size.

    Parts are tables of its columns with ``__weight``, consolidated, in the order of a hash of its
    key: all rows of a key are in one part. ``most`` is how many physical rows a part has; it has
    fewer if these are wide, and more only if they are of one hash.
    """

    def snapshot(self, epoch: Epoch, most: int) -> Iterable[pa.Table]:
        """Return the rows at an epoch."""
        ...

    def rows_at(self, epoch: Epoch) -> int:
        """Return how many physical rows :meth:`snapshot` reads."""
        ...

    def changed(self, after: Epoch, upto: Epoch) -> Sequence[Epoch]:
        """Return the epochs in ``(after, upto]`` that may have changes, ascending."""
        ...

    def delta(self, after: Epoch, upto: Epoch, most: int) -> Iterable[pa.Table]:
        """Return the sum of the changes of the epochs in ``(after, upto]``."""
        ...

    def rows_changed(self, after: Epoch, upto: Epoch) -> int:
        """Return how many rows the changes of the epochs in ``(after, upto]`` have."""
        ...


@runtime_checkable
class Counted(Protocol):
    """Parts that know how many physical rows they have in total, and how many were read so far."""

    @property
    def total(self) -> int:
        """The number of rows that are read for all parts."""
        ...

    @property
    def read(self) -> int:
        """The number of rows that were read for the parts so far."""
        ...


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row that a sink's target refuses for good.

    ``row`` is the change as one line of JSON, ``why`` are the target's words, without secrets.
    """

    row: str
    why: str


class SinkWriter(Protocol):
    """Writes a view's changelog to another system.

    A failure that may pass raises ``unavailable``, one that somebody has to repair ``invalid``: the
    delivery tries again, in order, and shows it. Only a row that the target refuses whatever comes
    is refused. With :attr:`SinkContext.stops`, an epoch with a refused row must not be recorded by
    the target as whole, since it comes again.
    """

    @property
    def guarantee(self) -> str:
        """How often a change can take effect.

        "exactly once: ...", "exact effect: ..." or "at least once: ...".
        """
        ...

    def durable(self) -> Epoch | None:
        """Return the last epoch that the target itself records as whole; None if it has none."""
        ...

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        """Write the changes up to an epoch durably; return the rows that were refused.

        Parts are as :class:`Changelog` has them, with the sink's columns. Epochs come in order.
        After a failure the same changes come again, under the same epoch: the effect must be that
        of one write. Reading a part may raise: the write has failed then.
        """
        ...

    def stored(self) -> Iterator[pa.Table] | None:
        """Yield the rows in the target, with the sink's columns; None if it cannot be read."""
        ...

    def clear(self) -> None:
        """Remove what the sink has written, if its form allows that, and the recorded epoch."""
        ...

    def close(self) -> None:
        """Release what is held; the writer may be used again, and then connects again."""
        ...


@runtime_checkable
class StoresPosition(Protocol):
    """A writer into this database, where the record of a delivery is stored with the changes."""

    def write_with(self, record: DeliveryRecord, parts: Iterable[pa.Table]) -> None:
        """Write the changes up to the epoch that a record says is delivered, with the record.

        That is one transaction. Otherwise as :meth:`SinkWriter.write`; no row is refused.
        """
        ...


@runtime_checkable
class KeepsEpochs(Protocol):
    """A writer whose target keeps the epoch that it records for good.

    If it has an earlier one than it acknowledged, it has lost changes.
    """

    @property
    def target(self) -> str:
        """What messages call the target, such as ``table "t" of PostgreSQL``."""
        ...


def lost_changes(target: str, there: Epoch | None, written: Epoch) -> HeadraceError:
    """Return the error that a target has gone back behind what it has acknowledged."""
    at = "no epoch" if there is None else f"epoch {there}"
    return HeadraceError(
        Code.CONFLICT,
        f"{target} has lost changes",
        f"It records {at}, and has acknowledged epoch {written}.",
        "RECONCILE SINK writes what is missing; RESET SINK writes all rows again.",
    )


@runtime_checkable
class Idles(Protocol):
    """A writer that has periodic work while nothing is written."""

    def idle(self) -> None:
        """Do the work that is due; called every minute."""
        ...


@runtime_checkable
class KeepsRefused(Protocol):
    """A writer whose target records whole epochs, with the rows that were refused."""

    def last_refused(self) -> Sequence[RefusedRow]:
        """Return the rows that were refused in the epoch that :meth:`SinkWriter.durable` has."""
        ...
