"""The roles that each statement requires, by the relations that it names.

:data:`headrace.interfaces.session.table.TABLE` has the function for each class of statement.

A role applies to a schema or to the database, so the needs follow from the names in the statement,
whether or not the relations exist. A materialized view is read with the rights of its creator: a
role in its own schema suffices. A plain view is planned as part of the query that names it, so
errors could show a reader rows that the view leaves out: everything that its query reads must be
readable as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Code, HeadraceError, Span
from headrace.interfaces.statements.defining.options import is_external
from headrace.interfaces.statements.reading.keyed import simple_select
from headrace.lifecycle.states.access import DATABASE
from headrace.planning.catalog import PlainView, Sink, Stream, Table, View, title
from headrace.planning.catalog.naming import HIDDEN, SYSTEM_SCHEMA, schema_of
from headrace.planning.sql import (
    IN_SCHEMAS,
    CreateMaterializedView,
    CreateTable,
    CreateTableAs,
    CreateView,
    ExplainReplay,
    Listing,
    Name,
    NamedApart,
    ObjectKind,
    Role,
)
from headrace.planning.sql.plain import plain_query

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.execution.engine.engine import Engine
    from headrace.lifecycle.states.access import Principal
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Catalog
    from headrace.planning.sql import (
        AlterSink,
        AlterViewQuery,
        Copy,
        CopyTo,
        Correct,
        CreateIndex,
        CreateSink,
        CreateStream,
        Delete,
        Describe,
        Drop,
        DropCandidate,
        Explain,
        ExplainRow,
        Fragment,
        Insert,
        Invalidate,
        Print,
        Query,
        Reconcile,
        Refresh,
        Rename,
        Replay,
        Show,
        ShowCreate,
        ShowDiff,
        ShowLineage,
        Statement,
        Subscribe,
        SwapView,
        Truncate,
        Update,
        ValidateView,
        Verify,
    )


_MAY_READ: Final = re.compile(r"(?i)\b(select|from|table|values|with)\b")
"""An expression without one of these words has no subquery."""


@dataclass(frozen=True, slots=True)
class Need:
    """A role required in a schema or in the whole database, and the place that requires it.

    ``through`` names the plain view that reads the schema; errors then do not name the schema.
    """

    role: Role
    schema: str = DATABASE
    span: Span | None = None
    through: str = ""

    @classmethod
    def of(cls, role: Role, name: str, span: Span | None = None) -> Need:
        """Return the need for a role on the relation of a dotted name.

        Hidden relations belong to the clients that follow them: others must own the database.
        """
        if name.startswith(HIDDEN):
            return cls(Role.OWNER, DATABASE, span)
        return cls(role, schema_of(name), span)

    def is_met(self, principal: Principal) -> bool:
        """Whether a principal currently has the role."""
        if self.schema == SYSTEM_SCHEMA and self.role is Role.READER:
            return principal.is_known  # its rows show only what the client may see
        return principal.may(self.role, self.schema)

    def error(self) -> HeadraceError:
        """Return the error for a client without the role."""
        if self.through:
            return HeadraceError(
                Code.FORBIDDEN,
                f"role {self.role} is needed in the schemas of all that {self.through} reads",
                detail="It is planned as a part of the query that reads it, as a plain view is.",
                hint="Make it a MATERIALIZED VIEW: its rows are stored, and can be granted alone.",
                span=self.span,
            )
        where = f'schema "{self.schema}"' if self.schema else "the database"
        on = f"SCHEMA {self.schema}" if self.schema else "DATABASE"
        return HeadraceError(
            Code.FORBIDDEN,
            f"role {self.role} in {where} is needed",
            hint=f"Ask an owner of the database: GRANT {self.role.upper()} ON {on} TO your token.",
            span=self.span,
        )


def to_read(catalog: Catalog, name: str, span: Span | None = None) -> Iterator[Need]:
    """Yield the needs for reading the relation of a dotted name, which may not exist."""
    relation = catalog.find(name)
    if not isinstance(relation, PlainView):
        yield Need.of(Role.READER, name, span)
        return
    through = "ROWTIME of a stream by CREATE STREAM AS"
    if not relation.name.startswith(HIDDEN):
        yield Need.of(Role.READER, name, span)
        through = title(relation)
    for id_ in relation.depends_on:
        below = catalog.by_id[id_].name
        if not below.startswith(HIDDEN):  # else they are rows inserted into a stream that it reads
            yield replace(Need.of(Role.READER, below, span), through=through)


@dataclass(frozen=True, slots=True)
class NamedRelations:
    """Looks up the relations that a statement names, on demand."""

    reader: Reader
    engine: Engine
    principal: Principal

    @property
    def catalog(self) -> Catalog:
        """The published catalog."""
        return self.reader.catalog

    def read(self, query: Query | Name) -> Iterator[Need]:
        """Yield the needs for reading a relation, or the relations that a query names."""
        yield from self.reading(self.names(query), query.span)

    def names(self, query: Query | Name) -> frozenset[str]:
        """Return the dotted names of the relations that a query reads, or the given name."""
        if isinstance(query, Name):
            return frozenset([query.dotted])
        simple = simple_select(query.text)
        if simple is not None and not simple.relation.startswith(HIDDEN):
            return frozenset([simple.relation.lower()])
        plain = plain_query(query.text)
        if plain is not None:
            return plain.relations
        return self._named(query.span, query.span)

    def _named(self, text: Span, place: Span) -> frozenset[str]:
        with self.engine.planning:
            try:
                return self.engine.planner.named(text, self.principal.sees)
            except HeadraceError as error:
                raise error.at(place) from error

    def evaluate(self, *fragments: Fragment | None) -> Iterator[Need]:
        """Yield the needs for the subqueries in expressions."""
        for fragment in fragments:
            if fragment is not None and _MAY_READ.search(fragment.text):
                text = Span.whole(f"SELECT ({fragment.text})")
                yield from self.reading(self._named(text, fragment.span), fragment.span)

    def define(self, target: Query | Name) -> Iterator[Need]:
        """Yield the needs for seeing definitions of relations: to read all their inputs."""
        yield from self.read(target)
        found = [r.id for name in self.names(target) if (r := self.catalog.find(name)) is not None]
        below = (self.catalog.by_id[id_].name for id_ in self.catalog.below(found))
        yield from self.reading(below, target.span)

    def reading(self, names: Iterable[str], span: Span) -> Iterator[Need]:
        """Yield the needs for reading relations."""
        for name in sorted(names):
            yield from to_read(self.catalog, name, span)


def nothing(_asked: NamedRelations, _statement: Statement) -> Iterator[Need]:
    """Yield nothing: every client may."""
    return iter(())


def owner(_asked: NamedRelations, statement: Any) -> Iterator[Need]:
    """Yield the role of an owner of the database."""
    yield Need(Role.OWNER, DATABASE, statement.span)


def creator(_asked: NamedRelations, statement: Any) -> Iterator[Need]:
    """Yield the role of an owner of the schema of the name."""
    yield Need(Role.OWNER, schema_of(statement.name.dotted), statement.name.span)


def writer(_asked: NamedRelations, statement: Any) -> Iterator[Need]:
    """Yield the role of a writer of the schema of the name."""
    yield _writer(statement.name)


def exchange(_asked: NamedRelations, statement: SwapView | DropCandidate) -> Iterator[Need]:
    """Yield the role of an owner of the schema of each name."""
    for name in statement.names:
        yield Need(Role.OWNER, schema_of(name.dotted), name.span)


def renamed(_asked: NamedRelations, statement: Rename) -> Iterator[Need]:
    """Yield the role of an owner of the schemas of both names; of a schema, of the database."""
    if statement.kind not in IN_SCHEMAS:
        yield Need(Role.OWNER, DATABASE, statement.span)
        return
    yield from creator(_asked, statement)
    if len(statement.to.parts) > 1:
        yield Need(Role.OWNER, schema_of(statement.to.dotted), statement.to.span)


def index(_asked: NamedRelations, statement: CreateIndex) -> Iterator[Need]:
    """Yield the role of an owner of the relation's schema."""
    yield Need(Role.OWNER, schema_of(statement.relation.dotted), statement.relation.span)


