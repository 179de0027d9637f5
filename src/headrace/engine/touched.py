"""Conditions on the columns of a view for the rows changed by events from a time on.

If a column of the view depends only on the event time of a stream, and never falls as the time
rises, it has a lower bound in these rows. Otherwise, these rows have the values of the events in
the columns that the view takes from the stream unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog import Stream
from headrace.catalyst.monotone import rises
from headrace.catalyst.predicates import Conjunct, Predicates
from headrace.catalyst.scala import kind_of
from headrace.circuit import traced
from headrace.sql import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.catalog import Relation, View
    from headrace.catalyst.scala import Scala
    from headrace.circuit import Circuit, RelationDelta
    from headrace.types import RelationId


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
