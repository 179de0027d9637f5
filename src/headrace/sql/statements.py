"""The statements of Headrace as values: the results of :func:`headrace.sql.parse`.

Queries and expressions inside a statement stay Spark SQL text, as written. Names of relations are
in lower case unless quoted; names of columns are as declared, and compared regardless of case.
Every ``span`` shows its place in the whole script.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from headrace.sql.alter_stream import AlterStream
from headrace.sql.copying import Copy, CopyTo
from headrace.sql.macros import CreateFunction
from headrace.sql.parts import Name, Query
from headrace.sql.reconcile import Reconcile
from headrace.sql.refreshing import AlterView, Refresh
from headrace.sql.sinks import AlterSink, CreateSink, HandleSink, ReconcileSink
from headrace.sql.taken import EVERY_ROW, Taken
from headrace.sql.upkeep import (
    Correct,
    ExplainChange,
    ExplainReplay,
    ExplainRow,
    Invalidate,
    Repair,
    Replay,
    Verify,
)

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.sql.as_of import AsOf
    from headrace.sql.parts import ColumnDefinition, Fragment, ObjectKind, Option, Role, Watermark
    from headrace.sql.view_columns import DeclaredKey


@dataclass(frozen=True, slots=True)
class CreateStream:
    """``CREATE STREAM``: an append-only relation, or an upserting one if it has a primary key."""

    name: Name
    columns: tuple[ColumnDefinition, ...]
    span: Span
    primary_key: tuple[str, ...] = ()
    message_key: tuple[str, ...] = ()
    watermark: Watermark | None = None
    options: tuple[Option, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False
    taken: Taken = EVERY_ROW


@dataclass(frozen=True, slots=True)
class Captured:
    """A table of another database, and the name of the table that follows it, if it is given."""

    reference: Name
    name: Name | None = None


@dataclass(frozen=True, slots=True)
class CreateSource:
    """``CREATE SOURCE name FROM POSTGRES CONNECTION ...``: a source of several tables.

    ``tables`` are created with it, with ``all_tables`` one for each that there is.
    """

    name: Name
    connection: Name
    options: tuple[Option, ...]
    span: Span
    tables: tuple[Captured, ...] = ()
    all_tables: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class FromSource:
    """``FROM SOURCE name (REFERENCE table)``: the table of a source that a table follows."""

    source: Name
    reference: Name


@dataclass(frozen=True, slots=True)
class AddColumns:
    """``ALTER STREAM name ADD COLUMN``."""

    name: Name
    columns: tuple[ColumnDefinition, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class CreateTable:
    """``CREATE TABLE`` with columns: a relation that changes, with or without a primary key.

    A table that follows one of a source may have no columns here: they are that one's.
    """

    name: Name
    columns: tuple[ColumnDefinition, ...]
    span: Span
    primary_key: tuple[str, ...] = ()
    watermark: Watermark | None = None
    options: tuple[Option, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False
    captured: FromSource | None = None
    taken: Taken = EVERY_ROW


@dataclass(frozen=True, slots=True)
class CreateTableAs:
    """``CREATE TABLE ... AS``, a synonym of a materialized view, or ``CREATE STREAM ... AS``."""

    kind: ObjectKind
    name: Name
    query: Query
    span: Span
    options: tuple[Option, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False
    key: DeclaredKey | None = None


@dataclass(frozen=True, slots=True)
class CreateMaterializedView:
    """``CREATE MATERIALIZED VIEW``; ``columns`` renames the query's columns, or is empty."""

    name: Name
    query: Query
    span: Span
    columns: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False
    key: DeclaredKey | None = None