def relation(asked: NamedRelations, statement: CreateStream | CreateTable) -> Iterator[Need]:
    """Yield the needs for creating a stream or table; over other systems, an owner's role."""
    yield from creator(asked, statement)
    captured = isinstance(statement, CreateTable) and statement.captured is not None
    if captured or is_external(statement.options):
        yield Need(Role.OWNER, DATABASE, statement.span)


def derived(
    asked: NamedRelations,
    statement: AlterViewQuery | CreateTableAs | CreateMaterializedView | CreateView,
) -> Iterator[Need]:
    """Yield the needs for creating a view, and for reading what its query reads."""
    yield from creator(asked, statement)
    yield from asked.read(statement.query)
    if not isinstance(statement, CreateView) and is_external(statement.options):
        yield Need(Role.OWNER, DATABASE, statement.span)


def sink(asked: NamedRelations, statement: CreateSink) -> Iterator[Need]:
    """Yield the needs for creating a sink: to read its source and write to its target."""
    yield from creator(asked, statement)
    yield from asked.read(statement.source)
    if isinstance(statement.into, Name):
        yield _writer(statement.into)
    else:
        yield Need(Role.OWNER, DATABASE, statement.span)


def altered_sink(asked: NamedRelations, statement: AlterSink) -> Iterator[Need]:
    """Yield the needs for altering a sink; for targets outside the database, an owner's role."""
    yield from creator(asked, statement)
    sink = asked.catalog.find(statement.name.dotted)
    if isinstance(sink, Sink) and sink.target is None:
        yield Need(Role.OWNER, DATABASE, statement.span)


