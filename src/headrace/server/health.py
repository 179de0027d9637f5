"""``GET /healthz`` and ``/readyz``: liveness and readiness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.server.answers import done

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from headrace.parts.reader import Reader
    from headrace.processes.queries import QueryProcesses


@dataclass(frozen=True, slots=True)
class HealthHandlers:
    """Answers health checks."""

    reader: Reader
    query_processes: QueryProcesses | None

    async def health(self, request: Request) -> Response:
        """Report that the server answers."""
        del request
        return done({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Report whether the ledger answers, epochs are made, and queries are answered."""
        del request
        self.reader.require_ledger()
        self.reader.require_epochs()
        if self.query_processes is not None:
            self.query_processes.require_ready()
        return done({"status": "ready", "epoch": self.reader.published.epoch})
