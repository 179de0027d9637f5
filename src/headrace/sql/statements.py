"""The statements of Headrace as values: what :func:`headrace.sql.parse` returns.

Queries and expressions inside a statement stay Spark SQL text, as written. Names of relations are
in lower case unless quoted; names of columns are as declared, and compared regardless of case.
Every ``span`` shows its place in the whole script.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from headrace.sql.parts import Name, Query

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.sql.as_of import AsOf
    from headrace.sql.parts import ColumnDefinition, Fragment, ObjectKind, Option, Watermark


@dataclass(frozen=True, slots=True)
class CreateStream:
    """``CREATE STREAM``: an append-only relation, or an upserting one with a primary key."""

    name: Name
    columns: tuple[ColumnDefinition, ...]
    span: Span
    primary_key: tuple[str, ...] = ()
    message_key: tuple[str, ...] = ()
    watermark: Watermark | None = None
    options: tuple[Option, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateTable:
    """``CREATE TABLE`` with columns: a relation that changes, with or without a primary key."""

    name: Name
    columns: tuple[ColumnDefinition, ...]
    span: Span
    primary_key: tuple[str, ...] = ()
    watermark: Watermark | None = None
    options: tuple[Option, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateTableAs:
    """``CREATE TABLE ... AS`` or ``CREATE STREAM ... AS``: a materialized view by another name."""

    kind: ObjectKind
    name: Name
    query: Query
    span: Span
    options: tuple[Option, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False


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
class CreateSink:
    """``CREATE SINK``: feed a view's or query's changelog into a table, or elsewhere."""

    name: Name
    source: Query | Name
    span: Span
    into: Name | None = None
    options: tuple[Option, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateSchema:
    """``CREATE SCHEMA``: a first part for the names of relations."""

    name: Name
    span: Span
    if_not_exists: bool = False


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
    """``ON CONFLICT``, for rows whose key is in the table: without assignments, ``DO NOTHING``."""

    span: Span
    columns: tuple[str, ...] = ()
    assignments: tuple[Assignment, ...] = ()
    where: Fragment | None = None


@dataclass(frozen=True, slots=True)
class Insert:
    """``INSERT INTO``; ``columns`` is empty where all are meant, ``query`` may be ``VALUES``.

    ``replace`` says that it was written ``INSERT OR REPLACE``.
    """

    target: Name
    query: Query
    span: Span
    columns: tuple[str, ...] = ()
    on_conflict: OnConflict | None = None
    replace: bool = False


@dataclass(frozen=True, slots=True)
class Update:
    """``UPDATE``; without ``where``, of every row."""

    target: Name
    assignments: tuple[Assignment, ...]
    span: Span
    where: Fragment | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """``DELETE FROM``; without ``where``, of every row."""

    target: Name
    span: Span
    where: Fragment | None = None


@dataclass(frozen=True, slots=True)
class Truncate:
    """``TRUNCATE``: delete every row."""

    target: Name
    span: Span


@dataclass(frozen=True, slots=True)
class Copy:
    """``COPY ... FROM``: insert the rows of a file; ``columns`` is empty where all are meant."""

    target: Name
    path: str
    path_span: Span
    span: Span
    columns: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()


@dataclass(frozen=True, slots=True)
class Flush:
    """``FLUSH``: commit an epoch of all that has arrived, and wait for it."""

    span: Span


class Listing(StrEnum):
    """What ``SHOW`` lists."""

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
    EPOCHS = "epochs"
    FRESHNESS = "freshness"
    FUNCTIONS = "functions"


NAMED_LISTINGS = frozenset(Listing) - {
    Listing.REJECTS,
    Listing.DIRTY,
    Listing.EPOCHS,
    Listing.FRESHNESS,
}
"""What is listed by name, so that LIKE can choose from it."""


@dataclass(frozen=True, slots=True)
class Show:
    """``SHOW``; ``relation`` narrows the rejected events to those of one relation.

    ``schema`` narrows what has names to those in it, ``like`` to those that are like a pattern.
    """

    listing: Listing
    span: Span
    relation: Name | None = None
    like: str | None = None
    schema: Name | None = None


@dataclass(frozen=True, slots=True)
class ShowCreate:
    """``SHOW CREATE``: the statement that made a relation or sink."""

    name: Name
    span: Span


@dataclass(frozen=True, slots=True)
class Refresh:
    """``REFRESH``: wait until all that has arrived is readable, in one relation or in all."""

    span: Span
    name: Name | None = None


@dataclass(frozen=True, slots=True)
class Describe:
    """``DESCRIBE``: the columns of a relation; ``extended``, all that is known about it."""

    name: Name
    span: Span
    extended: bool = False


Explainable: TypeAlias = Query | CreateMaterializedView | CreateTableAs | Name


class Explained(StrEnum):
    """What ``EXPLAIN`` shows; the value is how a statement says it."""

    EVERYTHING = ""
    MAINTENANCE = "maintenance"
    CIRCUIT = "circuit"
    LINEAGE = "lineage"


@dataclass(frozen=True, slots=True)
class Explain:
    """``EXPLAIN`` of a query, of a view about to be created, or of the existing view so named."""

    target: Explainable
    span: Span
    shown: Explained = Explained.EVERYTHING


@dataclass(frozen=True, slots=True)
class SetOption:
    """``SET key = value``, of the session; the value is text as in :class:`Option`."""

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
class Repair:
    """``REPAIR``: rebuild what is damaged or has stopped, of one relation or of all."""

    span: Span
    name: Name | None = None


@dataclass(frozen=True, slots=True)
class Verify:
    """``VERIFY``: compare one view, or all of them, with an independent recompute."""

    span: Span
    name: Name | None = None


@dataclass(frozen=True, slots=True)
class Subscribe:
    """``SUBSCRIBE``: a snapshot, then its changes, by epoch; ``as_of`` is where to start.

    Without ``snapshot``, only the changes from now on.
    """

    target: Query | Name
    span: Span
    as_of: AsOf | None = None
    snapshot: bool = True


@dataclass(frozen=True, slots=True)
class Print:
    """``PRINT``: the changes of what a topic's name stands for, from the first one or from now."""

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
    | CreateSink
    | Drop
    | DropSchema
    | DropFunction
    | Insert
    | Update
    | Delete
    | Truncate
    | Copy
    | Flush
    | Refresh
    | Show
    | ShowCreate
    | Describe
    | Explain
    | SetOption
    | ResetOption
    | ShowOption
    | Repair
    | Verify
    | Subscribe
    | Print
)
