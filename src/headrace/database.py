"""The composition root: wires the parts of one database together, and holds no logic."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import SparkSession

from headrace.catalog import Catalog, View
from headrace.engine.cancelling import StatementJobs
from headrace.engine.engine import Engine
from headrace.engine.queries import Queries
from headrace.engine.session import start_spark, warn_of_running
from headrace.errors import Code, HeadraceError, Span
from headrace.functions import Function, Kind, function
from headrace.ledger import DirectoryLock, Ledger, ProducerPosition, prepare_directory
from headrace.runtime.cancelling import Cancellation, StatementLock
from headrace.runtime.compaction import Compaction
from headrace.runtime.epoch import EpochLoop
from headrace.runtime.pump import Pump
from headrace.runtime.timetable import machine_clock
from headrace.session import Functions, Instance, Progress, Result, Session, Subscription
from headrace.settings import Settings
from headrace.sources.log_reader import EmbeddedLog
from headrace.sql import Query
from headrace.sql.parameters import bind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql.types import DataType

    from headrace.session.given_rows import Rows
    from headrace.sql.parameters import Parameters
    from headrace.types import Epoch


def connect(
    path: str | Path = "data",
    *,
    spark: SparkSession | None = None,
    clock: Callable[[], int] = machine_clock,
    functions: Sequence[Function] = (),
    **settings: Any,
) -> Database:
    """Open the database in a directory, which is created if it does not exist.

    Spark runs in this process; pass ``spark`` to use an existing session. ``clock`` returns the
    value of ``now()`` in views, in microseconds UTC. ``functions`` are Python functions for
    queries, made by :func:`headrace.function`. Views that call a function which is missing wait
    until it is registered. See :class:`headrace.settings.Settings` for the other keywords.

    Raises:
        HeadraceError: ``conflict`` if another process has it open, or a function differs from the
            one that views call; ``corrupt`` if its files are damaged; ``invalid`` for settings that
            do not exist or cannot take effect, and for a path that cannot be a data directory.
    """
    return Database(Path(path), Settings.of(settings), spark, clock=clock, functions=functions)


class Database:
    """An open database. A context manager; safe to use from several threads.

    All statements through one Database are one session: reads see all earlier writes.
    """

    def __init__(
        self,
        directory: Path,
        settings: Settings,
        spark: SparkSession | None = None,
        fault: Callable[[str], None] = lambda _stage: None,
        clock: Callable[[], int] = machine_clock,
        functions: Sequence[Function] = (),
    ) -> None:
        self.directory = directory
        self.settings = settings
        self._open = False
        self._cancellation = Cancellation()
        prepare_directory(directory)
        self._lock = DirectoryLock(directory)
        try:
            self._ledger = Ledger.open(directory / "ledger.db", fault=fault)
            self._ledger.acquire()
            partitions = self._partitions()
            self._own_spark = spark is None and SparkSession.getActiveSession() is None
            warn_of_running(spark, settings.spark, settings.chosen)
            self._spark = spark or start_spark(settings.spark)
            self._jobs = StatementJobs(self._spark)
            engine = Engine(self._spark, partitions, EmbeddedLog())
            engine.planner.check = self._cancellation.check
            queries = Queries(self._spark, directory.resolve(), partitions, EmbeddedLog())
            loop = EpochLoop(
                directory.resolve(),
                self._ledger,
                engine,
                settings.runtime,
                partitions,
                Catalog(),
                fault,
                clock,
                StatementLock(self._cancellation),
            )
            compaction = Compaction(loop)
            self._pump = Pump(loop, compaction)
            self.instance = Instance(
                directory.resolve(), self._ledger, engine, queries, loop, self._pump
            )
            compaction.sweep_strays()
            self.instance.restore(functions)
        except BaseException:
            self._lock.release()
            raise
        self._open = True
        self._session = Session(self.instance, lambda: self._open, self._ledger.log_ends())
        self._using = threading.RLock()
        if settings.continuous:
            self._pump.start()
        self._session.begin_sinks()

    def _partitions(self) -> int:
        """Return the number of partitions; stored runs keep the number they were written with.

        Raises:
            HeadraceError: ``invalid`` if another number is set.
        """
        stored = self._ledger.get("partitions")
        if stored is None:
            self._ledger.set("partitions", self.settings.partitions)
            return self.settings.partitions
        if "partitions" in self.settings.chosen and self.settings.partitions != stored:
            raise HeadraceError(
                Code.INVALID,
                f'setting "partitions" cannot be {self.settings.partitions}',
                detail=f'Data directory "{self.directory}" was created with {stored}.',
                hint=f"Leave it out, or give {stored}.",
            )
        return int(stored)

    # -- statements ------------------------------------------------------------------------

    def sql(
        self,
        text: str,
        parameters: Parameters | None = None,
        *,
        file: str | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Result | Subscription:
        """Run one statement, or several separated by semicolons; return the last one's result.

        ``parameters`` are the values of ``?``, a sequence, or of ``:name``, a mapping. Queries,
        INSERT, UPDATE, DELETE and SUBSCRIBE take them.
        """
        result: Result | Subscription | None = None
        for last in self.script(text, parameters, file=file, progress=progress):
            result = last
        if result is None:
            span = Span(text, 0, len(text), file)
            raise HeadraceError(Code.INVALID, "there is no statement to run", span=span)
        return result

    def script(
        self,
        text: str,
        parameters: Parameters | None = None,
        *,
        file: str | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Iterator[Result | Subscription]:
        """Run statements one by one, and yield each result when its statement has run."""
        bound = bind(text, parameters, file)
        for statement in bound.statements(file):
            self._require_open()
            with (
                self._using,
                self._cancellable(progress or _silent),
                bound.rewritten.mapping_errors(),
            ):
                result = self._session.run(statement)
            yield result

    @contextmanager
    def _cancellable(self, progress: Callable[[Progress], None]) -> Iterator[None]:
        """Run a statement that reports its progress and that :meth:`cancel` can end."""

        def report(made: Progress) -> None:
            self._cancellation.check()
            progress(made)
            self._cancellation.check()  # the report itself may have cancelled the statement

        self._session.report = report
        try:
            with self._cancellation.statement(), self._jobs.tagged():
                yield
        finally:
            self._session.report = _silent
            if self._cancellation.asked:
                self._jobs.free_slots()

    def insert(
        self,
        name: str,
        rows: Rows,
        *,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> int:
        """Append rows to a stream or table, durably; return the number of rows appended.

        With ``producer`` and a ``sequence`` that grows with each call, a call that is repeated
        because its outcome was not known takes effect once.
        """
        self._require_open()
        position = None
        if producer is not None and sequence is not None:
            position = ProducerPosition(producer, sequence)
        with self._using:
            return self._session.insert(name, rows, position)

    def subscribe(
        self, query: str, parameters: Parameters | None = None, *, after: Epoch | None = None
    ) -> Subscription:
        """Follow a query or a view: its rows, then its changes. ``after`` resumes from an epoch."""
        self._require_open()
        text = query if " " in query.strip() else f"SELECT * FROM {query}"
        bound = bind(text, parameters)
        with self._using, bound.rewritten.mapping_errors():
            statement = bound.statements()[0]
            if not isinstance(statement, Query):
                raise HeadraceError(Code.INVALID, "only a query can be followed")
            return self._session.subscribe(statement, after)

    def flush(self) -> Epoch:
        """Wait until all written changes are readable; return the epoch."""
        self._require_open()
        return self._session.flush()

    def register(
        self,
        name: str | Callable[..., Any] | Function | None = None,
        body: Callable[..., Any] | None = None,
        *,
        returns: str | DataType = "",
        arguments: Sequence[str | DataType] | None = None,
        kind: str = Kind.PYTHON,
        deterministic: bool = False,
        replace: bool = False,
    ) -> Any:
        """Make a Python function callable from queries; without a ``body``, return a decorator.

        Takes the arguments of :func:`headrace.function`, or a function that it made. Returns the
        :class:`headrace.Function`. Views that waited for the function resume.

        Raises:
            HeadraceError: ``conflict`` if views call another function of this name; with
                ``replace`` they are rebuilt instead. ``invalid`` if Spark has a function of this
                name, or this one cannot be called from SQL.
        """
        self._require_open()

        def registered(given: Function) -> Function:
            with self._using:
                Functions(self.instance).register(given, replace=replace)
            return given

        if isinstance(name, Function):
            return registered(name)
        made = function(
            name,
            body,
            returns=returns,
            arguments=arguments,
            kind=kind,
            deterministic=deterministic,
        )
        if isinstance(made, Function):
            return registered(made)
        return lambda given: registered(made(given))

    def verify(self, name: str | None = None) -> Result | Subscription:
        """Compare views with their queries, recomputed by plain Spark batch."""
        return self.sql(f"VERIFY {name}" if name else "VERIFY")

    # -- state -----------------------------------------------------------------------------

    def relations(self) -> list[tuple[str, str]]:
        """Return the kind and name of every stream, table, view, materialized view and sink."""
        shown = [r for r in self.instance.catalog if not r.name.startswith("__")]
        return [("materialized view" if isinstance(r, View) else r.kind, r.name) for r in shown]

    def columns(self, name: str) -> list[tuple[str, str]]:
        """Return the name and type of a relation's columns."""
        return [(c.name, c.sql) for c in self.instance.catalog.resolve(name).schema.columns]

    def functions(self) -> list[str]:
        """Return the names of the Python functions that queries can call."""
        return sorted(self.instance.engine.planner.functions)

    def last_epoch(self) -> Epoch:
        """Return the last committed epoch."""
        return self.instance.ledger.last_epoch()

    def pending(self) -> int:
        """Return the number of changes that have arrived and that no epoch has read yet."""
        return self.instance.loop.pending()

    def compact(self) -> None:
        """Merge runs until no merge is due, now instead of in the background."""
        while self._pump.compaction.run():
            pass

    def cancel(self) -> None:
        """Cancel the running statement, which then fails with an error; epochs of others continue.

        If no statement runs, the current Spark jobs are cancelled. Between two jobs of a statement
        there may be nothing to cancel: a caller that waits for the end of the statement calls this
        again.
        """
        if self._cancellation.running:
            self._cancellation.asked = True
            self._jobs.cancel()
        else:
            self._jobs.cancel_all()

    def close(self) -> None:
        """Stop making epochs and release the directory; also stop Spark if it was started here."""
        if not self._open:
            return
        self._open = False
        with self.instance.loop.published:
            self.instance.loop.published.notify_all()
        self.instance.deliveries.close()
        self._pump.close()
        self._ledger.close()
        self._lock.release()
        if self._own_spark:
            self._spark.stop()

    def _require_open(self) -> None:
        if not self._open:
            raise HeadraceError(Code.UNAVAILABLE, "the database is closed")

    def __repr__(self) -> str:
        """Return the path and the last epoch."""
        if not self._open:
            return f"<headrace.Database {str(self.directory)!r}, closed>"
        named = len(self.relations())
        relations = "1 relation" if named == 1 else f"{named} relations"
        return (
            f"<headrace.Database {str(self.directory)!r}, {relations}, epoch {self.last_epoch()}>"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _silent(_progress: Progress) -> None:
    """Ignore progress reports."""
