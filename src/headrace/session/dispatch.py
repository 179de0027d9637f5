"""Runs the statements of one client: one method per kind of statement."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, assert_never

from headrace.catalog import Stream, Table, View, key_of
from headrace.errors import Code, HeadraceError, Span
from headrace.serving import Follower
from headrace.session.properties import OFFSET_RESET, RUNTIME_MODE
from headrace.session.subscription import Subscription
from headrace.sql import (
    AsOfEpoch,
    Copy,
    CreateMaterializedView,
    CreateSchema,
    CreateSecret,
    CreateSink,
    CreateStream,
    CreateTable,
    CreateTableAs,
    CreateView,
    Delete,
    Describe,
    Drop,
    DropFunction,
    DropSchema,
    DropSecret,
    Explain,
    Flush,
    Insert,
    Name,
    Print,
    Query,
    Refresh,
    Repair,
    ResetOption,
    SetOption,
    Show,
    ShowCreate,
    ShowOption,
    Statement,
    Subscribe,
    Truncate,
    Update,
    Verify,
    quote,
)
from headrace.statements.changing.copies import Copies
from headrace.statements.changing.inserts import Inserts
from headrace.statements.changing.targets import target
from headrace.statements.changing.updates import Updates
from headrace.statements.checking.repairs import Repairs, with_owner
from headrace.statements.defining.views import Definitions
from headrace.statements.describing.listings import Listings
from headrace.statements.reading.selects import Selects
from headrace.statements.reading.simple import simple_select
from headrace.statements.results import Result
from headrace.statements.sinks.creating import Sinks

if TYPE_CHECKING:
    from headrace.ledger import ProducerPosition
    from headrace.parts.instance import Instance
    from headrace.session.client import Client
    from headrace.statements.changing.given_rows import Rows
    from headrace.types import Epoch


class Begin(Enum):
    """Where a subscription begins, if not after an epoch."""

    CONTENTS = auto()
    NOW = auto()


@dataclass(frozen=True, slots=True)
class Statements:
    """Runs statements for one client, one after another."""

    client: Client

    @property
    def instance(self) -> Instance:
        """The database."""
        return self.client.instance

    def run(self, statement: Statement) -> Result | Subscription:
        """Run one statement.

        Raises:
            HeadraceError: with the place in the statement wherever there is one.
        """
        try:
            return self._run(statement)
        except HeadraceError as error:
            named = with_owner(self.instance, error)
            if named is error:
                raise
            raise named from error

    def _run(self, statement: Statement) -> Result | Subscription:
        match statement:
            case (
                CreateStream()
                | CreateTable()
                | CreateMaterializedView()
                | CreateTableAs()
                | CreateView()
                | CreateSchema()
                | CreateSecret()
                | Drop()
                | DropFunction()
                | DropSchema()
                | DropSecret()
            ):
                return self._done(self._definitions.run(statement))
            case CreateSink():
                return self._done(self._sinks.create(statement))
            case Insert() | Update() | Delete() | Truncate():
                return self._change(statement)
            case Copy():
                return self._copy(statement)
            case Flush():
                epoch = self.instance.reader.settle_all()
                return Result(None, epoch, f"epoch {epoch} is committed")
            case Refresh():
                return self._refresh(statement)
            case Query():
                if statement.emit_changes or self._is_streaming(statement):
                    return self.subscribe(statement)
                return self._selects.select(statement)
            case Subscribe():
                return self._subscribe(statement)
            case Print():
                return self._print(statement)
            case Show() | ShowCreate() | Describe() | Explain():
                return self._listings.run(statement)
            case Repair():
                return self._repair(statement)
            case Verify():
                return self._listings.verify(statement.name, self.client.report)
            case SetOption() | ResetOption() | ShowOption():
                return self._properties(statement)
            case _:
                assert_never(statement)

    def insert(self, name: str, rows: Rows, producer: ProducerPosition | None = None) -> int:
        """Append rows, matched to columns by name; return their number."""
        written = self._inserts.append(name, rows, producer)
        self.client.wrote(written.relation, written.end)
        return written.rows

    def subscribe(self, query: Query, after: Epoch | None = None) -> Subscription:
        """Follow a query; unless it is a whole view, it is a hidden view while it is followed."""
        latest = self.client.properties[OFFSET_RESET] == "latest"
        return self._followed(query, after or (Begin.NOW if latest else Begin.CONTENTS))

    def flush(self) -> Epoch:
        """Make all written changes readable; return the epoch."""
        try:
            return self.instance.reader.settle_all()
        except HeadraceError as error:
            raise with_owner(self.instance, error) from error

    # -- pieces ----------------------------------------------------------------------------

    def _subscribe(self, statement: Subscribe) -> Subscription:
        target = statement.target
        if isinstance(target, Name):
            span = target.span
            self.instance.catalog.resolve(target.dotted, span)
            text = f"SELECT * FROM {target.dotted}"
            target = Query(text, Span.whole(text))
        after = statement.as_of.epoch if isinstance(statement.as_of, AsOfEpoch) else None
        if after is None and not statement.snapshot:
            return self._followed(target, Begin.NOW)
        return self.subscribe(target, after)

    def _print(self, statement: Print) -> Subscription:
        """Follow the relation of a name, or the relation over a topic of this name."""
        catalog, topic = self.instance.catalog, statement.topic.lower()
        over = [
            relation
            for relation in catalog
            if isinstance(relation, Stream | Table)
            and relation.declaration.option("kafka_topic", "topic") == statement.topic
        ]
        named = catalog.find(topic)
        relation = over[0] if named is None and len(over) == 1 else named
        if relation is None:
            relation = catalog.resolve(topic, statement.topic_span)
        text = f"SELECT * FROM {'.'.join(map(quote, relation.name.split('.')))}"
        query = Query(text, Span.whole(text), emit_changes=True, limit=statement.limit)
        return self._followed(query, Begin.CONTENTS if statement.from_beginning else Begin.NOW)

    def _followed(self, query: Query, after: Epoch | Begin) -> Subscription:
        simple = simple_select(query.text)
        found = None if simple is None else self.instance.catalog.find(simple.relation)
        plain = simple is not None and not simple.equal and not simple.columns
        if plain and isinstance(found, Table | View):
            relation: Table | View = found
            hidden = None
        else:
            relation = hidden = self._definitions.create_hidden(query)
        self.instance.reader.require_running(relation)
        state, instance = self.client.seen([relation.id]), self.instance
        publisher = instance.loop.published
        history = instance.reader.history(state, relation.id)
        match after:
            case Begin.CONTENTS:
                start = None
            case Begin.NOW:
                start = state.epoch
            case _:
                start = after
        follower = Follower(history, key_of(relation), lambda: publisher.current.epoch, start)
        return Subscription(self.client, follower, hidden, query.limit)

    def _change(self, statement: Insert | Update | Delete | Truncate) -> Result:
        match statement:
            case Insert() if self._is_job(statement):
                into = target(self.instance.catalog, statement.target)
                return self._done(self._sinks.job(statement, into))
            case Insert():
                written, verb = self._inserts.insert(statement), "inserted"
            case Update():
                written, verb = self._updates.update(statement), "updated"
            case Delete():
                written, verb = self._updates.delete(statement), "deleted"
            case Truncate():
                written, verb = self._updates.truncate(statement), "deleted"
        self.client.wrote(written.relation, written.end)
        return self._done(f"{_rows(written.rows)} {verb}")

    def _repair(self, statement: Repair) -> Result:
        rows = Repairs(self.instance, self.client.report).repair(statement.name)
        if not rows:
            return self._done("nothing is damaged, and no view has stopped")
        return self._listings.answer(("relation", "found", "done"), rows)

    def _refresh(self, statement: Refresh) -> Result:
        if statement.name is not None:
            relation = self.instance.catalog.resolve(statement.name.dotted, statement.name.span)
            self.instance.reader.require_running(relation)
        epoch = self.instance.reader.settle_all()
        return Result(None, epoch, f"all changes so far are readable in epoch {epoch}")

    def _is_job(self, statement: Insert) -> bool:
        """Whether INSERT ... SELECT runs continuously: the target has a connector."""
        into = target(self.instance.catalog, statement.target)
        if into.declaration.connector is None:
            return False
        text = statement.query.text.lstrip("( \n\t")
        if text[:6].upper() == "VALUES":
            return False
        with self.instance.engine.planning:
            found = self.instance.engine.planner.analyse(statement.query.span, once=True)
        if found.names and (statement.on_conflict is not None or statement.replace):
            raise HeadraceError(
                Code.UNSUPPORTED,
                "a conflict clause in an INSERT ... SELECT that runs continuously is not supported",
                detail=f'Table "{into.name}" has a connector.',
                hint="Leave it out: a row replaces the existing row of its primary key.",
                span=statement.span,
            )
        return bool(found.names)

    def _copy(self, statement: Copy) -> Result:
        try:
            copied = self._copies.copy(statement)
        finally:  # the rows copied before a failure or cancellation stay
            relation = self.instance.catalog.find(statement.target.dotted)
            if isinstance(relation, Stream | Table):
                self.client.wrote(relation.id, self.instance.ledger.log_end(relation.id))
        rejects = f", {copied.rejected:,} rejected: see SHOW REJECTS" if copied.rejected else ""
        return self._done(f"{_rows(copied.rows)} copied{rejects}{copied.note}")

    def _properties(self, statement: SetOption | ResetOption | ShowOption) -> Result:
        match statement:
            case SetOption():
                return self._done(self.client.properties.set(statement))
            case ResetOption():
                return self._done(self.client.properties.reset(statement))
            case ShowOption():
                rows = self.client.properties.listed(statement.key, statement.span)
                return self._listings.answer(("name", "value", "meaning"), rows)

    def _is_streaming(self, query: Query) -> bool:
        """Return whether a bare SELECT is a push query in this session."""
        return self.client.properties[RUNTIME_MODE] == "streaming" and query.as_of is None

    def _done(self, message: str) -> Result:
        return Result(None, self.instance.ledger.last_epoch(), message)

    @property
    def _definitions(self) -> Definitions:
        return Definitions(self.instance, self.client.report)

    @property
    def _sinks(self) -> Sinks:
        return Sinks(self.instance, self._definitions)

    @property
    def _inserts(self) -> Inserts:
        of = self.instance
        return Inserts(of.reader, of.snapshots, of.log, of.engine, of.queries)

    @property
    def _updates(self) -> Updates:
        return Updates(self.instance.reader, self.instance.snapshots, self.instance.log)

    @property
    def _copies(self) -> Copies:
        of = self.instance
        return Copies(of.reader, of.log, of.ledger, of.queries, self.client.report)

    @property
    def _selects(self) -> Selects:
        instance = self.instance
        return Selects(instance.reader, instance.ledger, instance.snapshots, self.client.seen)

    @property
    def _listings(self) -> Listings:
        return Listings(self.instance, self._definitions)


def _rows(count: int) -> str:
    return f"{count:,} {'row' if count == 1 else 'rows'}"
