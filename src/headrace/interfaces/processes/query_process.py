"""A query process: runs queries, one at a time, in its own Spark session.

It is started by :mod:`headrace.interfaces.processes.queries`, opens files of the data directory for
reading only, and writes to its own directory. It exits, with its JVM, when the other end of its
connection is closed, or when it exceeds its memory limit.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Never
from uuid import uuid4

from headrace.algebra.spine import Spine
from headrace.errors import Code, HeadraceError, unexpected
from headrace.execution.engine.engine import Engine
from headrace.execution.engine.jobs.lease import RunningSpark, acknowledge_at_once
from headrace.execution.engine.jobs.scope import StatementJobs, tasks_left
from headrace.execution.engine.jobs.session import jvm_of, start_spark
from headrace.execution.engine.leaves import Leaves
from headrace.execution.engine.reading.queries import Queries
from headrace.execution.runtime.cancelling import Cancellation
from headrace.execution.runtime.step import RowsShare, Share, events_in
from headrace.execution.serving import Contents
from headrace.interfaces.processes.messages import (
    AskComputed,
    AskLogs,
    AskRows,
    AskSegments,
    AskShape,
    Cancel,
    Declared,
    Done,
    Failed,
    Full,
    Needed,
    StartSpark,
    WarmSpark,
    within,
)
from headrace.lifecycle.states.plain_queries import planned_plainly
from headrace.lifecycle.states.system_relations import system_relations
from headrace.planning.catalog import Catalog, PlainView, Relation, Stream, Table
from headrace.storage.log import EmbeddedLog, Events, Extent

if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import Popen

    from headrace.execution.engine.reading.pulls import Prepared
    from headrace.planning.catalyst.analysed import Shape
    from headrace.storage.log import Page, Pruning
    from headrace.types import RelationId


_log = logging.getLogger(__name__)

_WATCH_SECONDS: Final = 0.5
_END_SECONDS: Final = 1.0
"""The time that tasks of a cancelled query have to end."""
_OUT_OF_MEMORY: Final = 3
"""The exit status of a JVM whose heap is full, with -XX:+ExitOnOutOfMemoryError."""
_PRIORITY: Final = 5
"""The niceness of the process relative to the one that makes epochs."""


class QueryProcess:
    """The process: one thread receives messages and watches the memory, another answers."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._asked: SimpleQueue[Any] = SimpleQueue()
        self._cancellation = Cancellation()
        self._begin: StartSpark | None = None
        self._jobs: StatementJobs | None = None
        self._jvm: Popen[bytes] | None = None

    def run(self) -> Never:
        """Answer until the connection is closed."""
        threading.Thread(target=self._answer_all, name="headrace-query", daemon=True).start()
        try:
            while True:
                if not self._connection.poll(_WATCH_SECONDS):
                    self._watch()
                    continue
                message = self._connection.recv()
                if isinstance(message, Cancel):
                    self._cancel()
                else:
                    self._asked.put(message)
        except (EOFError, OSError):
            self._end()

    def _watch(self) -> None:
        """Exit if the process and its JVM exceed the memory limit."""
        if self._begin is None or self._jvm is None:
            return
        if _resident(os.getpid()) + _resident(self._jvm.pid) > self._begin.bytes:
            if self._sending.acquire(timeout=_END_SECONDS):
                self._connection.send(Full())
            self._end()

    def _cancel(self) -> None:
        if self._cancellation.running:
            self._cancellation.asked = True
            if self._jobs is not None:
                with suppress(Exception):  # the parent kills the process if the query continues
                    self._jobs.cancel()

    def _end(self) -> Never:
        """Exit at once, with the JVM: both are in one process group."""
        if self._begin is not None:
            shutil.rmtree(self._begin.scratch, ignore_errors=True)
        os.killpg(0, signal.SIGKILL)
        raise SystemExit

    # -- the thread that answers ---------------------------------------------------------------

    def _answer_all(self) -> None:
        try:
            first = self._asked.get()
            if isinstance(first, WarmSpark):
                sys.path[:] = first.path
                self._send(self._warmed(first))
                first = self._asked.get()
            spark = self._begun(first)
            if spark is not None:
                self._send(Done())
                while True:
                    self._send(self._answered(spark, self._asked.get()))
        except _LostError:
            pass
        except BaseException:  # noqa: BLE001  (which ends the process)
            _log.exception("a query process ended")
        self._end()

    def _send(self, answer: Done | Failed | Full | Needed) -> None:
        with self._sending:
            self._connection.send(answer)

    def _warmed(self, first: WarmSpark) -> Done | Failed:
        """Start the Spark that the queries use later."""
        try:
            start_spark(first.spark, first.scratch / "spark")
        except HeadraceError as error:
            return Failed(error)
        return Done()

    def _begun(self, begin: StartSpark) -> _Spark | None:
        """Start Spark; if that fails, send the error and return None."""
        self._begin = begin
        sys.path[:] = begin.path
        for name in ("runs", "log"):
            (begin.scratch / name).symlink_to(begin.directory / name)
        if begin.mounted is not None:
            begin.mounted.mount(begin.scratch)
        try:
            spark = _Spark(begin, self._need)
        except HeadraceError as error:
            self._send(Failed(error))
            return None
        self._jobs = StatementJobs(spark.engine.source, self._cancellation.tag)
        self._jvm = jvm_of(spark.engine.spark)
        os.setpriority(os.PRIO_PGRP, 0, _PRIORITY)  # not earlier: starting is slow
        return spark

    def _answered(self, spark: _Spark, message: object) -> Done | Failed | Full:
        try:
            with self._cancellation.statement():
                answer: Done | Failed | Full = Done(spark.answer(message))
        except Exception as error:
            if not spark.responds():
                return self._lost()
            if isinstance(error, MemoryError):
                raise
            if not isinstance(error, HeadraceError):
                _log.exception("a query failed unexpectedly")
            answer = Failed(unexpected(error))
        if self._cancellation.asked:
            self._wait_for_tasks(spark)
        return answer

    def _lost(self) -> Full:
        """Return the answer for a JVM that ended because its heap was full.

        Raises:
            _LostError: it ended for another reason.
        """
        with suppress(subprocess.TimeoutExpired):
            if self._jvm is not None and self._jvm.wait(_END_SECONDS) == _OUT_OF_MEMORY:
                return Full()
        raise _LostError

    def _need(self, question: AskSegments | AskLogs) -> Any:
        """Return the answer of the process that asked to a question of this one."""
        self._send(Needed(question))
        answer = self._asked.get()
        if isinstance(answer, Failed):
            raise answer.error
        return answer.value

    def _wait_for_tasks(self, spark: _Spark) -> None:
        """Exit if tasks of a cancelled query do not stop: they might run forever."""
        until = time.monotonic() + _END_SECONDS
        while tasks_left(spark.engine.spark):
            if time.monotonic() > until:
                self._end()
            time.sleep(_END_SECONDS / 20)


