"""The condition of a slice, as conditions on the attributes of a view's circuit.

Conditions on the columns of a view for the rows changed by events from a time on.

If a column of the view depends only on the event time of a stream, and never falls as the time
rises, it has a lower bound in these rows. Otherwise, these rows have the values of the events in
the columns that the view takes from the stream unchanged.

Finds the input rows on which a view's expressions fail, where they depend on that row alone.

Above a leaf, nodes without state evaluate each row by itself, and the first node with state
evaluates keys and arguments. Spark evaluates all of these in one job, with NULL instead of an
error. Failures further up, such as in a join or on a total, and in Python functions are not found
here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import LongType

from headrace.algebra.zset import HASH, WEIGHT
from headrace.errors import Code, HeadraceError, Span
from headrace.execution.engine.jobs.worker import HandedTask
from headrace.planning.catalog import Stream
from headrace.planning.catalyst import plan
from headrace.planning.catalyst.allowed import rises
from headrace.planning.catalyst.predicates import Conjunct, Predicates
from headrace.planning.catalyst.resolved import attributes_of
from headrace.planning.catalyst.scala import EXPRESSIONS, kind_of
from headrace.planning.catalyst.transplant import spark_schema
from headrace.planning.circuit import (
    Aggregate,
    Join,
    RelationDelta,
    Stateless,
    TemporalRows,
    inputs,
    traced,
)
from headrace.planning.sql import quote, quote_dotted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.planning.catalog import Relation, View
    from headrace.planning.catalyst.analysed import Analysed
    from headrace.planning.catalyst.plan import Attribute
    from headrace.planning.catalyst.planner import Planner
    from headrace.planning.catalyst.scala import Scala
    from headrace.planning.catalyst.transplant import Transplant
    from headrace.planning.circuit import Circuit, InputGuard, Node, Output
    from headrace.types import DataType, RelationId


ALIAS: Final = "_slice"
"""The name of the view in the condition of a slice; any relation with its columns can have it."""


def slice_query(view: View, where: str) -> Span:
    """Return a query with the condition of a slice as its WHERE clause."""
    return Span.whole(f"SELECT * FROM {quote_dotted(view.name)} AS {ALIAS} WHERE (({where}))")


def slice_conditions(
    analyse: Callable[[View, str], Analysed],
    planner: Planner,
    view: View,
    where: str,
    attributes: Sequence[Attribute],
) -> tuple[Conjunct, ...]:
    """Return the conditions over ``attributes``, which are the view's columns in order.

    Raises:
        HeadraceError: ``invalid`` or ``unsupported``, with the place in the condition.
    """
    if not where:
        return ()
    place = Span.whole(where)
    try:
        analysed = analyse(view, where)
    except HeadraceError as error:
        raise error.at(place) from error
    predicates, plan = Predicates(planner.scala), analysed.optimised
    found: list[Conjunct] = []
    while kind_of(plan) == "Filter":
        found += predicates.conjuncts(plan.condition())
        plan = plan.child()
    kind = kind_of(plan)
    if kind == "LocalRelation" and not plan.data().length():
        return (predicates.conjunct(predicates.never()),)
    if kind != "LogicalRDD" or analysed.clocked or analysed.calls:
        raise HeadraceError(
            Code.UNSUPPORTED,
            "a slice of a view is a condition on its columns alone",
            detail="It has no subqueries, does not read the clock, and calls no Python functions.",
            span=place,
        )
    own = {a.id: b.handle for a, b in zip(attributes_of(plan), attributes, strict=True)}
    return tuple(predicates.moved(each, own) for each in predicates.stated(found))


@dataclass(frozen=True, slots=True)
class Touched:
    """How to find the rows of a view that are changed by events of a stream from a time on.

    ``bound`` is an SQL condition that is true of these rows, or "". Without a bound, ``keys`` maps
    columns of the view to equal columns of the stream; if it is empty, the rows are not known.
    """

    stream: RelationId
    event_time: str
    bound: str
    keys: Mapping[str, str]


def touched(
    scala: Scala,
    circuit: Circuit,
    view: View,
    relations: Mapping[RelationId, Relation],
    since: int,
) -> tuple[Touched, ...] | None:
    """Return how to find the changed rows, for each leaf of a stream.

    None if events without a time may have changed rows. ``since`` is in microseconds UTC.
    """
    attributes = circuit.output.child.plan.attributes
    values = [traced(circuit, Predicates(scala), attribute) for attribute in attributes]
    found = []
    for leaf in circuit.sources():
        stream = relations[leaf.plan.relation]
        if not isinstance(stream, Stream):
            if getattr(stream, "inputs", ()):
                return None  # a view: its rows have no event time
            continue
        time = stream.event_time
        if time is None:
            return None
        of_leaf = [value.get(leaf) for value in values]
        found.append(_of_leaf(scala, leaf, of_leaf, view, stream, time, since))
    return tuple(found) or None


def _of_leaf(
    scala: Scala,
    leaf: RelationDelta,
    values: list[Conjunct | None],
    view: View,
    stream: Stream,
    time: str,
    since: int,
) -> Touched:
    names = stream.schema.names
    columns = {
        a.id: names[i]
        for a, i in zip(leaf.plan.attributes, leaf.plan.columns, strict=True)
        if i < len(names)
    }
    keys = {}
    for name, value in zip(view.schema.names, values, strict=True):
        if value is None:
            continue
        if value.uses and {columns.get(id_) for id_ in value.uses} == {time}:
            least = _least(scala, value, since)
            if least is not None:
                return Touched(stream.id, time, f"{quote(name)} >= {least}", {})
        elif kind_of(value.handle) == "AttributeReference":
            (id_,) = value.uses
            if id_ in columns:
                keys[name] = columns[id_]
    chosen = {name: keys[name] for name in view.key if name in keys}
    return Touched(stream.id, time, "", chosen or keys)


def _least(scala: Scala, value: Conjunct, since: int) -> str | None:
    """Return a value at a time as SQL text, or None if it may fall as the time rises."""
    if not rises(value.handle):
        return None
    at = scala.expression("MicrosToTimestamp", scala.long(since))
    least = Predicates(scala).moved(value, dict.fromkeys(value.uses, at)).handle
    type_ = least.dataType()
    if str(type_.typeName()) not in ("timestamp", "date"):
        return None
    return str(scala.expression("Literal", least.eval(None), type_).sql())


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
