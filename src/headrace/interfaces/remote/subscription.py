"""Following changes over ``GET /v1/subscribe``, across lost connections.

Converts a program's rows to the Arrow data that is sent to a server.
"""

from __future__ import annotations

import base64
import io
import threading
import time
import weakref
from dataclasses import dataclass, field
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.execution.serving import OPERATION, Change
from headrace.execution.serving.values import python_rows
from headrace.interfaces.remote.connection import MEDIA_TYPE as CONNECTION_MEDIA_TYPE
from headrace.interfaces.remote.connection import WITH_ARROW, Connection, Request, events
from headrace.interfaces.statements.results import Subscription
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Callable
    from http.client import HTTPResponse

    from headrace.interfaces.remote.connection import Server
    from headrace.types import Column


MEDIA_TYPE = "application/vnd.apache.arrow.stream"


class _UnknownColumnsError(Exception):
    """Rows have columns that the relation does not have."""


def as_arrow(rows: Any, described: Callable[[], Any]) -> pa.Table:
    """Return rows as Arrow, converted to the types of the relation's columns if they are objects.

    ``described`` returns the response of ``GET /v1/streams/{name}``. If rows have an unknown
    column, only their column names are sent, and the server returns the error.

    Raises:
        HeadraceError: ``invalid`` for a row or value that does not fit, as an embedded database.
    """
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    from headrace.interfaces.statements.changing.inserts import given_rows  # noqa: PLC0415  (is large)
    from headrace.types import Schema  # noqa: PLC0415

    found = described()
    arriving = Schema.of_json(found["columns"]).columns
    known = (*arriving, *Schema.of_json(found["optional"]).columns)
    by_name = {column.name.lower(): column for column in known}

    def chosen(names: tuple[str, ...]) -> list[Column]:
        if not all(name.lower() in by_name for name in names):
            raise _UnknownColumnsError(*names)
        return [by_name[name.lower()] for name in names]

    try:
        return given_rows(rows, arriving, chosen, found["defaults"])
    except _UnknownColumnsError as unknown:
        names = list(unknown.args)
        return pa.Table.from_arrays([pa.nulls(0, pa.string()) for _ in names], names=names)


def written(table: pa.Table) -> bytes:
    """Return a table as an Arrow IPC stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def read(parts: list[bytes]) -> pa.Table:
    """Read the table of an Arrow IPC stream, given in parts."""
    return pa.ipc.open_stream(b"".join(parts)).read_all()


_EPOCHS: Final = 64
"""The most epochs that are read ahead of the consumer."""
_RESUME_SECONDS: Final = 120.0
"""How long reconnecting to a lost server is tried: it may be restarting."""
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0
_LOOK_SECONDS: Final = 0.1
_END_SECONDS: Final = 2.0


class Began(NamedTuple):
    """The start of a subscription: the columns, and the epoch before the first change, if any."""

    columns: tuple[str, ...]
    epoch: Epoch | None


class Delivered(NamedTuple):
    """The changes of one epoch; empty for a mark of progress."""

    epoch: Epoch
    changes: list[Change]


class RemoteSubscription(Subscription):
    """Follows a query on a server. A lost connection is reopened, without gaps or duplicates."""

    def __init__(
        self, feed: SubscriptionReader, limit: int | None, may_continue: Callable[[], bool]
    ) -> None:
        super().__init__(limit)
        self._feed = feed
        self._session_is_open = may_continue
        self._ending = weakref.finalize(self, feed.close)
        try:
            began = feed.begun()
        except BaseException:
            self.close()
            raise
        self._columns, self._at = began

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of each change's row."""
        return self._columns

    @property
    def epoch(self) -> Epoch:
        """The last epoch that was delivered; a later subscription can start after it."""
        return self._at or Epoch(0)

    def _may_continue(self) -> bool:
        return self._session_is_open()

    def _next(self, timeout: float) -> list[Change] | None:
        found = self._feed.take(timeout)
        if found is None:
            return None
        self._at = found.epoch
        return found.changes

    def _release(self) -> None:
        self._ending()


