"""The statements of Headrace as values: the results of :func:`headrace.planning.sql.parse`.

Queries and expressions inside a statement stay Spark SQL text, as written. Names of relations are
in lower case unless quoted; names of columns are as declared, and compared regardless of case.
Every ``span`` shows its place in the whole script.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from headrace.planning.sql.columns import EVERY_ROW, Taken
from headrace.planning.sql.parts import Name, Query, Statement

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.planning.sql.as_of import AsOf
    from headrace.planning.sql.columns import DeclaredKey
    from headrace.planning.sql.parts import (
        ColumnDefinition,
        Fragment,
        ObjectKind,
        Option,
        Role,
        WatermarkClause,
    )


@dataclass(frozen=True, slots=True)
class CreateStream(Statement):
    """``CREATE STREAM``: an append-only relation, or an upserting one if it has a primary key."""

    name: Name
    columns: tuple[ColumnDefinition, ...]
    span: Span
    primary_key: tuple[str, ...] = ()
    message_key: tuple[str, ...] = ()
    watermark: WatermarkClause | None = None
    options: tuple[Option, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False
    taken: Taken = EVERY_ROW


@dataclass(frozen=True, slots=True)
class Captured:
    """A table of another database, and the name of the table that follows it, if given."""

    reference: Name
    name: Name | None = None


@dataclass(frozen=True, slots=True)
class CreateSource(Statement):
    """``CREATE SOURCE name FROM POSTGRES CONNECTION ...``: a source of several tables.

    ``tables`` are created with it; with ``all_tables``, one for each published table.
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
    """``FROM SOURCE name (REFERENCE table)``: the upstream table that a table follows."""

    source: Name
    reference: Name


