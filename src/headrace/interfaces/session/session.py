"""A session: runs the statements of one client, one after another."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from headrace.errors import Code, HeadraceError, unexpected
from headrace.execution.engine.jobs.scope import StatementJobs
from headrace.execution.runtime.cancelling import cancelled, check_cancelled
from headrace.interfaces.session.client import Client, silent
from headrace.interfaces.session.dispatch import Dispatcher
from headrace.interfaces.statements.reading.following import followed_statement, followed_text
from headrace.interfaces.statements.reading.point_in_time import asked_views
from headrace.interfaces.statements.refreshing import Paced
from headrace.interfaces.statements.results import Progress, all_of, last_of
from headrace.io.formats.frames import table_of
from headrace.lifecycle.states.access import OWNER
from headrace.planning.sql.parameters import bind
from headrace.storage.ledger import ProducerPosition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.interfaces.session.needs import Need
    from headrace.interfaces.session.parts import DatabaseParts
    from headrace.interfaces.statements.changing.inserts import Rows
    from headrace.interfaces.statements.reading.following import Pushed, ViewSubscription
    from headrace.interfaces.statements.reading.point_in_time import Views
    from headrace.interfaces.statements.results import Result
    from headrace.lifecycle.states.access import Principal
    from headrace.planning.sql import Query, Statement
    from headrace.planning.sql.parameters import Parameters
    from headrace.types import Epoch, Offset, RelationId


_CANCEL_SECONDS = 0.2
"""The interval of repeated cancellation, which has no effect between two jobs."""


class Session:
    """One client of an open database. A context manager; safe to use from several threads.

    Its statements run one after another; different sessions run concurrently. Its reads see all of
    its earlier writes, and everything written before it began; ``SET consistency`` changes that.
    :meth:`headrace.Database.session` opens one.
    """

    def __init__(
        self, parts: DatabaseParts, is_open: Callable[[], bool], principal: Principal = OWNER
    ) -> None:
        self._open = True
        self._client = Client(
            parts.reader, lambda: self._open and is_open(), dict(parts.ledger.head.ends)
        )
        self._client.cancellation.waits = lambda what: self._client.report(
            Progress(what, 0, None, "")
        )
        self._statements = Dispatcher(parts, self._client, principal)
        self._jobs = StatementJobs(parts.engine.source, self._client.cancellation.tag)

    def sql(
        self,
        text: str,
        parameters: Parameters | None = None,
        *,
        file: str | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Result:
        """Run one statement, or several separated by semicolons; return the last one's result.

        ``parameters`` is a sequence with the values of ``?``, or a mapping with those of ``:name``.
        Queries, INSERT, UPDATE, DELETE and SUBSCRIBE take them. The result of a statement that
        follows changes is a :class:`headrace.Subscription`, which :meth:`subscribe` always returns.

        Raises:
            HeadraceError: of the first statement that fails; those before it have taken effect.
        """
        return last_of(self.results(text, parameters, file=file, progress=progress), text, file)

    def script(
        self,
        text: str,
        parameters: Parameters | None = None,
        *,
        file: str | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> list[Result]:
        """Run statements separated by semicolons; return the result of each."""
        return all_of(self.results(text, parameters, file=file, progress=progress))

    def results(
        self,
        text: str,
        parameters: Parameters | None = None,
        *,
        file: str | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Iterator[Result]:
        """Run a statement whenever the next result is asked for, and yield the result.

        A statement whose result nobody asks for does not run; :meth:`script` runs all.
        """
        bound = bind(text, parameters, file)
        for statement in bound.statements(file):
            with self._running(progress or silent), bound.rewritten.mapping_errors():
                result = self._statements.run(statement)
            yield result

    def run(self, statement: Statement) -> Result:
        """Run a statement that ``parse`` returned, or one derived from it."""
        with self._running(silent):
            return self._statements.run(statement)

    def insert(
        self,
        name: str,
        rows: Rows,
        *,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> int:
        """Append rows to a stream or table, durably; return their number.

        With ``producer`` and a ``sequence`` that grows with each call, a call that is repeated
        because its outcome is unknown takes effect once.
        """
        position = None
        if producer is not None and sequence is not None:
            position = ProducerPosition(producer, sequence)
        with self._alone():
            return self._statements.insert(name, rows, position)

    def as_of(self, pairs: Any, views: Views, *, time: str | None = None) -> Result:
        """Return pairs of keys and times with the values of views, each as of its own time.

        ``pairs`` are an Arrow table or batch, a data frame, or a list of dicts: the columns of the
        keys, named as those of the views, a time, and others, which are returned as they are. The
        column ``time`` has timestamps or dates, in UTC if they have no zone; it may be left out if
        only one column does. ``views`` are names, or the columns of each by name:
        ``{"a": ["x"], "b": {"y": "renamed"}, "c": None}``.

        A view whose key is in the pairs is read as it was committed by the time of each pair. Of
        one whose key has a column of times besides, such as a versioned table, each pair gets the
        last row that is not after its time. The result has the pairs in their order; the values of
        a key without a row are NULL.
        """
        rows, asked = table_of(pairs), asked_views(views)
        with self._running(silent):
            return self._statements.as_of(rows, asked, time)

    def subscribe(
        self, query: str, parameters: Parameters | None = None, *, after: Epoch | None = None
    ) -> ViewSubscription:
        """Follow a query or a view: its rows, then its changes. ``after`` resumes from an epoch.

        ``query`` is the name of a relation, a query, or a statement that follows one: SUBSCRIBE
        with its options, or PRINT.
        """
        bound = bind(followed_text(query), parameters)
        with self._running(silent), bound.rewritten.mapping_errors():
            return self._statements.subscribe(followed_statement(bound), after)

    def pushed(
        self, text: str, parameters: Parameters | None = None, *, follow: bool = False
    ) -> Pushed | None:
        """Return the query that a statement would follow here; None if it would run once.

        With ``follow``, every query is followed.
        """
        bound = bind(text, parameters)
        with self._running(silent), bound.rewritten.mapping_errors():
            if follow:
                return self._statements.followed(followed_statement(bound))
            statements = bound.statements()
            return self._statements.pushed(statements[0]) if len(statements) == 1 else None

    def require(self, query: Query) -> tuple[Need, ...]:
        """Raise if this client may not read a query; return the roles that it needs.

        Raises:
            HeadraceError: ``forbidden``; the parser's errors if the query cannot be parsed.
        """
        return self._statements.require(query)

    def last_sequence(self, name: str, producer: str) -> int | None:
        """Return the number of a producer's last append to a stream or table; None without one."""
        with self._alone():
            return self._statements.last_sequence(name, producer)

    def wait_for(self, epoch: Epoch, ends: Mapping[RelationId, Offset]) -> None:
        """Wait until an epoch, and the changes before some offsets of logs, can be read.

        Raises:
            HeadraceError: ``invalid`` for an offset that was never written.
        """
        with self._running(silent):
            self._statements.wait_for(epoch, ends)

    @property
    def written(self) -> dict[RelationId, Offset]:
        """The ends of logs after this session's writes, by relation id."""
        return dict(self._client.written)

    @contextmanager
    def at_most_behind(self, seconds: float) -> Iterator[None]:
        """Make reads within the block see the last epoch without waiting.

        A read fails with ``unavailable`` if the last epoch has lacked a change of the relations
        read for more than ``seconds``, which may be infinite.

        Raises:
            HeadraceError: ``invalid`` for a negative number and NaN.
        """
        if not seconds >= 0:
            raise HeadraceError(
                Code.INVALID, f"a staleness of at most {seconds:g} seconds is not 0 or more"
            )
        client = self._client
        with client.lock:
            before, client.max_staleness = client.max_staleness, seconds
            try:
                yield
            finally:
                client.max_staleness = before

    def flush(self) -> Epoch:
        """Wait until all written changes are readable; return the epoch."""
        with self._running(silent):
            return self._statements.flush()

    def cancel(self) -> bool:
        """Cancel the running statement, which then fails; return whether one runs.

        Statements of other sessions and epochs continue. Between two jobs of a statement, nothing
        can be cancelled: a caller that waits for the end of the statement calls this repeatedly.
        """
        if not self._client.cancellation.running:
            return False
        self._client.cancellation.asked = True
        self._jobs.cancel()
        return True

    def close(self) -> None:
        """End the session: cancel its statement and end its subscriptions.

        Returns when the statement has ended, unless this is the thread that runs it.
        """
        self._open = False
        while self.cancel():
            if self._client.lock.acquire(timeout=_CANCEL_SECONDS):
                self._client.lock.release()
                return

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._client.is_open():
            what = "the database" if self._open else "the session"
            raise HeadraceError(Code.UNAVAILABLE, f"{what} is closed")
        with self._client.lock:
            try:
                yield
            except Exception as error:
                shown = unexpected(error)
                if shown is error:
                    raise
                raise shown from error

    @contextmanager
    def _running(self, progress: Callable[[Progress], None]) -> Iterator[None]:
        """Run a statement so that it reports progress and :meth:`cancel` can end it."""
        paced = Paced(progress)

        def report(made: Progress) -> None:
            check_cancelled()
            paced(made)
            check_cancelled()  # the report itself may have cancelled the statement

        client = self._client
        with self._alone():
            client.listener = report
            try:
                with client.cancellation.statement():
                    yield
            except HeadraceError as error:
                if client.cancellation.asked and error.code is Code.UNAVAILABLE:
                    raise cancelled() from error  # its job was cancelled
                raise
            finally:
                client.listener = silent
                if client.cancellation.asked:
                    self._jobs.free_slots()

    def __repr__(self) -> str:
        """Return whether it is open."""
        return f"<headrace.Session, {'open' if self._client.is_open() else 'closed'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
