"""Routes that list relations, describe each, and give the columns that appended rows may have.

Nothing here runs Spark.

``GET /v1/views/{name}/changes``: the latest stored changes of a table or view.

Relations as the server's catalog describes them: state, freshness and stored size.

Nothing here runs Spark.

The route that lists the lineage of a relation by column.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError, Span
from headrace.execution.runtime.published import STOPPED, WAITING
from headrace.interfaces.server.entrance import asking
from headrace.interfaces.server.events import ChangelogPosition
from headrace.interfaces.server.lookups import named
from headrace.interfaces.server.requests import StatusError, count, done, number, type_name
from headrace.interfaces.statements.changing.updates import chosen, writable
from headrace.interfaces.statements.describing.descriptions import LineageListings, column_of
from headrace.interfaces.statements.describing.explanations import sizes
from headrace.io.connectors.sinks import json_lines
from headrace.lifecycle.facts.freshness import view_freshness
from headrace.lifecycle.history.dirty_slices import dirty_slices
from headrace.lifecycle.inputs.rows import given_time
from headrace.lifecycle.states.evaluating import row_count
from headrace.lifecycle.states.system_relations import JOB_COLUMNS, jobs
from headrace.planning.catalog import PlainView, Sink, Stream, Table, View, key_of
from headrace.planning.catalog.naming import DEFAULT_SCHEMA, HIDDEN, schema_of
from headrace.planning.circuit.explain import described
from headrace.planning.sql import KEYWORDS, Role
from headrace.types import Epoch, RelationId, Schema, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from starlette.requests import Request
    from starlette.responses import Response

    from headrace.execution.runtime.deliveries import Deliveries
    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.published import Published
    from headrace.interfaces.server.metrics import MachineUsage
    from headrace.interfaces.server.running import RequestCalls
    from headrace.interfaces.session import Session
    from headrace.interfaces.session.information_schema import InformationSchema
    from headrace.lifecycle.definitions.functions import Functions
    from headrace.lifecycle.facts.freshness import ViewFreshness
    from headrace.lifecycle.facts.lineage import Lineages
    from headrace.lifecycle.facts.openlineage import OpenLineage
    from headrace.lifecycle.facts.openlineage_events import Datasets
    from headrace.lifecycle.history.amending import PendingVersions
    from headrace.lifecycle.inputs.sources import SourceState, SourceStates
    from headrace.lifecycle.states.access import Principal
    from headrace.lifecycle.states.declarations import Declarations
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Catalog, Relation
    from headrace.planning.circuit.explain import Described
    from headrace.storage.ledger import Ledger


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


@dataclass(frozen=True, slots=True)
class Inventory:
    """Describes relations."""

    reader: Reader
    ledger: Ledger
    sources: SourceStates
    deliveries: Deliveries
    versions: PendingVersions
    information: InformationSchema

    def relations(
        self, state: Published, principal: Principal, only: Relation | None = None
    ) -> dict[str, Any]:
        """Return the visible relations and sinks, and the sources that several tables share.

        Only those that the principal may see are returned.
        """
        sees = principal.sees
        fresh = {f.view.id: f for f in view_freshness(self.reader, self.sources.admission, state)}
        listed = [r for r in state.catalog if not r.name.startswith(HIDDEN) and sees(r.name)]
        wanted = listed if only is None else [r for r in listed if r.id == only.id]
        sources = {source.name: source for source in self.sources.of(iter(wanted))}
        delivered = {
            row[0]: dict(zip(JOB_COLUMNS, row, strict=True))
            for row in jobs(self.deliveries, state, sees)
        }
        stored = self._stored(state, wanted)
        why = {
            found.relation.id: found.detail
            for found in dirty_slices(self.ledger, self.versions, state, sees)
            if found.entry.cause in (STOPPED, WAITING)
        }
        relations = [
            {
                "name": relation.name,
                "kind": "materialized view" if isinstance(relation, View) else relation.kind,
                "state": _state_of(relation, state, sources, delivered),
                "role": principal.role_in(schema_of(relation.name)),
                "key": key_of(relation),
                "columns": [
                    {"name": c.name, "type": c.sql, "nullable": c.nullable}
                    for c in relation.schema.columns
                ],
                "inputs": [name for name in _inputs(state, relation) if sees(name)],
                "target": _target(relation, delivered),
                "stored": stored.get(relation.id),
                "freshness": _freshness(fresh.get(relation.id), sees, why.get(relation.id)),
                "source": self._source(sources.get(relation.name), relation),
                "delivery": self._delivery(delivered.get(relation.name), relation),
            }
            for relation in wanted
        ]
        whole = principal.may(Role.READER)
        apart = [s for s in sources.values() if whole and s.kind == "source"]
        shared = [self._source(source, None) for source in apart]
        return {"relations": relations, "sources": shared}

    def waiting(self, state: Published, principal: Principal) -> dict[str, Any]:
        """Return the candidates that wait, or have served, and the fills that are running."""
        return {
            name: [
                {
                    "name": (found := _dotted(row)),
                    "role": principal.role_in(schema_of(found)),
                    **{column: _plain(row[column]) for column in row if column not in _PLACE},
                }
                for row in self.information.listed(name, state, principal.sees)
            ]
            for name in ("candidates", "fills")
        }

    def _stored(
        self, state: Published, wanted: Iterable[Relation]
    ) -> dict[int, dict[str, int | None]]:
        """Return each relation's stored size: rows, the entries that sum to them, and bytes."""
        by_id = {relation.id: relation for relation in wanted}
        found: dict[int, dict[str, int | None]] = {}
        for record in self.ledger.spines.arrangements():
            runs, relation = state.spines.get(record.id), by_id.get(RelationId(record.owner))
            if runs is None or relation is None:
                continue
            size = sum(run.file.bytes for run in runs)
            empty = {"rows": None, "entries": 0, "bytes": 0, "arrangements": 0}
            one = found.setdefault(record.owner, {**empty})
            one["arrangements"] = (one["arrangements"] or 0) + 1
            one["bytes"] = (one["bytes"] or 0) + size
            if record.id == rows_of(record.owner):
                one["entries"] = sum(run.file.rows for run in runs)
                one["rows"] = row_count(state, relation, self.reader.directory)
        return found

    def _delivery(self, found: dict[str, Any] | None, relation: Relation) -> dict[str, Any] | None:
        if found is None or not isinstance(relation, Sink):
            return None
        return {**found, "acknowledged": self.ledger.rejects.counted(relation.id).acknowledged}

    def _source(
        self, found: SourceState | None, relation: Relation | None
    ) -> dict[str, Any] | None:
        if found is None:
            return None
        return {
            "name": found.name,
            "connector": found.connector,
            "shared_source": found.shared,
            "state": found.fed.state,
            "behind": found.fed.behind,
            "error": found.fed.error,
            "rejected": found.rejected,
            "acknowledged": found.acknowledged,
            "duplicates": found.duplicates,
            "late": found.late,
            "watermark": _seconds(found.watermark),
            "delay": _seconds(found.delay),
            "lateness": _seconds(found.lateness),
            "end": None if relation is None else self.ledger.head.log_end(relation.id),
        }


