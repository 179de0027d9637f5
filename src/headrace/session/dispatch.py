"""Finds the class that runs a statement, and gives it the parts of the database that it uses."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.catalog import Stream, Table
from headrace.errors import HeadraceError, masked
from headrace.parts.evaluating import OwnEvaluator
from headrace.session.definitions import Definitions
from headrace.session.properties import OFFSET_RESET, RUNTIME_MODE
from headrace.session.rights import Rights
from headrace.session.sinks import SinkStatements
from headrace.session.upkeep import Upkeep
from headrace.sql import (
    AlterSink,
    Copy,
    CopyTo,
    Correct,
    CreateMaterializedView,
    CreateSink,
    CreateTableAs,
    CreateToken,
    CreateView,
    Delete,
    Describe,
    Explain,
    ExplainChange,
    ExplainReplay,
    ExplainRow,
    Flush,
    HandleSink,
    Insert,
    Invalidate,
    Listing,
    Print,
    Query,
    Reconcile,
    ReconcileSink,
    Refresh,
    Repair,
    Replay,
    ResetOption,
    ResumeSource,
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
from headrace.statements.changing.copies import Copies
from headrace.statements.changing.corrections import Corrections, as_correction
from headrace.statements.changing.inserts import Inserts
from headrace.statements.changing.targets import writable
from headrace.statements.changing.updates import Updates
from headrace.statements.checking.damage import with_owner
from headrace.statements.defining.tokens import (
    GRANT_COLUMNS,
    LISTED_COLUMNS,
    TOKEN_COLUMNS,
)
from headrace.statements.describing.descriptions import Descriptions
from headrace.statements.describing.errors import Errors
from headrace.statements.describing.explanations import Explanations
from headrace.statements.describing.listings import Listings, filtered
from headrace.statements.reading.exports import Exports
from headrace.statements.reading.following import Begin, Following, Pushed
from headrace.statements.reading.selects import Selects
from headrace.statements.results import Result
from headrace.statements.resuming import Resuming

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.ledger import ProducerPosition
    from headrace.parts.access import Principal
    from headrace.session.client import Client
    from headrace.session.parts import Parts
    from headrace.session.rights import Need
    from headrace.statements.changing.given_rows import Rows
    from headrace.statements.changing.targets import Written
    from headrace.statements.reading.subscription import ViewSubscription
    from headrace.statements.results import Subscription
    from headrace.types import Epoch, Offset, RelationId


class Statements:
    """Runs statements for one client, one after another.

    Only this package takes the parts of a database apart: what a kind of statement can touch is
    what it is given here.
    """

    def __init__(self, parts: Parts, client: Client, principal: Principal) -> None:
        self._client = client
        self._ledger, self._reader = parts.ledger, parts.reader
        self._evaluator = parts.snapshots.evaluator
        self._rights = Rights(principal, parts.reader, parts.engine)
        snapshots = replace(parts.snapshots, sees=principal.sees)
        self._definitions = Definitions.of(parts, client.report)
        self._resuming = Resuming(
            parts.reader, parts.feeds, parts.feeding, parts.capturing, parts.captures
        )
        self._sink_statements = SinkStatements.of(parts)
        # rows
        self._inserts = Inserts(parts.reader, snapshots, parts.log, parts.queries)
        self._updates = Updates(parts.reader, snapshots, parts.log)
        self._copies = Copies(parts.reader, parts.log, parts.ledger, parts.queries, client.report)
        self._changes = parts.changes
        self._corrections = Corrections(
            parts.reader,
            snapshots,
            parts.log,
            parts.queries,
            parts.changes.amending.prepared,
            principal,
            client.report,
        )
        self._selects = Selects(parts.reader, parts.ledger, snapshots, client.seen)
        self._exports = Exports(self._selects, parts.reader.directory, client.report)
        self._following = Following(
            parts.reader,
            parts.definer,
            self._definitions.views,
            self._evaluator,
            client.seen,
            client.is_open,
        )
        # what there is, and whether it is right
        self._listings = Listings(
            parts.reader,
            parts.ledger,
            parts.schemas,
            parts.secrets,
            parts.connections,
            parts.functions,
            parts.deliveries,
            parts.sources,
            parts.versions,
            parts.pump.compaction.retirement,
            principal,
        )
        self._errors = Errors(parts.reader)
        self._descriptions = Descriptions(parts.reader, parts.ledger, parts.declarations)
        self._explanations = Explanations(
            parts.reader,
            parts.ledger,
            parts.engine,
            OwnEvaluator(parts.reader, parts.engine, parts.queries, parts.information),
        )
        self._upkeep = Upkeep.of(parts, snapshots, principal, client.report)

    def run(self, statement: Statement) -> Result | Subscription:
        """Run one statement.

        Raises:
            HeadraceError: with the place in the statement wherever there is one; ``forbidden`` if
                the client may not.
        """
        with self._shown(statement):
            self._rights.require(statement)
            planned = _planned(statement)
            if planned is not None:
                self._evaluator.try_planning(planned.span)
            return self._run(statement)

    @contextmanager
    def _shown(self, statement: Statement | None = None) -> Iterator[None]:
        """Raise errors with whom what is damaged belongs to, and without what is hidden."""
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

    def pushed(self, statement: Statement) -> Pushed | None:
        """Return what a statement follows in this session; None if it follows nothing."""
        with self._shown(statement):
            if isinstance(statement, Subscribe | Print):
                self._rights.require(statement)  # first: what is not there is said to be missing
            found = self._pushed(statement)
            if found is not None and isinstance(statement, Query):
                self._rights.require(statement)
            return found

    def _pushed(self, statement: Statement) -> Pushed | None:
        match statement:
            case Query() if statement.emit_changes or self._is_streaming(statement):
                return self.followed(statement)
            case Subscribe() | Print():
                return self._asked_to_follow(statement)
            case _:
                return None

    def followed(self, query: Query, after: Epoch | None = None) -> Pushed:
        """Return what following a query means in this session."""
        return Pushed(query, after or self._begin())

    def _asked_to_follow(self, statement: Subscribe | Print) -> Pushed:
        if isinstance(statement, Print):
            return self._following.printed(statement)
        return self._following.subscribed(statement, self._begin())

    def _run(self, statement: Statement) -> Result | Subscription:
        match statement:
            case Insert() | Update() | Delete() | Truncate() | Correct():
                return self._change(statement)
            case Copy() | CopyTo():
                return self._copy(statement)
            case Query():
                pushed = self._pushed(statement)
                if pushed is not None:
                    return self._following.follow(*pushed)
                return self._selects.select(statement)
            case Subscribe() | Print():
                return self._following.follow(*self._asked_to_follow(statement))
            case ResumeSource():
                return self._done(self._resuming.resume(statement))
            case HandleSink() | AlterSink() | ReconcileSink():
                return self._sink_statements.run(statement)
            case Flush() | Refresh():
                return self._refresh(statement)
            case Show() | ShowCreate() | Describe() | Explain():
                return self._describe(statement)
            case Verify() | Reconcile() | Repair() | Invalidate() | Replay():
                return self._upkeep.run(statement)
            case ExplainReplay() | ExplainRow() | ExplainChange():
                return self._upkeep.run(statement)
            case SetOption() | ResetOption() | ShowOption():
                return self._configure(statement)
            case CreateToken():
                return self._table(TOKEN_COLUMNS, self._definitions.tokens.create(statement))
            case _:
                return self._done(self._definitions.run(statement))

    def _describe(self, statement: Show | ShowCreate | Describe | Explain) -> Result:
        match statement:
            case Show(listing=Listing.TOKENS | Listing.GRANTS):
                return self._show_tokens(statement)
            case Show(listing=Listing.RECONCILIATION | Listing.EVIDENCE):
                return self._upkeep.reconciliations.show(statement)
            case Show(listing=Listing.ERRORS):
                return self._errors.show(statement)
            case Show():
                return self._listings.show(statement)
            case ShowCreate():
                return self._descriptions.show_create(statement)
            case Describe():
                return self._descriptions.describe(statement)
            case Explain():
                return self._explanations.explain(statement)

    def _show_tokens(self, statement: Show) -> Result:
        if statement.listing is Listing.TOKENS:
            return filtered(
                self._table(LISTED_COLUMNS, self._definitions.tokens.listed()), statement.like
            )
        principal = self._rights.principal
        own = None if principal.may(Role.OWNER) else principal.name
        return self._table(GRANT_COLUMNS, self._definitions.tokens.grants(statement.token, own))

    def _configure(self, statement: SetOption | ResetOption | ShowOption) -> Result:
        properties = self._client.properties
        match statement:
            case SetOption():
                return self._done(properties.set(statement))
            case ResetOption():
                return self._done(properties.reset(statement))
            case ShowOption():
                rows = properties.listed(statement.key, statement.span)
                return self._table(("name", "value", "meaning"), rows)

    def insert(self, name: str, rows: Rows, producer: ProducerPosition | None = None) -> int:
        """Append rows, matched to columns by name; return their number."""
        with self._shown():
            self._rights.require_role(Role.WRITER, name)
            return self._wrote(self._inserts.append(name, rows, producer))

    def require(self, query: Query) -> tuple[Need, ...]:
        """Refuse a query that the client may not read; return the roles that it needs."""
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

    def subscribe(self, query: Query, after: Epoch | None = None) -> ViewSubscription:
        """Follow a query; unless it is a whole view, it is a hidden view while it is followed."""
        with self._shown(query):
            self._rights.require(query)
            return self._following.follow(*self.followed(query, after))

    def flush(self) -> Epoch:
        """Make all written changes readable; return the epoch."""
        with self._shown():
            return self._reader.settle_all()

    # -- what a session adds -----------------------------------------------------------------

    def _change(self, statement: Insert | Update | Delete | Truncate | Correct) -> Result:
        match statement:
            case Correct():
                return self._correct(statement)
            case Delete() if (voids := as_correction(self._reader.catalog, statement)) is not None:
                return self._correct(voids)
            case Insert() if self._definitions.sinks.is_job(statement):
                return self._done(self._definitions.sinks.start_job(statement))
            case Insert():
                written, verb = self._inserts.insert(statement), "inserted"
            case Update():
                written, verb = self._updates.update(statement), "updated"
            case Delete():
                written, verb = self._updates.delete(statement), "deleted"
            case Truncate():
                written, verb = self._updates.truncate(statement), "deleted"
        rows = self._wrote(written)
        table = self._reader.catalog.by_id.get(written.relation)
        if rows and isinstance(table, Table) and table.effective_from is not None:
            carried = self._changes.of_versions(table, written.end)
            self._changes.record(carried, self._origin(statement))
        return self._done(f"{_rows(rows)} {verb}{_not_taken(written.left_out)}")

    def _origin(self, statement: Insert | Update | Delete | Truncate) -> dict[str, str]:
        """Return who runs a statement, and its text."""
        by = self._rights.principal.name
        return {"statement": masked(statement.span.source), **({} if by is None else {"by": by})}

    def _wrote(self, written: Written) -> int:
        """Have later reads of this session see what it wrote; return the number of rows."""
        self._client.wrote(written.relation, written.end)
        self._reader.show_written(written.relation, written.end)
        return written.rows

    def _correct(self, statement: Correct) -> Result:
        found, changes = self._corrections.correct(statement), self._changes
        events = found.events
        self._client.wrote(found.stream.id, found.end)
        self._reader.show_written(found.stream.id, found.end)
        if events:
            changes.record(changes.of_correction(found.stream, found.rebuilt), found.origin)
        done = "replaced" if statement.assignments else "voided"
        retired = self._reader.published.starts.get(found.stream.id, 0)
        note = f"; the first {retired:,} are no longer kept, and stay in views" if retired else ""
        return self._done(f"{events:,} {'event' if events == 1 else 'events'} {done}{note}")

    def _copy(self, statement: Copy | CopyTo) -> Result:
        if isinstance(statement, CopyTo):
            return self._exports.export(statement)
        try:
            copied = self._copies.copy(statement)
        finally:  # the rows copied before a failure or cancellation stay
            relation = self._reader.catalog.find(statement.target.dotted)
            if isinstance(relation, Stream | Table):
                end = self._ledger.head.log_end(relation.id)
                self._client.wrote(relation.id, end)
                self._reader.show_written(relation.id, end)
        rejects = f", {copied.rejected:,} rejected: see SHOW REJECTS" if copied.rejected else ""
        return self._done(
            f"{_rows(copied.rows)} copied{rejects}{_not_taken(copied.left_out)}{copied.note}"
        )

    def _refresh(self, statement: Flush | Refresh) -> Result:
        if isinstance(statement, Flush):
            epoch = self._reader.settle_all()
            return Result(None, epoch, f"epoch {epoch} is committed")
        message, epoch = self._definitions.refreshing.refresh(statement)
        return Result(None, epoch, message)

    def _begin(self) -> Begin:
        """Return where a push query of this session begins."""
        latest = self._client.properties[OFFSET_RESET] == "latest"
        return Begin.NOW if latest else Begin.CONTENTS

    def _is_streaming(self, query: Query) -> bool:
        """Return whether a bare SELECT is a push query in this session."""
        return self._client.properties[RUNTIME_MODE] == "streaming" and query.as_of is None

    def _done(self, message: str) -> Result:
        return Result(None, self._ledger.head.epoch, message)

    def _table(self, names: tuple[str, ...], rows: list[Any]) -> Result:
        return Result.of(names, rows, self._ledger.head.epoch)


def _planned(statement: Statement) -> Query | None:
    """Return the query of a statement that is planned where epochs are made."""
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


def _not_taken(count: int) -> str:
    return f", {count:,} not taken: duplicate or late" if count else ""


def _rows(count: int) -> str:
    return f"{count:,} {'row' if count == 1 else 'rows'}"
