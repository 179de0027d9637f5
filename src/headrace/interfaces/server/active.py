"""``GET /v1/statements``: running and recently ended statements of clients; cancelling one."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Self

from headrace.errors import Code, HeadraceError, masked
from headrace.interfaces.server.entrance import asking
from headrace.interfaces.server.requests import StatusError, done
from headrace.planning.sql import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from headrace.interfaces.session import Session
    from headrace.interfaces.statements.results import Progress
    from headrace.lifecycle.states.access import Principal


_NOT_FOUND: Final = 404
_SHOWN: Final = 2000
"""The number of characters of a statement that are shown."""
_SLOW_SECONDS: Final = 1.0
_KEPT: Final = 200
"""The number of ended statements that are kept, and separately of slow ones."""


@dataclass(slots=True)
class RunningStatement:
    """A running statement; ``began_at`` is in Unix seconds."""

    id: str
    sql: str
    began_at: float
    session: Session
    principal: Principal
    listener: Callable[[Progress], None] | None
    progress: Progress | None = None

    def report(self, made: Progress) -> None:
        """Store the progress of the statement and pass it to the client's listener."""
        self.progress = made
        if self.listener is not None:
            self.listener(made)

    def is_of(self, principal: Principal) -> bool:
        """Whether a principal may see and cancel the statement."""
        return _is_of(self.principal, principal)

    def to_json(self) -> dict[str, Any]:
        """Return it as others may see it: secrets are masked."""
        return {
            "id": self.id,
            "sql": _shown(self.sql),
            "began_at": self.began_at,
            "by": self.principal.name,
            "progress": None if self.progress is None else asdict(self.progress),
        }


def _is_of(owner: Principal, principal: Principal) -> bool:
    """Whether a statement of ``owner`` concerns a principal: its own, or any for an owner."""
    return owner.name == principal.name or principal.may(Role.OWNER)


def _shown(text: str) -> str:
    """Return the beginning of a text, with secrets masked."""
    return masked(text[: 2 * _SHOWN])[:_SHOWN]


@dataclass(frozen=True, slots=True)
class Ended:
    """An ended statement: what is shown of it, and its duration in seconds.

    Its text, its session and its error, whose traceback has the rows that it worked on, are not
    kept.
    """

    number: int
    principal: Principal
    seconds: float
    shown: Mapping[str, Any]

    @classmethod
    def of(cls, statement: RunningStatement, seconds: float, error: HeadraceError | None) -> Self:
        """Return what is kept of a statement; ``error`` is None if it succeeded."""
        shown = {
            **statement.to_json(),
            "seconds": round(seconds, 6),
            "outcome": "finished" if error is None else str(error.code),
            "error": None if error is None else _shown(error.primary),
        }
        del shown["progress"]
        return cls(int(statement.id), statement.principal, seconds, shown)

    @property
    def is_slow(self) -> bool:
        """Whether it took a second or more."""
        return self.seconds >= _SLOW_SECONDS


@dataclass(slots=True)
class Active:
    """The running statements of clients by id, and the latest ended ones."""

    by_id: dict[str, RunningStatement] = field(default_factory=dict)
    _ended: deque[Ended] = field(default_factory=lambda: deque(maxlen=_KEPT))
    _slow: deque[Ended] = field(default_factory=lambda: deque(maxlen=_KEPT))
    _numbers: count[int] = field(default_factory=lambda: count(1))

    @property
    def ended(self) -> list[Ended]:
        """The latest statements that ended, and the latest slow ones, newest first."""
        return sorted((*self._slow, *self._ended), key=lambda each: -each.number)

    @contextmanager
    def running(
        self,
        session: Session,
        sql: str,
        principal: Principal,
        listener: Callable[[Progress], None] | None = None,
    ) -> Iterator[RunningStatement]:
        """Register a principal's statement while the block runs it; yield its entry.

        ``listener`` receives its progress as well.
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
            ended = Ended.of(statement, time.monotonic() - began, error)
            (self._slow if ended.is_slow else self._ended).append(ended)

    # -- handlers ----------------------------------------------------------------------------

    async def list_statements(self, request: Request) -> Response:
        """List running statements, oldest first, and ended ones, newest first.

        An owner sees all statements; other clients see their own.
        """
        principal = asking(request)
        running = list(self.by_id.values())
        return done(
            {
                "statements": [each.to_json() for each in running if each.is_of(principal)],
                "ended": [each.shown for each in self.ended if _is_of(each.principal, principal)],
            }
        )

    async def cancel_statement(self, request: Request) -> Response:
        """Cancel a running statement."""
        found = self.by_id.get(request.path_params["statement"])
        if found is None or not found.is_of(asking(request)):
            raise StatusError(
                _NOT_FOUND,
                HeadraceError(
                    Code.INVALID,
                    "this statement is not running",
                    hint="GET /v1/statements lists running statements.",
                ),
            )
        return done({"cancelled": await asyncio.to_thread(found.session.cancel)})