@dataclass(eq=False)
class SubscriptionReader:
    """Reads the events of a subscription on a thread, and reconnects when they end.

    ``query`` are the parameters of ``/v1/subscribe``.
    """

    server: Server
    query: dict[str, str]
    _token: str | None = None
    """The token of the last complete epoch."""
    _parts: list[pa.Table] = field(default_factory=list)
    _heard: float = field(default_factory=time.monotonic)
    _at: int = -1
    _began: bool = False

    def __post_init__(self) -> None:
        """Start the thread."""
        self._connection = Connection(self.server)
        self._queue: Queue[Began | Delivered | HeadraceError] = Queue(_EPOCHS)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-follows", daemon=True)
        self._thread.start()

    def begun(self) -> Began:
        """Wait for the beginning of the response, and return where the subscription starts.

        Raises:
            HeadraceError: the error in the response; ``cancelled`` if this was closed.
        """
        while not self._closed.is_set():
            try:
                found = self._queue.get(timeout=_LOOK_SECONDS)
            except Empty:
                continue
            if isinstance(found, HeadraceError):
                raise found
            if isinstance(found, Began):
                return found
        raise HeadraceError(Code.CANCELLED, "the statement was cancelled")

    def take(self, timeout: float) -> Delivered | None:
        """Return the changes of the next epoch; None if none arrive within the timeout, in seconds.

        Raises:
            HeadraceError: the error that ended the subscription.
        """
        try:
            found = self._queue.get(timeout=timeout) if timeout > 0 else self._queue.get_nowait()
        except Empty:
            return None
        if isinstance(found, HeadraceError):
            self._queue.put(found)  # for later calls: nothing else is queued
            raise found
        return found if isinstance(found, Delivered) else None

    def close(self) -> None:
        """Stop reading."""
        self._closed.set()
        self._connection.abort()
        if self._thread is not threading.current_thread():
            self._thread.join(_END_SECONDS)

    # -- on the thread ---------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._follow()
        except HeadraceError as error:
            self._put(error)
        except Exception as error:  # noqa: BLE001  (raised where changes are taken)
            self._put(HeadraceError(Code.INTERNAL, "following failed", f"{error!r}."))
        finally:
            self._connection.close()

    def _follow(self) -> None:
        """Read until this is closed; reconnect whenever the response ends."""
        pause = _FIRST_PAUSE
        while not self._closed.is_set():
            began = time.monotonic()
            try:
                self._connection.ask(self._request(), self._read)
                lost: HeadraceError = self._connection.lost()
            except HeadraceError as error:
                if error.code is not Code.UNAVAILABLE or not self._began:
                    raise
                lost = error
            if not self._began or time.monotonic() - self._heard > _RESUME_SECONDS:
                raise lost
            pause = _FIRST_PAUSE if self._heard > began else min(2 * pause, _LONGEST_PAUSE)
            self._closed.wait(pause)

    def _request(self) -> Request:
        query = dict(self.query)
        if self._token is not None:
            query["after"] = self._token
        return Request("GET", "/v1/subscribe", headers={"Accept": WITH_ARROW}, query=query)

    def _read(self, answer: HTTPResponse) -> None:
        if not answer.headers.get("Content-Type", "").startswith(CONNECTION_MEDIA_TYPE):
            raise self._connection.stranger(answer)
        self._parts = []
        for event in events(answer):
            if self._closed.is_set():
                return
            self._heard = time.monotonic()
            if event is not None:
                self._take(event.kind, event.json)

    def _take(self, kind: str, data: Any) -> None:
        match kind:
            case "columns":
                self._begin(data)
            case "snapshot" | "changes":
                self._add(kind, data)
            case "progress":
                self._complete(data, [])
            case "error":
                raise HeadraceError.of_json(data["error"])

    def _begin(self, data: Any) -> None:
        if self._began:
            return
        self._began, self._token = True, data["token"]
        names = tuple(read([base64.b64decode(data["arrow"])]).schema.names)
        self._put(Began(names, None if self._token is None else _epoch_of(self._token)))

    def _add(self, kind: str, data: Any) -> None:
        """Add a part of an epoch; part 0 restarts the epoch."""
        if data["part"] == 0:
            self._parts = []
        self._parts.append(read([base64.b64decode(data["arrow"])]))
        if not data["last"]:
            return
        epoch, parts, self._parts = Epoch(data["epoch"]), self._parts, []
        taken = _inserted if kind == "snapshot" else _changed
        self._complete(data, [change for part in parts for change in taken(epoch, part)])

    def _complete(self, data: Any, changes: list[Change]) -> None:
        epoch = Epoch(data["epoch"])
        if changes or epoch > self._at:
            self._put(Delivered(epoch, changes))
        self._at, self._token = max(epoch, self._at), data["token"]

    def _put(self, item: Began | Delivered | HeadraceError) -> None:
        """Hand over an item; wait while the queue is full."""
        while not self._closed.is_set():
            try:
                self._queue.put(item, timeout=_LOOK_SECONDS)
            except Full:
                self._heard = time.monotonic()
            else:
                return


def _inserted(epoch: Epoch, rows: pa.Table) -> list[Change]:
    return [Change(epoch, "+I", 1, row) for row in python_rows(rows)]


def _changed(epoch: Epoch, changes: pa.Table) -> list[Change]:
    operations, weights = changes[OPERATION].to_pylist(), changes[WEIGHT].to_pylist()
    rows = python_rows(changes.drop_columns([OPERATION, WEIGHT]))
    return [
        Change(epoch, operation, weight, row)
        for operation, weight, row in zip(operations, weights, rows, strict=True)
    ]


def _epoch_of(token: str) -> Epoch:
    return Epoch(int(token.partition("~")[0]))
