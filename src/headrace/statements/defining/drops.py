"""DROP of relations, sinks and schemas; messages name everything that is dropped, or would be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog import PlainView, Relation, Sink, Stream, Table, View
from headrace.connectors import secrets_of
from headrace.errors import Code, HeadraceError
from headrace.parts.definer import Relations
from headrace.parts.naming import HIDDEN, SYSTEM_SCHEMA
from headrace.sql import Drop, DropSchema, DropSecret, ObjectKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.parts.instance import Instance


@dataclass(frozen=True, slots=True)
class Drops:
    """Drops objects of one instance."""

    instance: Instance

    def drop_schema(self, statement: DropSchema) -> str:
        """Drop a schema; with CASCADE, everything in it and everything that depends on that."""
        name, instance = statement.name.dotted, self.instance
        if name not in instance.schemas.names(instance.catalog) or name == SYSTEM_SCHEMA:
            if statement.if_exists and name != SYSTEM_SCHEMA:
                return f'"{name}" does not exist'
            known = sorted({*instance.schemas.names(instance.catalog)} - {SYSTEM_SCHEMA})
            raise HeadraceError(
                Code.INVALID,
                f'schema "{name}" cannot be dropped'
                if name == SYSTEM_SCHEMA
                else f'schema "{name}" does not exist',
                hint=f"There are: {', '.join(known)}." if known else None,
                span=statement.name.span,
            )
        inside = [r for r in instance.catalog if r.name.rpartition(".")[0] == name]
        ids = {r.id for r in inside}
        above = {v.id: v for r in inside for v in instance.catalog.dependants(r.id)}
        over = _listed(v for id_, v in sorted(above.items()) if id_ not in ids)
        if inside and not statement.cascade:
            raise HeadraceError(
                Code.CONFLICT,
                f'schema "{name}" has {_listed(inside)} in it',
                detail=f"Over them, outside of the schema: {over}." if over else None,
                hint=f"Use DROP SCHEMA {name} CASCADE to drop these too.",
                span=statement.name.span,
            )
        if inside:
            Relations(instance).drop(sorted({*ids, *above}))
        instance.schemas.remove(name)
        contents = f" with {_listed(inside)} in it" if inside else ""
        also = f" and {over} over it" if over else ""
        return f"dropped schema {name}{contents}{also}"

    def drop_secret(self, statement: DropSecret) -> str:
        """Drop a secret that no sink uses."""
        name, secrets = statement.name.dotted, self.instance.secrets
        if statement.if_exists and name not in {secret.name for secret in secrets}:
            return f'"{name}" does not exist'
        secrets.find(name, statement.name.span)
        using = [
            relation.name
            for relation in self.instance.catalog
            if isinstance(relation, Sink)
            and relation.target is None
            and name in secrets_of(relation.options)
        ]
        if using:
            raise HeadraceError(
                Code.CONFLICT,
                f'secret "{name}" is used by {", ".join(using)}',
                hint="Drop these first, or CREATE OR REPLACE the secret.",
                span=statement.name.span,
            )
        secrets.remove(name)
        return f"dropped secret {name}"

    def drop(self, statement: Drop) -> str:
        """Drop a relation; with CASCADE, also the views that depend on it."""
        instance, name = self.instance, statement.name
        relation = instance.catalog.find(name.dotted)
        if relation is None and statement.if_exists:
            return f'"{name}" does not exist'
        relation = instance.catalog.resolve(name.dotted, name.span)
        _check_kind(relation, statement)
        above = instance.catalog.dependants(relation.id)
        visible = [view for view in above if not view.name.startswith(HIDDEN)]
        if visible and not statement.cascade:
            raise HeadraceError(
                Code.CONFLICT,
                f'{relation.kind} "{relation.name}" is used by {_listed(visible)}',
                hint=f"Use DROP {WORDS[type(relation)]} {relation.name} CASCADE to drop these too.",
                span=name.span,
            )
        Relations(instance).drop([relation.id, *(view.id for view in above)])
        also = f" and {_listed(visible)} over it" if visible else ""
        return f"dropped {WORDS[type(relation)].lower()} {relation.name}{also}"


def _listed(relations: Iterable[Relation]) -> str:
    """Return the names of relations, quoted, without hidden ones."""
    return ", ".join(f'"{r.name}"' for r in relations if not r.name.startswith(HIDDEN))


WORDS = {
    Stream: "STREAM",
    Table: "TABLE",
    View: "MATERIALIZED VIEW",
    PlainView: "VIEW",
    Sink: "SINK",
}
"""The keyword of each kind of relation in statements."""


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