def drop(asked: NamedRelations, statement: Drop) -> Iterator[Need]:
    """Yield the needs for dropping a relation and, with CASCADE, what depends on it."""
    relation = asked.catalog.find(statement.name.dotted)
    if relation is None and statement.kind is ObjectKind.SOURCE:
        yield Need(Role.OWNER, DATABASE, statement.span)  # a source of several tables
        return
    yield from creator(asked, statement)
    if relation is not None and statement.cascade:
        for other in asked.catalog.dependants(relation.id):
            yield Need(Role.OWNER, schema_of(other.name), statement.span)


def _writer(name: Name) -> Need:
    return Need(Role.WRITER, schema_of(name.dotted), name.span)


def write(_asked: NamedRelations, statement: Truncate | Copy) -> Iterator[Need]:
    """Yield the role of a writer of the target."""
    yield _writer(statement.target)


def insert(asked: NamedRelations, statement: Insert) -> Iterator[Need]:
    """Yield the needs for writing to the target, and for reading what the query reads."""
    yield _writer(statement.target)
    yield from asked.read(statement.query)
    conflict = statement.on_conflict
    if conflict is not None:
        assigned = (each.expression for each in conflict.assignments)
        yield from asked.evaluate(*assigned, conflict.where)
    target = asked.catalog.find(statement.target.dotted)
    fed = isinstance(target, Stream | Table) and target.declaration.connector is not None
    if fed and asked.names(statement.query):  # it may run continuously, as a sink does
        yield Need(Role.OWNER, DATABASE, statement.span)


def update(asked: NamedRelations, statement: Update) -> Iterator[Need]:
    """Yield the needs for writing to the target, and for reading what expressions read."""
    yield _writer(statement.target)
    assigned = (each.expression for each in statement.assignments)
    yield from asked.evaluate(*assigned, statement.where)


def delete(asked: NamedRelations, statement: Delete) -> Iterator[Need]:
    """Yield the needs for deleting rows, or voiding events of a stream."""
    if isinstance(asked.catalog.find(statement.target.dotted), Stream):
        yield Need(Role.OWNER, schema_of(statement.target.dotted), statement.target.span)
    else:
        yield _writer(statement.target)
    yield from asked.evaluate(statement.where)


def invalidate(asked: NamedRelations, statement: Invalidate) -> Iterator[Need]:
    """Yield the needs for invalidating a slice of a view."""
    yield from creator(asked, statement)
    yield from asked.evaluate(statement.slice.where, statement.slice.since)


def correct(asked: NamedRelations, statement: Correct) -> Iterator[Need]:
    """Yield the needs for correcting events."""
    yield from creator(asked, statement)
    yield from asked.evaluate(statement.where, *(a.expression for a in statement.assignments))


def explain_row(asked: NamedRelations, statement: ExplainRow) -> Iterator[Need]:
    """Yield the needs for seeing the inputs of a row."""
    yield from asked.define(statement.name)
    yield from asked.evaluate(statement.where)


def replay(asked: NamedRelations, statement: Replay | ExplainReplay) -> Iterator[Need]:
    """Yield the needs for recomputing a view; errors may quote its inputs."""
    given = statement.replay if isinstance(statement, ExplainReplay) else statement
    yield from creator(asked, given)
    yield from asked.define(given.name)
    yield from asked.evaluate(given.slice.where, given.slice.since)


