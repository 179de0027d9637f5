"""A session on a server: the statements of one client, one after another."""

from __future__ import annotations

import base64
import threading
import weakref
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from urllib.parse import quote, unquote
from uuid import uuid4

from headrace.errors import Code, HeadraceError, Span, masked
from headrace.interfaces.remote.connection import (
    WITH_ARROW,
    Connection,
    Request,
    SessionGoneError,
    events,
    read_json,
)
from headrace.interfaces.remote.subscription import MEDIA_TYPE as ARROW
from headrace.interfaces.remote.subscription import (
    RemoteSubscription,
    SubscriptionReader,
    as_arrow,
    read,
    written,
)
from headrace.interfaces.statements.reading.following import followed_statement, followed_text
from headrace.interfaces.statements.reading.point_in_time import asked_views
from headrace.interfaces.statements.results import Freshness, Progress, Result, all_of, last_of
from headrace.planning.sql import (
    Describe,
    Explain,
    ExplainChange,
    ExplainReplay,
    ExplainRow,
    ExplainScript,
    Flush,
    Print,
    Query,
    ResetOption,
    SetOption,
    Show,
    ShowCreate,
    ShowLineage,
    ShowOption,
    Subscribe,
    Verify,
)
from headrace.planning.sql.lexer import StatementText
from headrace.planning.sql.parameters import bind
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from http.client import HTTPResponse

    from headrace.interfaces.remote.connection import Server
    from headrace.interfaces.statements.reading.point_in_time import Views
    from headrace.interfaces.statements.results import Subscription
    from headrace.planning.sql import Statement
    from headrace.planning.sql.parameters import Parameters


T = TypeVar("T")

_CHANGES_NOTHING: Final = (
    Describe,
    Explain,
    ExplainChange,
    ExplainReplay,
    ExplainRow,
    ExplainScript,
    Flush,
    Print,
    Query,
    Show,
    ShowCreate,
    ShowLineage,
    ShowOption,
    Subscribe,
    Verify,
)
"""Statements that are sent again if the connection is lost while they run."""
_FAREWELL_SECONDS: Final = 2.0
_LONGEST_FOLLOWED: Final = 32_000