@dataclass(frozen=True, slots=True)
class AddColumns(Statement):
    """``ALTER STREAM name ADD COLUMN [IF NOT EXISTS]``."""

    name: Name
    columns: tuple[ColumnDefinition, ...]
    span: Span
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateTable(Statement):
    """``CREATE TABLE`` with columns: a relation that changes, with or without a primary key.

    A table that follows a table of a source may have no columns here: it takes those of that table.
    """

    name: Name
    columns: tuple[ColumnDefinition, ...]
    span: Span
    primary_key: tuple[str, ...] = ()
    watermark: WatermarkClause | None = None
    options: tuple[Option, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False
    captured: FromSource | None = None
    taken: Taken = EVERY_ROW


@dataclass(frozen=True, slots=True)
class CreateTableAs(Statement):
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
class CreateMaterializedView(Statement):
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
class CreateView(Statement):
    """``CREATE VIEW``: a named query; ``columns`` renames the query's columns, or is empty."""

    name: Name
    query: Query
    span: Span
    columns: tuple[str, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateSchema(Statement):
    """``CREATE SCHEMA``: a prefix for the names of relations."""

    name: Name
    span: Span
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateIndex(Statement):
    """``CREATE INDEX [name] ON relation (columns)``: makes lookups by these columns fast."""

    name: Name | None
    relation: Name
    columns: tuple[str, ...]
    span: Span
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropIndex(Statement):
    """``DROP INDEX``."""

    name: Name
    span: Span
    if_exists: bool = False


class SecretSource(StrEnum):
    """Where the value of a secret is read from."""

    ENV = "env"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class CreateSecret(Statement):
    """``CREATE SECRET name FROM ENV 'X' | FILE 'path'``: a reference; the value is not stored."""

    name: Name
    source: SecretSource
    where: str
    span: Span
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropSecret(Statement):
    """``DROP SECRET``."""

    name: Name
    span: Span
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateConnection(Statement):
    """``CREATE CONNECTION name TO kind (key value, ...)``: how a system is reached."""

    name: Name
    kind: str
    options: tuple[Option, ...]
    span: Span
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropConnection(Statement):
    """``DROP CONNECTION``."""

    name: Name
    span: Span
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateToken(Statement):
    """``CREATE TOKEN name [VALID FOR interval]``: a secret that identifies a client."""

    name: Name
    span: Span
    valid_for: Fragment | None = None


@dataclass(frozen=True, slots=True)
class DropToken(Statement):
    """``DROP TOKEN``."""

    name: Name
    span: Span
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class Grant(Statement):
    """``GRANT role ON SCHEMA s | DATABASE TO name``; without ``schema``, on the whole database."""

    role: Role
    token: Name
    span: Span
    schema: Name | None = None


@dataclass(frozen=True, slots=True)
class Revoke(Statement):
    """``REVOKE role ON SCHEMA s | DATABASE FROM name``: the inverse of :class:`Grant`."""

    role: Role
    token: Name
    span: Span
    schema: Name | None = None


@dataclass(frozen=True, slots=True)
class DropSchema(Statement):
    """``DROP SCHEMA``; with ``cascade`` also everything in it."""

    name: Name
    span: Span
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class Drop(Statement):
    """``DROP``; with ``cascade`` also everything that depends on it."""

    kind: ObjectKind
    name: Name
    span: Span
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class DropFunction(Statement):
    """``DROP FUNCTION``; with ``cascade`` also the views that call it, and the views above."""

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
class Insert(Statement):
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
class Update(Statement):
    """``UPDATE``; without ``where``, all rows."""

    target: Name
    assignments: tuple[Assignment, ...]
    span: Span
    where: Fragment | None = None


@dataclass(frozen=True, slots=True)
class Delete(Statement):
    """``DELETE FROM``; without ``where``, all rows."""

    target: Name
    span: Span
    where: Fragment | None = None


@dataclass(frozen=True, slots=True)
class Truncate(Statement):
    """``TRUNCATE``: delete every row."""

    target: Name
    span: Span


@dataclass(frozen=True, slots=True)
class Flush(Statement):
    """``FLUSH``: commit an epoch with all changes that have arrived, and wait for it."""

    span: Span


@dataclass(frozen=True, slots=True)
class AcknowledgeRejects(Statement):
    """``ACKNOWLEDGE REJECTS``: say that rejected rows need no attention any more.

    ``ids`` are the numbers of rows in ``SHOW REJECTS``; None stands for all of the relation.
    """

    name: Name
    span: Span
    ids: tuple[int, ...] | None = None


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
class Show(Statement):
    """``SHOW``; ``relation`` restricts a listing to one relation.

    ``schema`` restricts it to the names in a schema, ``like`` to names that match a pattern,
    ``limit`` to the newest rejects, and ``token`` to the grants of a token.
    """

    listing: Listing
    span: Span
    relation: Name | None = None
    like: str | None = None
    schema: Name | None = None
    limit: int | None = None
    token: Name | None = None


class NamedApart(StrEnum):
    """What is named apart from relations, and shown by ``SHOW CREATE`` with its kind."""

    FUNCTION = "function"
    SECRET = "secret"  # noqa: S105  (a word of statements)
    CONNECTION = "connection"
    SOURCE = "source"
    """A source of several tables; of one, the stream or table is shown."""


@dataclass(frozen=True, slots=True)
class ShowCreate(Statement):
    """``SHOW CREATE``: a statement that creates a relation, a sink or what is named apart."""

    name: Name
    span: Span
    of: NamedApart | None = None


@dataclass(frozen=True, slots=True)
class ResumeSource(Statement):
    """``RESUME SOURCE``: retry a source; ``rejecting``: reject the rows that it has stopped at."""

    name: Name
    span: Span
    rejecting: bool = False


@dataclass(frozen=True, slots=True)
class Describe(Statement):
    """``DESCRIBE``: the columns of a relation; ``extended``: all its properties."""

    name: Name
    span: Span
    extended: bool = False


Explainable: TypeAlias = Query | CreateMaterializedView | CreateTableAs | Name


class ExplainKind(StrEnum):
    """The kinds of ``EXPLAIN``; the value is the word in the statement."""

    EVERYTHING = ""
    MAINTENANCE = "maintenance"
    CIRCUIT = "circuit"
    LINEAGE = "lineage"


@dataclass(frozen=True, slots=True)
class Explain(Statement):
    """``EXPLAIN`` of a query, of a view to be created, or of an existing view."""

    target: Explainable
    span: Span
    shown: ExplainKind = ExplainKind.EVERYTHING


@dataclass(frozen=True, slots=True)
class SetOption(Statement):
    """``SET key = value`` of the session; the value is text as in :class:`Option`."""

    key: str
    value: str = field(repr=False)
    span: Span


@dataclass(frozen=True, slots=True)
class ResetOption(Statement):
    """``RESET key`` or ``UNSET key``; without a key, of all properties of the session."""

    span: Span
    key: str | None = None


@dataclass(frozen=True, slots=True)
class ShowOption(Statement):
    """``SHOW key``, ``SHOW PROPERTIES`` or ``SET`` alone: one property of the session, or all."""

    span: Span
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Subscribe(Statement):
    """``SUBSCRIBE``: a snapshot, then its changes by epoch; ``as_of`` is the epoch to start at.

    Without ``snapshot``, only the changes from now on.
    """

    target: Query | Name
    span: Span
    as_of: AsOf | None = None
    snapshot: bool = True


@dataclass(frozen=True, slots=True)
class Print(Statement):
    """``PRINT``: the changes of the relation over a topic, from the first or from now on."""

    topic: str
    topic_span: Span
    span: Span
    from_beginning: bool = False
    limit: int | None = None
