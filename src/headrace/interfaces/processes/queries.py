"""Query processes: queries are planned and evaluated outside of the process that makes epochs.

A query can exhaust the heap of the JVM that plans it, or keep its planner busy forever. So each
query has a process to itself while it runs, with a small JVM, and the process is killed if the
query cannot be stopped otherwise. Only the query fails: another process replaces the lost one.
"""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from headrace.errors import Code, HeadraceError, Span
from headrace.execution.engine.jobs.heap import heap_bytes
from headrace.execution.engine.reading.pulls import Prepared
from headrace.execution.runtime.cancelling import check_cancelled
from headrace.files.mounts import Mounted
from headrace.interfaces.processes.messages import (
    AskComputed,
    AskLogs,
    AskRows,
    AskSegments,
    AskShape,
    Child,
    Declared,
    EndedError,
    Failed,
    Full,
    StartSpark,
    WarmSpark,
    require_known_names,
    within,
)
from headrace.lifecycle.states.evaluating import PlannedQuery
from headrace.lifecycle.states.plain_queries import planned_plainly
from headrace.storage.log import InLedger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from headrace.execution.engine.jobs.lease import SparkSettings
    from headrace.execution.runtime.published import Published
    from headrace.interfaces.database import Database
    from headrace.interfaces.processes.messages import Done
    from headrace.lifecycle.states.evaluating import Asked, Beside
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Catalog


_log = logging.getLogger(__name__)

_PREFIX: Final = "headrace-query-"
_MODULE: Final = "headrace.interfaces.processes.query_process"
_GRACE_SECONDS: Final = 3.0
"""The time that a cancelled query has to end before its process is killed."""
_LISTEN_SECONDS: Final = 0.1
_IDLE_SECONDS: Final = 60.0
"""The idle time after which a process ends, unless it is the only one."""
_REHEARSED: Final = "SELECT count(*) AS n FROM VALUES (1), (2) AS v(k) WHERE k > 1"
"""The query that a process answers before it is ready."""
_SPARES: Final = 2
"""The number of processes, within the limit, that are started after one was lost."""
_BESIDE_HEAP: Final = 1 << 30
"""The memory of a process besides twice its heap: Python, code, data in transit."""


@dataclass(frozen=True, slots=True)
class QuerySettings:
    """The limit of query processes, and the memory of each."""

    most: int = 2
    memory: str = "1g"
    """The JVM's heap."""
    result_bytes: int = 1 << 30
    """The largest result, as Arrow."""

    @property
    def bytes(self) -> int:
        """The memory that a process and its JVM may use in total."""
        return 2 * (heap_bytes(self.memory) or 0) + _BESIDE_HEAP

    def of_process(self, own: SparkSettings) -> SparkSettings:
        """Return the settings of a process's Spark: those of the database's, but small."""
        flags = (*own.flags, "-XX:+ExitOnOutOfMemoryError")
        return replace(own, master="local[1]", driver_memory=self.memory, flags=flags)


class ProcessBeforehand:
    """A query process that a standby starts before it has the database; it has Spark then.

    :meth:`begin` starts it, at most once. Whoever serves the database takes it.
    """

    def __init__(self, spark: SparkSettings, settings: QuerySettings) -> None:
        self._spark = settings.of_process(spark)
        self._process: _Process | None = None
        self._changing = threading.Lock()

    def begin(self) -> None:
        """Start the process, without waiting for it."""
        with self._changing:
            if self._process is None:
                with suppress(OSError):  # it is started again when it is needed
                    self._process = _Process.started()
                    self._process.warm(self._spark)

    def taken(self) -> _Process | None:
        """Return the process, if it has been started and runs; it belongs to the caller."""
        with self._changing:
            found, self._process = self._process, None
        if found is not None and not found.child.is_alive:
            found.end()
            return None
        return found

    def close(self) -> None:
        """End the process, if nobody has taken it."""
        found = self.taken()
        if found is not None:
            found.end()