class _LostError(Exception):
    """The JVM has ended."""


class _Spark:
    """A Spark session with the names of a catalog declared."""

    def __init__(self, begin: StartSpark, need: Callable[[AskSegments | AskLogs], Any]) -> None:
        self._need = need
        scratch = begin.scratch
        source, log = RunningSpark(start_spark(begin.spark, scratch / "spark")), EmbeddedLog()
        acknowledge_at_once(source.session)
        self.engine = Engine(source, begin.partitions, log)
        leaves = Leaves(source, scratch, begin.partitions, log)
        self._queries = Queries(leaves, self.engine)
        self._planned: tuple[str, Prepared] | None = None
        """The name and the plan of the query whose shape was asked for last."""
        self._scratch = scratch
        self._runs = scratch / "runs"
        self._declared = Declared()
        self._catalog = Catalog()
        for each in system_relations():
            self.engine.declare(each)

    def responds(self) -> bool:
        """Whether the JVM answers calls."""
        try:
            self.engine.spark.sparkContext.defaultParallelism  # noqa: B018  (which asks the JVM)
        except Exception:  # noqa: BLE001  (whatever it is)
            return False
        return True

    def answer(self, message: object) -> Any:
        """Return the value that a message asks for."""
        match message:
            case Declared():
                self._declare(message)
                return None
            case AskShape():
                return self._shape(message)
            case AskRows():
                return self._rows(message)
            case AskComputed():
                return self._queries.computed(message.rows, message.expressions, message.source)
        raise HeadraceError(Code.INTERNAL, f"a query process was sent a {type(message).__name__}")

    def _shape(self, asked: AskShape) -> Any:
        plans, text = self._queries.plans, asked.query.source
        self._planned = None
        plain = planned_plainly(text, self._catalog)
        if plain is not None:
            return self._named(*plain)
        known = plans.shape(text, self._catalog)
        if known is not None:
            return known, None
        shape, prepared = self._queries.planned(asked.query)
        plans.keep_shape(text, self._catalog, shape, plans.changes)
        if prepared is None:
            return shape, None
        return self._named(shape, prepared)

    def _named(self, shape: Shape, prepared: Prepared) -> tuple[Shape, str]:
        """Keep a plan under a name, by which it can be asked for next."""
        name = uuid4().hex
        self._planned = name, prepared
        return shape, name

    def _rows(self, asked: AskRows) -> Any:
        for gathered, rows_given in asked.given:
            self._queries.provide(gathered, rows_given)
        by_id = self._catalog.by_id
        relations = [by_id[id_] for id_ in asked.shares if id_ in by_id]
        rows, prepared = None, self._queries.plans.find(asked.text)
        planned, self._planned = self._planned, None
        if planned is not None and planned[0] == asked.plan and planned[1].text == asked.text:
            prepared = planned[1]
        while rows is None:
            rows = self._queries.answer(
                prepared or self._queries.prepared(asked.text),
                relations,
                lambda id_: self._read(by_id[id_], asked.shares[id_]),
                lambda: self._shares(asked),
                [self._contents(share) for share in asked.indexes],
            )
            prepared = None
        return within(rows, asked.most)

    def _shares(self, asked: AskRows) -> dict[RelationId, Share]:
        """Return the shares that a job reads, with all segments of streams."""
        streams = tuple(i for i, share in asked.shares.items() if isinstance(share, Extent))
        logs: dict[RelationId, Share] = self._need(AskLogs(streams)) if streams else {}
        stored = {i: s for i, s in asked.shares.items() if not isinstance(s, Extent)}
        return {**stored, **logs}

    def _read(self, relation: Relation, share: Share | Extent) -> Contents | Events:
        if isinstance(relation, Stream) and isinstance(share, Extent):
            return events_in(self._scratch, relation, share, _Asked(self._need))
        return self._contents(share)

    def _contents(self, share: Share | Extent) -> Contents:
        if not isinstance(share, RowsShare):
            raise HeadraceError(Code.INTERNAL, "a query process was sent no stored rows")
        return Contents(Spine.open(self._runs, share.layout, share.runs))

    # -- names ---------------------------------------------------------------------------------

    def _declare(self, declared: Declared) -> None:
        """Declare the names of a catalog, where they differ from those declared before."""
        before, catalog = self._catalog, Catalog.of(declared.relations)
        functions = declared.functions != self._declared.functions
        self.engine.declared.remembered.clear()
        self.engine.declared.remembered.update(declared.remembered)
        stays = self._staying(declared, catalog) if not functions else frozenset()
        for relation in reversed([*_bases(before), *before.defined_in_order()]):
            if relation.id not in stays:
                self.engine.forget(relation)
                self._queries.forget(relation)
        if functions:
            self._register(declared)
        for relation in (*_bases(catalog), *catalog.defined_in_order()):
            if relation.id not in stays:
                planned = isinstance(relation, PlainView) and relation.id not in declared.waiting
                self.engine.declare(relation, planned=planned)
                self._queries.declare(relation, planned=planned)
        self._declared, self._catalog = declared, catalog

    def _staying(self, declared: Declared, catalog: Catalog) -> frozenset[Any]:
        """Return the relations that are unchanged in another catalog, and so are their inputs."""
        former = self._catalog
        moved = declared.waiting ^ self._declared.waiting
        changed = [r.id for r in former if r.id in moved or catalog.by_id.get(r.id) != r]
        above = {d.id for id_ in changed for d in former.dependants(id_)}
        return frozenset(former.by_id) - above - frozenset(changed)

    def _register(self, declared: Declared) -> None:
        from pyspark import cloudpickle  # noqa: PLC0415  (which only functions need)

        for name in list(self.engine.declared.functions):
            registered = self.engine.unregister(name)
            if registered is not None:
                self._queries.forget_function(registered)
        for code in declared.functions.values():
            registered = self.engine.prepared(cloudpickle.loads(code))
            self.engine.register(registered)
            self._queries.declare_function(registered)


@dataclass(frozen=True, slots=True)
class _Asked:
    """Lists segments by asking the process that has the ledger."""

    need: Callable[[AskSegments | AskLogs], Any]

    def page(self, extent: Extent, pruning: Pruning, most: int, *, newest: bool) -> Page:
        """Return a page; see :class:`headrace.storage.log.SegmentListing`."""
        found: Page = self.need(AskSegments(extent, pruning, most, newest))
        return found


def _bases(catalog: Catalog) -> list[Relation]:
    return [relation for relation in catalog if isinstance(relation, Stream | Table)]


def _resident(pid: int) -> int:
    """Return the resident memory of a process in bytes; 0 where it is unknown."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGESIZE")


def main() -> None:
    """Run the process; the argument is the descriptor of its end of the connection."""
    QueryProcess(Connection(int(sys.argv[1]))).run()


if __name__ == "__main__":
    main()
