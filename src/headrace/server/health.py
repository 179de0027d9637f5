"""``GET /healthz`` and ``/readyz``: liveness and readiness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError
from headrace.server.answers import done

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from headrace.parts.log import Log
    from headrace.parts.reader import Reader
    from headrace.processes.queries import QueryProcesses

_ALWAYS: Final = ("lookups", "writes")
_QUERIES: Final = "queries"


@dataclass(frozen=True, slots=True)
class HealthHandlers:
    """Answers health checks."""

    reader: Reader
    log: Log
    query_processes: QueryProcesses | None

    async def health(self, request: Request) -> Response:
        """Report that the server answers."""
        del request
        return done({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Report what is served: lookups and writes, or else it is an error; and queries.

        With the parameter ``serves=queries``, it is an error as well if those are not.
        """
        wanted = request.query_params.get("serves", _ALWAYS[0])
        if wanted not in (*_ALWAYS, _QUERIES):
            hint = f"There are: {', '.join((*_ALWAYS, _QUERIES))}."
            raise HeadraceError(Code.INVALID, f'"{wanted}" is not what a server serves', hint=hint)
        self.log.require_writable()
        waits = self._waits_for_epochs()
        queries = self._waits_for_queries()
        if wanted == _QUERIES and queries is not None:
            raise queries
        return done(
            {
                "status": "ready",
                "epoch": self.reader.published.epoch,
                "serves": [*_ALWAYS, *([_QUERIES] if queries is None else [])],
                "waits": [each.primary for each in (waits, queries) if each is not None],
            }
        )

    def _waits_for_epochs(self) -> HeadraceError | None:
        """Return why no epochs are made at present: what is read is older meanwhile.

        Raises:
            HeadraceError: that, if it will not pass by itself.
        """
        try:
            self.reader.require_epochs()
        except HeadraceError as error:
            if error.code is not Code.UNAVAILABLE:
                raise
            return error
        return None

    def _waits_for_queries(self) -> HeadraceError | None:
        """Return why a query would not be answered at once."""
        try:
            if self.query_processes is not None:
                self.query_processes.require_ready()
        except HeadraceError as error:
            return error
        return None
