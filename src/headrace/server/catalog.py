"""Routes that list relations, describe each, and give the columns that appended rows may have.

Nothing here runs Spark.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.catalog import PlainView, Sink, Stream, Table, View
from headrace.circuit.explain import described
from headrace.errors import HeadraceError, Span
from headrace.parts.naming import HIDDEN
from headrace.parts.written_rows import given_time
from headrace.server.answers import done
from headrace.server.entrance import asking
from headrace.server.failures import StatusError
from headrace.sql import KEYWORDS, Role
from headrace.statements.changing.targets import chosen, writable
from headrace.statements.describing.explanations import sizes
from headrace.types import Schema

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from headrace.catalog import Catalog, Relation
    from headrace.circuit.explain import Described
    from headrace.ledger import Ledger
    from headrace.parts.access import Principal
    from headrace.parts.declarations import Declarations
    from headrace.parts.functions import Functions
    from headrace.parts.reader import Reader
    from headrace.runtime.epoch import EpochLoop
    from headrace.server.inventory import Inventory
    from headrace.server.running import RequestCalls
    from headrace.server.usage import MachineUsage
    from headrace.session import Session

_NOT_FOUND: Final = 404


@dataclass(frozen=True, slots=True)
class CatalogHandlers:
    """Describes the relations of a database."""

    reader: Reader
    functions: Functions
    inventory: Inventory
    circuits: Circuits
    usage: MachineUsage
    calls: RequestCalls

    async def list_catalog(self, request: Request) -> Response:
        """List relations and sinks with their columns, inputs, state, size and freshness.

        The answer also has candidates and running fills, what views cost and what the server uses,
        the role of the client, the functions that queries can call, and the keywords of statements.
        """
        principal = asking(request)

        def call(_session: Session) -> dict[str, Any]:
            state = self.reader.published
            return {
                "epoch": state.epoch,
                "committed_at": state.committed_at,
                "pending": self.reader.behind(state),
                "client": {"name": principal.name, "role": principal.role_in()},
                **self.inventory.relations(state, principal),
                **self.inventory.waiting(state, principal),
                "costs": self.circuits.costs(principal),
                "server": self.usage.to_json() if principal.may(Role.READER) else None,
                "functions": sorted(self.functions.registered),
                "keywords": KEYWORDS,
            }

        return done(await self.calls.run(request, call))

    async def describe_relation(self, request: Request) -> Response:
        """Describe one relation: its catalog entry with its SQL, circuit and arrangements."""
        principal = asking(request)
        relation = resolved(self.reader.catalog, request.path_params["name"], principal)

        def call(_session: Session) -> dict[str, Any]:
            state = self.reader.published
            (found,) = self.inventory.relations(state, principal, relation)["relations"]
            shown = state.catalog.sees_all(principal.sees, relation.id)
            view = relation if shown and isinstance(relation, View) else None
            found["circuit"] = None if view is None else self.circuits.nodes(view)
            found["sql"] = _created(relation) if shown else None
            return dict(found)

        return done(await self.calls.run(request, call))

    async def describe_target(self, request: Request) -> Response:
        """Describe the columns that appended rows may have: all but generated ones, with defaults.

        Columns are in the JSON of Spark's ``StructType``; rows may also have the ``optional`` ones.
        """
        catalog = self.reader.catalog
        named = resolved(catalog, request.path_params["name"], asking(request))
        relation = writable(catalog, named)
        time = given_time(relation)
        return done(
            {
                "columns": Schema(chosen(relation, (), Span.whole(relation.name))).to_json(),
                "optional": Schema(() if time is None else (time,)).to_json(),
                "defaults": [column for column, _ in relation.declaration.defaults],
            }
        )


@dataclass(frozen=True, slots=True)
class Circuits:
    """Describes the circuits of views."""

    reader: Reader
    ledger: Ledger
    declarations: Declarations
    loop: EpochLoop

    def nodes(self, view: View) -> list[dict[str, Any]] | None:
        """Return the nodes of a view's circuit; None while the view waits for a function."""
        circuit = self.declarations.circuit(view)
        if circuit is None:
            return None
        catalog, stored = self.reader.catalog, sizes(self.ledger, circuit)
        found = described(circuit, lambda id_: catalog.by_id[id_].name, stored)
        return [self._node(node) for node in found]

    def costs(self, principal: Principal) -> list[dict[str, Any]]:
        """Return what each view costs: the seconds of its operators since the database was opened.

        ``share`` is that among all operators. A ``candidate`` has the name of its view.
        """
        catalog = self.reader.catalog
        seconds = self.loop.work.seconds_by_owner(catalog)
        whole = sum(seconds.values()) or 1.0
        found = []
        for id_, own in seconds.items():
            relation = catalog.by_id[id_]
            of = relation.candidate_of if isinstance(relation, View) else None
            name = relation.name if of is None else catalog.by_id[of].name
            if not name.startswith(HIDDEN) and principal.sees(name):
                cost = {"name": name, "candidate": of is not None}
                found.append({**cost, "seconds": own, "share": own / whole})
        return found

    def _node(self, node: Described) -> dict[str, Any]:
        """Return a node with its operator's counters since the database was opened."""
        found = asdict(node)
        operator = found.pop("operator")
        work = None if operator is None else self.loop.work.of(operator)
        return {**found, "work": None if work is None else asdict(work)}


def resolved(catalog: Catalog, name: str, principal: Principal) -> Relation:
    """Return the relation named in a path.

    Raises:
        StatusError: ``invalid``, with status 404, if it does not exist.
    """
    try:
        return catalog.resolve(name)
    except HeadraceError as error:
        # A hint may name relations that the client may not see.
        hint = error.hint if principal.may(Role.READER) else None
        missing = HeadraceError(error.code, error.primary, error.detail, hint)
        raise StatusError(_NOT_FOUND, missing) from error


def _created(relation: Relation) -> str:
    """Return the CREATE statement of a relation, with secrets masked, or a view's query."""
    match relation:
        case Stream() | Table():
            return relation.declaration.created_sql
        case Sink():
            return relation.created_sql
        case View() | PlainView():
            return relation.created_sql or relation.query
