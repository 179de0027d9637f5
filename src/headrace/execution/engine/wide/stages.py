"""Turns the plans of a wide step into stages: one Python task between an exchange and the next.

As Spark runs a plan, rows cross between the JVM and Python around every operator, and are converted
between rows and columns each time: most of the time of a wide epoch. If all expressions of a plan
are proved over Arrow columns (:mod:`headrace.planning.catalyst.vectors`), no row has to be in the
JVM. A stage then reads its share or its parcels, evaluates expressions, steps operators, and sends
rows on in parcels, all in one task. Spark schedules the tasks and moves the parcels.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import BinaryType, IntegerType, LongType

from headrace.execution.engine.jobs.worker import LeafTask
from headrace.execution.engine.narrow import nodes as narrow
from headrace.execution.engine.narrow.evaluated import ComputedColumns
from headrace.execution.engine.narrow.nodes import Exploded
from headrace.execution.engine.narrow.reading import staged_nodes
from headrace.execution.engine.narrow.windows import Aggregated, Windowed
from headrace.execution.engine.wide import nodes as wide
from headrace.execution.engine.wide.nodes import PARTITION, ROWS, Sending, StageTask
from headrace.planning.catalyst.transplant import spark_schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from threading import RLock

    from headrace.planning.catalyst.transplant import Transplant


_PARCELS = spark_schema([(PARTITION, IntegerType()), (ROWS, BinaryType())])
_REMEMBERED = 64
"""After so many steps that Spark has run, stages are tried again: the data may have changed."""

_NOTHING = spark_schema([("x", LongType())])


class NeedsSparkError(Exception):
    """A plan cannot be run in stages; the text says why."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a stage that reads one exchange, or shares if that is None."""

    node: wide.StageNode
    source: narrow.Exchanged | None


@dataclass(slots=True)
class Staged:
    """The plans ``jobs`` of a program in stages; they are made when a step first runs them.

    ``planning`` is held while they are. If some of the program needs Spark, ``why`` says what.
    ``doubts`` is how often a value was in doubt.
    """

    transplant: Transplant
    jobs: tuple[Any, ...]
    partitions: int
    planning: RLock
    why: str = ""
    doubts: int = 0
    _made: tuple[Any, ...] | None = None
    _left: int = 0
    """How many more steps Spark runs at once, since a value was in doubt."""

    def plans(self) -> tuple[Any, ...] | None:
        """Return the plans for a step, or None if Spark is to run it; called once for each."""
        if self._left:
            self._left -= 1
            return None
        with self.planning:
            if self._made is None and not self.why:
                try:
                    self._made = in_stages(self.transplant, self.jobs, self.partitions)
                except NeedsSparkError as needed:
                    self.why = str(needed)
        return self._made

    def doubted(self) -> None:
        """Remember that a value was in doubt."""
        self.doubts += 1
        self._left = _REMEMBERED


def in_stages(transplant: Transplant, jobs: tuple[Any, ...], partitions: int) -> tuple[Any, ...]:
    """Return the plans of a program in stages.

    Raises:
        NeedsSparkError: some of it needs Spark.
    """
    stages = _Stages(transplant, partitions)
    return tuple(stages.job(root) for root in staged_nodes(transplant, jobs))


