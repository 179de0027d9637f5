"""The result of analysing a query: its columns, its relations, and Catalyst's plans."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.errors import Span
    from headrace.planning.sql import Rewritten
    from headrace.types import RelationId, Schema


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns and the relations of a query that Spark has resolved.

    ``names`` are all relations in the text and in the plain views that it names; ``reads`` are
    those that can change the result.
    """

    schema: Schema
    names: tuple[RelationId, ...]
    reads: tuple[RelationId, ...]


@dataclass(frozen=True, slots=True)
class Analysed(Shape):
    """A query that Spark has resolved, with Catalyst's plans.

    ``through`` are the plain views that it names. ``clocked``: whether it has conditions on the
    clock.
    """

    optimised: Any
    read: Rewritten
    """The query after the first rewriting."""
    plain: Rewritten
    """The query after the second rewriting, as passed to Spark: positions in plans refer to this
    text.
    """
    clocked: bool = False
    through: tuple[RelationId, ...] = ()
    calls: Mapping[str, Span] = field(default_factory=dict)
    """The Python functions that it calls, in lower case, each with the place of one call."""

    @property
    def shape(self) -> Shape:
        """Its columns and relations alone, without plans."""
        return Shape(self.schema, self.names, self.reads)

    @property
    def text(self) -> str:
        """Spark's optimised plan as text."""
        return str(self.optimised.toString())


@dataclass(frozen=True, slots=True)
class QueryProperties:
    """The properties of a resolved query."""

    clocked: bool
    """Whether there are conditions on the clock that are maintained."""
    calls: dict[str, Span]
    """The Python functions that it calls, each with the place of one call."""
    views: set[str]
    """The names of the plain views that it reads, among others."""
    stored: tuple[RelationId, ...]
    """The relations whose stored rows it names."""
