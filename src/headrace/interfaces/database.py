"""The composition root: constructs the parts of a database from each other, without logic."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self, Unpack, overload
from weakref import WeakSet

from headrace.errors import Code, HeadraceError
from headrace.execution.engine.engine import Engine
from headrace.execution.engine.jobs.executors import (
    choose_interpreter,
    has_executors,
    require_executors,
)
from headrace.execution.engine.jobs.lease import SparkLease, acknowledge_at_once
from headrace.execution.engine.jobs.scope import StatementJobs
from headrace.execution.engine.jobs.session import (
    forget,
    start_spark,
    warm_while_waiting,
    warn_of_running,
    why_ended,
)
from headrace.execution.engine.leaves import Leaves
from headrace.execution.engine.narrow.stored import ProgramFiles
from headrace.execution.engine.reading.queries import Queries
from headrace.execution.engine.verifying.history import CanonicalHistory
from headrace.execution.runtime.compaction import Compaction
from headrace.execution.runtime.connected import machine_clock
from headrace.execution.runtime.deliveries import Deliveries
from headrace.execution.runtime.epoch import EpochLoop
from headrace.execution.runtime.feeds import Feeds
from headrace.execution.runtime.published import Publisher
from headrace.execution.runtime.pump import Pump
from headrace.execution.runtime.retirement import Retirement
from headrace.execution.runtime.settings import OnDifference
from headrace.execution.runtime.uploads import Uploads
from headrace.execution.serving.values import json_text, python_rows
from headrace.files import StoreAddress
from headrace.files.mounts import Mounted, store_of, upload_by
from headrace.interfaces.session import Session
from headrace.interfaces.session.information_schema import InformationSchema
from headrace.interfaces.session.opening import (
    require_own_store,
    restore,
    stored_partitions,
    stored_store,
)
from headrace.interfaces.session.parts import DatabaseParts
from headrace.interfaces.settings import AUTOMATIC, Settings, backup_place, variable
from headrace.interfaces.statements.default_session import DefaultSession
from headrace.interfaces.statements.functions import FunctionChanges
from headrace.io.connectors import Captures, Connections, Secrets
from headrace.lifecycle.copies.backups import Backups
from headrace.lifecycle.copies.branch_places import InDirectory, InStore
from headrace.lifecycle.copies.branching import Branches
from headrace.lifecycle.definitions.candidates import FormerBuilds
from headrace.lifecycle.definitions.definer import Definer
from headrace.lifecycle.definitions.filling import Filling, Fills
from headrace.lifecycle.definitions.functions import Functions
from headrace.lifecycle.definitions.reshaping import Reshaping
from headrace.lifecycle.definitions.waiting import Planning, Upgrades, WaitingViews
from headrace.lifecycle.facts.lineage import Lineages
from headrace.lifecycle.facts.openlineage import OpenLineage
from headrace.lifecycle.facts.openlineage_events import Datasets, OpenLineageEvents
from headrace.lifecycle.history.amending import Amending, PendingVersions
from headrace.lifecycle.history.changes import ChangeClassifier
from headrace.lifecycle.history.comparing import Comparing
from headrace.lifecycle.history.reconciler import Reconciler
from headrace.lifecycle.history.reconciling import Reconciling
from headrace.lifecycle.history.repairing import Repairing
from headrace.lifecycle.history.replaying import Replays
from headrace.lifecycle.history.row_sources import RowSources
from headrace.lifecycle.inputs.admission import Admission
from headrace.lifecycle.inputs.feeding import Capturing, Feeding
from headrace.lifecycle.inputs.log import Log, Retiring
from headrace.lifecycle.inputs.sinks import Destinations, Sinks
from headrace.lifecycle.inputs.sources import SourceStates
from headrace.lifecycle.states.access import OWNER, Access, Principal
from headrace.lifecycle.states.declarations import Declarations, Schemas
from headrace.lifecycle.states.evaluating import OwnEvaluator, Snapshots
from headrace.lifecycle.states.following import LedgerFollower, Warming
from headrace.lifecycle.states.reader import Reader
from headrace.planning.catalog import View
from headrace.planning.functions import Function, function
from headrace.storage.ledger import data_directory, open_ledger, refuses
from headrace.storage.log import Appender, EmbeddedLog, SegmentWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headrace.interfaces.settings import GivenSettings
    from headrace.lifecycle.states.evaluating import Evaluator
    from headrace.planning.functions import Body, DeclaredFunction
    from headrace.storage.ledger import Ledger, Waits
    from headrace.types import Epoch


_SPARK_AFTER_SECONDS: Final = 0.5
"""When Spark starts after opening, if nothing needs it before: a lookup is over by then."""


def connect(
    path: str | Path = "data",
    *,
    spark: SparkSession | None = None,
    clock: Callable[[], int] = machine_clock,
    functions: Sequence[Function] = (),
    standby: bool | Waits = False,
    branch: str | None = None,
    warm: bool = True,
    **settings: Unpack[GivenSettings],
) -> Database:
    """Open the database in a directory, which is created if it does not exist.

    ``path`` may also be the URL of an object store, such as ``s3://bucket/prefix``, with the
    setting ``ledger``: what this machine keeps of it is a cache in the directory ``cache``.

    Spark runs in this process. It starts in the background once the database is open; without
    ``warm``, when it is first needed; plain queries need none. Pass ``spark`` to use an existing
    session. ``clock`` returns the value of ``now()`` in views, and the time of writes and epochs,
    in microseconds UTC. ``functions`` are Python functions for queries, made by
    :func:`headrace.function`. Views that call a function which is missing wait until it is
    registered. ``standby``: if another process has the database open, wait until that ends, even by
    a crash, and take over; a function is asked about every second whether to go on waiting, with
    the error that names that process. ``branch``: open this branch, which CREATE BRANCH made. See
    :class:`headrace.interfaces.settings.Settings` for the other keywords.

    Raises:
        HeadraceError: ``conflict`` if another process has it open and ``standby`` does not wait for
            it, or if a function differs from the one that views call; ``corrupt`` if its files are
            damaged; ``invalid`` for settings that do not exist or cannot take effect, and for a
            path that cannot be a data directory; ``unsupported`` for a URL of another kind.
    """
    chosen = Settings.of(settings)
    if branch is not None:
        directory, chosen = chosen.in_branch(path, branch)
    elif StoreAddress.is_store(str(path)):
        directory, chosen = chosen.in_store(str(path))
    else:
        directory = data_directory(path)
    waits = standby if callable(standby) else lambda _error: bool(standby)
    return Database(
        directory, chosen, spark, clock=clock, functions=functions, waits=waits, warm=warm
    )


def _opened_ledger(
    directory: Path,
    settings: Settings,
    fault: Callable[[str], None],
    waits: Waits,
    clock: Callable[[], float],
) -> Ledger:
    """Open the ledger as its only writer; if that has to be waited for, all else is prepared.

    That is a JVM, which Spark needs, and a full cache.
    """
    address = settings.ledger_address
    with warm_while_waiting(waits, settings.spark) as waiting:
        if address is None:
            return open_ledger(directory, fault=fault, waits=waiting, clock=clock)
        warming = Warming(directory.resolve())
        with LedgerFollower(
            warming.directory, address, settings.mounted, warming.look, warming.closed
        ) as follower:

            def wait(error: HeadraceError) -> bool:
                if not waiting(error):
                    return False
                follower.begin()
                return True

            return open_ledger(directory, address, fault=fault, waits=wait, clock=clock)


class Database(DefaultSession):
    """An open database. A context manager; safe to use from several threads.

    The methods of one Database run statements in its default session: reads see all earlier writes.
    :meth:`session` opens others.

    ``parts`` has its parts, for tests and tools; see
    :class:`headrace.interfaces.session.parts.DatabaseParts`.
    """

    def __init__(
        self,
        directory: Path,
        settings: Settings,
        spark: SparkSession | None = None,
        fault: Callable[[str], None] = lambda _stage: None,
        clock: Callable[[], int] = machine_clock,
        functions: Sequence[Function] = (),
        waits: Waits = refuses,
        *,
        warm: bool = True,
        start: Callable[[], SparkSession] | None = None,
    ) -> None:
        """Open a database; ``start`` starts or joins a Spark that databases share."""
        self.directory, self.settings = directory, settings
        self._open = False
        self._sessions: WeakSet[Session] = WeakSet()
        with ExitStack() as undone:
            self._ledger = _opened_ledger(directory, settings, fault, waits, lambda: clock() / 1e6)
            undone.callback(self._ledger.close)
            mounted = settings.mounted(stored_store(self._ledger, directory, settings.store))
            if mounted is not None:
                require_own_store(self._ledger, mounted.store)
                mounted.mount(directory.resolve())
                undone.callback(Mounted.unmount, directory.resolve())
            store = store_of(directory.resolve())
            self._uploads = None if store is None else Uploads(self._ledger, store)
            if self._uploads is not None:
                upload_by(directory.resolve(), self._uploads)
            chosen = "partitions" in settings.chosen
            partitions = stored_partitions(
                self._ledger, directory, settings.partitions, chosen=chosen
            )
            warn_of_running(spark, settings.spark, settings.chosen)
            self._lease = self._leased(spark, start)
            undone.callback(self._lease.release)
            is_new = not self._ledger.head.ends
            if is_new:  # nothing can be read without Spark
                self._lease.begin()
            self._segments = SegmentWriter(directory.resolve() / "log")
            self.parts = self._wired(partitions, fault, clock, stores_programs=spark is None)
            self.parts.branches.recover()
            self.parts.pump.compaction.sweep_at_opening()
            restore(self.parts, functions)
            if is_new:
                self._lease.for_jobs  # noqa: B018  (raises if Spark cannot be started)
            self.parts.openlineage.start()
            self.parts.upgrades.begin()
            undone.pop_all()
        self._open = True
        self._default = self.session()
        if self._uploads is not None:
            self._uploads.start()
        if settings.continuous:
            self.parts.pump.start()
            self.parts.repairing.start()
            self.parts.reconciler.start()
            self.parts.former_builds.start()
        self.parts.sinks.begin_all()
        self.parts.feeding.begin_all()
        self.parts.capturing.begin_all()
        if settings.continuous and warm:
            self._lease.then(self.parts.planning.start)
            self._lease.begin_after(_SPARK_AFTER_SECONDS)

    def _leased(
        self, given: SparkSession | None, start: Callable[[], SparkSession] | None
    ) -> SparkLease:
        """Return the use of Spark, which starts when something first needs it."""

        def prepare(session: SparkSession) -> None:
            choose_interpreter(session.sparkContext)
            acknowledge_at_once(session)

        def check(session: SparkSession) -> None:
            require_executors(session, self.directory)

        if given is not None:
            return SparkLease.of(given, prepare, check, has_executors)

        def fails(error: HeadraceError) -> None:
            if self._open:
                self.parts.pump.error = error

        return SparkLease(
            start or (lambda: start_spark(self.settings.spark)),
            prepare,
            check,
            has_executors=has_executors,
            fails=fails,
            why_ended=why_ended,
            forget=forget,
        )

    def _wired(
        self,
        partitions: int,
        fault: Callable[[str], None],
        clock: Callable[[], int],
        *,
        stores_programs: bool,
    ) -> DatabaseParts:
        """Construct each part from the parts that it uses."""
        ledger, directory = self._ledger, self.directory.resolve()
        # A Spark that the program has started may have other settings the next time.
        programs = ProgramFiles(directory / "programs") if stores_programs else None
        engine = Engine(self._lease, partitions, EmbeddedLog(), programs)
        leaves = Leaves(self._lease, directory, partitions, EmbeddedLog())
        queries = Queries(leaves, engine)
        canonical = CanonicalHistory(leaves, engine.planning)
        publisher, deliveries, feeds = Publisher.of(ledger), Deliveries(), Feeds()
        loop = EpochLoop(
            directory,
            ledger,
            engine,
            self.settings.runtime,
            partitions,
            publisher,
            fault,
            clock,
            row_text=lambda row: json_text(python_rows(row)[0]),
        )
        appender = Appender(self._segments, ledger)
        admission = Admission(directory / "log", ledger, lambda: clock() / 1e6)
        retiring = Retiring(appender, admission, engine)
        retirement = Retirement(loop, retiring.keep_ids, retiring.left_by)
        without_uploads = nullcontext if self._uploads is None else self._uploads.paused
        compaction = Compaction(
            loop, retirement, self._segments.close_pack, without_uploads=without_uploads
        )
        cancel_jobs = loop.beside.cancel_jobs = lambda tag: StatementJobs(self._lease, tag).cancel()
        pump = Pump(loop, compaction)
        secrets, schemas = Secrets(ledger, variable), Schemas(ledger)
        connections = Connections(ledger, secrets)
        captures = Captures(ledger, connections)
        reader = Reader(directory, ledger, publisher, pump, deliveries)
        versions = PendingVersions(reader, engine)
        fills = Fills()
        information = InformationSchema(reader, schemas, deliveries, admission, versions, fills)
        log = Log(directory / "log", ledger, appender, queries, pump, admission)
        declarations = Declarations(engine, queries, canonical, ledger)
        filling = Filling(reader, engine, loop, pump, fills)
        functions = Functions(ledger, engine, queries, canonical)
        destinations = Destinations(
            directory, secrets, reader, log, queries, self.settings.sink_directories
        )
        lineages, datasets = Lineages(reader, engine), Datasets(directory, captures)
        openlineage = OpenLineage(
            reader,
            OpenLineageEvents(
                directory,
                lineages,
                datasets,
                self.settings.openlineage_namespace,
                ledger.settings.identity,
            ),
            self.settings.openlineage,
        )
        definer = Definer(ledger, loop, declarations, filling, deliveries, feeds, openlineage)
        reshaping = Reshaping(ledger, loop, declarations)
        own_evaluator = OwnEvaluator(reader, engine, queries, information)
        amending = Amending(reader, ledger, engine, definer)
        replays = Replays(reader, ledger, engine, loop, filling)
        comparing = Comparing(reader, engine, canonical)
        repairing = Repairing(
            ledger,
            reader,
            replays,
            automatic=self.settings.repair == AUTOMATIC,
            cancel_jobs=cancel_jobs,
        )
        reconciling = Reconciling(
            reader,
            ledger,
            engine,
            loop,
            pump.compaction,
            comparing,
            repairing,
            OnDifference(self.settings.on_difference),
        )
        backups = Backups(
            directory,
            ledger,
            pump.compaction.held,
            retirement.busy,
            backup_place,
            fault,
        )
        held, address = pump.compaction.held, self.settings.ledger_address
        store = store_of(directory)
        branches = Branches(
            directory,
            ledger,
            InDirectory(directory, fault)
            if store is None or address is None
            else InStore(directory, ledger, address, store, held, fault),
            held,
            retirement.busy,
            fault,
            lambda: clock() / 1e6,
        )
        return DatabaseParts(
            ledger=ledger,
            engine=engine,
            queries=queries,
            loop=loop,
            pump=pump,
            planning=Planning(loop, engine),
            upgrades=Upgrades(engine, loop, definer, pump),
            retirement=retirement,
            deliveries=deliveries,
            feeds=feeds,
            secrets=secrets,
            connections=connections,
            captures=captures,
            schemas=schemas,
            access=Access(ledger),
            reader=reader,
            snapshots=Snapshots(reader, own_evaluator),
            own_evaluator=own_evaluator,
            information=information,
            comparing=comparing,
            log=log,
            declarations=declarations,
            definer=definer,
            fills=fills,
            former_builds=FormerBuilds(definer, pump),
            reshaping=reshaping,
            functions=functions,
            waiting=WaitingViews(functions, declarations, ledger, loop, pump),
            destinations=destinations,
            sinks=Sinks(ledger, loop, pump, reader, destinations, deliveries),
            feeding=Feeding(reader, ledger, log, queries, secrets, feeds),
            capturing=Capturing(reader, ledger, log, feeds, captures),
            sources=SourceStates(ledger, captures, feeds, admission),
            repairing=repairing,
            replays=replays,
            row_sources=RowSources(reader, ledger, engine, loop, replays),
            lineages=lineages,
            datasets=datasets,
            openlineage=openlineage,
            amending=amending,
            changes=ChangeClassifier(reader, ledger, engine, loop, replays, amending),
            versions=versions,
            reconciling=reconciling,
            backups=backups,
            branches=branches,
            reconciler=Reconciler(reconciling, self.settings.reconcile_budget, partitions),
        )

    @property
    def origin(self) -> tuple[str, str]:
        """A description of its kind and place: a data directory and its path."""
        return "data directory", str(self.directory)

    # -- statements ------------------------------------------------------------------------

    def session(self, evaluator: Evaluator | None = None, principal: Principal = OWNER) -> Session:
        """Open a session: one client with its own settings, which runs concurrently with others.

        ``evaluator`` evaluates its queries; by default, the Spark that makes epochs does.
        Statements have the rights of ``principal``; by default, all rights.
        """
        self._require_open()
        parts = self.parts
        if evaluator is not None:
            parts = replace(parts, snapshots=replace(parts.snapshots, evaluator=evaluator))
        session = Session(parts, lambda: self._open, principal)
        self._sessions.add(session)
        return session

    @overload
    def register(self, name: Function, *, replace: bool = ...) -> Function: ...
    @overload
    def register(
        self, name: Body, *, replace: bool = ..., **declared: Unpack[DeclaredFunction]
    ) -> Function: ...
    @overload
    def register(
        self, name: str | None = ..., *, replace: bool = ..., **declared: Unpack[DeclaredFunction]
    ) -> Callable[[Body], Function]: ...
    @overload
    def register(
        self, name: str | None, body: Body, *, replace: bool = ..., **of: Unpack[DeclaredFunction]
    ) -> Function: ...
    def register(
        self,
        name: str | Body | Function | None = None,
        body: Body | None = None,
        *,
        replace: bool = False,
        **declared: Any,
    ) -> Function | Callable[[Body], Function]:
        """Make a Python function callable from queries; without a ``body``, return a decorator.

        Takes the arguments of :func:`headrace.function`, or a function that it made. Returns the
        :class:`headrace.Function`. Views that waited for the function resume.

        Raises:
            HeadraceError: ``conflict`` if views call another function of this name; with
                ``replace`` they are rebuilt instead. ``invalid`` if Spark has a function of this
                name, or this one cannot be called from SQL.
        """
        self._require_open()
        parts = self.parts
        changes = FunctionChanges(
            parts.functions, parts.waiting, parts.definer, parts.loop, parts.changes
        )

        def registered(body: Function) -> Function:
            changes.register(body, replace=replace)
            return body

        declare: Callable[..., Function | Callable[[Body], Function]] = function
        given = {"returns": "", **declared}
        made = name if isinstance(name, Function) else declare(name, body, **given)
        return registered(made) if isinstance(made, Function) else lambda b: registered(made(b))

    # -- state -----------------------------------------------------------------------------

    def relations(self) -> list[tuple[str, str]]:
        """Return the kind and name of every stream, table, view, materialized view and sink."""
        shown = [r for r in self.parts.reader.catalog if not r.name.startswith("__")]
        return [("materialized view" if isinstance(r, View) else r.kind, r.name) for r in shown]

    def columns(self, name: str) -> list[tuple[str, str]]:
        """Return the name and type of a relation's columns."""
        return [(c.name, c.sql) for c in self.parts.reader.catalog.resolve(name).schema.columns]

    def functions(self) -> list[str]:
        """Return the names of the Python functions that queries can call."""
        return sorted(self.parts.functions.registered)

    def last_epoch(self) -> Epoch:
        """Return the last committed epoch."""
        return self.parts.reader.published.epoch

    def pending(self) -> int:
        """Return the number of changes that have arrived and are not read by an epoch yet."""
        return self.parts.loop.pending()

    def compact(self) -> None:
        """Merge runs until no merge is due, now instead of in the background.

        What served before swaps, and need not be kept any more, is dropped.
        """
        self.parts.former_builds.drop_due()
        while self.parts.pump.compaction.run():
            pass

    def close(self) -> None:
        """Stop making epochs and release the directory; also stop Spark if it was started here.

        Running statements are cancelled.
        """
        if not self._open:
            return
        self._open = False
        self.parts.openlineage.close()
        self._lease.close()
        self.parts.loop.published.wake()
        for session in list(self._sessions):
            session.close()
        self.parts.upgrades.close()
        self.parts.planning.close()
        self.parts.former_builds.close()
        self.parts.reconciler.close()
        self.parts.repairing.close()
        self.parts.feeds.close()
        self.parts.deliveries.close()
        self.parts.pump.close()
        self._segments.close()
        if self._uploads is not None:
            self._uploads.close()
        Mounted.unmount(self.directory.resolve())
        self._ledger.close()
        self._lease.release()

    @property
    def lost(self) -> HeadraceError | None:
        """Why the database has to be opened again; None if it works.

        Spark has ended by itself, or another process was found to have taken over.
        """
        return self._lease.lost or self._ledger.overtaken

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
