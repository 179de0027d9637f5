"""``GET /v1/epochs``: how wide the latest epochs were, and where their time went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.parts.epoch_records import COUNTERS, fan_out_words, fanned_out
from headrace.parts.naming import HIDDEN
from headrace.runtime.spent import TASKS, Activity
from headrace.server.answers import done
from headrace.server.entrance import asking
from headrace.server.requests import count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from headrace.ledger import EpochRecord
    from headrace.parts.access import Principal
    from headrace.parts.reader import Reader
    from headrace.server.running import RequestCalls
    from headrace.session import Session

_MOST: Final = 1000
_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class EpochHandlers:
    """Lists epochs."""

    reader: Reader
    calls: RequestCalls

    async def list_epochs(self, request: Request) -> Response:
        """List the latest epochs, newest first.

        Each has its width and why, and the milliseconds that it spent, by activity. Those of the
        tasks of its jobs are added up beside them.
        """
        principal, asked = asking(request), count(request, "limit")
        limit = _SHOWN if asked is None else min(asked, _MOST)

        def call(_session: Session) -> dict[str, Any]:
            records = self.reader.ledger.epochs.newest(limit)
            return {"epochs": [self._shown(each, principal) for each in records]}

        return done(await self.calls.run(request, call))

    def _shown(self, record: EpochRecord, principal: Principal) -> dict[str, Any]:
        counters, catalog = record.counters, self.reader.catalog
        found = fanned_out(counters, catalog, principal.sees)
        view = None if found is None or found.name.startswith(HIDDEN) else found.name
        return {
            "epoch": record.epoch,
            "committed_at": record.committed_at,
            **{name: counters.get(name) for name in ("width", "seconds", *COUNTERS)},
            "spent": _by_activity(counters),
            "tasks_spent": _by_activity(counters.get(TASKS, {})),
            "fans_out": fan_out_words(counters, catalog, principal.sees),
            "fans_out_view": view,
        }


def _by_activity(counters: Mapping[str, Any]) -> dict[str, float]:
    return {each.name.lower(): counters[each.value] for each in Activity if each.value in counters}
