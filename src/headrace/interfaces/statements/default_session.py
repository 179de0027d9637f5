"""The default session, which an open database and a connected one have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.interfaces.statements.changing.inserts import Rows
    from headrace.interfaces.statements.reading.point_in_time import Views
    from headrace.interfaces.statements.results import Progress, Result, Subscription
    from headrace.planning.sql.parameters import Parameters
    from headrace.types import Epoch


class AnySession(Protocol):
    """One client of a database, in this process or on a server; see :class:`headrace.Session`."""

    def sql(
        self,
        text: str,
        parameters: Parameters | None = None,
        *,
        file: str | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Result:
        """Run one or several statements; return the last one's result."""
        ...

    def script(
        self,
        text: str,
        parameters: Parameters | None = None,
        *,
        file: str | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> list[Result]:
        """Run statements; return the result of each."""
        ...

    def results(
        self,
        text: str,
        parameters: Parameters | None = None,
        *,
        file: str | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Iterator[Result]:
        """Run a statement whenever the next result is asked for, and yield the result."""
        ...

    def insert(
        self, name: str, rows: Rows, *, producer: str | None = None, sequence: int | None = None
    ) -> int:
        """Append rows to a stream or table, durably; return their number."""
        ...

    def as_of(self, pairs: Any, views: Views, *, time: str | None = None) -> Result:
        """Return pairs of keys and times with the values of views, each as of its own time."""
        ...

    def subscribe(
        self, query: str, parameters: Parameters | None = None, *, after: Epoch | None = None
    ) -> Subscription:
        """Follow a query or a view: its rows, then its changes."""
        ...

    def flush(self) -> Epoch:
        """Wait until all written changes are readable; return the epoch."""
        ...

    def cancel(self) -> bool:
        """Cancel the running statement; return whether one runs."""
        ...


class DefaultSession:
    """Runs statements in the default session of a database."""

    _default: AnySession

    def sql(
        self,
        text: str,
        parameters: Parameters | None = None,
        *,
        file: str | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Result:
        """Run statements in the default session; see :meth:`headrace.Session.sql`."""
        return self._default.sql(text, parameters, file=file, progress=progress)

    def script(
        self,
        text: str,
        parameters: Parameters | None = None,
        *,
        file: str | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> list[Result]:
        """Run statements in the default session; see :meth:`headrace.Session.script`."""
        return self._default.script(text, parameters, file=file, progress=progress)

    def results(
        self,
        text: str,
        parameters: Parameters | None = None,
        *,
        file: str | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Iterator[Result]:
        """Run statements in the default session; see :meth:`headrace.Session.results`."""
        return self._default.results(text, parameters, file=file, progress=progress)

    def insert(
        self, name: str, rows: Rows, *, producer: str | None = None, sequence: int | None = None
    ) -> int:
        """Append rows in the default session; see :meth:`headrace.Session.insert`."""
        return self._default.insert(name, rows, producer=producer, sequence=sequence)

    def as_of(self, pairs: Any, views: Views, *, time: str | None = None) -> Result:
        """Read views as of the times of pairs; see :meth:`headrace.Session.as_of`."""
        return self._default.as_of(pairs, views, time=time)

    def subscribe(
        self, query: str, parameters: Parameters | None = None, *, after: Epoch | None = None
    ) -> Subscription:
        """Follow a query in the default session; see :meth:`headrace.Session.subscribe`."""
        return self._default.subscribe(query, parameters, after=after)

    def flush(self) -> Epoch:
        """Wait until all written changes are readable; return the epoch."""
        return self._default.flush()

    def verify(self, name: str | None = None) -> Result:
        """Compare views with their queries, recomputed by plain Spark batch."""
        return self.sql(f"VERIFY {name}" if name else "VERIFY")

    def cancel(self) -> None:
        """Cancel the statement of the default session; see :meth:`headrace.Session.cancel`."""
        self._default.cancel()