def verify(asked: NamedRelations, statement: Verify) -> Iterator[Need]:
    """Yield the needs for reading some views, or all."""
    for name in statement.names:
        yield from asked.read(name)
    if not statement.names:
        yield Need(Role.READER, DATABASE, statement.span)


def candidate(asked: NamedRelations, statement: ShowDiff | ValidateView) -> Iterator[Need]:
    """Yield the needs for seeing a view and what its candidate's query computes."""
    yield from creator(asked, statement)
    yield from asked.read(statement.name)


def refresh(asked: NamedRelations, statement: Refresh) -> Iterator[Need]:
    """Yield the needs for reading views and, since a refresh changes them, for writing them."""
    if statement.everything:
        yield Need(Role.WRITER, DATABASE, statement.span)
    for name in statement.names:
        yield from asked.read(name)
        relation = asked.catalog.find(name.dotted)
        if isinstance(relation, View) and relation.refresh.lags:
            yield _writer(name)


def show(asked: NamedRelations, statement: Show) -> Iterator[Need]:
    """Yield the needs for seeing a listing; some require an owner."""
    others = statement.token is not None and statement.token.dotted != asked.principal.name
    if statement.listing in _OF_OWNERS or others:
        yield Need(Role.OWNER, DATABASE, statement.span)
    if statement.relation is not None and statement.listing is Listing.ERRORS:
        yield from asked.define(statement.relation)  # they quote rows of the inputs
    elif statement.relation is not None:
        yield from asked.read(statement.relation)


_OF_OWNERS: Final = frozenset({Listing.SECRETS, Listing.CONNECTIONS, Listing.TOKENS})
"""The listings that only owners see; others show the part that the client may see."""


def describe(asked: NamedRelations, statement: Describe) -> Iterator[Need]:
    """Yield the needs for reading a relation or, with EXTENDED, seeing its definition."""
    if statement.extended:
        yield from asked.define(statement.name)
    else:
        yield Need.of(Role.READER, statement.name.dotted, statement.name.span)


def explain(asked: NamedRelations, statement: Explain) -> Iterator[Need]:
    """Yield the needs for seeing how a query or view is computed."""
    target = statement.target
    if isinstance(target, CreateMaterializedView | CreateTableAs):
        yield from derived(asked, target)
        target = target.query
    yield from asked.define(target)


def reconcile(_asked: NamedRelations, statement: Reconcile) -> Iterator[Need]:
    """Yield the needs for comparing a view and repairing it."""
    name = statement.name
    if name is None:
        yield Need(Role.OWNER, DATABASE, statement.span)
    else:
        yield Need(Role.OWNER, schema_of(name.dotted), name.span)


def print_(asked: NamedRelations, statement: Print) -> Iterator[Need]:
    """Yield the needs for reading the relations over a topic."""
    over = {
        relation.name
        for relation in asked.catalog
        if isinstance(relation, Stream | Table)
        and relation.declaration.option("kafka_topic", "topic") == statement.topic
    }
    named = asked.catalog.find(statement.topic)  # is followed, whatever else is over the topic
    if named is not None or not over:
        over.add(statement.topic.lower())
    yield from asked.reading(over, statement.topic_span)


def subscribe(asked: NamedRelations, statement: Subscribe) -> Iterator[Need]:
    """Yield the needs for reading what is followed."""
    yield from asked.read(statement.target)


def show_create(asked: NamedRelations, statement: ShowCreate) -> Iterator[Need]:
    """Yield the needs for seeing how something is created; of what is named apart, an owner's."""
    if statement.of in (None, NamedApart.FUNCTION):
        yield from asked.define(statement.name)
    else:
        yield Need(Role.OWNER, DATABASE, statement.span)


def show_lineage(asked: NamedRelations, statement: ShowLineage) -> Iterator[Need]:
    """Yield the needs for seeing what a relation is made from, or for reading what others read.

    Of the relations that depend on it, the client is shown those whose definition it may see.
    """
    name = statement.name
    if name is None:
        yield Need(Role.READER, DATABASE, statement.span)
        return
    if asked.catalog.find(name.dotted) is None and len(name.parts) > 1:
        name = Name(name.parts[:-1], name.span)  # the last part is a column
    yield from asked.read(name) if statement.downstream else asked.define(name)


def copy_to(asked: NamedRelations, statement: CopyTo) -> Iterator[Need]:
    """Yield the needs for reading the rows that are written to a file."""
    yield from asked.read(statement.source)
