"""What statements consist of: names, options, queries and expressions, columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

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
    limit: int | None = None
    """After how many rows a push query ends; None where it goes on."""


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """One column of a stream or table; ``type`` is in Spark's spelling, its span as written.

    A computed column without a type, whose text is empty, has its expression's. ``metadata`` is
    what a column tells of where its row came from, such as ``offset``.
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
    SINK = "sink"
    JOB = "job"
