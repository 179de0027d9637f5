"""What the handlers of requests share: the database, its sessions, the threads, the limits."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Self

from headrace.errors import Code, HeadraceError
from headrace.processes.queries import QueryProcesses
from headrace.server.active import Active
from headrace.server.appends import Appends
from headrace.server.entrance import Entrance
from headrace.server.metrics import Metrics
from headrace.server.pages import CONSOLE, Pages
from headrace.server.running import Runner
from headrace.server.sessions import Sessions
from headrace.server.status import Status
from headrace.server.subscriptions import Following

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from headrace.database import Database
    from headrace.processes.queries import QuerySettings
    from headrace.server.limits import Limits
    from headrace.server.readers import Readers

_TIDY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Service:
    """One database as it is served."""

    database: Database
    limits: Limits
    runner: Runner
    sessions: Sessions
    appends: Appends
    following: Following
    metrics: Metrics
    entrance: Entrance
    status: Status
    active: Active
    console: Pages
    pages: Pages | None = None
    """The pages of applications, if there are any."""
    roots: tuple[Path, ...] = ()
    """The directories whose files statements may read."""
    queries: QueryProcesses | None = None
    """The processes that evaluate clients' queries; None if the database's own does."""

    @classmethod
    def of(
        cls,
        database: Database,
        limits: Limits,
        roots: Sequence[Path],
        queries: QuerySettings | None = None,
        pages: Path | None = None,
        *,
        readers: Readers | None = None,
        authenticate: bool = False,
    ) -> Self:
        """Return the service of an open database; ``pages`` are those of applications.

        With ``authenticate``, access tokens are needed also before there are any.
        """
        apart = None if queries is None else QueryProcesses(database, queries)
        opened = partial(database.session, apart)
        runner, sessions = Runner(limits), Sessions(opened, limits)
        following = Following(database, limits, opened)
        return cls(
            database,
            limits,
            runner,
            sessions,
            Appends(limits),
            following,
            Metrics(database, runner, sessions, following, apart, readers),
            Entrance(database.parts.access, limits, authenticate),
            Status(database, runner, following, limits),
            Active(),
            Pages(CONSOLE),
            None if pages is None else Pages(pages),
            tuple(roots),
            apart,
        )

    async def tidy(self) -> None:
        """End what nobody uses any more, again and again."""
        while True:
            await asyncio.sleep(_TIDY_SECONDS)
            self.entrance.end_idle()
            await asyncio.to_thread(self.sessions.end_idle)
            await self.following.end_idle()
            if self.queries is not None:
                await asyncio.to_thread(self.queries.end_idle)

    def require_queries(self) -> None:
        """Raise unless a query would be answered without waiting for a process to start.

        Raises:
            HeadraceError: ``unavailable`` while the first query process starts; why it did not.
        """
        if self.queries is None or self.queries.are_ready:
            return
        if self.queries.failure is not None:
            raise self.queries.failure
        raise HeadraceError(
            Code.UNAVAILABLE,
            "queries were not answered yet: the query process was starting",
            hint="Try again in a second. Rows by key and views are read without it.",
        )

    def close(self) -> None:
        """End what runs for clients; the database stays open."""
        self.runner.close()
        if self.queries is not None:
            self.queries.close()
        self.status.close()
        self.following.close()
        self.sessions.close_all()
