"""The use of Spark by a database: it starts in the background, when something first needs it.

The connection to the JVM, without the wait of 40 ms for an answer of more than 8 KB.

The JVM writes an answer in blocks of 8 KB. With Nagle's algorithm, which py4j leaves on, a block is
sent only when the one before it has been acknowledged, and Linux delays an acknowledgement by 40
ms. Here the kernel is asked to acknowledge at once. The request holds until the next block has
arrived, so it is repeated before each read.
"""

from __future__ import annotations

import io
import logging
import shlex
import socket
import threading
import time
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Protocol

from headrace.errors import Code, HeadraceError, unexpected
from headrace.execution.runtime.cancelling import check_cancelled, running_statement

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


_BUFFER = 1 << 16
_QUICK = getattr(socket, "TCP_QUICKACK", None)
"""Linux has this option; other systems acknowledge in their own ways."""


class _PromptReader(io.RawIOBase):
    """Reads from a socket, and asks the kernel to acknowledge what arrives at once."""

    def __init__(self, source: socket.socket, option: int) -> None:
        self._source = source
        self._option = option

    def readable(self) -> bool:
        """Return True: it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what has arrived, at least one byte unless the connection has ended."""
        self._source.setsockopt(socket.IPPROTO_TCP, self._option, 1)
        return self._source.recv_into(buffer)


def acknowledge_at_once(spark: SparkSession) -> None:
    """Make this process acknowledge answers of the JVM at once, on all of its connections."""
    client: Any = spark.sparkContext._gateway._gateway_client  # noqa: SLF001
    if _QUICK is None or getattr(client, "acknowledges_at_once", False):
        return
    client.acknowledges_at_once = True
    create = client._create_new_connection  # noqa: SLF001

    @wraps(create)
    def create_prompt() -> Any:
        try:
            connection = create()
        except OSError as error:
            raise spark_has_ended(f"Its JVM does not answer: {error}.") from error
        return _prompt(connection, _QUICK)

    client._create_new_connection = create_prompt  # noqa: SLF001
    _prompt(client._get_connection(), _QUICK)  # noqa: SLF001


def spark_has_ended(why: str) -> HeadraceError:
    """Return the error of everyone who needs a Spark that has ended."""
    return HeadraceError(
        Code.UNAVAILABLE,
        "Spark has ended",
        why,
        "Nothing is lost: open the database again. If its heap was full, raise driver_memory.",
    )


def _prompt(connection: Any, option: int) -> Any:
    connection.stream = io.BufferedReader(_PromptReader(connection.socket, option), _BUFFER)
    return connection


_log = logging.getLogger(__name__)

_ALWAYS: Final = ("-Xss4m", "-XX:-UsePerfData")
"""A large stack for deep plans. Counters for ``jstat`` would wake an idle JVM all the time."""
_PARALLEL: Final = ("-XX:+UseParallelGC", *_ALWAYS)
_SMALL: Final = (
    "-XX:+UseSerialGC",
    "-XX:MinHeapFreeRatio=10",
    "-XX:MaxHeapFreeRatio=25",
    *_ALWAYS,
)
"""Options of a JVM whose heap is little more than what is in use; one thread collects garbage."""
_FEW_PARTITIONS: Final = 2
"""The number of partitions up to which one thread collects garbage as fast as several."""

