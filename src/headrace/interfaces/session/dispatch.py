"""Runs statements for one client: checks its rights, then calls the class for the statement.

The rights of one client: what it may do, and what its errors may show.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, TypeVar, cast

from headrace.errors import HeadraceError
from headrace.interfaces.session.client import Injector
from headrace.interfaces.session.needs import NamedRelations, Need
from headrace.interfaces.session.properties import DOUBLE_QUOTES
from headrace.interfaces.session.reads import SessionReads
from headrace.interfaces.session.rehearsal import Rehearsal, ScriptExplanation
from headrace.interfaces.session.table import COMPOSED, TABLE
from headrace.interfaces.statements.changing.row_changes import RowChanges
from headrace.interfaces.statements.changing.updates import writable
from headrace.interfaces.statements.checking.repairs import with_owner
from headrace.interfaces.statements.reading.point_in_time import PointInTime
from headrace.interfaces.statements.results import Listed, Result
from headrace.lifecycle.states.stopped import in_sentences
from headrace.planning.dialects import refuse_quoted_columns, with_all_unquoted
from headrace.planning.sql import (
    AlterViewQuery,
    CreateMaterializedView,
    CreateSink,
    CreateTableAs,
    CreateView,
    Delete,
    Explain,
    Insert,
    Name,
    Print,
    Query,
    Role,
    Statement,
    Subscribe,
    Update,
    parse_statement,
)
from headrace.planning.sql.lexer import StatementText

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from headrace.errors import Span
    from headrace.execution.engine.engine import Engine
    from headrace.interfaces.session.client import Client
    from headrace.interfaces.session.parts import DatabaseParts
    from headrace.interfaces.statements.changing.inserts import Rows
    from headrace.interfaces.statements.reading.following import Pushed, ViewSubscription
    from headrace.lifecycle.states.access import Principal
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.sql import ExplainScript
    from headrace.planning.sql.as_of import AskedView
    from headrace.storage.ledger import ProducerPosition
    from headrace.types import Epoch, Offset, RelationId


@dataclass(frozen=True, slots=True)
class ClientRights:
    """Checks the rights of one client. A client in the database's process may do everything."""

    principal: Principal
    reader: Reader
    engine: Engine

    def require(self, statement: Statement) -> tuple[Need, ...]:
        """Raise if the client lacks a role that a statement needs; return the needed roles.

        An owner of the database needs no lookup: the result is the owner's role.

        Raises:
            HeadraceError: ``forbidden``, at the place; as parsing, if a query cannot be parsed.
        """
        if self.principal.may(Role.OWNER):
            return (Need(Role.OWNER),)
        named = NamedRelations(self.reader, self.engine, self.principal)
        needs = tuple(TABLE[type(statement)].needs(named, statement))
        self._require(needs)
        return needs

    def require_role(self, role: Role, name: str) -> None:
        """Raise if the client lacks a role in the schema of a relation.

        Raises:
            HeadraceError: ``forbidden``.
        """
        self._require([Need.of(role, name)])

    def without_hidden(self, error: HeadraceError, said: str = "") -> HeadraceError:
        """Return an error without the names of relations that the client may not see.

        ``said`` is the client's own text; names in it are kept.
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
            span = None  # the place is in the text of a plain view
        return HeadraceError(error.code, primary, known(error.detail), known(error.hint), span)

    def _quotes_hidden_rows(self, error: HeadraceError) -> bool:
        """Whether an error says why a view stopped: that may quote rows the client may not see."""
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


S = TypeVar("S", bound=Statement)


class Dispatcher:
    """Runs statements for one client, one after another.

    Only this package accesses all parts of a database. A statement can use only the parts that are
    fields of the class that runs it.
    """

    def __init__(self, parts: DatabaseParts, client: Client, principal: Principal) -> None:
        self._parts, self._principal = parts, principal
        self._ledger, self._reader, self._client = parts.ledger, parts.reader, client
        self._evaluator = parts.snapshots.evaluator
        self._rights = ClientRights(principal, parts.reader, parts.engine)
        self._of_client = {
            "snapshots": replace(parts.snapshots, sees=principal.sees),
            "evaluator": parts.snapshots.evaluator,
            "principal": principal,
            "properties": client.properties,
            "report": client.report,
            "seen": client.seen,
            "is_open": client.is_open,
            "wrote": client.wrote,
            "rehearse": self._rehearsed,
        }
        own = {each.name: getattr(parts, each.name) for each in fields(parts)}
        self._injector = Injector({**own, **self._of_client}, COMPOSED)

    def run(self, statement: Statement) -> Result:
        """Run one statement.

        Raises:
            HeadraceError: with the place in the statement, if known; ``forbidden`` if the client
                lacks a role.
        """
        with self._meant(statement) as meant, self._shown(meant):
            self._rights.require(meant)
            self._refuse_quoted(meant)
            planned = _planned(meant)
            if planned is not None:
                self._evaluator.try_planning(planned.span)
            entry = TABLE[type(meant)]
            answer = entry.run(self._injector.of(entry.by), meant)
            match answer:
                case str():
                    return Result(None, self._ledger.head.epoch, answer)
                case Listed():
                    last = self._ledger.head.epoch
                    return Result.of(answer.names, answer.rows, last, answer.types)
                case _:
                    return answer

    def _rehearsed(self, statement: ExplainScript) -> Listed:
        """Return what each statement of a script would do, or why it would fail."""
        trial = Rehearsal(self._parts, self._of_client, COMPOSED, offline=statement.offline)
        rights = ClientRights(self._principal, trial.reader, trial.engine)
        sees = self._principal.sees
        return ScriptExplanation(trial, TABLE, rights.require, sees).of(statement.script)

    @contextmanager
    def _shown(self, statement: Statement | None = None) -> Iterator[None]:
        """Add the owning relation to corruption errors; remove names that the client may not see.

        Names that the statement itself contains are kept.
        """
        try:
            yield
        except HeadraceError as error:
            named = with_owner(self._ledger, self._reader.catalog, error)
            shown = self._rights.without_hidden(
                named, "" if statement is None else statement.span.text
            )
            if shown is error:
                raise
            raise shown from error

    @contextmanager
    def _meant(self, statement: S) -> Iterator[S]:
        """Yield a statement as the session reads it: double-quoted texts may be names."""
        span = statement.span
        if self._client.properties[DOUBLE_QUOTES] != "true" or '"' not in span.source:
            yield statement
            return
        read = with_all_unquoted(span)
        with read.mapping_errors():
            if isinstance(statement, Query):
                yield replace(statement, text=read.text, span=read.span)
            else:
                text = StatementText(read.span.text, read.span.start, read.span.end, span.file)
                yield cast("S", parse_statement(text))

    def _refuse_quoted(self, statement: Statement) -> None:
        """Refuse a double-quoted text that is the name of a column which a statement reads."""
        for query in _queries(statement):
            refuse_quoted_columns(query, self._reader.catalog)

    def pushed(self, statement: Statement) -> Pushed | None:
        """Return what a statement follows in this session; None if it follows nothing."""
        with self._meant(statement) as meant, self._shown(meant):
            if isinstance(meant, Subscribe | Print):
                # first, since a client may not learn whether a relation exists
                self._rights.require(meant)
            found = self._injector.of(SessionReads).pushed(meant)
            if found is not None and isinstance(meant, Query):
                self._rights.require(meant)
            return found

    def followed(self, statement: Query | Subscribe | Print) -> Pushed:
        """Return the query and where following it begins in this session."""
        with self._meant(statement) as meant:
            self._refuse_quoted(meant)
            return self._injector.of(SessionReads).followed(meant)

    def insert(self, name: str, rows: Rows, producer: ProducerPosition | None = None) -> int:
        """Append rows, matched to columns by name; return their number."""
        with self._shown():
            self._rights.require_role(Role.WRITER, name)
            return self._injector.of(RowChanges).append(name, rows, producer)

    def as_of(self, rows: pa.Table, views: Sequence[AskedView], time: str | None) -> Result:
        """Return rows with the values of views, each as of its own time."""
        with self._shown():
            for view in views:
                self._rights.require_role(Role.READER, view.name)
            return self._injector.of(PointInTime).read(rows, views, time)

    def require(self, query: Query) -> tuple[Need, ...]:
        """Raise if the client may not read a query; return the roles that it needs."""
        with self._shown(query):
            return self._rights.require(query)

    def last_sequence(self, name: str, producer: str) -> int | None:
        """Return the number of a producer's last append to a stream or table."""
        self._rights.require_role(Role.WRITER, name)
        catalog = self._reader.catalog
        return self._ledger.producers.last(writable(catalog, catalog.resolve(name)).id, producer)

    def wait_for(self, epoch: Epoch, ends: Mapping[RelationId, Offset]) -> None:
        """Wait until an epoch, and the changes before some offsets, can be read."""
        self._reader.wait_for(epoch, ends)

    def subscribe(
        self, statement: Query | Subscribe | Print, after: Epoch | None = None
    ) -> ViewSubscription:
        """Follow a query; one that is not a whole view becomes a hidden view for that time."""
        with self._meant(statement) as meant, self._shown(meant):
            self._rights.require(meant)
            self._refuse_quoted(meant)
            return self._injector.of(SessionReads).follow(meant, after)

    def flush(self) -> Epoch:
        """Make all written changes readable; return the epoch."""
        with self._shown():
            return self._reader.settle_all()


def _queries(statement: Statement) -> Iterator[Span]:
    """Yield the queries and conditions in a statement."""
    match statement:
        case Query() | Update() | Delete():
            yield statement.span
        case Explain(target=inner) if not isinstance(inner, Name):
            yield from _queries(inner)
        case Subscribe(target=Query() as query) | CreateSink(source=Query() as query):
            yield query.span
        case (
            Insert(query=query)
            | CreateMaterializedView(query=query)
            | CreateView(query=query)
            | CreateTableAs(query=query)
            | AlterViewQuery(query=query)
        ):
            yield query.span


def _planned(statement: Statement) -> Query | None:
    """Return a statement's query that the Spark that makes epochs must plan, or None."""
    match statement:
        case Explain(target=Query() as query):
            return query
        case Explain(target=CreateMaterializedView(query=query) | CreateTableAs(query=query)):
            return query
        case CreateMaterializedView(query=query) | CreateTableAs(query=query):
            return query
        case CreateView(query=query) | CreateSink(source=Query() as query):
            return query
        case _:
            return None
