"""When a view no longer keeps anything of some events, since conditions on the clock drop them.

Between a stream and the first condition on the clock, filters and projections keep nothing. If
every path from the stream leads through such a condition, the view keeps nothing of events whose
time to leave has passed. They never return, since the clock never goes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.catalyst import plan
from headrace.catalyst.monotone import rises
from headrace.catalyst.predicates import Predicates
from headrace.circuit import RelationDelta, Stateless, TemporalRows, inputs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.catalog import Stream
    from headrace.catalyst.predicates import Conjunct
    from headrace.catalyst.scala import Scala
    from headrace.circuit import Circuit


def left_by(
    scala: Scala, circuit: Circuit, stream: Stream, latest: Mapping[str, int | None]
) -> int | None:
    """Return the time from which a circuit keeps nothing of some events of a stream.

    ``latest`` has the greatest value of each TIMESTAMP column of these events, None if all are
    NULL. All times are microseconds UTC. Returns None if the time is not known or does not exist.
    """
    found = 0
    for leaf in circuit.sources():
        if leaf.plan.relation != stream.id:
            continue
        for end in _first_that_keeps(circuit, leaf):
            if not isinstance(end, TemporalRows) or end.plan.leaves is None:
                return None
            value = _moved(scala, end, leaf)
            time = None if value is None else _greatest(scala, leaf, stream, value, latest)
            if time is None:
                return None
            found = max(found, time)
    return found


def _first_that_keeps(circuit: Circuit, node: Any) -> Iterator[Any]:
    """Yield the first nodes above a node that are neither filters nor projections."""
    for user in (*circuit.nodes, circuit.output):
        if any(below is node for below in inputs(user)):
            if _is_linear(user):
                yield from _first_that_keeps(circuit, user)
            else:
                yield user


def _is_linear(node: Any) -> bool:
    return isinstance(node, Stateless) and isinstance(node.plan, plan.Filter | plan.Project)


def _moved(scala: Scala, end: TemporalRows, leaf: RelationDelta) -> Conjunct | None:
    """Return the time at which a row leaves, over the columns of a leaf."""
    predicates, node = Predicates(scala), end.child
    leaves = end.plan.leaves
    if leaves is None:
        return None
    value = predicates.conjunct(leaves.handle)
    while isinstance(node, Stateless):
        if isinstance(node.plan, plan.Project):
            pairs = zip(node.plan.attributes, node.plan.expressions, strict=True)
            value = predicates.moved(value, {a.id: e.handle for a, e in pairs})
        node = node.child
    return value if node is leaf else None


def _greatest(
    scala: Scala,
    leaf: RelationDelta,
    stream: Stream,
    value: Conjunct,
    latest: Mapping[str, int | None],
) -> int | None:
    """Return the greatest value of an expression that never falls as its one column rises."""
    names = stream.schema.names
    pairs = zip(leaf.plan.attributes, leaf.plan.columns, strict=True)
    columns = {a.id: names[i] for a, i in pairs if i < len(names)}
    used = {columns.get(id_) for id_ in value.uses}
    name = next(iter(used), None)
    if len(used) != 1 or name is None or name not in latest or not rises(value.handle):
        return None
    high = latest[name]
    if high is None:
        return 0  # a row without the time is never in the result
    at = scala.expression("MicrosToTimestamp", scala.long(high))
    moved = Predicates(scala).moved(value, dict.fromkeys(value.uses, at))
    time = moved.handle.eval(None)
    return time if isinstance(time, int) else None