class QueryProcesses:
    """The query processes of one database: an :class:`Evaluator`.

    :meth:`warm` starts one, and concurrent queries start more; :meth:`end_idle` ends those that are
    not needed. The first one is that ``beforehand``, if it was started.
    """

    def __init__(
        self,
        database: Database,
        settings: QuerySettings,
        beforehand: ProcessBeforehand | None = None,
    ) -> None:
        self._parts = database.parts
        self._directory = database.directory.resolve()
        self._settings = settings
        self._spark = settings.of_process(database.settings.spark)
        self._beforehand = beforehand
        self._changed = threading.Condition()
        self._idle: deque[_Process] = deque()
        self._all: set[_Process] = set()
        self._starting = 0
        self._waiting = 0
        self._failure: HeadraceError | None = None
        self._closed = False
        self.lost = 0
        """The number of processes that ended while a query ran."""

    @property
    def count(self) -> int:
        """The number of processes."""
        return len(self._all)

    @property
    def are_ready(self) -> bool:
        """Whether a started process is available, so that a query need not wait for one."""
        return any(process.answers for process in self._all)

    @property
    def failure(self) -> HeadraceError | None:
        """The error of the last process that failed to start, if any."""
        return self._failure

    def require_ready(self) -> None:
        """Raise unless a query would be answered without waiting for a process to start.

        Raises:
            HeadraceError: ``unavailable`` while the first process starts; the reason for which the
                last one does not answer.
        """
        if self.are_ready:
            return
        if self.failure is not None:
            raise self.failure
        raise HeadraceError(
            Code.UNAVAILABLE,
            "queries were not answered yet: the query process was starting",
            hint="Try again in a second. Rows by key and views are read without it.",
        )

    def warm(self) -> None:
        """Start a process if none exists, without waiting for it."""
        with self._changed:
            if not self._all and not self._starting:
                self._start()

    def end_idle(self) -> None:
        """End processes that were not used for a minute, except the last one."""
        with self._changed:
            oldest = time.monotonic() - _IDLE_SECONDS
            while len(self._idle) > 1 and self._idle[0].used < oldest:
                self._discard(self._idle.popleft())

    def close(self) -> None:
        """End all processes; running queries fail."""
        with self._changed:
            self._closed = True
            for process in list(self._all):
                self._discard(process)
            self._idle.clear()
            self._changed.notify_all()

    # -- queries -------------------------------------------------------------------------------

    def planned(self, query: Span) -> PlannedQuery:
        """Plan a query in a process; ``plan`` is the name by which the process keeps its plan.

        While the first process starts, a plain query is planned here, and answered by DuckDB: that
        needs no Spark.
        """
        catalog = self._parts.reader.catalog
        if not self.are_ready:
            plain = planned_plainly(query.source, catalog)
            if plain is not None:
                return PlannedQuery(catalog, *plain)
            require_known_names(query, catalog)
            self._require_parsed(query)
        return PlannedQuery(catalog, *self._value(catalog, AskShape(query)))

    def _require_parsed(self, query: Span) -> None:
        """Refuse a query that cannot be parsed, without waiting for a process.

        Raises:
            HeadraceError: ``invalid``, at the place.
        """
        engine = self._parts.engine
        with engine.planning:
            engine.planner.named(query, lambda _name: True)

    def planned_beside(self, query: Span, beside: Beside) -> PlannedQuery:
        """Plan a query that also names tables visible to it alone."""
        return PlannedQuery(beside.added, *self._value(beside.added, AskShape(query)))

    def try_planning(self, query: Span) -> None:
        """Plan a query in a process, and discard the result."""
        try:
            self._ask(self._parts.reader.catalog, AskShape(query))
        except HeadraceError as error:
            raise error.at(query) from error

    def rows(self, text: str, asked: Asked) -> pa.Table:
        """Return a query's rows; names are resolved in the catalog of the state that it reads."""
        reader, state = self._parts.reader, asked.state
        if isinstance(asked.plan, Prepared) and asked.plan.text == text:
            by_id, queries = state.catalog.by_id, self._parts.queries
            found = queries.answer(
                asked.plan,
                asked.relations,
                lambda id_: reader.rows(state, by_id[id_]),
                dict,
                [reader.contents(state, view) for view in asked.indexed(reader)],
            )
            if found is not None:
                return within(found, self._settings.result_bytes)
        given = self._parts.information.named(state, asked.names, asked.sees)
        indexes = [view.id for view in asked.indexed(reader)]
        question = AskRows(
            text,
            reader.extents(asked.ids, state),
            tuple(given),
            self._settings.result_bytes,
            tuple(reader.shares(indexes, state).values()),
            asked.plan if isinstance(asked.plan, str) else None,
        )
        logs = _Given(reader, state)
        return self._value(state.catalog, question, logs.answer)

    def computed(self, rows: pa.Table, expressions: list[str], source: str) -> pa.Table:
        """Return the values of expressions over some rows."""
        catalog = self._parts.reader.catalog
        return self._value(catalog, AskComputed(rows, expressions, source))

    def _value(
        self,
        catalog: Catalog,
        question: AskShape | AskRows | AskComputed,
        give: Callable[[Any], object] | None = None,
    ) -> Any:
        """Return the value in an answer, or raise its error; see :meth:`_ask`."""
        answer = self._ask(catalog, question, give)
        if isinstance(answer, Failed):
            raise answer.error
        return answer.value

    def _ask(
        self,
        catalog: Catalog,
        question: AskShape | AskRows | AskComputed,
        give: Callable[[Any], object] | None = None,
    ) -> Done | Failed:
        """Return the answer of a process in which names are resolved in the given catalog.

        ``give`` returns what the process needs for it, by its question.

        Raises:
            HeadraceError: ``unsupported`` if it needs too much memory; ``unavailable`` if the
                process ended; ``cancelled``.
        """
        with self._taken() as process:
            try:
                process.declare(catalog, self._parts)
                answer = process.child.ask(question, _GRACE_SECONDS, give=give)
            except EndedError as error:
                _log.warning("a query process %s", process.child.ending)
                raise HeadraceError(
                    Code.UNAVAILABLE,
                    "the process that ran the query has ended",
                    detail="It crashed or was killed. No other query and no view is affected.",
                    hint="Try again.",
                ) from error
            if isinstance(answer, Full):
                process.child.kill()
                raise HeadraceError(
                    Code.UNSUPPORTED,
                    "the query needs more memory than a query may use",
                    detail=f"The heap of a query process has {self._settings.memory}.",
                    hint="Read fewer rows or smaller values; or keep the result in a view.",
                )
            found: Done | Failed = answer
            return found

    # -- processes -----------------------------------------------------------------------------

    @contextmanager
    def _taken(self) -> Iterator[_Process]:
        """Yield a process for exclusive use; if it has ended afterwards, it is replaced."""
        process = self._take()
        try:
            yield process
        finally:
            with self._changed:
                process.used = time.monotonic()
                if process.child.is_alive and process in self._all:
                    self._idle.append(process)
                else:
                    self.lost += 1
                    self._discard(process)
                    self._start_spares()
                self._changed.notify()

    def _take(self) -> _Process:
        with self._changed:
            self._failure = None
            self._waiting += 1
            try:
                return self._taken_when_idle()
            finally:
                self._waiting -= 1

    def _taken_when_idle(self) -> _Process:
        """Return an idle process; start more if fewer are starting than are waited for."""
        while True:
            if self._closed:
                raise HeadraceError(Code.UNAVAILABLE, "the server was stopping")
            while self._idle:
                process = self._idle.pop()
                if process.child.is_alive:
                    return process
                self._discard(process)
            if self._failure is not None:
                raise self._failure
            if self._starting < self._waiting and len(self._all) < self._settings.most:
                self._start()
            self._changed.wait(_LISTEN_SECONDS)
            self._check_cancelled()

    def _check_cancelled(self) -> None:
        """Raise if the wait was cancelled; the error says if it was for the first process.

        Raises:
            HeadraceError: ``cancelled`` in that case.
        """
        try:
            check_cancelled()
        except HeadraceError as error:
            if self.are_ready:
                raise
            raise HeadraceError(
                error.code,
                error.primary,
                detail="It waited for the query process, which was still starting.",
                hint="Try again when GET /readyz answers 200.",
            ) from error

    def _start_spares(self) -> None:
        """Keep two processes after a loss: the next query may well be lost in the same way."""
        while not self._closed and len(self._all) < min(_SPARES, self._settings.most):
            if not self._start():
                return

    def _start(self) -> bool:
        """Start a process unless the limit is reached; return whether it was started.

        A thread waits until it answers, which takes seconds.
        """
        try:
            early = None if self._beforehand is None else self._beforehand.taken()
            process = early or _Process.started()
        except OSError as error:
            self._failure = _not_started(f"{error}")
            return False
        self._all.add(process)
        self._starting += 1
        threading.Thread(
            target=self._await, args=(process,), name="headrace-queries", daemon=True
        ).start()
        return True

    def _await(self, process: _Process) -> None:
        try:
            answer = process.child.ask(self._begin(process.scratch), _GRACE_SECONDS)
            failure = answer.error if isinstance(answer, Failed) else None
            if failure is None:
                self._rehearse(process)
        except EndedError:
            if self._closed:
                return
            failure = _not_started(process.child.ending)
        with self._changed:
            self._starting -= 1
            if failure is None:
                process.answers = True
                self._idle.append(process)
            else:
                self._failure = failure
                self._discard(process)
            self._changed.notify_all()

    def _rehearse(self, process: _Process) -> None:
        """Ask a started process a query, for which it loads what any query needs.

        Raises:
            EndedError: the process has ended.
        """
        catalog, query = self._parts.reader.catalog, Span.whole(_REHEARSED)
        with suppress(HeadraceError):
            process.declare(catalog, self._parts)
        process.child.ask(AskShape(query), _GRACE_SECONDS)
        asked = AskRows(_REHEARSED, {}, (), self._settings.result_bytes)
        process.child.ask(asked, _GRACE_SECONDS)

    def _begin(self, scratch: Path) -> StartSpark:
        return StartSpark(
            self._directory,
            scratch,
            self._parts.engine.partitions,
            self._spark,
            tuple(sys.path),
            self._settings.bytes,
            Mounted.of(self._directory),
        )

    def _discard(self, process: _Process) -> None:
        self._all.discard(process)
        process.end()


