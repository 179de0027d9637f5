"""What Spark makes of a query: its columns, what it reads, and Catalyst's plan of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.errors import Span
    from headrace.sql import Rewritten
    from headrace.types import RelationId, Schema


@dataclass(frozen=True, slots=True)
class Analysed:
    """A query that Spark has resolved: its columns, what it reads, and Catalyst's plans.

    ``names`` are all relations of the text, ``reads`` those that make a difference to its answer.
    What is read through plain views counts as named; ``through`` are these views.
    ``clocked``: it has conditions on the clock.
    """

    schema: Schema
    names: tuple[RelationId, ...]
    reads: tuple[RelationId, ...]
    optimised: Any
    read: Rewritten
    """The query after the first rewriting."""
    plain: Rewritten
    """That, as Spark was given it: its text is where the plans have their places."""
    clocked: bool = False
    through: tuple[RelationId, ...] = ()
    calls: Mapping[str, Span] = field(default_factory=dict)
    """The Python functions that are called, in lower case, with the place of one call each."""

    @property
    def text(self) -> str:
        """Spark's optimised plan as text."""
        return str(self.optimised.toString())
