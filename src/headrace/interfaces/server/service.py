"""The parts of a server: the database, sessions, threads and limits."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from headrace.interfaces.processes.queries import QueryProcesses
from headrace.interfaces.server.active import Active
from headrace.interfaces.server.appends import Appends
from headrace.interfaces.server.entrance import Entrance
from headrace.interfaces.server.fence import Roots
from headrace.interfaces.server.metrics import MachineUsage, Metrics
from headrace.interfaces.server.pages import CONSOLE, Pages
from headrace.interfaces.server.routes import COMPOSED
from headrace.interfaces.server.running import RequestCalls, Runner, Sessions
from headrace.interfaces.server.status import Status
from headrace.interfaces.server.subscriptions import FollowedRelations
from headrace.interfaces.session.client import Injector

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from headrace.interfaces.database import Database
    from headrace.interfaces.processes.queries import ProcessBeforehand, QuerySettings
    from headrace.interfaces.server.limits import Limits
    from headrace.interfaces.server.openapi import Route
    from headrace.interfaces.server.readers import Readers


_TIDY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Service:
    """The parts of one server. Handlers receive the parts that they use, by field name."""

    database: Database
    directory: Path
    """The directory of the database."""
    limits: Limits
    runner: Runner
    sessions: Sessions
    calls: RequestCalls
    lookup_calls: RequestCalls
    """Those of lookups, on threads of their own."""
    appends: Appends
    following: FollowedRelations
    metrics: Metrics
    entrance: Entrance
    status: Status
    active: Active
    usage: MachineUsage
    console: Pages
    pages: Pages | None = None
    """The pages of applications, or None."""
    roots: Roots = field(default_factory=Roots)
    """The directories that statements may use."""
    query_processes: QueryProcesses | None = None
    """The processes that evaluate clients' queries; None if the database's process does."""

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
        backup_roots: Sequence[Path] = (),
        beforehand: ProcessBeforehand | None = None,
    ) -> Self:
        """Return the service of an open database; ``pages`` are those of applications.

        With ``authenticate``, access tokens are required even before any exist. ``beforehand`` is a
        query process that was started earlier.
        """
        apart = None if queries is None else QueryProcesses(database, queries, beforehand)
        opened = partial(database.session, apart)
        runner, sessions = Runner(limits), Sessions(opened, limits)
        calls = RequestCalls(sessions, runner)
        lookups = RequestCalls(sessions, Runner(replace(limits, statements=limits.lookups)))
        reader, sources = database.parts.reader, database.parts.sources
        following = FollowedRelations(reader, limits, opened)
        return cls(
            database,
            database.directory,
            limits,
            runner,
            sessions,
            calls,
            lookups,
            Appends(limits),
            following,
            Metrics(reader, sources, calls, following, apart, readers, database.parts.openlineage),
            Entrance(database.parts.access, limits, authenticate),
            Status(reader, sources, runner, following, limits),
            Active(),
            MachineUsage(database.directory),
            Pages(CONSOLE),
            None if pages is None else Pages(pages),
            Roots(tuple(roots), tuple(backup_roots)),
            apart,
        )

    async def tidy(self) -> None:
        """End idle sessions, logins and followed queries, at intervals."""
        while True:
            await asyncio.sleep(_TIDY_SECONDS)
            self.entrance.end_idle()
            await asyncio.to_thread(self.sessions.end_idle)
            await self.following.end_idle()
            if self.query_processes is not None:
                await asyncio.to_thread(self.query_processes.end_idle)

    def injector(self, routes: tuple[Route[Any], ...]) -> Injector:
        """Return the injector that constructs handlers from these parts and the database's."""
        parts = self.database.parts
        given = {each.name: getattr(parts, each.name) for each in fields(parts)}
        given |= {each.name: getattr(self, each.name) for each in fields(self)}
        return Injector({**given, "routes": routes}, COMPOSED)

    def close(self) -> None:
        """End all statements and subscriptions of clients; the database stays open."""
        self.runner.close()
        self.lookup_calls.runner.close()
        if self.query_processes is not None:
            self.query_processes.close()
        self.status.close()
        self.following.close()
        self.sessions.close_all()
