"""The route that lists the lineage of a relation by column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import HeadraceError
from headrace.server.answers import done
from headrace.server.catalog import resolved
from headrace.server.entrance import asking
from headrace.server.failures import StatusError
from headrace.statements.describing.lineage import LineageListings, column_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from headrace.parts.datasets import Datasets
    from headrace.parts.lineage import Lineages
    from headrace.parts.openlineage import OpenLineage
    from headrace.parts.reader import Reader
    from headrace.server.running import RequestCalls
    from headrace.session import Session

_NOT_FOUND: Final = 404


@dataclass(frozen=True, slots=True)
class LineageHandlers:
    """Lists what columns are made from, and what is made from them."""

    reader: Reader
    lineages: Lineages
    datasets: Datasets
    openlineage: OpenLineage
    calls: RequestCalls

    async def read_lineage(self, request: Request) -> Response:
        """List the inputs of a relation's columns, and what depends on its columns.

        The answer has two lists of dependences: upstream, and downstream. With a column, only its
        own are listed. Relations whose definition the client may not see are left out.
        """
        principal, asked = asking(request), request.query_params.get("column")
        relation = resolved(self.reader.catalog, request.path_params["name"], principal)
        try:
            column = None if asked is None else column_of(relation, asked)
        except HeadraceError as error:
            raise StatusError(_NOT_FOUND, error) from error

        def call(_session: Session) -> dict[str, Any]:
            listings = LineageListings(
                self.reader, self.lineages, self.datasets, self.openlineage, principal
            )

            def listed(*, downstream: bool) -> list[dict[str, Any]]:
                found = listings.of(relation, column, downstream=downstream)
                return [dict(zip(found.names, row, strict=True)) for row in found.rows]

            return {
                "relation": relation.name,
                "upstream": listed(downstream=False),
                "downstream": listed(downstream=True),
            }

        return done(await self.calls.run(request, call))
