"""The name of a new relation and the relations that it replaces; how messages name relations."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from headrace.catalog import PlainView, Relation, Sink, Stream, Table, View
from headrace.errors import Code, HeadraceError
from headrace.parts.naming import HIDDEN, SYSTEM_SCHEMA
from headrace.sql import (
    CreateMaterializedView,
    CreateSink,
    CreateStream,
    CreateTable,
    CreateTableAs,
    CreateView,
    Name,
    ObjectKind,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.catalog import Catalog
    from headrace.types import RelationId

Placed: TypeAlias = (
    CreateStream | CreateTable | CreateMaterializedView | CreateTableAs | CreateView | CreateSink
)

WORDS = {
    Stream: "STREAM",
    Table: "TABLE",
    View: "MATERIALIZED VIEW",
    PlainView: "VIEW",
    Sink: "SINK",
}
"""The keyword of each kind of relation in statements."""


def place_of(catalog: Catalog, name: Name, statement: Placed) -> tuple[RelationId, ...] | None:
    """Return the relations that the new one replaces; None if IF NOT EXISTS finds one."""
    existing = catalog.find(name.dotted)
    if name.dotted.startswith(HIDDEN):
        raise HeadraceError(Code.INVALID, f'name "{name}" is reserved', span=name.span)
    if name.dotted.startswith(f"{SYSTEM_SCHEMA}."):
        raise HeadraceError(
            Code.INVALID,
            f"schema {SYSTEM_SCHEMA} is read-only",
            hint="Use another schema, or a name without one.",
            span=name.span,
        )
    if existing is None:
        return ()
    if statement.if_not_exists:
        return None
    if not statement.or_replace:
        raise HeadraceError(
            Code.CONFLICT,
            f'{existing.kind} "{existing.name}" exists already',
            hint="Use CREATE OR REPLACE, or IF NOT EXISTS.",
            span=name.span,
        )
    if not isinstance(existing, _replaceable(statement)):
        raise HeadraceError(
            Code.CONFLICT,
            f'"{existing.name}" is a {existing.kind}, which is not replaced by another kind',
            hint=f"Choose another name, or DROP {WORDS[type(existing)]} {existing.name} first.",
            span=name.span,
        )
    redefines = isinstance(statement, CreateMaterializedView | CreateTableAs)
    if not (redefines and isinstance(existing, View)):  # else that depends on the query
        catalog.without([existing.id], name.span)
    return (existing.id,)


def listed(relations: Iterable[Relation]) -> str:
    """Return the names of relations, quoted, without hidden ones."""
    return ", ".join(f'"{r.name}"' for r in relations if not r.name.startswith(HIDDEN))


def _replaceable(statement: Placed) -> tuple[type[Relation], ...]:
    """Return the kinds of relations that a statement with OR REPLACE may replace."""
    match statement:
        case CreateStream() if not statement.primary_key:
            return (Stream,)
        case CreateStream():
            return (Stream, Table)
        case CreateTable():
            return (Table, View)
        case CreateTableAs():
            return (View, Stream if statement.kind is ObjectKind.STREAM else Table)
        case CreateView() | CreateMaterializedView():
            return (View, PlainView)
        case CreateSink():
            return (Sink,)
