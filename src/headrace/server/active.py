"""``GET /v1/statements``: clients' statements that run, and those that ended; cancelling one."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Code, HeadraceError, masked
from headrace.server.answers import done
from headrace.server.entrance import asking
from headrace.server.failures import StatusError
from headrace.sql import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.requests import Request
    from starlette.responses import Response

    from headrace.parts.access import Principal
    from headrace.session import Session
    from headrace.statements.results import Progress

_NOT_FOUND: Final = 404
_SHOWN: Final = 2000
"""How many characters of a statement are shown."""
_SLOW_SECONDS: Final = 1.0
_KEPT: Final = 200
"""How many statements that ended are kept, and how many slow ones besides."""


@dataclass(slots=True)
class RunningStatement:
    """A statement that runs; ``began_at`` is in Unix seconds."""

    id: str
    sql: str
    began_at: float
    session: Session
    principal: Principal
    listener: Callable[[Progress], None] | None
    progress: Progress | None = None

    def report(self, made: Progress) -> None:
        """Note the progress of the statement, and have its client know of it."""
        self.progress = made
        if self.listener is not None:
            self.listener(made)

    def is_of(self, principal: Principal) -> bool:
        """Whether a principal may know of it, and cancel it."""
        return self.principal.name == principal.name or principal.may(Role.OWNER)

    def to_json(self) -> dict[str, Any]:
        """Return it as others may see it: secrets are masked."""
        return {
            "id": self.id,
            "sql": masked(self.sql)[:_SHOWN],
            "began_at": self.began_at,
            "by": self.principal.name,
            "progress": None if self.progress is None else asdict(self.progress),
        }


@dataclass(frozen=True, slots=True)
class Ended:
    """A statement that ended: after how many seconds, and with which error, if with one."""

    statement: RunningStatement
    seconds: float
    error: HeadraceError | None

    @property
    def is_slow(self) -> bool:
        """Whether it took a second or more."""
        return self.seconds >= _SLOW_SECONDS

    def to_json(self) -> dict[str, Any]:
        """Return it as others may see it: secrets are masked."""
        error = self.error
        found = self.statement.to_json()
        del found["progress"]
        return {
            **found,
            "seconds": round(self.seconds, 6),
            "outcome": "finished" if error is None else str(error.code),
            "error": None if error is None else masked(error.primary)[:_SHOWN],
        }


@dataclass(slots=True)
class Active:
    """The statements that run for clients, by id, and the latest of those that ended."""

    by_id: dict[str, RunningStatement] = field(default_factory=dict)
    _ended: deque[Ended] = field(default_factory=lambda: deque(maxlen=_KEPT))
    _slow: deque[Ended] = field(default_factory=lambda: deque(maxlen=_KEPT))
    _numbers: count[int] = field(default_factory=lambda: count(1))

    @property
    def ended(self) -> list[Ended]:
        """The latest statements that ended, and the latest slow ones, newest first."""
        every = {each.statement.id: each for each in (*self._slow, *self._ended)}
        return sorted(every.values(), key=lambda each: -int(each.statement.id))

    @contextmanager
    def running(
        self,
        session: Session,
        sql: str,
        principal: Principal,
        listener: Callable[[Progress], None] | None = None,
    ) -> Iterator[RunningStatement]:
        """Yield what is shown of a principal's statement that runs during the block.

        ``listener`` is given its progress, too.
        """
        statement = RunningStatement(
            str(next(self._numbers)), sql, time.time(), session, principal, listener
        )
        self.by_id[statement.id] = statement
        began, error = time.monotonic(), None
        try:
            yield statement
        except HeadraceError as raised:
            error = raised
            raise
        except Exception:
            error = HeadraceError(Code.INTERNAL, "the server failed to run this statement")
            raise
        finally:
            del self.by_id[statement.id]
            ended = Ended(statement, time.monotonic() - began, error)
            (self._slow if ended.is_slow else self._ended).append(ended)

    # -- handlers ----------------------------------------------------------------------------

    async def list_statements(self, request: Request) -> Response:
        """List the statements that run, oldest first, and those that ended, newest first.

        They are one's own, and for an owner all.
        """
        principal = asking(request)
        running = list(self.by_id.values())
        return done(
            {
                "statements": [each.to_json() for each in running if each.is_of(principal)],
                "ended": [each.to_json() for each in self.ended if each.statement.is_of(principal)],
            }
        )

    async def cancel_statement(self, request: Request) -> Response:
        """Cancel a statement that runs."""
        found = self.by_id.get(request.path_params["statement"])
        if found is None or not found.is_of(asking(request)):
            raise StatusError(
                _NOT_FOUND,
                HeadraceError(
                    Code.INVALID,
                    "this statement does not run",
                    hint="GET /v1/statements lists those that do.",
                ),
            )
        return done({"cancelled": await asyncio.to_thread(found.session.cancel)})