@dataclass(frozen=True, slots=True)
class CreateView:
    """``CREATE VIEW``: a named query; ``columns`` renames the query's columns, or is empty."""

    name: Name
    query: Query
    span: Span
    columns: tuple[str, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateSchema:
    """``CREATE SCHEMA``: a prefix for the names of relations."""

    name: Name
    span: Span
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateIndex:
    """``CREATE INDEX [name] ON relation (columns)``: rows are found by these columns."""

    name: Name | None
    relation: Name
    columns: tuple[str, ...]
    span: Span
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropIndex:
    """``DROP INDEX``."""

    name: Name
    span: Span
    if_exists: bool = False


class SecretSource(StrEnum):
    """Where the value of a secret is read from."""

    ENV = "env"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class CreateSecret:
    """``CREATE SECRET name FROM ENV 'X' | FILE 'path'``: a reference; the value is not stored."""

    name: Name
    source: SecretSource
    where: str
    span: Span
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropSecret:
    """``DROP SECRET``."""

    name: Name
    span: Span
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateConnection:
    """``CREATE CONNECTION name TO kind (key value, ...)``: how a system is reached."""

    name: Name
    kind: str
    options: tuple[Option, ...]
    span: Span
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropConnection:
    """``DROP CONNECTION``."""

    name: Name
    span: Span
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateToken:
    """``CREATE TOKEN name [VALID FOR interval]``: a secret by which a client is known."""

    name: Name
    span: Span
    valid_for: Fragment | None = None


@dataclass(frozen=True, slots=True)
class DropToken:
    """``DROP TOKEN``."""

    name: Name
    span: Span
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
    """``GRANT role ON SCHEMA s | DATABASE TO name``; without ``schema``, on the whole database."""

    role: Role
    token: Name
    span: Span
    schema: Name | None = None


@dataclass(frozen=True, slots=True)
class Revoke:
    """``REVOKE role ON SCHEMA s | DATABASE FROM name``: what :class:`Grant` has granted."""

    role: Role
    token: Name
    span: Span
    schema: Name | None = None


@dataclass(frozen=True, slots=True)
class DropSchema:
    """``DROP SCHEMA``; with ``cascade`` also everything in it."""

    name: Name
    span: Span
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class Drop:
    """``DROP``; with ``cascade`` also everything that depends on it."""

    kind: ObjectKind
    name: Name
    span: Span
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class DropFunction:
    """``DROP FUNCTION``; with ``cascade`` also the views that call it, and those over them."""

    name: Name
    span: Span
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class Assignment:
    """One ``column = expression`` of ``UPDATE``."""

    column: str
    expression: Fragment
    span: Span


@dataclass(frozen=True, slots=True)
class OnConflict:
    """``ON CONFLICT``, for rows with an existing key; without assignments, ``DO NOTHING``."""

    span: Span
    columns: tuple[str, ...] = ()
    assignments: tuple[Assignment, ...] = ()
    where: Fragment | None = None


@dataclass(frozen=True, slots=True)
class Insert:
    """``INSERT INTO``; ``columns`` is empty for all columns, ``query`` may be ``VALUES``.

    ``replace``: whether it was written as ``INSERT OR REPLACE``.
    """

    target: Name
    query: Query
    span: Span
    columns: tuple[str, ...] = ()
    on_conflict: OnConflict | None = None
    replace: bool = False


@dataclass(frozen=True, slots=True)
class Update:
    """``UPDATE``; without ``where``, all rows."""

    target: Name
    assignments: tuple[Assignment, ...]
    span: Span
    where: Fragment | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """``DELETE FROM``; without ``where``, all rows."""

    target: Name
    span: Span
    where: Fragment | None = None


@dataclass(frozen=True, slots=True)
class Truncate:
    """``TRUNCATE``: delete every row."""

    target: Name
    span: Span


@dataclass(frozen=True, slots=True)
class Flush:
    """``FLUSH``: commit an epoch with all changes that have arrived, and wait for it."""

    span: Span


class Listing(StrEnum):
    """The listings of ``SHOW``."""

    STREAMS = "streams"
    SOURCES = "sources"
    SCHEMAS = "schemas"
    TABLES = "tables"
    VIEWS = "views"
    MATERIALIZED_VIEWS = "materialized views"
    SINKS = "sinks"
    JOBS = "jobs"
    REJECTS = "rejects"
    DIRTY = "dirty"
    CHANGES = "changes"
    EPOCHS = "epochs"
    FRESHNESS = "freshness"
    FUNCTIONS = "functions"
    INDEXES = "indexes"
    SECRETS = "secrets"
    CONNECTIONS = "connections"
    TOKENS = "tokens"
    GRANTS = "grants"
    RECONCILIATION = "reconciliation"
    EVIDENCE = "evidence"
    ERRORS = "errors"


NAMED_LISTINGS = frozenset(Listing) - {
    Listing.REJECTS,
    Listing.DIRTY,
    Listing.CHANGES,
    Listing.EPOCHS,
    Listing.FRESHNESS,
    Listing.GRANTS,
    Listing.RECONCILIATION,
    Listing.EVIDENCE,
    Listing.ERRORS,
    Listing.INDEXES,
}
"""The listings that have names, so that LIKE can filter them."""


@dataclass(frozen=True, slots=True)
class Show:
    """``SHOW``; ``relation`` restricts what is listed of relations to those of one.

    ``schema`` restricts a listing to the names in a schema, ``like`` to names that match a pattern,
    and ``limit`` rejects to a number, the newest first. ``token`` restricts grants to its own.
    """

    listing: Listing
    span: Span
    relation: Name | None = None
    like: str | None = None
    schema: Name | None = None
    limit: int | None = None
    token: Name | None = None


@dataclass(frozen=True, slots=True)
class ShowCreate:
    """``SHOW CREATE``: the statement that created a relation, a sink or a function."""

    name: Name
    span: Span
    of_function: bool = False


@dataclass(frozen=True, slots=True)
class ResumeSource:
    """``RESUME SOURCE``: try a source again; ``rejecting`` what it has stopped for."""

    name: Name
    span: Span
    rejecting: bool = False


@dataclass(frozen=True, slots=True)
class Describe:
    """``DESCRIBE``: the columns of a relation; ``extended``: all its properties."""

    name: Name
    span: Span
    extended: bool = False


Explainable: TypeAlias = Query | CreateMaterializedView | CreateTableAs | Name


class Explained(StrEnum):
    """The kinds of ``EXPLAIN``; the value is the word in the statement."""

    EVERYTHING = ""
    MAINTENANCE = "maintenance"
    CIRCUIT = "circuit"
    LINEAGE = "lineage"


@dataclass(frozen=True, slots=True)
class Explain:
    """``EXPLAIN`` of a query, of a view to be created, or of an existing view."""

    target: Explainable
    span: Span
    shown: Explained = Explained.EVERYTHING


@dataclass(frozen=True, slots=True)
class SetOption:
    """``SET key = value`` of the session; the value is text as in :class:`Option`."""

    key: str
    value: str = field(repr=False)
    span: Span


@dataclass(frozen=True, slots=True)
class ResetOption:
    """``RESET key`` or ``UNSET key``; without a key, of all properties of the session."""

    span: Span
    key: str | None = None


@dataclass(frozen=True, slots=True)
class ShowOption:
    """``SHOW key``, ``SHOW PROPERTIES`` or ``SET`` alone: one property of the session, or all."""

    span: Span
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Subscribe:
    """``SUBSCRIBE``: a snapshot, then its changes by epoch; ``as_of`` is the epoch to start at.

    Without ``snapshot``, only the changes from now on.
    """

    target: Query | Name
    span: Span
    as_of: AsOf | None = None
    snapshot: bool = True


@dataclass(frozen=True, slots=True)
class Print:
    """``PRINT``: the changes of the relation over a topic, from the first one or from now on."""

    topic: str
    topic_span: Span
    span: Span
    from_beginning: bool = False
    limit: int | None = None


Statement: TypeAlias = (
    Query
    | CreateStream
    | CreateTable
    | CreateTableAs
    | CreateMaterializedView
    | CreateView
    | CreateSchema
    | CreateIndex
    | CreateSecret
    | CreateConnection
    | CreateToken
    | Grant
    | Revoke
    | AddColumns
    | AlterStream
    | AlterView
    | CreateSource
    | CreateSink
    | AlterSink
    | HandleSink
    | ReconcileSink
    | Drop
    | DropSchema
    | DropSecret
    | DropIndex
    | DropConnection
    | DropToken
    | CreateFunction
    | DropFunction
    | Insert
    | Update
    | Delete
    | Truncate
    | Correct
    | Copy
    | CopyTo
    | Flush
    | Refresh
    | ResumeSource
    | Show
    | ShowCreate
    | Describe
    | Explain
    | ExplainChange
    | SetOption
    | ResetOption
    | ShowOption
    | Repair
    | Replay
    | ExplainReplay
    | ExplainRow
    | Invalidate
    | Verify
    | Reconcile
    | Subscribe
    | Print
)
