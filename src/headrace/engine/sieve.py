"""Finds the input rows on which a view's expressions fail, where they depend on that row alone.

Above a leaf, nodes without state evaluate each row by itself, and the first node with state
evaluates keys and arguments. Spark evaluates all of these in one job, with NULL instead of an
error. Failures further up, such as in a join or on a total, and in Python functions are not found
here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import LongType

from headrace.catalyst import plan
from headrace.catalyst.scala import EXPRESSIONS, kind_of
from headrace.catalyst.transplant import spark_schema
from headrace.circuit import Aggregate, Join, RelationDelta, Stateless, TemporalRows, inputs
from headrace.engine.jobs.worker import HandedTask
from headrace.zset import HASH, WEIGHT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.catalyst.transplant import Transplant
    from headrace.circuit import Circuit, InputGuard, Node, Output
    from headrace.types import DataType

HASHES, PLACES = "hash", "place"
"""The columns of the result: the hash of a row, and the index of the place at which it fails."""


@dataclass(slots=True)
class Sieve:
    """Lowers the checks of one relation's rows; ``places`` describes what may fail."""

    transplant: Transplant
    circuit: Circuit
    guard: InputGuard
    partitions: int
    places: list[str] = field(default_factory=list)

    def failing(self) -> Any | None:
        """Return a plan of the rows that fail; None if no expression depends on a single row.

        The rows are read from the step's arrangement with the guard's name.
        """
        failing: list[Any] = []
        for leaf in self.circuit.sources():
            if leaf.guard is self.guard:
                failing += self._above(leaf, *self._leaf(leaf))
        return self.transplant.finished(self.transplant.union(failing)) if failing else None

    def _leaf(self, leaf: RelationDelta) -> tuple[Any, Any]:
        """Return a plan of the rows under the ids of a leaf, and the attribute of the hash."""
        transplant, guard = self.transplant, self.guard
        names = guard.operator.columns.names
        fields: list[tuple[str, DataType]] = [*zip(names, guard.types, strict=True)]
        task = HandedTask(guard.arrangement, self.partitions)
        schema = spark_schema([*fields, (WEIGHT, LongType())])
        rows = transplant.mapped(transplant.range(self.partitions), task, schema)
        columns = transplant.output(rows)
        by_position = dict(zip(guard.columns, names, strict=True))
        named = [
            transplant.alias(columns[by_position[i]], a.name, a.handle)
            for i, a in zip(leaf.plan.columns, leaf.plan.attributes, strict=True)
        ]
        hash_ = transplant.alias(transplant.hash([columns[name] for name in names]), HASH)
        return transplant.project([*named, hash_], rows), hash_.toAttribute()

    def _above(self, node: Node, below: Any, hash_: Any) -> list[Any]:
        """Return plans of the rows that fail in users of a node with the rows ``below``."""
        failing = []
        for user in self.circuit.nodes:
            if node not in inputs(user):
                continue
            checked = _evaluated(user, node)
            if not checked:
                continue
            attributes = node.plan.attributes
            bad, good, values = self._checked(checked, attributes, below, hash_)
            failing.append(bad)
            if not isinstance(user, Stateless):
                continue
            if isinstance(user.plan, plan.Filter):
                failing += self._above(user, self.transplant.filter(values[0], good), hash_)
            else:
                pairs = zip(values, user.plan.attributes, strict=True)
                named = [self.transplant.alias(v, a.name, a.handle) for v, a in pairs]
                rows = self.transplant.project([*named, hash_], good)
                failing += self._above(user, rows, hash_)
        return failing

    def _checked(
        self,
        checked: Sequence[plan.Expression],
        attributes: Sequence[plan.Attribute],
        below: Any,
        hash_: Any,
    ) -> tuple[Any, Any, list[Any]]:
        """Return the rows on which expressions fail, the other rows, and the values of these."""
        transplant, scala = self.transplant, self.transplant.scala
        parts = []
        for i, expression in enumerate(checked):
            handle = expression.handle
            value = handle.child() if kind_of(handle) == "Alias" else handle
            parts += [scala.module(f"{EXPRESSIONS}.Literal").apply(f"c{i}"), value]
        struct = scala.expression("CreateNamedStruct", scala.seq(parts))
        tried = transplant.alias(scala.expression("TryEval", struct), "__tried")
        rows = transplant.project([*(a.handle for a in attributes), hash_, tried], below)
        found = tried.toAttribute()
        self.places.append(", ".join(e.text for e in checked if e.passes is None))
        place = transplant.literal(len(self.places) - 1, LongType())
        bad = transplant.project(
            [transplant.alias(hash_, HASHES), transplant.alias(place, PLACES)],
            transplant.filter(scala.expression("IsNull", found), rows),
        )
        good = transplant.filter(scala.expression("IsNotNull", found), rows)
        values = [
            scala.expression("GetStructField", found, i, scala.none) for i in range(len(checked))
        ]
        return bad, good, values


def _evaluated(user: Node | Output, node: Node) -> Sequence[plan.Expression]:
    """Return the expressions that a node evaluates on each row of an input; empty if not known."""
    match user:
        case Stateless(plan=plan.Project() as query) if not query.calls:
            return query.expressions
        case Stateless(plan=plan.Filter() as query):
            return (query.condition,)
        case Aggregate():
            given = (a for f in user.plan.functions if f.condition is None for a in f.arguments)
            return (*user.plan.grouping, *given)
        case Join():
            return user.plan.left_keys if user.left is node else user.plan.right_keys
        case TemporalRows():
            return user.plan.times
        case _:
            return ()