_PLACE: Final = ("table_schema", "table_name")


def _dotted(row: dict[str, Any]) -> str:
    """Return the name of what a row is about, as statements write it."""
    schema, name = (row[column] for column in _PLACE)
    return str(name) if schema == DEFAULT_SCHEMA else f"{schema}.{name}"


def _plain(value: Any) -> Any:
    """Return a value of a row as JSON has it: times are Unix seconds."""
    return value.timestamp() if isinstance(value, datetime) else value


def _state_of(
    relation: Relation,
    state: Published,
    sources: dict[str, SourceState],
    delivered: dict[str, dict[str, Any]],
) -> str:
    """Return a relation's state: ``running``, or why it does not run."""
    if relation.id in state.stopped:
        return "stopped"
    match relation:
        case Stream() | Table():
            return sources[relation.name].fed.state
        case Sink():
            return str(delivered.get(relation.name, {}).get("state", "starting"))
        case View() | PlainView():
            return state.word_for(relation)


def _inputs(state: Published, relation: Relation) -> list[str]:
    """Return the names of a view's or sink's inputs; a hidden input is replaced by its inputs."""
    if isinstance(relation, Stream | Table):
        return []
    ids = (relation.source,) if isinstance(relation, Sink) else relation.inputs
    found: dict[str, None] = {}
    for id_ in ids:
        below = state.catalog.by_id[id_]
        hidden = below.name.startswith(HIDDEN)
        found |= dict.fromkeys(_inputs(state, below) if hidden else [below.name])
    return list(found)


def _target(relation: Relation, delivered: dict[str, dict[str, Any]]) -> str | None:
    """Return a sink's target: a relation or a connector."""
    if not isinstance(relation, Sink):
        return None
    found = delivered.get(relation.name, {}).get("target")
    return None if found is None else str(found)


def _freshness(
    found: ViewFreshness | None, sees: Callable[[str], bool], error: str | None
) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "pending": found.pending,
        "seconds": found.seconds,
        "watermark": _seconds(found.watermark),
        "dirty_since": found.dirty_since,
        "dirty_slices": found.dirty_slices,
        "refresh": str(found.view.refresh),
        "epoch": found.epoch,
        "shown_at": found.shown_at,
        "next_refresh": found.next_refresh,
        "quarantined": found.quarantined,
        "waits_for": found.waits_for,
        "error": error,
        "inputs": [
            {
                "relation": each.relation,
                "position": each.position,
                "end": each.end,
                "watermark": _seconds(each.watermark),
            }
            for each in found.inputs
            if sees(each.relation)
        ],
    }


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / 1_000_000


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
