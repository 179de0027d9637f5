"""What an epoch costs in this process: calls that are counted, and where its time goes.

Both wrap functions of Headrace while a block runs, so that the product itself measures nothing.
"""

from __future__ import annotations

import functools
import gc
import os
import threading
import time
from collections import Counter, defaultdict
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from py4j.clientserver import JavaClient
from py4j.java_gateway import GatewayClient

from headrace.algebra import operators
from headrace.algebra.operators import StatefulOperator
from headrace.algebra.spine import Spine
from headrace.algebra.spine.pack import PackWriter
from headrace.execution.engine.engine import Engine
from headrace.execution.engine.jobs.worker import LeafTask
from headrace.execution.engine.narrow import nodes, parts
from headrace.execution.engine.narrow.evaluated import ComputedColumns
from headrace.execution.engine.narrow.nodes import Exploded
from headrace.execution.engine.narrow.reach import Deltas
from headrace.execution.runtime import rounds
from headrace.execution.runtime.attempt import Attempt
from headrace.execution.runtime.compaction import Compaction
from headrace.execution.runtime.connected import Parting
from headrace.execution.runtime.epoch import EpochLoop
from headrace.execution.runtime.published import Publisher
from headrace.planning.catalyst.evaluation import BoundExpressions
from headrace.storage.ledger import Ledger
from headrace.storage.log import Appender

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

GARBAGE = "garbage collections"
"""The place of Python's collections of garbage, which happen in any other."""
REST = "the rest"
"""The place of the time that no other place has."""
ORDER = (
    "insert",
    "poll",
    "plan",
    "parts of the step",
    "leaves",
    "projections, conditions",
    "windows, aggregates",
    "expressions",
    "crossings",
    "jobs",
    "tasks",
    "spines opened",
    "operator",
    "runs written",
    "syncs",
    "keys checked",
    "commit",
    "publish",
    "compaction",
    GARBAGE,
    REST,
)
"""The places where time goes, in the order of an epoch; operators are shown by class."""


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count the crossings, the calls by py4j and the syncs of this process in a block.

    A crossing evaluates expressions over rows in the JVM. SQLite's own syncs are not counted.
    """
    found: Counter[str] = Counter()
    with ExitStack() as stack:

        def count(owner: Any, name: str, what: str) -> None:
            called = getattr(owner, name)

            @functools.wraps(called)
            def counting(*arguments: Any, **named: Any) -> Any:
                found[what] += 1
                return called(*arguments, **named)

            stack.enter_context(patch.object(owner, name, counting))

        count(BoundExpressions, "over", "crossings")
        for client in (GatewayClient, JavaClient):
            if "send_command" in vars(client):
                count(client, "send_command", "py4j")
        count(os, "fsync", "syncs")
        yield found


def files_in(directory: Path) -> frozenset[str]:
    """Return the files in a data directory, apart from those of the ledger."""
    return frozenset(
        str(path.relative_to(directory))
        for path in directory.rglob("*")
        if path.is_file() and not path.name.startswith("ledger.db")
    )


class Profile:
    """The time of each place, in this thread, without that of places called from it.

    ``wall`` and ``processor`` have seconds by place, ``calls`` the number of calls. Their sum is
    the time in blocks of :meth:`measured`.
    """

    def __init__(self) -> None:
        self.wall: defaultdict[str, float] = defaultdict(float)
        self.processor: defaultdict[str, float] = defaultdict(float)
        self.calls: Counter[str] = Counter()
        self._places: list[str] = []
        self._since = (0.0, 0.0)
        self._thread = threading.get_ident()

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the calls in a block."""
        with ExitStack() as stack:
            for owner, name, place in _places():
                wrapped = self._wrapped(getattr(owner, name), place)
                stack.enter_context(patch.object(owner, name, wrapped))
            for owner, place in _CALLED_AS_GENERATORS.items():
                wrapped = self._generating(owner.__call__, place)
                stack.enter_context(patch.object(owner, "__call__", wrapped))
            gc.callbacks.append(self._collecting)
            stack.callback(gc.callbacks.remove, self._collecting)
            with self._in(REST):
                yield

    def table(self, samples: int) -> list[dict[str, Any]]:
        """Return milliseconds and calls per sample by place, in the order of an epoch."""
        places = sorted(self.wall, key=place_rank)
        return [
            {
                "place": place,
                "wall_ms": round(self.wall[place] / samples * 1000, 3),
                "processor_ms": round(self.processor[place] / samples * 1000, 3),
                "calls": round(self.calls[place] / samples, 2),
            }
            for place in places
        ]

    @contextmanager
    def _in(self, place: str) -> Iterator[None]:
        self._enter(place)
        try:
            yield
        finally:
            self._leave()

    def _enter(self, place: str) -> None:
        self._passed()
        self._places.append(place)
        self.calls[place] += 1

    def _leave(self) -> None:
        self._passed()
        self._places.pop()

    def _collecting(self, phase: str, _info: object) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._enter(GARBAGE)
        else:
            self._leave()

    def _passed(self) -> None:
        """Add the time since the last call to the place that is entered now."""
        now = time.perf_counter(), time.thread_time()
        if self._places:
            self.wall[self._places[-1]] += now[0] - self._since[0]
            self.processor[self._places[-1]] += now[1] - self._since[1]
        self._since = now

    def _wrapped(self, called: Callable[..., Any], place: str) -> Callable[..., Any]:
        @functools.wraps(called)
        def timed(*arguments: Any, **named: Any) -> Any:
            if threading.get_ident() != self._thread:
                return called(*arguments, **named)
            with self._in(place):
                return called(*arguments, **named)

        return timed

    def _generating(self, called: Callable[..., Any], place: str) -> Callable[..., Any]:
        """Measure a function that yields, which only this thread calls."""

        @functools.wraps(called)
        def timed(*arguments: Any) -> Iterator[Any]:
            found = called(*arguments)
            while True:
                with self._in(place):
                    try:
                        batch = next(found)
                    except StopIteration:
                        return
                yield batch

        return timed


