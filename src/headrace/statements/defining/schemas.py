"""CREATE SCHEMA and DROP SCHEMA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError, unknown
from headrace.parts.naming import SYSTEM_SCHEMA
from headrace.statements.defining.placing import listed

if TYPE_CHECKING:
    from headrace.parts.access import Access
    from headrace.parts.definer import Definer
    from headrace.parts.reader import Reader
    from headrace.parts.schemas import Schemas
    from headrace.sql import CreateSchema, DropSchema


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