class RemoteSession:
    """One client of a served database, with the interface of :class:`headrace.Session`.

    The first statement opens the session on the server. If the server has ended it, after some
    minutes without a statement or by a restart, another is opened with the same settings.
    """

    def __init__(
        self,
        server: Server,
        is_open: Callable[[], bool],
        on_statement: Callable[[], None] = lambda: None,
    ) -> None:
        self._server = server
        self._on_statement = on_statement
        self._is_open = is_open
        self._open = True
        self._lock = threading.RLock()
        self._connection = Connection(server)
        self._id: str | None = None
        self._ending: weakref.finalize[..., RemoteSession] | None = None
        """Ends the session on the server, at the latest when the process ends."""
        self._opening: SubscriptionReader | None = None
        """The subscription that is being opened."""
        self._subscriptions: weakref.WeakSet[RemoteSubscription] = weakref.WeakSet()
        self._settings: dict[str, str] = {}
        """The statements that set the properties of this session."""
        self._producer = f"client {uuid4()}"
        self._numbers = count(1)

    # -- statements ------------------------------------------------------------------------

    def sql(
        self,
        text: str,
        parameters: Parameters | None = None,
        *,
        file: str | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Result:
        """Run one statement, or several; see :meth:`headrace.Session.sql`."""
        return last_of(self.results(text, parameters, file=file, progress=progress), text, file)

    def script(
        self,
        text: str,
        parameters: Parameters | None = None,
        *,
        file: str | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> list[Result]:
        """Run statements; return the result of each."""
        return all_of(self.results(text, parameters, file=file, progress=progress))

    def results(
        self,
        text: str,
        parameters: Parameters | None = None,
        *,
        file: str | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Iterator[Result]:
        """Run statements one by one; see :meth:`headrace.Session.results`."""
        bound = bind(text, parameters, file)
        for source, statement in bound.parsed(file):
            with self._running(), bound.rewritten.mapping_errors(), _placed(source):
                found = self._run(source.sql, statement, progress)
                result = self._follow(source, found) if isinstance(found, Followed) else found
            yield result

    def insert(
        self,
        name: str,
        rows: Any,
        *,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> int:
        """Append rows to a stream or table, durably; return the number of rows appended.

        If the connection is lost, the rows are sent again, and take effect once. See
        :meth:`headrace.Session.insert`.
        """
        path = f"/v1/streams/{quote(name, safe='')}"
        with self._running():
            described = partial(
                self._connection.ask, Request("GET", path, repeatable=True), read_json
            )
            body = written(as_arrow(rows, described))
            if producer is None or sequence is None:
                producer, sequence = self._producer, next(self._numbers)
            numbered = {"producer": producer, "sequence": str(sequence)}

            def append(id_: str) -> Any:
                return self._connection.ask(
                    Request(
                        "POST",
                        path,
                        body,
                        {"Content-Type": ARROW},
                        {**numbered, "session": id_},
                        repeatable=True,
                    ),
                    read_json,
                )

            return int(self._in_session(append)["rows"])

    def as_of(self, pairs: Any, views: Views, *, time: str | None = None) -> Result:
        """Read views as of the times of pairs; see :meth:`headrace.Session.as_of`."""
        from headrace.io.formats.frames import table_of  # noqa: PLC0415  (is large)

        body = written(table_of(pairs))
        query: dict[str, str | list[str]] = {"view": [each.text for each in asked_views(views)]}
        query |= {} if time is None else {"time": time}

        def ask(id_: str) -> Result:
            return self._connection.ask(
                Request(
                    "POST",
                    "/v1/as_of",
                    body,
                    {"Content-Type": ARROW, "Accept": ARROW},
                    {**query, "session": id_},
                    repeatable=True,
                ),
                self._answered,
            )

        with self._running():
            return self._in_session(ask)

    def _answered(self, answer: HTTPResponse) -> Result:
        """Return the rows of an Arrow stream, with the epoch and the freshness of the headers."""
        headers = answer.headers
        if headers.get("Content-Type") != ARROW or "Headrace-Epoch" not in headers:
            raise self._connection.stranger(answer)
        epoch, dirty = Epoch(int(headers["Headrace-Epoch"])), headers.get("Headrace-Dirty", "")
        frontier = headers.get("Headrace-Frontier")
        fresh = Freshness(
            epoch,
            float(headers.get("Headrace-Committed-At", "nan")),
            int(headers.get("Headrace-Pending", "0")),
            tuple(map(unquote, dirty.split(", "))) if dirty else (),
            None if frontier is None else Epoch(int(frontier)),
        )
        return Result(read([answer.read()]), epoch, freshness=fresh)

    def subscribe(
        self, query: str, parameters: Parameters | None = None, *, after: Epoch | None = None
    ) -> Subscription:
        """Follow a query or a view; see :meth:`headrace.Session.subscribe`.

        A lost connection is reopened for up to two minutes, without gaps or duplicates.
        """
        bound = bind(followed_text(query), parameters)
        with self._running(), bound.rewritten.mapping_errors():
            asked = followed_statement(bound)
            ((source, _),) = bound.parsed()
            with _placed(source):
                found = self._run(source.sql, asked, None, follow=True)
                if not isinstance(found, Followed):
                    raise self._connection.lost()
                return self._follow(source, found if after is None else found.resumed(after))

    def flush(self) -> Epoch:
        """Wait until all written changes are readable; return the epoch."""
        return self.sql("FLUSH").epoch

    def cancel(self) -> bool:
        """Cancel the running statement, which then fails; return whether one was running.

        If the server cannot be reached for that, the connection of the statement is closed.
        """
        opening, id_ = self._opening, self._id
        if opening is not None:
            opening.close()
            return True
        if id_ is None:
            return False
        asked = Request("POST", f"/v1/sessions/{id_}/cancel", repeatable=True)
        try:
            with _once(self._server) as connection:
                return bool(connection.ask(asked, read_json)["cancelled"])
        except SessionGoneError:
            return False
        except HeadraceError:
            self._connection.abort()
            raise

    def close(self) -> None:
        """End the session, on the server too: its statement is cancelled."""
        if not self._open:
            return
        self._open = False
        for subscription in list(self._subscriptions):
            subscription.close()
        if self._ending is not None:
            self._ending()
        with self._lock:
            self._connection.close()

    # -- a session of the server -----------------------------------------------------------

    def _run(
        self,
        sql: str,
        statement: Statement,
        progress: Callable[[Progress], None] | None,
        *,
        follow: bool = False,
    ) -> Result | Followed:
        def run(id_: str) -> Result | Followed:
            return self._connection.ask(
                Request.of_json(
                    "POST",
                    "/v1/sql",
                    {"sql": sql, "session": id_, "follow": follow},
                    headers={"Accept": WITH_ARROW},
                    repeatable=isinstance(statement, _CHANGES_NOTHING),
                ),
                partial(self._result, progress),
            )

        result = self._in_session(run)
        match statement:
            case SetOption():
                self._settings[statement.key.lower()] = sql
            case ResetOption(key=None):
                self._settings.clear()
            case ResetOption(key=str() as key):
                self._settings.pop(key.lower(), None)
        return result

    def _result(
        self, progress: Callable[[Progress], None] | None, answer: HTTPResponse
    ) -> Result | Followed:
        """Return the result in the events of a response.

        Raises:
            HeadraceError: the error in the events; ``unavailable`` if they end before a result.
        """
        if not answer.headers.get("Content-Type", "").startswith("text/event-stream"):
            raise self._connection.stranger(answer)
        parts: list[bytes] = []
        result: Result | Followed | None = None
        for event in events(answer):
            if event is None:
                continue
            match event.kind:
                case "progress" if progress is not None:
                    progress(Progress(**event.json))
                case "rows":
                    parts.append(base64.b64decode(event.data))
                case "result":
                    result = _result(event.json, parts)
                case "follow":
                    result = Followed(**event.json)
                case "error":
                    raise HeadraceError.of_json(event.json["error"])
        if result is None:
            raise self._connection.lost()
        return result

    def _follow(self, source: StatementText, followed: Followed) -> Subscription:
        """Open the subscription of a statement; errors are at its place in the script."""
        with followed.placed(source):
            feed = self._opening = SubscriptionReader(self._server, followed.query)
            try:
                made = RemoteSubscription(
                    feed, followed.limit, lambda: self._open and self._is_open()
                )
            finally:
                self._opening = None
        self._subscriptions.add(made)
        return made

    def _in_session(self, call: Callable[[str], T]) -> T:
        """Call with the session's id; if the server has ended the session, open another first."""
        try:
            return call(self._id or self._begin())
        except SessionGoneError:
            self._id = None
            return call(self._begin())

    def _begin(self) -> str:
        """Open a session on the server, with the settings of this one."""
        opened = self._connection.ask(Request("POST", "/v1/sessions", repeatable=True), read_json)
        self._id = id_ = str(opened["session"])
        if self._ending is not None:
            self._ending.detach()
        self._ending = weakref.finalize(self, _end, self._server, id_)
        for sql in self._settings.values():
            asked = {"sql": sql, "session": id_}
            self._connection.ask(Request.of_json("POST", "/v1/sql", asked), read_json)
        return id_

    @contextmanager
    def _running(self) -> Iterator[None]:
        if not (self._open and self._is_open()):
            what = "the database" if self._open else "the session"
            raise HeadraceError(Code.UNAVAILABLE, f"{what} is closed")
        with self._lock:
            try:
                yield
            finally:
                self._on_statement()

    def __repr__(self) -> str:
        """Return the address, and whether it is open."""
        is_open = self._open and self._is_open()
        return f"<headrace.RemoteSession {self._server.url}, {'open' if is_open else 'closed'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Followed:
    """What a statement follows: a query, its first epoch, and a limit of rows.

    ``start`` is the position of the query in the statement, if it is a part of it.
    """

    sql: str
    after: int | None
    snapshot: bool
    limit: int | None
    start: int | None

    def resumed(self, after: int) -> Followed:
        """Return the same subscription, from after an epoch on; after 0, from its rows on."""
        return replace(self, after=after or None, snapshot=True)

    @property
    def query(self) -> dict[str, str]:
        """The query parameters of ``/v1/subscribe``.

        Raises:
            HeadraceError: ``unsupported`` for a query that is too long for a URL.
        """
        if len(quote(self.sql)) > _LONGEST_FOLLOWED:
            raise HeadraceError(
                Code.UNSUPPORTED,
                "following a query this long on a server is not supported",
                hint="Create a view of it, and follow the view.",
            )
        if self.after is not None:
            return {"sql": self.sql, "after": str(self.after)}
        return {"sql": self.sql, "snapshot": "true" if self.snapshot else "false"}

    @contextmanager
    def placed(self, source: StatementText) -> Iterator[None]:
        """Map the places of errors from the query to the statement that contains it."""
        begin = 0 if self.start is None else self.start
        part = StatementText(source.text, source.start + begin, source.end, source.file)
        with _placed(part, self.sql) if self.start is not None else nullcontext():
            yield


def _result(document: Any, parts: list[bytes]) -> Result:
    """Return the result of a ``result`` event and the Arrow before it."""
    fresh = document["freshness"]
    return Result(
        None if document["kind"] == "done" else read(parts),
        document["epoch"],
        document["message"],
        None if fresh is None else Freshness(**{**fresh, "dirty": tuple(fresh["dirty"])}),
    )


@contextmanager
def _placed(source: StatementText, sent: str | None = None) -> Iterator[None]:
    """Map the places of errors from the sent part of a statement to the whole script."""
    try:
        yield
    except HeadraceError as error:
        span = error.span
        if span is None or span.text != masked(source.sql if sent is None else sent):
            raise
        moved = Span(source.text, source.start + span.start, source.start + span.end, source.file)
        raise HeadraceError(error.code, error.primary, error.detail, error.hint, moved) from error


@contextmanager
def _once(server: Server) -> Iterator[Connection]:
    """Yield a connection for one short request."""
    connection = Connection(server, _FAREWELL_SECONDS)
    try:
        yield connection
    finally:
        connection.close()


def _end(server: Server, id_: str) -> None:
    """End a session on the server, if it still exists."""
    with suppress(HeadraceError), _once(server) as connection:
        connection.ask(Request("DELETE", f"/v1/sessions/{id_}"), read_json)
