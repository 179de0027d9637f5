"""``GET /v1/views/{name}/changes``: the latest stored changes of a table or view."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.catalog import Table, View, key_of
from headrace.connectors.lines import json_lines
from headrace.errors import Code, HeadraceError
from headrace.server.answers import done, type_name
from headrace.server.entrance import asking
from headrace.server.events import ChangelogPosition
from headrace.server.lookups import named
from headrace.server.requests import count, number
from headrace.types import Epoch
from headrace.zset import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request
    from starlette.responses import Response

    from headrace.parts.reader import Reader
    from headrace.runtime.published import Published
    from headrace.server.running import RequestCalls
    from headrace.session import Session

_DEFAULT: Final = 100
_MOST: Final = 1000
_EPOCHS: Final = 64
"""The number of epochs that are read together."""


@dataclass(frozen=True, slots=True)
class ChangeHandlers:
    """Reads stored changes of tables and views."""

    reader: Reader
    calls: RequestCalls

    async def read_changes(self, request: Request) -> Response:
        """Return the latest changes of a table or view, by epoch, oldest first.

        They end with the epoch of ``token``, from which ``GET /v1/subscribe`` can continue.
        ``complete`` says that no older changes exist.
        """
        relation = named(self.reader.catalog, request.path_params["name"], asking(request))
        if not isinstance(relation, Table | View):
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'{relation.kind} "{relation.name}" keeps no changes',
                hint="Read those of a table or a materialized view.",
            )
        wanted = relation
        asked = count(request, "limit")
        most = min(_DEFAULT if asked is None else asked, _MOST)
        reader = self.reader

        def call(_session: Session) -> dict[str, Any]:
            state, found, left, first = reader.published, [], most, Epoch(0)
            for epoch, changes in _newest_first(reader, state, wanted):
                first, held = epoch, changes[:left]
                at = reader.ledger.epochs.committed_at(epoch)
                found.append({"epoch": epoch, "committed_at": at, "changes": held})
                left -= len(held)
                if left <= 0:
                    break
            columns = reader.history(state, wanted.id).layout.columns
            return {
                "relation": wanted.name,
                "columns": [{"name": f.name, "type": type_name(f.type)} for f in columns],
                "epoch": state.epoch,
                "token": str(ChangelogPosition(state.epoch, wanted.id)),
                "complete": left > 0 or first == 0,
                "epochs": found[::-1],
            }

        return done(await self.calls.run(request, call, number(request, "timeout")))


def _newest_first(
    reader: Reader, state: Published, relation: Table | View
) -> Iterator[tuple[Epoch, list[Any]]]:
    """Yield the retained epochs that changed a relation, newest first."""
    history, key = reader.history(state, relation.id), key_of(relation)
    names = [*history.layout.columns.names, WEIGHT]
    upto = state.epoch
    since = max(Epoch(0), reader.ledger.spines.since(history.id))
    while upto > since:
        after = Epoch(max(since, upto - _EPOCHS))
        # Holding the state keeps its files until they are read.
        held = reader.as_of(after, state, [relation])
        for epoch, delta in reversed(list(history.changes(after, upto))):
            lines = json_lines(epoch, delta.table.select(names).slice(0, _MOST), key)
            if delta.rows:
                yield epoch, [json.loads(line) for line in lines]
        del held
        upto = after
