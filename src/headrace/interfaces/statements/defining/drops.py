"""DROP of relations, sinks and sources; messages name everything that it affects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.interfaces.statements.defining.placing import WORDS, listed
from headrace.planning.catalog import PlainView, Relation, Sink, Stream, Table, View
from headrace.planning.catalog.naming import HIDDEN
from headrace.planning.sql import Drop, ObjectKind

if TYPE_CHECKING:
    from headrace.interfaces.statements.defining.connections import CaptureChanges
    from headrace.lifecycle.definitions.definer import Definer
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Catalog, Defined


@dataclass(frozen=True, slots=True)
class Drops:
    """Drops relations, sinks and sources."""

    reader: Reader
    definer: Definer
    capture_changes: CaptureChanges

    def drop(self, statement: Drop) -> str:
        """Drop a relation; with CASCADE, also the views that depend on it."""
        if self.capture_changes.owns(statement):
            return self.capture_changes.drop(statement)
        catalog, name = self.reader.catalog, statement.name
        relation = catalog.find(name.dotted)
        if relation is None and statement.if_exists:
            return f'"{name}" does not exist'
        relation = catalog.resolve(name.dotted, name.span)
        _check_kind(relation, statement)
        above = dropped_with(catalog, relation)
        visible = [view for view in above if not view.name.startswith(HIDDEN)]
        if visible and not statement.cascade:
            raise HeadraceError(
                Code.CONFLICT,
                f'{relation.kind} "{relation.name}" is used by {listed(visible)}',
                hint=f"Use DROP {WORDS[type(relation)]} {relation.name} CASCADE to drop these too.",
                span=name.span,
            )
        self.definer.drop([relation.id, *(view.id for view in above)])
        also = f" and {listed(visible)} over it" if visible else ""
        return f"dropped {WORDS[type(relation)].lower()} {relation.name}{also}"


def dropped_with(catalog: Catalog, relation: Relation) -> list[Defined]:
    """Return the relations that depend on a relation, and the sinks that write into it."""
    above = list(catalog.dependants(relation.id))
    if isinstance(relation, View) and relation.into is not None:
        more = catalog.dependants(relation.into)
        above += [each for each in more if each.id != relation.id and each not in above]
    return above


def _check_kind(relation: Relation, statement: Drop) -> None:
    kinds = {
        ObjectKind.STREAM: (Stream, View),
        ObjectKind.SOURCE: (Stream, Table),
        ObjectKind.TABLE: (Table, View),
        ObjectKind.VIEW: (View, PlainView),
        ObjectKind.MATERIALIZED_VIEW: (View,),
        ObjectKind.SINK: (Sink,),
        ObjectKind.JOB: (Sink,),
    }
    if not isinstance(relation, kinds[statement.kind]):
        raise HeadraceError(
            Code.INVALID,
            f'"{relation.name}" is a {relation.kind}, not a {statement.kind}',
            hint=f"Use DROP {WORDS[type(relation)]} {relation.name}.",
            span=statement.name.span,
        )
