"""CREATE INDEX and DROP INDEX: a relation's rows arranged by columns other than its key.

An index is a hidden view: it is filled beside the epochs, maintained in the same epochs as its
relation, compacted, verified and repaired like any other, and dropped with its relation. Its name
is in the schema of its relation, so owners of other schemas do not see it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.algebra.zset.row_hash import can_hash
from headrace.errors import Code, HeadraceError, Span, meant, unknown
from headrace.planning.catalog import Index, PlainView, Sink, Stream, Table, View, key_of
from headrace.planning.catalog.naming import DEFAULT_SCHEMA, HIDDEN, schema_of
from headrace.planning.sql import Query, select_all
from headrace.types import is_collated

if TYPE_CHECKING:
    from headrace.interfaces.statements.defining.views import Views
    from headrace.lifecycle.definitions.definer import Definer
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Catalog
    from headrace.planning.sql import CreateIndex, DropIndex, Name


@dataclass(frozen=True, slots=True)
class Indexes:
    """Creates and drops indexes."""

    reader: Reader
    definer: Definer
    views: Views

    def create(self, statement: CreateIndex) -> str:
        """Create an index and fill it."""
        catalog = self.reader.catalog
        relation = _indexed(catalog, statement.relation)
        columns = tuple(_column(relation, name, statement) for name in statement.columns)
        given = statement.name
        name = _default_name(relation, columns) if given is None else _name(relation, given)
        if catalog.index(name) is not None:
            if statement.if_not_exists:
                return f'index "{name}" exists already'
            raise HeadraceError(
                Code.CONFLICT,
                f'index "{name}" exists already',
                hint="Use another name, or IF NOT EXISTS.",
                span=statement.span if given is None else given.span,
            )
        if columns == key_of(relation):
            raise HeadraceError(
                Code.INVALID,
                f'({", ".join(columns)}) is the key of {relation.kind} "{relation.name}"',
                hint="Rows are found by the key without an index.",
                span=statement.span,
            )
        text = select_all(relation.schema.names, relation.name)
        query = Query(text, Span.whole(text))
        self.views.create_index(query, Index(name, relation.id, columns), statement.span.source)
        return f"created index {name} on {relation.name} ({', '.join(columns)})"

    def drop(self, statement: DropIndex) -> str:
        """Drop an index."""
        catalog, name = self.reader.catalog, statement.name
        found = catalog.index(name.dotted)
        if found is None and statement.if_exists:
            return f'index "{name}" does not exist'
        if found is None:
            names = (view.index.name for view in catalog.views_in_order() if view.index)
            known = [each for each in names if schema_of(each) == schema_of(name.dotted)]
            raise unknown("index", name, known, "SHOW INDEXES lists what exists.", name.span)
        self.definer.drop([found.id])
        return f"dropped index {name}"


def _indexed(catalog: Catalog, name: Name) -> Table | View:
    relation = catalog.resolve(name.dotted, name.span)
    if isinstance(relation, Table | View) and not relation.name.startswith(HIDDEN):
        return relation
    kept = isinstance(relation, Stream | PlainView | Sink)
    raise HeadraceError(
        Code.UNSUPPORTED,
        f'an index on {relation.kind} "{relation.name}" is not supported',
        detail="Its rows are not stored by key." if kept else None,
        hint="Create the index on a table or a materialized view.",
        span=name.span,
    )


def _column(relation: Table | View, name: str, statement: CreateIndex) -> str:
    """Return an index column, spelled as in the schema."""
    for column in relation.schema.columns:
        if column.name.lower() == name.lower():
            arrow = relation.schema.arrow.field(column.name).type
            if can_hash(arrow) and not is_collated(column.type):
                return column.name
            raise HeadraceError(
                Code.UNSUPPORTED,
                f"an index by a column of type {column.sql.upper()} is not supported",
                hint="Index columns of integers, BOOLEAN or STRING.",
                span=statement.span,
            )
    raise HeadraceError(
        Code.INVALID,
        f'column "{name}" does not exist in {relation.kind} "{relation.name}"',
        hint=meant(name, relation.schema.names),
        span=statement.span,
    )


def _name(relation: Table | View, given: Name) -> str:
    """Return the dotted name of an index: in the schema of its relation."""
    schema = schema_of(relation.name)
    if len(given.parts) > 1 and schema_of(given.dotted) != schema:
        raise HeadraceError(
            Code.INVALID,
            f'index "{given}" would not be in the schema of {relation.kind} "{relation.name}"',
            hint="Give its name without a schema.",
            span=given.span,
        )
    own = given.parts[-1].lower()
    return own if schema == DEFAULT_SCHEMA else f"{schema}.{own}"


def _default_name(relation: Table | View, columns: tuple[str, ...]) -> str:
    """Return the name that PostgreSQL would give an index."""
    return f"{relation.name}_{'_'.join(columns)}_idx".lower()
