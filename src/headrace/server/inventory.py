"""Relations as the server's catalog describes them: state, freshness and stored size.

Nothing here runs Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from headrace.catalog import PlainView, Sink, Stream, Table, View, key_of
from headrace.history.dirty_slices import dirty_slices
from headrace.parts.freshness import view_freshness
from headrace.parts.jobs import JOB_COLUMNS, jobs
from headrace.parts.naming import DEFAULT_SCHEMA, HIDDEN, schema_of
from headrace.parts.sizes import row_count
from headrace.runtime.published import STOPPED, WAITING
from headrace.sql import Role
from headrace.types import RelationId, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.catalog import Relation
    from headrace.history.pending_versions import PendingVersions
    from headrace.ledger import Ledger
    from headrace.parts.access import Principal
    from headrace.parts.freshness import ViewFreshness
    from headrace.parts.reader import Reader
    from headrace.parts.sources import SourceState, SourceStates
    from headrace.runtime.deliveries import Deliveries
    from headrace.runtime.published import Published
    from headrace.session.information_schema import InformationSchema


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
