"""The name of a new relation and the relations that it replaces; how messages name relations.

CREATE SCHEMA and DROP SCHEMA.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from headrace.errors import Code, HeadraceError, unknown
from headrace.planning.catalog import PlainView, Relation, Sink, Stream, Table, View
from headrace.planning.catalog.naming import HIDDEN, SYSTEM_SCHEMA
from headrace.planning.sql import (
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

    from headrace.lifecycle.definitions.definer import Definer
    from headrace.lifecycle.states.access import Access
    from headrace.lifecycle.states.declarations import Schemas
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Catalog
    from headrace.planning.sql import CreateSchema, DropSchema
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


@dataclass(frozen=True, slots=True)
class SchemaChanges:
    """Creates schemas, and drops them with their contents."""

    reader: Reader
    schemas: Schemas
    definer: Definer
    access: Access

    def create(self, statement: CreateSchema) -> str:
        """Create an empty schema."""
        name = statement.name.dotted
        if name in self.schemas.names(self.reader.catalog):
            if statement.if_not_exists:
                return f'"{name}" exists already'
            raise HeadraceError(
                Code.CONFLICT,
                f'schema "{name}" exists already',
                hint="Use CREATE SCHEMA IF NOT EXISTS.",
                span=statement.name.span,
            )
        self.schemas.add(name)
        return f"created schema {name}"

    def drop(self, statement: DropSchema) -> str:
        """Drop a schema; with CASCADE, everything in it and everything that depends on that."""
        name, catalog = statement.name.dotted, self.reader.catalog
        if name not in self.schemas.names(catalog) or name == SYSTEM_SCHEMA:
            if statement.if_exists and name != SYSTEM_SCHEMA:
                return f'"{name}" does not exist'
            known = sorted({*self.schemas.names(catalog)} - {SYSTEM_SCHEMA})
            if name != SYSTEM_SCHEMA:
                otherwise = "SHOW SCHEMAS lists what exists."
                raise unknown("schema", name, known, otherwise, statement.name.span)
            raise HeadraceError(
                Code.INVALID,
                f'schema "{name}" cannot be dropped',
                hint=f"There are: {', '.join(known)}." if known else None,
                span=statement.name.span,
            )
        inside = [r for r in catalog if r.name.rpartition(".")[0] == name]
        ids = {r.id for r in inside}
        above = {v.id: v for r in inside for v in catalog.dependants(r.id)}
        over = listed(v for id_, v in sorted(above.items()) if id_ not in ids)
        if inside and not statement.cascade:
            raise HeadraceError(
                Code.CONFLICT,
                f'schema "{name}" has {listed(inside)} in it',
                detail=f"Over them, outside of the schema: {over}." if over else None,
                hint=f"Use DROP SCHEMA {name} CASCADE to drop these too.",
                span=statement.name.span,
            )
        if inside:
            self.definer.drop(sorted({*ids, *above}))
        self.schemas.remove(name)
        self.access.forget_schema(name)
        contents = f" with {listed(inside)} in it" if inside else ""
        also = f" and {over} over it" if over else ""
        return f"dropped schema {name}{contents}{also}"