def place_rank(place: str) -> tuple[int, str]:
    """Return a key by which places are sorted in the order of an epoch."""
    return ORDER.index("operator" if place.startswith("operator ") else place), place


_CALLED_AS_GENERATORS: dict[Any, str] = {LeafTask: "leaves"}


def _places() -> Iterator[tuple[Any, str, str]]:
    """Yield functions, each with its owner, its name and its place."""
    yield Appender, "append", "insert"
    yield Parting, "together", "poll"
    yield Parting, "parted", "poll"
    yield EpochLoop, "plan", "plan"
    yield Engine, "run_live", "parts of the step"
    yield parts, "scans", "parts of the step"
    yield Deltas, "read", "leaves"
    yield Deltas, "has_rows", "leaves"
    for node in (nodes.Projected, nodes.Filtered, nodes.Concatenated, Exploded):
        yield node, "computed", "projections, conditions"
    yield nodes.DoubtfulNode, "computed", "windows, aggregates"
    yield ComputedColumns, "columns", "expressions"
    yield BoundExpressions, "over", "crossings"
    yield nodes.JobNode, "computed", "jobs"
    yield parts, "_run_as_one", "jobs"
    yield nodes.Task, "computed", "tasks"
    yield Spine, "open", "spines opened"
    for operator in _operators():
        yield operator, "step", f"operator {operator.__name__}"
    for name in ("write", "write_parts", "finish"):
        yield PackWriter, name, "runs written"
    yield os, "fsync", "syncs"
    yield rounds, "require_keys", "keys checked"
    yield Attempt, "counters", "commit"
    yield Ledger, "commit", "commit"
    yield Publisher, "publish", "publish"
    yield Compaction, "run", "compaction"


def _operators() -> Iterator[type[StatefulOperator]]:
    """Yield the classes of operators that have a step of their own."""
    for each in vars(operators).values():
        if isinstance(each, type) and each is not StatefulOperator and "step" in vars(each):
            yield each
