"""The parts of statements: names, options, queries, expressions and columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.planning.sql.as_of import AsOf


class Statement:
    """The base class of statements, the results of :func:`headrace.planning.sql.parse`.

    ``interfaces/session/table.py`` lists the class that runs each, and the roles that it needs.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def span(self) -> Span:
            """The statement's place in the script."""


@dataclass(frozen=True, slots=True)
class Name:
    """The possibly qualified name of a relation, such as ``gold.orders``."""

    parts: tuple[str, ...]
    span: Span

    @property
    def dotted(self) -> str:
        """The parts joined by dots, in lower case, as the catalog stores them."""
        return ".".join(self.parts).lower()

    def __str__(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True, slots=True)
class Fragment:
    """A range of Spark SQL text: an expression as written, or a type in Spark's notation.

    An expression has balanced brackets and does not end in a comment, so it can be put in
    parentheses.
    """

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Option:
    """One ``key = value`` of ``WITH (...)``.

    An unquoted key is in lower case. The value is text whatever its form: ``2`` and ``'2'`` are
    equal, and so are ``TRUE`` and ``'true'``. ``repr`` omits the value, because it may be a secret.
    If the value is ``SECRET name``, ``secret`` is set and the value is that name.
    """

    key: str
    value: str = field(repr=False)
    span: Span
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Query(Statement):
    """A query for Spark, without Headrace's own clauses at its end."""

    text: str
    span: Span
    emit_changes: bool = False
    as_of: AsOf | None = None
    limit: int | None = None
    """The number of rows after which a push query ends; None if it has no limit."""


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """One column of a stream or table; ``type`` is in Spark's notation, its span as written.

    The type of a computed column may be empty: then it is that of the expression. ``metadata`` is
    the key of a METADATA column, such as ``offset``.
    """

    name: str
    type: Fragment
    span: Span
    not_null: bool = False
    comment: str | None = None
    computed: Fragment | None = None
    metadata: str | None = None
    default: Fragment | None = None


@dataclass(frozen=True, slots=True)
class WatermarkClause:
    """``WATERMARK FOR column AS expression``: the bound on event time that a row implies."""

    column: str
    expression: Fragment
    span: Span


class ObjectKind(StrEnum):
    """The kinds of relations in statements; the value is the noun for messages."""

    STREAM = "stream"
    SOURCE = "source"
    TABLE = "table"
    VIEW = "view"
    MATERIALIZED_VIEW = "materialized view"
    SINK = "sink"
    JOB = "job"


class Role(StrEnum):
    """What a token may do in a schema or in the database; each role includes those before it."""

    READER = "reader"
    WRITER = "writer"
    OWNER = "owner"

    def includes(self, other: Role) -> bool:
        """Whether this role permits everything that another role permits."""
        order = list(Role)
        return order.index(self) >= order.index(other)
