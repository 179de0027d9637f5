"""SHOW of state: sources, sinks, rejects, dirty slices, changes and epochs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.interfaces.statements.describing.effects import CARRIED
from headrace.interfaces.statements.describing.relations import is_shown, listed, moment
from headrace.interfaces.statements.results import shown_time
from headrace.lifecycle.facts.freshness import view_freshness
from headrace.lifecycle.history.dirty_slices import dirty_slices, origin_words, slice_words
from headrace.lifecycle.states.system_relations import JOB_COLUMNS, fan_out_words, jobs, spent_words
from headrace.planning.catalog import Relation, Sink, Table
from headrace.planning.catalog.naming import shown_name
from headrace.planning.sql import Listing, Role

if TYPE_CHECKING:
    from headrace.execution.runtime.deliveries import Deliveries
    from headrace.interfaces.statements.results import Listed
    from headrace.lifecycle.history.amending import PendingVersions
    from headrace.lifecycle.inputs.sources import SourceStates
    from headrace.lifecycle.states.access import Principal
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.sql import Show
    from headrace.storage.ledger import Ledger


_MOST_EPOCHS = 100
_MOST_REJECTS = 1000
_COUNTERS = (
    "jobs", "operators", "rows_in", "rows_out", "rows_read", "bytes_written", "files",
    "fallbacks",
)  # fmt: skip
_REJECTS = (
    "relation", "file", "line", "column", "reason", "raw", "at", "id", "acknowledged_at",
)  # fmt: skip
_COUNTED = ("rejected", "duplicates", "late", "watermark")
_FRESHNESS = (
    "view", "epoch", "committed_at", "changes_behind", "state",
    "seconds_behind", "watermark", "dirty_since", "inputs",
    "refresh", "next_refresh", "quarantined", "waits_for",
)  # fmt: skip

_DIRTY = (
    "view", "cause", "slice", "since", "age_seconds", "origin", "repair", "cost", "rebuild_cost",
    "state", "detail",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StateListings:
    """Lists the state of sources, sinks and views, and the records of epochs and repairs."""

    reader: Reader
    ledger: Ledger
    deliveries: Deliveries
    sources: SourceStates
    versions: PendingVersions
    principal: Principal

    def show(self, statement: Show) -> Listed:
        """Return the listing of a statement."""
        match statement.listing:
            case Listing.SOURCES:
                return self._sources()
            case Listing.SINKS | Listing.JOBS:
                state = self.reader.published
                return listed(JOB_COLUMNS, jobs(self.deliveries, state, self.principal.sees))
            case Listing.REJECTS:
                return self._rejects(statement)
            case Listing.DIRTY:
                return self._dirty(statement)
            case Listing.CHANGES:
                return self._changes(statement)
            case Listing.EPOCHS:
                return self._epochs()
            case Listing.FRESHNESS:
                return self._freshness()
            case _:
                raise HeadraceError(Code.INTERNAL, f"SHOW {statement.listing} is not listed here")

    def _sources(self) -> Listed:
        """List the state of each source, its unread changes, and its rejected and dropped rows."""
        rows = [
            (
                source.name,
                source.kind,
                ", ".join(source.key),
                "embedded" if source.inserted else source.fed.state,
                source.connector,
                source.fed.behind,
                source.rejected,
                source.duplicates,
                source.late,
                moment(source.watermark),
                source.fed.error,
            )
            for source in self.sources.of(filter(self._shows, self.reader.catalog))
            if source.kind != "source" or self.principal.may(Role.READER)
            if not (source.inserted and source.kind == Table.kind)
        ]
        names = ("name", "kind", "key", "state", "connector", "behind", *_COUNTED, "error")
        return listed(names, rows)

    def _rejects(self, statement: Show) -> Listed:
        catalog, ledger = self.reader.catalog, self.ledger
        if statement.relation is not None:
            named = statement.relation
            relations: list[Relation] = [catalog.resolve(named.dotted, named.span)]
        else:
            seen = (each for each in catalog if self.principal.sees(each.name))
            relations = [each for each in seen if not isinstance(each, Sink)]
        rows = [
            (
                relation.name,
                record.reject.file,
                record.reject.line,
                record.reject.column,
                record.reject.reason,
                record.reject.raw,
                shown_time(record.at),
                record.id,
                None if record.acknowledged_at is None else shown_time(record.acknowledged_at),
            )
            for relation in relations
            for record in ledger.rejects.newest(relation.id, _MOST_REJECTS)
        ]
        return listed(_REJECTS, rows[: statement.limit])

    def _dirty(self, statement: Show) -> Listed:
        """List the dirty entries of one view, or of all visible views, oldest first."""
        state = self.reader.published
        only = None
        if statement.relation is not None:
            only = state.catalog.resolve(statement.relation.dotted, statement.relation.span).id
        rows = [
            (
                shown_name(found.relation, state.catalog),
                found.entry.cause,
                slice_words(found.entry.slice),
                shown_time(found.entry.since),
                round(found.seconds, 3),
                found.origin,
                found.entry.repair.value,
                found.entry.cost,
                found.entry.whole,
                found.entry.state.value,
                found.detail,
            )
            for found in dirty_slices(self.ledger, self.versions, state, self.principal.sees)
            if only in {None, found.relation.id}
        ]
        return listed(_DIRTY, rows)

    def _changes(self, statement: Show) -> Listed:
        """List how one view, or all visible views, followed the latest changes."""
        catalog, sees = self.reader.catalog, self.principal.sees
        only = None
        if statement.relation is not None:
            only = catalog.resolve(statement.relation.dotted, statement.relation.span).id
        rows = [
            (
                shown_time(record.at),
                relation.name,
                found.path.value,
                found.rule if catalog.sees_all(sees, relation.id) else None,
                found.cost,
                found.changed,
                found.whole,
                origin_words(record.origin) if catalog.sees_all(sees, relation.id) else None,
            )
            for record in self.ledger.dirty.changes()
            for found in (record.carried,)
            if (relation := catalog.by_id.get(found.view)) is not None
            and sees(relation.name)
            and only in {None, relation.id}
        ]
        return listed(("at", *CARRIED, "origin"), rows)

    def _epochs(self) -> Listed:
        """List the newest epochs: how wide each was and why, its time, and what fanned out."""
        catalog, sees = self.reader.catalog, self.principal.sees
        rows = [
            (
                record.epoch,
                shown_time(record.committed_at),
                *(record.counters.get(name) for name in ("width", "changes", "seconds")),
                spent_words(record.counters),
                fan_out_words(record.counters, catalog, sees),
                *(record.counters.get(name) for name in _COUNTERS),
            )
            for record in self.ledger.epochs.newest(_MOST_EPOCHS)
        ]
        first = ("epoch", "committed_at", "width", "changes", "seconds", "spent", "fans_out")
        return listed((*first, *_COUNTERS), rows)

    def _freshness(self) -> Listed:
        """List how current each view is; ``inputs`` has the position read in each input log."""
        state = self.reader.published
        rows = [
            (
                found.view.name,
                found.epoch,
                shown_time(found.shown_at),
                found.pending,
                found.state,
                round(found.seconds, 3),
                moment(found.watermark),
                None if found.dirty_since is None else shown_time(found.dirty_since),
                ", ".join(
                    f"{i.relation} {i.position:,} of {i.end:,}"
                    for i in found.inputs
                    if self.principal.sees(i.relation)
                ),
                str(found.view.refresh),
                None if found.next_refresh is None else shown_time(found.next_refresh),
                found.quarantined,
                found.waits_for,
            )
            for found in view_freshness(self.reader, self.sources.admission, state)
            if self.principal.sees(found.view.name)
        ]
        return listed(_FRESHNESS, rows)

    def _shows(self, relation: Relation) -> bool:
        return is_shown(relation, self.principal)
