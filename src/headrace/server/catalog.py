"""What there is: relations, how current they are, what they store; what a stream or table takes.

None of it runs Spark.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from headrace.catalog import PlainView, Sink, Stream, Table, View, key_of
from headrace.circuit import rows_of
from headrace.circuit.explain import described
from headrace.errors import Code, HeadraceError, Span
from headrace.history.dirty_slices import dirty_slices
from headrace.parts.freshness import view_freshness
from headrace.parts.jobs import JOB_COLUMNS, jobs
from headrace.parts.naming import HIDDEN
from headrace.parts.stopped import view_state
from headrace.parts.written_rows import given_time
from headrace.runtime.published import STOPPED, WAITING
from headrace.server.answers import done
from headrace.server.entrance import asking
from headrace.server.failures import Refused
from headrace.sql import KEYWORDS, Role
from headrace.statements.changing.targets import chosen, writable
from headrace.statements.describing.explanations import sizes
from headrace.types import RelationId, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from starlette.requests import Request
    from starlette.responses import Response

    from headrace.catalog import Catalog, Relation
    from headrace.circuit.explain import Described
    from headrace.parts.access import Principal
    from headrace.parts.freshness import ViewFreshness
    from headrace.parts.sources import SourceState
    from headrace.runtime.published import Published
    from headrace.server.service import Service
    from headrace.session.parts import Parts

_NOT_FOUND: Final = 404
_MOST_UNREAD_BYTES: Final = 64 << 20
"""How much of files that nobody has read yet is read to count a relation's rows."""


async def list_catalog(service: Service, request: Request) -> Response:
    """List relations and sinks with their columns, inputs, state, size and freshness.

    And the functions that queries can call, and the keywords of statements.
    """
    parts, principal = service.database.parts, asking(request)

    def call() -> dict[str, Any]:
        state = parts.reader.published
        return {
            "epoch": state.epoch,
            "committed_at": state.committed_at,
            "pending": parts.reader.behind(state),
            **_relations(parts, state, principal),
            "functions": service.database.functions(),
            "keywords": KEYWORDS,
        }

    async with service.sessions.used(None, principal) as session:
        return done(await service.runner.run(session, call, request.receive))


async def describe_relation(service: Service, request: Request) -> Response:
    """Describe one relation: as the catalog does, with its SQL, its circuit and arrangements."""
    parts, principal = service.database.parts, asking(request)
    relation = resolved(parts.reader.catalog, request.path_params["name"], principal)

    def call() -> dict[str, Any]:
        state = parts.reader.published
        (found,) = _relations(parts, state, principal, relation)["relations"]
        shown = state.catalog.sees_all(principal.sees, relation.id)
        view = relation if shown and isinstance(relation, View) else None
        found["circuit"] = None if view is None else _circuit(parts, view)
        found["sql"] = _created(relation) if shown else None
        return dict(found)

    async with service.sessions.used(None, principal) as session:
        return done(await service.runner.run(session, call, request.receive))


async def describe_target(service: Service, request: Request) -> Response:
    """Describe what a stream or table takes: its columns but the generated ones, and defaults.

    Columns are in the JSON of Spark's ``StructType``; ``optional`` ones can be given besides.
    """
    catalog = service.database.parts.reader.catalog
    relation = writable(catalog, resolved(catalog, request.path_params["name"], asking(request)))
    time = given_time(relation)
    return done(
        {
            "columns": Schema(chosen(relation, (), Span.whole(relation.name))).to_json(),
            "optional": Schema(() if time is None else (time,)).to_json(),
            "defaults": [column for column, _ in relation.declaration.defaults],
        }
    )


def resolved(catalog: Catalog, name: str, principal: Principal) -> Relation:
    """Return the relation that a path names.

    Raises:
        Refused: ``invalid``, with status 404, if there is none.
    """
    try:
        return catalog.resolve(name)
    except HeadraceError as error:
        hint = error.hint if principal.may(Role.READER) else None  # it may name what is not seen
        missing = HeadraceError(error.code, error.primary, error.detail, hint)
        raise Refused(_NOT_FOUND, missing) from error


