"""The statements of Headrace as values: what :func:`headrace.sql.parse` returns.

Queries and expressions inside a statement stay Spark SQL text, as written. Names of relations are
in lower case unless quoted; names of columns are as declared, and compared regardless of case.
Every ``span`` shows its place in the whole script.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.sql.as_of import AsOf


@dataclass(frozen=True, slots=True)
class Name:
    """The possibly qualified name of a relation, such as ``gold.orders``."""

    parts: tuple[str, ...]
    span: Span

    @property
    def dotted(self) -> str:
        """The parts joined by dots, in lower case: the name that the catalog knows."""
        return ".".join(self.parts).lower()

    def __str__(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True, slots=True)
class Fragment:
    """A stretch of Spark SQL: an expression as written, or a type in Spark's spelling.

    An expression has balanced brackets and no comment at its end: it may stand in parentheses.
    """

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Option:
    """One ``key = value`` of ``WITH (...)``.

    An unquoted key is in lower case. The value is text, whatever its form was: ``2`` and ``'2'``
    are equal, and so are ``TRUE`` and ``'true'``. It is left out of ``repr``: it may be a secret.
    """

    key: str
    value: str = field(repr=False)
    span: Span


@dataclass(frozen=True, slots=True)
class Query:
    """A query as Spark reads it, without the endings that are Headrace's own."""

    text: str
    span: Span
    emit_changes: bool = False
    as_of: AsOf | None = None


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """One column of a stream or table; ``type`` is in Spark's spelling, its span as written."""

    name: str
    type: Fragment
    span: Span
    not_null: bool = False
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class Watermark:
    """``WATERMARK FOR column AS expression``: the bound on event time that a row implies."""

    column: str
    expression: Fragment
    span: Span


class ObjectKind(StrEnum):
    """The kinds of relations that statements name; the value is how a message calls it."""

    STREAM = "stream"
    SOURCE = "source"
    TABLE = "table"
    VIEW = "view"
    MATERIALIZED_VIEW = "materialized view"


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
class Insert:
    """``INSERT INTO``; ``columns`` is empty where all are meant, ``query`` may be ``VALUES``."""

    target: Name
    query: Query
    span: Span
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Assignment:
    """One ``column = expression`` of ``UPDATE``."""

    column: str
    expression: Fragment
    span: Span


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
    REJECTS = "rejects"
    DIRTY = "dirty"
    EPOCHS = "epochs"
    FRESHNESS = "freshness"
    FUNCTIONS = "functions"


@dataclass(frozen=True, slots=True)
class Show:
    """``SHOW``; ``relation`` narrows the rejected events to those of one relation."""

    listing: Listing
    span: Span
    relation: Name | None = None


@dataclass(frozen=True, slots=True)
class Describe:
    """``DESCRIBE``: the columns of a relation; ``extended``, all that is known about it."""

    name: Name
    span: Span
    extended: bool = False


Explainable: TypeAlias = Query | CreateMaterializedView | CreateTableAs | Name


@dataclass(frozen=True, slots=True)
class Explain:
    """``EXPLAIN`` of a query, of a view about to be created, or of the existing view so named."""

    target: Explainable
    span: Span


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
class Verify:
    """``VERIFY``: compare one view, or all of them, with an independent recompute."""

    span: Span
    name: Name | None = None


@dataclass(frozen=True, slots=True)
class Subscribe:
    """``SUBSCRIBE``: a snapshot, then its changes, by epoch; ``as_of`` is where to start."""

    target: Query | Name
    span: Span
    as_of: AsOf | None = None


Statement: TypeAlias = (
    Query
    | CreateStream
    | CreateTable
    | CreateTableAs
    | CreateMaterializedView
    | CreateView
    | CreateSchema
    | Drop
    | DropSchema
    | DropFunction
    | Insert
    | Update
    | Delete
    | Truncate
    | Copy
    | Flush
    | Show
    | Describe
    | Explain
    | SetOption
    | ResetOption
    | ShowOption
    | Verify
    | Subscribe
)
