"""What a statement needs: for each class of statements, the least roles of whoever asks.

A role is that in a schema or in the database, so what is needed follows from the names in the
statement, whether or not there is anything of that name. A materialized view is read with the
rights of whoever created it: what is needed is a role in its own schema. A plain view is planned
as a part of the query that names it, so errors could show a reader rows that it leaves out: all
that its query reads must be readable as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from headrace.catalog import PlainView, Sink, Stream, Table, View, title
from headrace.errors import Code, HeadraceError, Span
from headrace.parts.access import DATABASE
from headrace.parts.naming import HIDDEN, SYSTEM_SCHEMA, schema_of
from headrace.parts.stopped import in_sentences
from headrace.sql import (
    AddColumns,
    AlterSink,
    AlterStream,
    AlterView,
    Copy,
    CopyTo,
    Correct,
    CreateConnection,
    CreateFunction,
    CreateIndex,
    CreateMaterializedView,
    CreateSchema,
    CreateSecret,
    CreateSink,
    CreateSource,
    CreateStream,
    CreateTable,
    CreateTableAs,
    CreateToken,
    CreateView,
    Delete,
    Describe,
    Drop,
    DropConnection,
    DropFunction,
    DropIndex,
    DropSchema,
    DropSecret,
    DropToken,
    Explain,
    ExplainChange,
    ExplainReplay,
    ExplainRow,
    Flush,
    Fragment,
    Grant,
    HandleSink,
    Insert,
    Invalidate,
    Listing,
    Name,
    ObjectKind,
    Print,
    Query,
    Reconcile,
    ReconcileSink,
    Refresh,
    Repair,
    Replay,
    ResetOption,
    ResumeSource,
    Revoke,
    Role,
    SetOption,
    Show,
    ShowCreate,
    ShowOption,
    Statement,
    Subscribe,
    Truncate,
    Update,
    Verify,
)
from headrace.statements.defining.options import is_external
from headrace.statements.reading.simple import simple_select

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from headrace.catalog import Catalog
    from headrace.engine.engine import Engine
    from headrace.parts.access import Principal
    from headrace.parts.reader import Reader

_MAY_READ: Final = re.compile(r"(?i)\b(select|from|table|values|with)\b")
"""An expression without one of these words has no subquery."""


@dataclass(frozen=True, slots=True)
class Need:
    """A role that is needed in a schema, or in the whole database, and the place that needs it.

    ``through`` is what errors call the plain view that reads in the schema, which they do not name.
    """

    role: Role
    schema: str = DATABASE
    span: Span | None = None
    through: str = ""

    @classmethod
    def of(cls, role: Role, name: str, span: Span | None = None) -> Need:
        """Return what is needed to do something with the relation of a dotted name.

        Hidden relations are of those who follow them: others need to be owners of the database.
        """
        if name.startswith(HIDDEN):
            return cls(Role.OWNER, DATABASE, span)
        return cls(role, schema_of(name), span)

    def is_met(self, principal: Principal) -> bool:
        """Whether a principal has the role, now."""
        if self.schema == SYSTEM_SCHEMA and self.role is Role.READER:
            return principal.is_known  # its rows are of what the client sees
        return principal.may(self.role, self.schema)

    def error(self) -> HeadraceError:
        """Return the error for whoever has not the role."""
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
    """Yield what is needed to read the relation of a dotted name, there or not."""
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
class Rights:
    """Decides what one client may do. Embedded, that is everything."""

    principal: Principal
    reader: Reader
    engine: Engine

    def require(self, statement: Statement) -> tuple[Need, ...]:
        """Refuse a statement that needs a role which whoever asks has not; return what it needs.

        For an owner of the database, that is not looked up.

        Raises:
            HeadraceError: ``forbidden``, at the place; as parsing, if a query cannot be parsed.
        """
        if self.principal.may(Role.OWNER):
            return (Need(Role.OWNER),)
        asked = _Asked(self.reader, self.engine, self.principal)
        needs = tuple(NEEDS[type(statement)](asked, statement))
        self._require(needs)
        return needs

    def require_role(self, role: Role, name: str) -> None:
        """Refuse whoever has not a role in the schema of a relation.

        Raises:
            HeadraceError: ``forbidden``.
        """
        self._require([Need.of(role, name)])

    def without_hidden(self, error: HeadraceError, said: str = "") -> HeadraceError:
        """Return an error without what names a relation that whoever asks may not know of.

        What has been ``said`` is known to them.
        """
        if self.principal.may(Role.READER):
            return error
        if self._quotes_hidden_rows(error):
            error = HeadraceError(error.code, error.primary, None, error.hint, error.span)
        known_names = said.lower()
        names = (r.name for r in self.reader.catalog if r.name.lower() not in known_names)
        hidden = [name for name in names if not self.principal.sees(name)]
        if not hidden:
            return error
        words = re.compile(rf"(?i)(?<![\w.])(?:{'|'.join(map(re.escape, hidden))})(?![\w.])")

        def known(text: str | None) -> str | None:
            return None if text is None or words.search(text) else text

        primary, span = words.sub("...", error.primary), error.span
        if span is not None and span.file is not None and known(span.text) is None:
            span = None  # it is in the text of a plain view
        return HeadraceError(error.code, primary, known(error.detail), known(error.hint), span)

    def _quotes_hidden_rows(self, error: HeadraceError) -> bool:
        """Whether an error says why a view stopped, which may quote rows that are hidden."""
        catalog, said = self.reader.catalog, error.detail or ""
        return any(
            in_sentences(entry.detail).removesuffix(".") in said
            and not catalog.sees_all(self.principal.sees, entry.view)
            for entry in self.reader.ledger.head.dirty
            if entry.detail and entry.view in catalog.by_id
        )

    def _require(self, needs: Iterable[Need]) -> None:
        for need in needs:
            if not need.is_met(self.principal):
                raise need.error()


@dataclass(frozen=True, slots=True)
class _Asked:
    """What statements name, looked up as far as that is needed."""

    reader: Reader
    engine: Engine
    principal: Principal

    @property
    def catalog(self) -> Catalog:
        return self.reader.catalog

    def read(self, query: Query | Name) -> Iterator[Need]:
        """Yield what is needed to read a relation, or the relations that a query names."""
        yield from self.reading(self.names(query), query.span)

    def names(self, query: Query | Name) -> frozenset[str]:
        if isinstance(query, Name):
            return frozenset([query.dotted])
        simple = simple_select(query.text)
        if simple is not None and not simple.relation.startswith(HIDDEN):
            return frozenset([simple.relation.lower()])
        return self._named(query.span, query.span)

    def _named(self, text: Span, place: Span) -> frozenset[str]:
        with self.engine.planning:
            try:
                return self.engine.planner.named(text, self.principal.sees)
            except HeadraceError as error:
                raise error.at(place) from error

    def evaluate(self, *fragments: Fragment | None) -> Iterator[Need]:
        """Yield what is needed for the subqueries in expressions."""
        for fragment in fragments:
            if fragment is not None and _MAY_READ.search(fragment.text):
                text = Span.whole(f"SELECT ({fragment.text})")
                yield from self.reading(self._named(text, fragment.span), fragment.span)

    def define(self, target: Query | Name) -> Iterator[Need]:
        """Yield what is needed to see how relations are defined: to read all that is below."""
        yield from self.read(target)
        found = [r.id for name in self.names(target) if (r := self.catalog.find(name)) is not None]
        below = (self.catalog.by_id[id_].name for id_ in self.catalog.below(found))
        yield from self.reading(below, target.span)

    def reading(self, names: Iterable[str], span: Span) -> Iterator[Need]:
        """Yield what is needed to read relations."""
        for name in sorted(names):
            yield from to_read(self.catalog, name, span)


def _nothing(_asked: _Asked, _statement: Statement) -> Iterator[Need]:
    return iter(())


def _owner(_asked: _Asked, statement: Any) -> Iterator[Need]:
    yield Need(Role.OWNER, DATABASE, statement.span)


def _creator(_asked: _Asked, statement: Any) -> Iterator[Need]:
    yield Need(Role.OWNER, schema_of(statement.name.dotted), statement.name.span)


def _index(_asked: _Asked, statement: CreateIndex) -> Iterator[Need]:
    yield Need(Role.OWNER, schema_of(statement.relation.dotted), statement.relation.span)


def _relation(asked: _Asked, statement: CreateStream | CreateTable) -> Iterator[Need]:
    yield from _creator(asked, statement)
    captured = isinstance(statement, CreateTable) and statement.captured is not None
    if captured or is_external(statement.options):
        yield Need(Role.OWNER, DATABASE, statement.span)


def _derived(
    asked: _Asked, statement: CreateTableAs | CreateMaterializedView | CreateView
) -> Iterator[Need]:
    yield from _creator(asked, statement)
    yield from asked.read(statement.query)
    if not isinstance(statement, CreateView) and is_external(statement.options):
        yield Need(Role.OWNER, DATABASE, statement.span)


def _sink(asked: _Asked, statement: CreateSink) -> Iterator[Need]:
    yield from _creator(asked, statement)
    yield from asked.read(statement.source)
    if isinstance(statement.into, Name):
        yield _writer(statement.into)
    else:
        yield Need(Role.OWNER, DATABASE, statement.span)


def _altered_sink(asked: _Asked, statement: AlterSink) -> Iterator[Need]:
    yield from _creator(asked, statement)
    sink = asked.catalog.find(statement.name.dotted)
    if isinstance(sink, Sink) and sink.target is None:
        yield Need(Role.OWNER, DATABASE, statement.span)


def _drop(asked: _Asked, statement: Drop) -> Iterator[Need]:
    relation = asked.catalog.find(statement.name.dotted)
    if relation is None and statement.kind is ObjectKind.SOURCE:
        yield Need(Role.OWNER, DATABASE, statement.span)  # of several tables
        return
    yield from _creator(asked, statement)
    if relation is not None and statement.cascade:
        for other in asked.catalog.dependants(relation.id):
            yield Need(Role.OWNER, schema_of(other.name), statement.span)


def _writer(name: Name) -> Need:
    return Need(Role.WRITER, schema_of(name.dotted), name.span)


def _write(_asked: _Asked, statement: Truncate | Copy) -> Iterator[Need]:
    yield _writer(statement.target)


def _insert(asked: _Asked, statement: Insert) -> Iterator[Need]:
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


def _update(asked: _Asked, statement: Update) -> Iterator[Need]:
    yield _writer(statement.target)
    assigned = (each.expression for each in statement.assignments)
    yield from asked.evaluate(*assigned, statement.where)


def _delete(asked: _Asked, statement: Delete) -> Iterator[Need]:
    if isinstance(asked.catalog.find(statement.target.dotted), Stream):
        yield Need(Role.OWNER, schema_of(statement.target.dotted), statement.target.span)
    else:
        yield _writer(statement.target)
    yield from asked.evaluate(statement.where)


def _invalidate(asked: _Asked, statement: Invalidate) -> Iterator[Need]:
    yield from _creator(asked, statement)
    yield from asked.evaluate(statement.slice.where, statement.slice.since)


def _correct(asked: _Asked, statement: Correct) -> Iterator[Need]:
    yield from _creator(asked, statement)
    yield from asked.evaluate(statement.where, *(a.expression for a in statement.assignments))


def _explain_row(asked: _Asked, statement: ExplainRow) -> Iterator[Need]:
    yield from asked.define(statement.name)
    yield from asked.evaluate(statement.where)


def _replay(asked: _Asked, statement: Replay | ExplainReplay) -> Iterator[Need]:
    """Yield what is needed to recompute a view; errors may quote what is below it."""
    given = statement.replay if isinstance(statement, ExplainReplay) else statement
    yield from _creator(asked, given)
    yield from asked.define(given.name)
    yield from asked.evaluate(given.slice.where, given.slice.since)


def _verify(asked: _Asked, statement: Verify) -> Iterator[Need]:
    if statement.name is not None:
        yield from asked.read(statement.name)
    else:
        yield Need(Role.READER, DATABASE, statement.span)


def _refresh(asked: _Asked, statement: Refresh) -> Iterator[Need]:
    """A view that lags behind is written: what all its readers see changes."""
    if statement.everything:
        yield Need(Role.WRITER, DATABASE, statement.span)
    for name in statement.names:
        yield from asked.read(name)
        relation = asked.catalog.find(name.dotted)
        if isinstance(relation, View) and relation.refresh.lags:
            yield _writer(name)


def _show(asked: _Asked, statement: Show) -> Iterator[Need]:
    others = statement.token is not None and statement.token.dotted != asked.principal.name
    if statement.listing in _OF_OWNERS or others:
        yield Need(Role.OWNER, DATABASE, statement.span)
    if statement.relation is not None and statement.listing is Listing.ERRORS:
        yield from asked.define(statement.relation)  # they quote rows of what is below
    elif statement.relation is not None:
        yield from asked.read(statement.relation)


_OF_OWNERS: Final = frozenset({Listing.SECRETS, Listing.CONNECTIONS, Listing.TOKENS})
"""The listings that are whole or not at all; others have what the client sees."""


def _describe(asked: _Asked, statement: Describe) -> Iterator[Need]:
    if statement.extended:
        yield from asked.define(statement.name)
    else:
        yield Need.of(Role.READER, statement.name.dotted, statement.name.span)


def _explain(asked: _Asked, statement: Explain) -> Iterator[Need]:
    target = statement.target
    if isinstance(target, CreateMaterializedView | CreateTableAs):
        yield from _derived(asked, target)
        target = target.query
    yield from asked.define(target)


def _reconcile(_asked: _Asked, statement: Reconcile) -> Iterator[Need]:
    """Yield what is needed to compare a view, and have it repaired."""
    name = statement.name
    if name is None:
        yield Need(Role.OWNER, DATABASE, statement.span)
    else:
        yield Need(Role.OWNER, schema_of(name.dotted), name.span)


def _explain_change(asked: _Asked, statement: ExplainChange) -> Iterator[Need]:
    target = statement.target
    if isinstance(target, Name):
        yield Need(Role.OWNER, DATABASE, statement.span)
        return
    yield from NEEDS[type(target)](asked, target)


def _print(asked: _Asked, statement: Print) -> Iterator[Need]:
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


NEEDS: Final[Mapping[type, Callable[[_Asked, Any], Iterator[Need]]]] = {
    Query: _Asked.read,
    Subscribe: lambda asked, statement: asked.read(statement.target),
    Print: _print,
    Show: _show,
    ShowCreate: lambda asked, statement: asked.define(statement.name),
    Describe: _describe,
    Explain: _explain,
    ExplainChange: _explain_change,
    Reconcile: _reconcile,
    Refresh: _refresh,
    Verify: _verify,
    Flush: _nothing,
    SetOption: _nothing,
    ResetOption: _nothing,
    ShowOption: _nothing,
    Insert: _insert,
    Update: _update,
    Delete: _delete,
    Truncate: _write,
    Copy: _write,
    CopyTo: lambda asked, statement: asked.read(statement.source),
    Correct: _correct,
    CreateStream: _relation,
    CreateTable: _relation,
    AddColumns: _creator,
    AlterStream: _creator,
    AlterView: _creator,
    CreateTableAs: _derived,
    CreateMaterializedView: _derived,
    CreateView: _derived,
    CreateSink: _sink,
    AlterSink: _altered_sink,
    HandleSink: _creator,
    ReconcileSink: _creator,
    Drop: _drop,
    CreateIndex: _index,
    DropIndex: _creator,
    CreateSchema: _owner,
    DropSchema: _owner,
    CreateSecret: _owner,
    DropSecret: _owner,
    CreateConnection: _owner,
    DropConnection: _owner,
    CreateSource: _owner,
    ResumeSource: _owner,
    CreateFunction: _owner,
    DropFunction: _owner,
    Repair: _owner,
    Invalidate: _invalidate,
    Replay: _replay,
    ExplainReplay: _replay,
    ExplainRow: _explain_row,
    CreateToken: _owner,
    DropToken: _owner,
    Grant: _owner,
    Revoke: _owner,
}
"""What each class of statements needs. Every class has an entry."""