def _relations(
    parts: Parts, state: Published, principal: Principal, only: Relation | None = None
) -> dict[str, Any]:
    """Return relations with sinks, and the sources that several tables share.

    They are those that a principal may know of.
    """
    sees = principal.sees
    fresh = {f.view.id: f for f in view_freshness(parts.reader, parts.log.admission, state)}
    listed = [r for r in state.catalog if not r.name.startswith(HIDDEN) and sees(r.name)]
    wanted = listed if only is None else [r for r in listed if r.id == only.id]
    sources = {source.name: source for source in parts.sources.of(iter(wanted))}
    delivered = {
        row[0]: dict(zip(JOB_COLUMNS, row, strict=True))
        for row in jobs(parts.deliveries, state, sees)
    }
    stored = _stored(parts, state, wanted)
    why = {
        found.relation.id: found.detail
        for found in dirty_slices(parts.ledger, parts.versions, state, sees)
        if found.entry.cause in (STOPPED, WAITING)
    }
    relations = [
        {
            "name": relation.name,
            "kind": "materialized view" if isinstance(relation, View) else relation.kind,
            "state": _state_of(relation, state, sources, delivered),
            "key": key_of(relation),
            "columns": [
                {"name": c.name, "type": c.sql, "nullable": c.nullable}
                for c in relation.schema.columns
            ],
            "inputs": [name for name in _inputs(state, relation) if sees(name)],
            "target": _target(relation, delivered),
            "stored": stored.get(relation.id),
            "freshness": _freshness(fresh.get(relation.id), sees, why.get(relation.id)),
            "source": _source(sources.get(relation.name), parts, relation),
            "delivery": delivered.get(relation.name) if isinstance(relation, Sink) else None,
        }
        for relation in wanted
    ]
    whole = principal.may(Role.READER)
    apart = [s for s in sources.values() if whole and s.kind == "source"]
    shared = [_source(source, parts, None) for source in apart]
    return {"relations": relations, "sources": shared}


def _state_of(
    relation: Relation,
    state: Published,
    sources: dict[str, SourceState],
    delivered: dict[str, dict[str, Any]],
) -> str:
    """Return what a relation does now: ``running``, or what keeps it from that."""
    if relation.id in state.stopped:
        return "stopped"
    match relation:
        case Stream() | Table():
            return sources[relation.name].fed.state
        case Sink():
            return str(delivered.get(relation.name, {}).get("state", "starting"))
        case View() | PlainView():
            return view_state(relation, state.stopped)


def _inputs(state: Published, relation: Relation) -> list[str]:
    """Return the names of what a view or sink reads; hidden relations are passed through."""
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
    """Return where a sink writes: a relation, or a connector."""
    if not isinstance(relation, Sink):
        return None
    found = delivered.get(relation.name, {}).get("target")
    return None if found is None else str(found)


def _stored(
    parts: Parts, state: Published, wanted: Iterable[Relation]
) -> dict[int, dict[str, int | None]]:
    """Return what is stored of each relation: its rows, the entries that sum to them, all bytes."""
    by_id = {relation.id: relation for relation in wanted}
    found: dict[int, dict[str, int | None]] = {}
    for record in parts.ledger.spines.arrangements():
        runs, relation = state.spines.get(record.id), by_id.get(RelationId(record.owner))
        if runs is None or relation is None:
            continue
        size = sum(run.bytes for run in runs)
        empty = {"rows": None, "entries": 0, "bytes": 0, "arrangements": 0}
        one = found.setdefault(record.owner, {**empty})
        one["arrangements"] = (one["arrangements"] or 0) + 1
        one["bytes"] = (one["bytes"] or 0) + size
        if record.id == rows_of(record.owner):
            one["entries"] = sum(run.rows for run in runs)
            one["rows"] = _count(parts, state, relation)
    return found


def _count(parts: Parts, state: Published, relation: Relation) -> int | None:
    """Return how many rows a table or view has; None if much would be read to count them."""
    directory = parts.reader.directory
    if state.unread_bytes(relation, directory) > _MOST_UNREAD_BYTES:
        return None
    try:
        return state.spine(relation, directory).weight
    except HeadraceError as error:
        if error.code is not Code.CORRUPT:
            raise
        return None


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


def _source(
    found: SourceState | None, parts: Parts, relation: Relation | None
) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "name": found.name,
        "connector": found.connector,
        "state": found.fed.state,
        "behind": found.fed.behind,
        "error": found.fed.error,
        "rejected": found.rejected,
        "duplicates": found.duplicates,
        "late": found.late,
        "watermark": _seconds(found.watermark),
        "end": None if relation is None else parts.ledger.head.log_end(relation.id),
    }


def _circuit(parts: Parts, view: View) -> list[dict[str, Any]] | None:
    circuit = parts.declarations.circuit(view)
    if circuit is None:
        return None
    catalog = parts.reader.catalog
    nodes = described(circuit, lambda id_: catalog.by_id[id_].name, sizes(parts.ledger, circuit))
    return [_node(node, parts) for node in nodes]


def _node(node: Described, parts: Parts) -> dict[str, Any]:
    """Return a node of a circuit, with the work of its operator since the database was opened."""
    found = asdict(node)
    operator = found.pop("operator")
    work = None if operator is None else parts.loop.work.of(operator)
    return {**found, "work": None if work is None else asdict(work)}


def _created(relation: Relation) -> str:
    """Return the statement that created a relation, with secrets masked; else its query."""
    match relation:
        case Stream() | Table():
            return relation.declaration.created_sql
        case Sink():
            return relation.created_sql
        case View() | PlainView():
            return relation.created_sql or relation.query


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / 1_000_000