_LISTEN_SECONDS: Final = 0.1
_WATCH_SECONDS: Final = 1.0
_AGAIN_SECONDS: Final = 5.0
"""How long a failed start is the answer to everyone who needs Spark; then, the next one retries."""
ARCHIVE_NAME: Final = "environment"
"""The directory below that of an executor into which Spark unpacks the archive of Python."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The user's settings for Spark.

    ``partitions`` is the number of slices of every arrangement. ``cache`` is the directory of files
    that make the next start faster; ``flags`` are further options of the driver's JVM.
    ``executor_memory`` is the heap of an executor, ``executor_cores`` how many tasks it runs at
    once, and ``cores`` how many all executors run; with "" and 0, Spark decides.
    ``executor_archive`` is the path or URL of the archive of their Python environment; with "",
    their machines have it.
    """

    master: str
    partitions: int
    driver_memory: str
    cache: Path | None = None
    flags: tuple[str, ...] = ()
    executor_memory: str = ""
    executor_cores: int = 0
    cores: int = 0
    executor_archive: str = ""

    @property
    def driver_flags(self) -> tuple[str, ...]:
        """The options of the driver's JVM."""
        return (*(_SMALL if self.partitions <= _FEW_PARTITIONS else _PARALLEL), *self.flags)

    @property
    def archive(self) -> str:
        """The value of ``spark.archives``; empty if executors need no archive."""
        needed = self.executor_archive and not is_local_master(self.master)
        return f"{self.executor_archive}#{ARCHIVE_NAME}" if needed else ""

    @property
    def of_executors(self) -> dict[str, str]:
        """Spark's properties of executors, which have no effect on a local master."""
        found = {
            "spark.archives": self.archive,
            "spark.executor.memory": self.executor_memory,
            "spark.executor.cores": str(self.executor_cores or ""),
            "spark.cores.max": str(self.cores or ""),
            "spark.executor.extraJavaOptions": shlex.join(_PARALLEL),
        }
        return {name: value for name, value in found.items() if value}


def is_local_master(master: str) -> bool:
    """Whether a master of Spark runs tasks in the driver's own JVM."""
    return master.startswith("local") and "cluster" not in master


class SparkSource(Protocol):
    """A Spark that runs, or that starts when its session is asked for."""

    @property
    def running(self) -> SparkSession | None:
        """The session if Spark has started."""
        ...

    @property
    def session(self) -> SparkSession:
        """The session; this waits until Spark has started.

        Raises:
            HeadraceError: ``unavailable`` if Spark cannot be started, or the database is closed;
                ``cancelled``.
        """
        ...

    @property
    def for_jobs(self) -> SparkSession:
        """The session, of who runs jobs on executors; this waits until they are known to fit.

        What plans, or evaluates few rows in the driver, does not wait for a cluster.

        Raises:
            HeadraceError: as ``session``; ``unavailable`` if there is no executor, or one does not
                fit.
        """
        ...

    @property
    def is_ready(self) -> bool:
        """Whether jobs would run at once: Spark has started, and there is an executor that fits."""
        ...


@dataclass(frozen=True, slots=True)
class RunningSpark:
    """The session of a Spark that runs."""

    session: SparkSession

    @property
    def running(self) -> SparkSession:
        """The session."""
        return self.session

    @property
    def for_jobs(self) -> SparkSession:
        """The session."""
        return self.session

    @property
    def is_ready(self) -> bool:
        """Return True."""
        return True


@dataclass(slots=True)
class _Check:
    """A check of a session's executors, in the background."""

    check: Callable[[SparkSession], None]
    session: SparkSession
    closing: threading.Event
    ended: threading.Event = field(default_factory=threading.Event)
    error: HeadraceError | None = None

    def run(self) -> None:
        """Check them."""
        try:
            self.check(self.session)
        except Exception as error:  # noqa: BLE001  (whoever runs jobs gets it)
            self.error = unexpected(error)
            if not self.closing.is_set():
                _log.warning("%s: what runs on executors is refused", self.error.primary)
        finally:
            self.ended.set()