def _not_started(why: str) -> HeadraceError:
    """Return the error for a process that did not start; the log has the reason."""
    _log.warning("a query process did not start: %s", why)
    return HeadraceError(Code.UNAVAILABLE, "a query process could not be started")


class _Process:
    """One process, and the names declared to it."""

    @classmethod
    def started(cls) -> Self:
        scratch = Path(tempfile.mkdtemp(prefix=_PREFIX))
        return cls(Child.started(_MODULE, scratch / "errors"), scratch)

    def __init__(self, child: Child, scratch: Path) -> None:
        self.child = child
        self.scratch = scratch
        self.used = time.monotonic()
        self.answers = False
        """Whether its Spark has been started."""
        self._known: tuple[Any, ...] = ()

    def warm(self, spark: SparkSettings) -> None:
        """Ask it to start Spark; what is asked next is answered afterwards.

        Raises:
            OSError: the process has ended.
        """
        self.child.begin(WarmSpark(self.scratch, spark, tuple(sys.path)))

    def end(self) -> None:
        """Kill the process, and remove what it has written."""
        self.child.kill()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def declare(self, catalog: Catalog, parts: Any) -> None:
        """Declare the names of a catalog, unless the process has them.

        Raises:
            EndedError: the process has ended.
        """
        functions, waiting = dict(parts.functions.registered), parts.declarations.unplanned
        known = (catalog, functions, waiting, dict(parts.functions.records))
        if self._known and self._known[0] is catalog and self._known[1:] == known[1:]:
            return
        from headrace.planning.functions.results import pickled  # noqa: PLC0415  (which only functions need)

        declared = Declared(
            catalog.relations,
            waiting,
            {name: pickled(each.function, each.function) for name, each in functions.items()},
            known[3],
        )
        answer = self.child.ask(declared, _GRACE_SECONDS)
        if isinstance(answer, Failed):
            self.child.kill()  # some names may have been declared
            raise answer.error
        self._known = known


@dataclass(slots=True)
class _Given:
    """What a process has been given of the logs of streams to answer a query on a state.

    It is held until the query has been answered, so that no file of it is deleted meanwhile.
    """

    reader: Reader
    state: Published
    _held: list[object] = field(default_factory=list)

    def answer(self, needed: AskSegments | AskLogs) -> object:
        """Return what a process needs."""
        if isinstance(needed, AskLogs):
            found: object = self.reader.shares(needed.relations, self.state)
        else:
            listing = InLedger(self.reader.ledger)
            found = listing.page(needed.extent, needed.pruning, needed.most, newest=needed.newest)
        self._held.append(found)
        return found
