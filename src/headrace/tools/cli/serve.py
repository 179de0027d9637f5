"""``headrace serve``: serves a database over HTTP until Ctrl-C or SIGTERM."""

from __future__ import annotations

import gc
import signal
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, cast

import click

from headrace.errors import Code, HeadraceError
from headrace.files.directories import LEDGER
from headrace.interfaces.settings import Settings, require_heap
from headrace.io.formats.libraries import library
from headrace.tools.cli.connection import make_directory, opened
from headrace.tools.cli.restarting import LostDatabaseError, Restarts

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import TextIO

    from headrace.interfaces.connecting import AnyDatabase
    from headrace.interfaces.database import Database
    from headrace.interfaces.processes.queries import ProcessBeforehand
    from headrace.interfaces.server.address import ListenAddress, Transport
    from headrace.interfaces.server.listener import HttpServer
    from headrace.interfaces.server.standby import StandbyServer
    from headrace.tools.cli.connection import Invocation
    from headrace.tools.cli.functions import FunctionFiles
    from headrace.tools.cli.statement_thread import StatementThread


_LISTEN_SECONDS = 0.2
_ASKED_TOO_SECONDS = 1.0
"""How long after a loss the server may find that it is asked to end as well."""
_AGAIN_SECONDS = 1.0
_BEFOREHAND_SECONDS = 10.0
"""How long a standby waits before it starts a query process."""


@dataclass(frozen=True, slots=True)
class Serving:
    """The options of ``headrace serve``.

    Clients' statements may read files below ``roots``, and make backups in directories below
    ``backup_roots``; their queries run in up to
    ``query_processes`` processes, each with a heap of ``query_memory``; ``readers`` processes
    answer lookups; ``pages`` are an application's pages for browsers. ``certificate``, ``key``,
    ``host_names`` and ``plain_http`` configure the transport; ``auth`` requires tokens even before
    any exists. ``log_format`` is ``text`` or ``json``; ``log_requests`` logs each request. With
    ``standby``, the server takes over when no other process has the database open any more. With
    ``reader_of``, it only reads, and forwards what it does not answer to the server at that URL,
    whose certificate ``ca`` checks.
    """

    listen: str
    roots: tuple[Path, ...]
    backup_roots: tuple[Path, ...]
    query_processes: int
    query_memory: str
    readers: int
    pages: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    host_names: tuple[str, ...] = ()
    plain_http: bool = False
    auth: bool = False
    log_format: str = "text"
    log_requests: bool = False
    standby: bool = False
    reader_of: str | None = None
    ca: Path | None = None

    def transport(self) -> Transport:
        """Return the transport by which clients reach the server."""
        from headrace.interfaces.server.address import Transport  # noqa: PLC0415  (it has the libraries)

        return Transport(self.certificate, self.key, self.host_names, self.plain_http)


def serve_directory(
    directory: Path,
    serving: Serving,
    invocation: Invocation,
    thread: StatementThread,
    err: TextIO,
    functions: FunctionFiles,
) -> None:
    """Serve a data directory until the process gets SIGTERM.

    Raises:
        KeyboardInterrupt: on Ctrl-C, when the server has stopped and the database is closed.
        HeadraceError: ``invalid`` if the libraries of the server are missing; as
            :meth:`ListenAddress.of`, :meth:`ListenAddress.bound` and
            :meth:`Transport.require_complete`, before anything is opened; ``unsupported`` if
            others could reach it without tokens.
    """
    for name in ("prometheus_client", "starlette", "uvicorn", "websockets"):
        library(name, f"library {name}", "server")
    from headrace.interfaces.processes.queries import ProcessBeforehand, QuerySettings  # noqa: PLC0415  (what is slow to load)
    from headrace.interfaces.server.address import ListenAddress  # noqa: PLC0415  (these have the libraries)
    from headrace.interfaces.server.listener import HttpServer  # noqa: PLC0415
    from headrace.interfaces.server.logs import log_to  # noqa: PLC0415
    from headrace.interfaces.server.standby import StandbyServer  # noqa: PLC0415

    most, memory = serving.query_processes, serving.query_memory
    require_heap("option --query-memory", memory)
    queries = QuerySettings(most, memory) if most else None
    address, transport = ListenAddress.of(serving.listen), serving.transport()
    transport.require_complete(address)
    bound = address.bound()
    log_to(err, as_json=serving.log_format == "json", requests=serving.log_requests)
    try:
        make_directory(directory, err)
        said = _Said(err)
        if serving.reader_of is not None:
            _read(directory, serving, invocation, address, bound)
            return
        said(f"opening {directory}; Spark starts in the background")
        restarts = Restarts()
        with restarts.on_loss(), ExitStack() as meanwhile, ExitStack() as ending:
            standby = None
            if serving.standby:
                standby = Standby(meanwhile.enter_context(StandbyServer(bound, transport)), said)
                if queries is not None:
                    spark = Settings.of(invocation.settings).spark
                    standby.beforehand = ProcessBeforehand(spark, queries)
                    ending.callback(standby.beforehand.close)
            waits = {} if standby is None else {"standby": standby.waits}
            to_open = partial(opened, directory, invocation, thread, err, functions, **waits)
            with to_open() if standby is None else standby.opened(to_open) as found:
                meanwhile.close()
                database = cast("Database", found)  # a directory is opened here, never a server
                said(f"{directory} is open at epoch {database.last_epoch():,}; starting to serve")
                server = HttpServer(
                    database,
                    address,
                    bound,
                    roots=serving.roots,
                    backup_roots=serving.backup_roots,
                    queries=queries,
                    pages=serving.pages,
                    transport=transport,
                    authenticate=serving.auth,
                    readers=serving.readers,
                    beforehand=None if standby is None else standby.beforehand,
                )
                _serve(server, f"{directory}", serving, thread, restarts)
    finally:
        bound.close()


