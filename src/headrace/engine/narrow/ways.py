"""How narrow epochs run what is between the operators of a view, for EXPLAIN."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.engine.jobs.guard_tasks import GuardTask
from headrace.engine.jobs.worker import Chain, OperatorTask
from headrace.engine.narrow.evaluated import of_catalyst
from headrace.engine.narrow.exploded import Exploded
from headrace.engine.narrow.nodes import DoubtfulNode, Filtered, JobNode, Projected, Task
from headrace.operators import NearRows, TouchedGroups

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.engine.narrow.evaluated import ComputedColumns
    from headrace.engine.narrow.nodes import RowsNode


@dataclass(frozen=True, slots=True)
class Way:
    """What of an operator, and of what prepares its rows, leaves this process in a narrow epoch.

    ``crossings`` are the classes of expressions that Catalyst evaluates in the JVM, ``jobs`` what
    only Spark's own operators do; both without repetitions, in order.
    """

    crossings: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()

    def words(self) -> str:
        """Return a line, such as "in this process, with a crossing to the JVM for SoundEx"."""
        left = []
        if self.crossings:
            left.append(f"a crossing to the JVM for {_listed(self.crossings)}")
        if self.jobs:
            left.append(f"a Spark job for {_listed(self.jobs)}")
        return f"in this process, with {' and '.join(left)}" if left else "in this process"


def ways(node: RowsNode) -> dict[str, Way]:
    """Return the way of each operator in the program of a view, by the operator's name.

    An expression belongs to the operator that gets its values. A job that recomputes groups belongs
    to the operator that finds them.
    """
    found = _Found()
    found.visit(node, None)
    return {name: Way(tuple(found.crossings[name]), tuple(found.jobs[name])) for name in found.jobs}


@dataclass(frozen=True, slots=True)
class _Found:
    """What was found of each operator; the dictionaries of texts are sets that keep their order."""

    crossings: dict[str, dict[str, None]] = field(default_factory=dict)
    jobs: dict[str, dict[str, None]] = field(default_factory=dict)
    seen: set[RowsNode] = field(default_factory=set)

    def visit(self, node: RowsNode, above: str | None) -> None:
        """Visit a node and those below; ``above`` is the operator that gets its rows."""
        if node in self.seen:
            return
        self.seen.add(node)
        match node:
            case Task():
                names = [task.name for task in operators_of(node.mapped.task)]
                for name in names:
                    self._known(name)
                above = names[0] if names else above
            case Projected(evaluated=columns) | Filtered(condition=columns) if columns is not None:
                self._crossed(node, above, (columns,))
            case Exploded():
                self._crossed(node, above, of_catalyst(node.exploding.array))
            case DoubtfulNode():
                self._crossed(node, above, node.evaluated)
            case JobNode():
                owner = _recomputed(node) or above or _nearest(node)
                if owner is not None:
                    self._known(owner)
                    self.jobs[owner][node.why] = None
            case _:
                pass
        for below in node.below:
            self.visit(below, above)

    def _crossed(
        self, node: RowsNode, above: str | None, evaluated: Iterable[ComputedColumns]
    ) -> None:
        owner = above or _nearest(node)
        if owner is not None:
            self._known(owner)
            for columns in evaluated:
                self.crossings[owner].update(dict.fromkeys(columns.catalyst.classes()))

    def _known(self, name: str) -> None:
        self.crossings.setdefault(name, {})
        self.jobs.setdefault(name, {})


def operators_of(task: Any) -> Iterator[OperatorTask | GuardTask]:
    """Yield the operators that a task steps, the first one first."""
    match task:
        case OperatorTask() | GuardTask():
            yield task
        case Chain():
            yield from operators_of(task.first)
            yield task.second
        case _:
            pass


def _recomputed(node: JobNode) -> str | None:
    """Return the operator that has found the groups that a job recomputes."""
    for below in node.below:
        for task in operators_of(below.mapped.task) if isinstance(below, Task) else ():
            if isinstance(task.operator, TouchedGroups | NearRows):
                return task.name
    return None


def _nearest(node: RowsNode) -> str | None:
    """Return an operator below a node."""
    for below in node.below:
        tasks = operators_of(below.mapped.task) if isinstance(below, Task) else ()
        names = [task.name for task in tasks]
        found = names[-1] if names else _nearest(below)
        if found is not None:
            return found
    return None


def _listed(texts: Iterable[str]) -> str:
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last
