"""What a query process is sent, and what it answers: values, pickled.

Both ends are the same program of the same user, at the two ends of one pair of sockets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa

    from headrace.catalog import Relation, Stream
    from headrace.engine.jobs.session import SparkSettings
    from headrace.errors import HeadraceError, Span
    from headrace.functions import FunctionRecord
    from headrace.runtime.step import Share
    from headrace.types import RelationId


@dataclass(frozen=True, slots=True)
class Begin:
    """The first message: the data directory, which is only read, and how Spark is started.

    ``scratch`` is a directory of the process's own, which ends with it; ``path`` is where modules
    are found; ``bytes`` is the memory that the process and its JVM may use in all.
    """

    directory: Path
    scratch: Path
    partitions: int
    spark: SparkSettings
    path: tuple[str, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class Declared:
    """The names that queries can use: all of them, in place of those declared before.

    The queries of the plain views in ``waiting`` cannot be planned. ``functions`` are pickled, by
    name; ``remembered`` are those recorded in the catalog.
    """

    relations: tuple[Relation, ...] = ()
    waiting: frozenset[RelationId] = frozenset()
    functions: Mapping[str, bytes] = field(default_factory=dict)
    remembered: Mapping[str, FunctionRecord] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AskShape:
    """Asks for a query's :class:`Shape`."""

    query: Span


@dataclass(frozen=True, slots=True)
class AskRows:
    """Asks for a query's rows, over the contents of relations.

    ``given`` are rows of relations without stored contents. Of more than ``most`` bytes, rows are
    refused.
    """

    text: str
    shares: Mapping[RelationId, Share]
    given: tuple[tuple[Stream, pa.Table], ...]
    most: int
    indexes: tuple[Share, ...] = ()
    """The contents of the indexes of the only relation that the query reads."""


@dataclass(frozen=True, slots=True)
class AskComputed:
    """Asks for the values of expressions over rows; see :meth:`Queries.computed`."""

    rows: pa.Table
    expressions: list[str]
    source: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancels what is asked; its answer is an error, or what it has become by then."""


@dataclass(frozen=True, slots=True)
class Done:
    """The answer to one question: a shape; rows; None to :class:`Begin` and :class:`Declared`."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The error of what was asked."""

    error: HeadraceError


@dataclass(frozen=True, slots=True)
class Full:
    """What was asked needs more memory than there is: the process ends."""