def _serve(
    server: HttpServer,
    name: str,
    serving: Serving,
    thread: StatementThread,
    restarts: Restarts,
) -> None:
    """Serve until the process is asked to end.

    Raises:
        LostDatabaseError: if the database has to be opened again; the server is closed.
    """
    database = server.service.database
    thread.call(server.start)
    # The modules stay: collections need not go through them, which takes 0.1 s each time.
    gc.collect()
    gc.freeze()
    lost: HeadraceError | None = None
    try:
        click.echo(f"headrace serves {name} at {server.url} (Ctrl-C stops it)")
        click.echo(f"console: {server.url}/")
        if serving.pages is not None:
            click.echo(f"pages: {server.url}/pages/")
        _wait_for_end(lambda: database.lost)
    except LostDatabaseError as error:
        lost = error
        raise
    finally:
        # Not if Spark ends while this is asked to: it may have been asked to as well.
        with restarts.closing(lost):
            thread.call(server.close, database.cancel)


def _read(
    directory: Path,
    serving: Serving,
    invocation: Invocation,
    address: ListenAddress,
    bound: socket.socket,
) -> None:
    """Answer lookups by store and ledger until the process is asked to end."""
    from headrace.interfaces.remote.connection import is_url, tls_context  # noqa: PLC0415  (slow to load)
    from headrace.interfaces.server.proxy import RemoteServer  # noqa: PLC0415
    from headrace.interfaces.server.remote_reader import RemoteReader  # noqa: PLC0415

    primary = (serving.reader_of or "").rstrip("/")
    if not is_url(primary):
        hint = "Give that of the server that writes, such as https://db.example.com:8443."
        raise HeadraceError(Code.INVALID, f'"{primary}" is not the URL of a server', hint=hint)
    settings = Settings.of(invocation.settings)
    where = settings.ledger_address or directory / LEDGER
    secure = primary.startswith("https:")
    server = RemoteServer(primary, tls_context(serving.ca) if secure else None)
    with RemoteReader(
        directory.resolve(),
        where,
        settings.mounted,
        server,
        replace(address, port=bound.getsockname()[1]),
        bound,
        serving.transport(),
        authenticate=serving.auth,
    ) as reader:
        click.echo(f"headrace reads {directory} at {reader.url} for {primary} (Ctrl-C stops it)")
        _wait_for_end()


@dataclass(slots=True)
class Standby:
    """Waits to open a database, while ``server`` answers requests.

    Meanwhile, the query process ``beforehand`` is started.
    """

    server: StandbyServer
    said: _Said
    beforehand: ProcessBeforehand | None = None
    _waiting_since: float | None = None
    _reasons: set[str] = field(default_factory=set)

    def waits(self, error: HeadraceError) -> bool:
        """Say what is waited for; return that it is."""
        self.server.waits_for(error)
        if error.primary not in self._reasons:
            self._reasons.add(error.primary)
            self.said(f"standby: {error.primary}")
        now = time.monotonic()
        self._waiting_since = self._waiting_since or now
        # A process that has just taken over, perhaps on this machine, has the processors first.
        if self.beforehand is not None and now - self._waiting_since > _BEFOREHAND_SECONDS:
            self.beforehand.begin()
        return True

    @contextmanager
    def opened(
        self, to_open: Callable[[], AbstractContextManager[AnyDatabase]]
    ) -> Iterator[AnyDatabase]:
        """Open the database for a block; while the ledger or the store do not answer, again."""
        with ExitStack() as opening:
            while True:
                try:
                    database = opening.enter_context(to_open())
                    break
                except HeadraceError as error:
                    if error.code is not Code.UNAVAILABLE:
                        raise
                    self.waits(error)
                time.sleep(_AGAIN_SECONDS)
            yield database


@dataclass(frozen=True, slots=True)
class _Said:
    """Writes a line for each step, with the seconds since the start."""

    err: TextIO
    begun: float = field(default_factory=time.monotonic)

    def __call__(self, what: str) -> None:
        self.err.write(f"{time.monotonic() - self.begun:6.1f} s  {what}\n")
        self.err.flush()


def _wait_for_end(lost: Callable[[], HeadraceError | None] = lambda: None) -> None:
    """Wait for SIGTERM or Ctrl-C.

    Raises:
        LostDatabaseError: once something is lost.
    """
    ended = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: ended.set())
    try:
        while not ended.wait(_LISTEN_SECONDS):
            error = lost()
            # Who ends a service asks all its processes at once, and Spark may be the first to end.
            if error is not None and not ended.wait(_ASKED_TOO_SECONDS):
                raise LostDatabaseError(error.code, error.primary, error.detail, error.hint)
    finally:
        signal.signal(signal.SIGTERM, before)