@dataclass(slots=True)
class SparkLease:
    """The use of Spark by one database. Thread-safe.

    The databases of a process share one Spark. If a database has started it, the last one to
    release its lease stops it; a Spark that the program has started itself is never stopped.
    ``start`` starts Spark, or joins the one that runs, and ``prepare`` makes it fit for the
    database. If one of them fails, everyone who needs Spark gets the error, until a later start
    succeeds. Once Spark has ended by itself, if a database has started it, everyone gets that error
    for good: what was planned is lost with it.

    ``check`` raises if executors do not fit. Who runs jobs waits for it, and gets its error; then,
    the next one who does has them checked again.
    """

    start: Callable[[], SparkSession]
    prepare: Callable[[SparkSession], None] = lambda _session: None
    check: Callable[[SparkSession], None] = lambda _session: None
    has_executors: Callable[[SparkSession], bool] = lambda _session: True
    """Returns whether a Spark that runs has an executor now."""
    fails: Callable[[HeadraceError], None] = lambda _error: None
    """Called if Spark cannot be started, and when it has ended."""
    why_ended: Callable[[SparkSession], str | None] = lambda _session: None
    """Returns why Spark has ended; None if it has not."""
    forget: Callable[[SparkSession], None] = lambda _session: None
    """Called with a Spark that has ended, so that another one can be started."""
    lost: HeadraceError | None = None
    """The error of everyone who needs Spark after its end; None if it has not ended."""
    _found: SparkSession | None = None
    _error: HeadraceError | None = None
    _failed: float = 0.0
    """When the last start failed, by the monotonic clock."""
    _started: bool = False
    """Whether a database has started this Spark."""
    _ended: threading.Event = field(default_factory=threading.Event)
    """Set when the start has succeeded or failed."""
    _closing: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _check: _Check | None = None
    """The last check of the executors."""
    _then: list[Callable[[], None]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(
        cls,
        given: SparkSession,
        prepare: Callable[[SparkSession], None] = lambda _session: None,
        check: Callable[[SparkSession], None] = lambda _session: None,
        has_executors: Callable[[SparkSession], bool] = lambda _session: True,
    ) -> SparkLease:
        """Return the use of a session that the program has started, once its executors fit.

        Raises:
            HeadraceError: as ``check``.
        """
        prepare(given)
        check(given)
        lease = cls(lambda: given, prepare, check, has_executors=has_executors, _found=given)
        lease._ended.set()
        lease._check = _Check(check, given, lease._closing)
        lease._check.ended.set()
        return lease

    def begin(self) -> None:
        """Start Spark in the background, unless that has begun."""
        with self._lock:
            if self._thread is None and not self._ended.is_set() and not self._closing.is_set():
                self._thread = threading.Thread(
                    target=self._run, name="headrace-spark", daemon=True
                )
                self._thread.start()

    def begin_after(self, seconds: float) -> None:
        """Start Spark in the background after some time, unless it is needed before."""

        def wait() -> None:
            if not self._closing.wait(seconds):
                self.begin()

        threading.Thread(target=wait, name="headrace-spark-later", daemon=True).start()

    def then(self, call: Callable[[], None]) -> None:
        """Call a function once Spark has started: now, if it has."""
        with self._lock:
            if self._found is None:
                self._then.append(call)
                return
        call()

    @property
    def running(self) -> SparkSession | None:
        """The session if Spark has started, and has not ended."""
        return self._found if self.lost is None else None

    @property
    def session(self) -> SparkSession:
        """The session; see :class:`SparkSource`."""
        if self.lost is not None:
            raise _again(self.lost)
        if self._found is None:
            self._forget_failure()
            self.begin()
            statement = running_statement()
            if statement is not None:
                statement.waits("starting Spark")
        while self._found is None:
            if self._error is not None:
                raise _again(self._error)
            if self._closing.is_set():
                raise HeadraceError(Code.UNAVAILABLE, "the database is closed")
            self._ended.wait(_LISTEN_SECONDS)
            check_cancelled()
        return self._found

    def _forget_failure(self) -> None:
        """Let Spark be started again if it failed to start some time ago."""
        with self._lock:
            if self._error is None or time.monotonic() < self._failed + _AGAIN_SECONDS:
                return
            self._error, self._thread = None, None
            self._ended.clear()

    @property
    def for_jobs(self) -> SparkSession:
        """The session, of who runs jobs on executors; see :class:`SparkSource`."""
        session = self.session
        check = self._begin_check(session)
        if not check.ended.is_set():
            statement = running_statement()
            if statement is not None:
                statement.waits("waiting for executors of Spark")
        while not check.ended.wait(_LISTEN_SECONDS):
            self.session  # noqa: B018  (raises if Spark has ended, or the database is closed)
            check_cancelled()
        if check.error is not None:
            raise _again(check.error)
        return session

    @property
    def is_ready(self) -> bool:
        """Whether jobs would run at once; see :class:`SparkSource`."""
        session, check = self.running, self._check
        if session is None or check is None or not check.ended.is_set() or check.error is not None:
            return False
        return self.has_executors(session)

    def _begin_check(self, session: SparkSession) -> _Check:
        """Return the check that has succeeded, that runs, or that begins."""
        with self._lock:
            found = self._check
            if found is None or found.error is not None:
                self._check = found = _Check(self.check, session, self._closing)
                threading.Thread(
                    target=found.run, name="headrace-executors-fit", daemon=True
                ).start()
            return found

    def _run(self) -> None:
        try:
            session = self._join()
            try:
                self.prepare(session)
            except BaseException:
                self._leave(session)
                raise
            with self._lock:
                self._found = session
            self._begin_check(session)
            for call in self._then:
                call()
            if self._started:
                threading.Thread(
                    target=self._watch, args=(session,), name="headrace-spark-ends", daemon=True
                ).start()
        except Exception as error:  # noqa: BLE001  (whoever needs Spark gets it)
            self._error, self._failed = unexpected(error), time.monotonic()
            _log.error("%s: only rows by key can be read", self._error.primary)
            self.fails(self._error)
        finally:
            self._ended.set()

    def _watch(self, session: SparkSession) -> None:
        """Notice the end of Spark."""
        while not self._closing.wait(_WATCH_SECONDS):
            # A single look may be wrong, such as one into a JVM that had no processor for seconds.
            if self.why_ended(session) is None or self._closing.wait(_WATCH_SECONDS):
                continue
            why = self.why_ended(session)
            if why is None or self._closing.is_set():
                continue
            self.lost = spark_has_ended(why)
            _log.error("Spark has ended, and what needs it is refused from now on: %s", why)
            self.fails(self.lost)
            return

    def _join(self) -> SparkSession:
        with _LEASES.lock:
            before = _LEASES.active()
            session = self.start()
            application = session.sparkContext.applicationId
            if before is None:
                _LEASES.application, _LEASES.count = application, 0
            self._started = _LEASES.application == application
            _LEASES.count += self._started
            return session

    def _leave(self, session: SparkSession) -> None:
        if not self._started:
            return
        with _LEASES.lock:
            _LEASES.count -= 1
            if _LEASES.count > 0:
                return
            if self.lost is None and self.why_ended(session) is None:
                session.stop()
            else:
                self.forget(session)

    def close(self) -> None:
        """End the waits for Spark, and let nothing start it any more."""
        with self._lock:
            self._closing.set()

    def release(self) -> None:
        """End the use; call it once. A start that has begun is awaited."""
        self.close()
        if self._thread is not None:
            self._thread.join()
        if self._found is not None:
            self._leave(self._found)


def _again(error: HeadraceError) -> HeadraceError:
    """Return an error like one that another thread was given."""
    return HeadraceError(error.code, error.primary, error.detail, error.hint)


@dataclass(slots=True)
class _Leases:
    """The number of leases, in this process, of a Spark that a database has started."""

    application: str | None = None
    count: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @staticmethod
    def active() -> object:
        """Return the context of Spark in this process, or None."""
        from pyspark import SparkContext  # noqa: PLC0415  (only what needs Spark imports it)

        return SparkContext._active_spark_context  # noqa: SLF001


_LEASES = _Leases()
