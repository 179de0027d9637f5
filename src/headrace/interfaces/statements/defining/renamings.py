"""ALTER ... RENAME TO: another name of a relation, index, schema, secret or connection.

What is renamed keeps its id, so its rows, logs, positions of sinks and followers stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError, unknown
from headrace.interfaces.statements.defining.placing import WORDS
from headrace.lifecycle.definitions.renamed import (
    RenamedDefinitions,
    RenamedRelation,
    RenamedRelations,
    renamed_relation,
    with_own_name,
)
from headrace.planning.catalog import PlainView, Sink, Stream, Table, View
from headrace.planning.catalog.naming import DEFAULT_SCHEMA, HIDDEN, SYSTEM_SCHEMA, schema_of
from headrace.planning.circuit.reuse import AlteredColumns
from headrace.planning.sql import RenamedKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.execution.engine.engine import Engine
    from headrace.interfaces.statements.defining.connections import ConnectionChanges, SecretChanges
    from headrace.lifecycle.definitions.reshaping import Reshaping
    from headrace.lifecycle.inputs.feeding import Feeding
    from headrace.lifecycle.states.access import Access
    from headrace.lifecycle.states.declarations import Schemas
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Catalog, Defined, Relation
    from headrace.planning.sql import Name, Rename
    from headrace.types import RelationId


_KINDS = {
    RenamedKind.STREAM: (Stream, View),
    RenamedKind.SOURCE: (Stream, Table),
    RenamedKind.TABLE: (Table, Stream, View),
    RenamedKind.VIEW: (PlainView, View),
    RenamedKind.MATERIALIZED_VIEW: (View,),
    RenamedKind.SINK: (Sink,),
}


@dataclass(frozen=True, slots=True)
class Renamings:
    """Gives objects other names; what depends on them follows."""

    relation_renamings: RelationRenamings
    schema_renamings: SchemaRenamings
    secret_changes: SecretChanges
    connection_changes: ConnectionChanges

    def rename(self, statement: Rename) -> str:
        """Give an object another name.

        Raises:
            HeadraceError: ``invalid`` if it does not exist or is of another kind; ``conflict`` if
                the new name is taken, or what depends on it cannot follow; ``unsupported`` for
                kinds without RENAME.
        """
        match statement.kind:
            case RenamedKind.INDEX:
                return self.relation_renamings.index(statement)
            case RenamedKind.SCHEMA:
                return self.schema_renamings.rename(statement)
            case RenamedKind.SECRET:
                return self.secret_changes.rename(statement)
            case RenamedKind.CONNECTION:
                return self.connection_changes.rename(statement)
            case kind if kind in _KINDS:
                return self.relation_renamings.relation(statement)
            case kind:
                raise HeadraceError(
                    Code.UNSUPPORTED,
                    f"renaming a {kind} is not supported",
                    hint=f"CREATE another {kind} of the new name, and DROP this one once nothing"
                    " uses it.",
                    span=statement.name.span,
                )


@dataclass(frozen=True, slots=True)
class RelationRenamings:
    """Renames relations and indexes; what depends on them follows in the same epoch."""

    reader: Reader
    engine: Engine
    reshaping: Reshaping
    feeding: Feeding

    def relation(self, statement: Rename) -> str:
        """Rename a relation."""
        catalog, name = self.reader.catalog, statement.name
        relation = catalog.find(name.dotted)
        if relation is None and statement.if_exists:
            return f'"{name}" does not exist'
        relation = catalog.resolve(name.dotted, name.span)
        if not isinstance(relation, _KINDS[statement.kind]):
            raise HeadraceError(
                Code.INVALID,
                f'"{relation.name}" is a {relation.kind}, not a {statement.kind}',
                hint=f"Use ALTER {WORDS[type(relation)]} {relation.name} RENAME TO.",
                span=name.span,
            )
        to = _new_name(relation.name, statement.to)
        if to == relation.name:
            raise HeadraceError(
                Code.INVALID,
                f'{relation.kind} "{to}" has that name',
                hint="Names are the same in upper and lower case.",
                span=statement.to.span,
            )
        self._require_free(catalog, to, statement.to)
        self.alter([(relation, to)], name)
        return f"renamed {relation.kind} {relation.name} to {to}"

    def alter(self, pairs: Sequence[tuple[Relation, str]], place: Name) -> None:
        """Rename relations together, and what is named after them."""
        catalog = self.reader.catalog
        former = [relation for relation, _ in pairs]
        present = [renamed_relation(relation, to) for relation, to in pairs]
        for relation, to in pairs:
            candidate = catalog.candidate(relation.id)
            if candidate is not None:
                text = with_own_name(candidate.created_sql, relation.name, to)
                former.append(candidate)
                present.append(replace(candidate, created_sql=text))
        names = {relation.id: to for relation, to in pairs}
        renamed = RenamedRelations(tuple(RenamedRelation(r.name, to) for r, to in pairs))
        definitions = RenamedDefinitions.of_relations(renamed, self.engine.planner)

        def follow(defined: Defined) -> Defined:
            return _with_index_of(definitions.over(defined), names)

        try:
            self.reshaping.alter(former, present, AlteredColumns(), [follow])
        except HeadraceError as error:
            raise error.at(place.span) from error
        for relation in present:
            if isinstance(relation, Stream | Table):
                self.feeding.restart(relation)

    def _require_free(self, catalog: Catalog, to: str, name: Name) -> None:
        if to.startswith(HIDDEN) or schema_of(to) == SYSTEM_SCHEMA:
            raise HeadraceError(Code.INVALID, f'name "{name}" is reserved', span=name.span)
        other = catalog.find(to)
        if other is not None:
            raise HeadraceError(
                Code.CONFLICT,
                f'{other.kind} "{other.name}" exists already',
                hint=f"Choose another name, or DROP {WORDS[type(other)]} {other.name} first.",
                span=name.span,
            )

    def index(self, statement: Rename) -> str:
        """Rename an index."""
        catalog, name = self.reader.catalog, statement.name
        view = catalog.index(name.dotted)
        if view is None and statement.if_exists:
            return f'index "{name}" does not exist'
        if view is None or view.index is None:
            names = [v.index.name for v in catalog.views_in_order() if v.index is not None]
            raise unknown("index", name, names, "SHOW INDEXES lists what exists.", name.span)
        to = _new_name(view.index.name, statement.to)
        if schema_of(to) != schema_of(view.index.name):
            raise HeadraceError(
                Code.UNSUPPORTED,
                "an index is in the schema of its table or view",
                hint="Give its new name without a schema.",
                span=statement.to.span,
            )
        if catalog.index(to) is not None:
            raise HeadraceError(
                Code.CONFLICT, f'index "{to}" exists already', span=statement.to.span
            )
        text = with_own_name(view.created_sql, view.index.name, to)
        altered = replace(view, index=replace(view.index, name=to), created_sql=text)
        self.reshaping.alter([view], [altered], AlteredColumns())
        return f"renamed index {view.index.name} to {to}"


@dataclass(frozen=True, slots=True)
class SchemaRenamings:
    """Renames schemas with all that is in them."""

    reader: Reader
    schemas: Schemas
    access: Access
    relation_renamings: RelationRenamings

    def rename(self, statement: Rename) -> str:
        """Rename a schema; roles in it are roles in the new one."""
        catalog, name, to = self.reader.catalog, statement.name.dotted, statement.to.dotted
        known = self.schemas.names(catalog)
        if name in {SYSTEM_SCHEMA, DEFAULT_SCHEMA} or to in {SYSTEM_SCHEMA, DEFAULT_SCHEMA}:
            raise HeadraceError(
                Code.INVALID, f"schema {name} cannot be renamed to {to}", span=statement.span
            )
        if name not in known:
            if statement.if_exists:
                return f'"{name}" does not exist'
            otherwise = "SHOW SCHEMAS lists what exists."
            raise unknown("schema", name, known, otherwise, statement.name.span)
        if to in known:
            raise HeadraceError(
                Code.CONFLICT, f'schema "{to}" exists already', span=statement.to.span
            )
        inside = [r for r in catalog if r.name.rpartition(".")[0] == name]
        # Roles and the name first, so that at no time anybody has more than before.
        self.access.copy_roles(name, to)
        self.schemas.add(to)
        try:
            pairs = [(r, f"{to}.{r.name.rpartition('.')[2]}") for r in inside]
            if pairs:
                self.relation_renamings.alter(pairs, statement.name)
        except BaseException:
            self.access.forget_schema(to)
            self.schemas.remove(to)
            raise
        self.schemas.remove(name)
        self.access.forget_schema(name)
        return f"renamed schema {name} to {to}"


def _with_index_of(defined: Defined, names: Mapping[RelationId, str]) -> Defined:
    """Return an index in the schema of the present name of its relation; others unchanged."""
    if not isinstance(defined, View) or defined.index is None or defined.index.of not in names:
        return defined
    schema, own = schema_of(names[defined.index.of]), defined.index.name.rpartition(".")[2]
    name = own if schema == DEFAULT_SCHEMA else f"{schema}.{own}"
    text = with_own_name(defined.created_sql, defined.index.name, name)
    return replace(defined, index=replace(defined.index, name=name), created_sql=text)


def _new_name(former: str, to: Name) -> str:
    """Return the dotted new name; without a schema, it stays in its schema."""
    schema = schema_of(former)
    if len(to.parts) > 1 or schema == DEFAULT_SCHEMA:
        return to.dotted
    return f"{schema}.{to.dotted}"