@dataclass(frozen=True, slots=True)
class _Stages:
    """Builds the stages of one program."""

    transplant: Transplant
    partitions: int
    _pieces: dict[narrow.RowsNode, tuple[_Piece, ...]] = field(default_factory=dict)
    _exchanges: dict[narrow.Exchanged, Any] = field(default_factory=dict)
    _stepped: set[wide.StageNode] = field(default_factory=set)
    """The tasks that are in a stage already: each runs once."""

    def job(self, root: narrow.RowsNode) -> Any:
        """Return the plan of a job."""
        stages = [stage for end in _ends(root) for stage in self._stages(end, None)]
        return self.transplant.finished(self.transplant.union(stages))

    def _stages(self, node: narrow.RowsNode, sending: Sending | None) -> list[Any]:
        """Return the plans of a stage's pieces."""
        return [self._stage(piece, sending) for piece in self._of(node)]

    def _stage(self, piece: _Piece, sending: Sending | None) -> Any:
        transplant, uses = self.transplant, Counter(_uses(piece.node))
        steps = {each for each in uses if isinstance(each, wide.TaskTables | wide.SourceTables)}
        if any(_reports(each) for each in steps & self._stepped):
            raise NeedsSparkError("an operator whose rows are sent twice")
        self._stepped.update(steps)
        repeated = frozenset(each for each, count in uses.items() if count > 1)
        task = StageTask(piece.node, piece.source is None, repeated, sending)
        if piece.source is None:
            below = transplant.range(self.partitions)
        else:
            below = self._exchange(piece.source)
        return transplant.mapped(below, task, _NOTHING if sending is None else _PARCELS)

    def _exchange(self, node: narrow.Exchanged) -> Any:
        """Return the plan of an exchange, which Spark runs once however often it is read."""
        if node not in self._exchanges:
            transplant = self.transplant
            sending = Sending(node.hash, self.partitions)
            sent = transplant.union(self._stages(node.child, sending))
            owner = transplant.output(sent)[PARTITION]
            self._exchanges[node] = transplant.delivered(sent, owner, self.partitions)
        return self._exchanges[node]

    def _of(self, node: narrow.RowsNode) -> tuple[_Piece, ...]:
        """Return the pieces that together have the rows of a node."""
        if node not in self._pieces:
            self._pieces[node] = tuple(self._made(node))
        return self._pieces[node]

    def _made(self, node: narrow.RowsNode) -> Iterator[_Piece]:
        match node:
            case narrow.Exchanged():
                yield _Piece(wide.ArrivedTables(), node)
            case narrow.Task(child=narrow.Range(count=count)):
                yield _Piece(wide.SourceTables(node.mapped.task, count, node.schema), None)
            case narrow.Task():
                below = self._whole(node.child)
                stepped = wide.TaskTables(below.node, node.names, node.mapped.task, node.schema)
                yield _Piece(stepped, below.source)
            case narrow.Projected():
                values = None if node.evaluated is None else _vectors(node.evaluated)
                for below in self._of(node.child):
                    yield _Piece(wide.ProjectedTables(below.node, node.taken, values), below.source)
            case narrow.Filtered():
                condition = _vectors(node.condition)
                for below in self._of(node.child):
                    yield _Piece(wide.FilteredTables(below.node, condition), below.source)
            case Exploded():
                exploding = _of_vectors(node.exploding, "array")
                for below in self._of(node.child):
                    yield _Piece(wide.ExplodedTables(below.node, exploding), below.source)
            case Windowed(windowing=computing) | Aggregated(aggregating=computing):
                below = self._whole(node.child)
                grouped = wide.GroupedTables(below.node, _of_vectors(computing, "given", "results"))
                yield _Piece(grouped, below.source)
            case narrow.Concatenated():
                yield from self._together(node)
            case narrow.JobNode():
                raise NeedsSparkError(node.why)
            case _:
                raise NeedsSparkError(type(node).__name__)

    def _whole(self, node: narrow.RowsNode) -> _Piece:
        """Return the only piece of a node: what is over it needs all rows of a partition."""
        pieces = self._of(node)
        if len(pieces) > 1:
            raise NeedsSparkError("an operator over several exchanges")
        return pieces[0]

    def _together(self, node: narrow.Concatenated) -> Iterator[_Piece]:
        by_source: dict[narrow.Exchanged | None, list[wide.StageNode]] = {}
        for child in node.children:
            for piece in self._of(child):
                by_source.setdefault(piece.source, []).append(piece.node)
        for source, found in by_source.items():
            yield _Piece(
                found[0] if len(found) == 1 else wide.ConcatenatedTables(tuple(found)), source
            )


def _ends(node: narrow.RowsNode) -> Iterator[narrow.RowsNode]:
    """Yield the nodes that a job is run for; their rows are not needed."""
    match node:
        case narrow.Concatenated():
            for child in node.children:
                yield from _ends(child)
        case narrow.Projected() | narrow.Exchanged():
            yield from _ends(node.child)
        case narrow.Range():
            raise NeedsSparkError("a job without operators")
        case _:
            yield node


def _reports(node: wide.StageNode) -> bool:
    """Whether a node may run only once in a step, since its task reports."""
    if not isinstance(node, wide.SourceTables):
        return True
    return isinstance(node.task, LeafTask) and node.task.slice is not None


def _uses(root: wide.StageNode) -> Iterator[wide.StageNode]:
    """Yield each node of a stage as often as it is read."""
    seen: set[wide.StageNode] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        if node not in seen:
            seen.add(node)
            pending += node.below


def _vectors(columns: ComputedColumns) -> wide.Vectors:
    vectors = tuple(each for each in columns.vectors if each is not None)
    if len(vectors) < len(columns.vectors):
        raise NeedsSparkError(", ".join(columns.catalyst.classes()))
    return wide.Vectors(vectors, columns.schema)


def _of_vectors(computing: Any, *names: str) -> Any:
    """Return what computes something with vectors in place of its expressions."""
    found = {name: getattr(computing, name) for name in names}
    own = {n: _vectors(each) for n, each in found.items() if isinstance(each, ComputedColumns)}
    return replace(computing, **own)
