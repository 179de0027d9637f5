"""Messages to a query process, and its answers, as pickled values.

Both ends are the same program of the same user, connected by a socket pair.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa

    from headrace.catalog import Relation, Stream
    from headrace.engine.jobs.lease import SparkSettings
    from headrace.errors import Span
    from headrace.functions import FunctionRecord
    from headrace.log import Extent, Pruning
    from headrace.runtime.step import Share
    from headrace.spine.mounts import Mounted
    from headrace.types import RelationId


@dataclass(frozen=True, slots=True)
class WarmSpark:
    """The first message to a process that is started before it is known what it reads."""

    scratch: Path
    spark: SparkSettings
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StartSpark:
    """The first message, or the next one: the data directory, read only, and Spark's settings.

    ``scratch`` is a directory of the process, removed with it; ``path`` is the module search path;
    ``bytes`` limits the memory of the process and its JVM together. ``mounted`` says whether the
    data directory is the cache of a store.
    """

    directory: Path
    scratch: Path
    partitions: int
    spark: SparkSettings
    path: tuple[str, ...]
    bytes: int
    mounted: Mounted | None = None


@dataclass(frozen=True, slots=True)
class Declared:
    """The names that queries can use, in place of those declared before.

    The queries of the plain views in ``waiting`` cannot be planned. ``functions`` are pickled, by
    name; ``remembered`` are those recorded in the catalog.
    """

    relations: tuple[Relation, ...] = ()
    waiting: frozenset[RelationId] = frozenset()
    functions: Mapping[str, bytes] = field(default_factory=dict)
    remembered: Mapping[str, FunctionRecord] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AskShape:
    """Asks for a query's :class:`Shape`, and for the name of its plan, if the process keeps it."""

    query: Span


@dataclass(frozen=True, slots=True)
class AskRows:
    """Asks for a query's rows, over the contents of relations.

    Of a stream, the segments are not listed: the process asks for those that it needs. ``given``
    are rows of relations without stored contents. A result of more than ``most`` bytes is refused.
    """

    text: str
    shares: Mapping[RelationId, Share | Extent]
    given: tuple[tuple[Stream, pa.Table], ...]
    most: int
    indexes: tuple[Share, ...] = ()
    """The contents of the indexes of the only relation that the query reads."""
    plan: str | None = None
    """The name of the plan, if a process has one; another process, or a later one, has not."""


@dataclass(frozen=True, slots=True)
class AskComputed:
    """Asks for the values of expressions over rows; see :meth:`Queries.computed`."""

    rows: pa.Table
    expressions: list[str]
    source: str


@dataclass(frozen=True, slots=True)
class Needed:
    """What a process needs before it can answer: it is sent the answer to a question of its own."""

    question: AskSegments | AskLogs


@dataclass(frozen=True, slots=True)
class AskSegments:
    """Asks for a page of the segments of a log; see :class:`headrace.log.SegmentListing`."""

    extent: Extent
    pruning: Pruning
    most: int
    newest: bool


@dataclass(frozen=True, slots=True)
class AskLogs:
    """Asks for the shares of streams, with all segments, that a Spark job reads."""

    relations: tuple[RelationId, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancels the current question; the answer is an error, or the result if it was finished."""


@dataclass(frozen=True, slots=True)
class Done:
    """The answer to a question: a shape, rows, or None if nothing was asked."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The error of a question."""

    error: HeadraceError


@dataclass(frozen=True, slots=True)
class Full:
    """The question needs more memory than allowed: the process ends."""


def within(rows: pa.Table, most: int) -> pa.Table:
    """Return the rows of a result, if they have at most so many bytes.

    Raises:
        HeadraceError: ``unsupported`` if they have more.
    """
    if rows.nbytes <= most:
        return rows
    raise HeadraceError(
        Code.UNSUPPORTED,
        f"a result of {rows.nbytes:,} bytes is too large",
        f"The limit is {most:,}.",
        "Use LIMIT.",
    )
