"""By which times in a view a row is known: nothing in it comes from a later event.

A row of a view is made of events, each with a time. The *lead* of a column is how much later than
all of these times its value is at least, in microseconds: 0 for the time of an event that is
passed on, an hour for that time plus an hour, minus an hour for the beginning of its hour. A row
whose column has a lead that is not negative is known by then, and may be answered for that time.

What is not listed here has no lead, such as a join with rows of another time, or a window function
that sees rows after its own.

When a view no longer keeps anything of some events, since conditions on the clock drop them.

Between a stream and the first condition on the clock, filters and projections keep nothing. If
every path from the stream leads through such a condition, the view keeps nothing of events whose
time to leave has passed. They never return, since the clock never goes back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

from headrace.planning.catalog import Stream, Table, View
from headrace.planning.catalyst import plan
from headrace.planning.catalyst.allowed import rises
from headrace.planning.catalyst.predicates import Predicates
from headrace.planning.catalyst.resolved import id_of, type_of
from headrace.planning.catalyst.scala import items, kind_of, maybe, within
from headrace.planning.circuit import RelationDelta, Stateless, TemporalRows, inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from threading import RLock

    from headrace.planning.catalog import Relation
    from headrace.planning.catalyst.predicates import Conjunct
    from headrace.planning.catalyst.scala import Scala
    from headrace.planning.circuit import Circuit
    from headrace.types import Column, RelationId


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


_Place: TypeAlias = "int | tuple[int, int]"
"""The id of a column, and the position of a field in it."""
_Leads: TypeAlias = "dict[_Place, int]"

DAY: Final = 86_400_000_000
_INSTANTS: Final = (TimestampType, TimestampNTZType)
_TIMES: Final = (DateType, *_INSTANTS)
_LONGEST: Final = {
    "microsecond": 0,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": DAY,
    "dd": DAY,
    "week": 7 * DAY,
    "mon": 31 * DAY,
    "month": 31 * DAY,
    "mm": 31 * DAY,
    "quarter": 92 * DAY,
    "year": 366 * DAY,
    "yyyy": 366 * DAY,
    "yy": 366 * DAY,
}
"""The longest time of each unit to which times are truncated."""
_SEE_ROWS_BEFORE: Final = frozenset(
    {"AggregateExpression", "DenseRank", "Lag", "Rank", "RowNumber"}
)
"""The window functions that see no row beyond their frames."""


@dataclass(slots=True)
class KnownTimes:
    """The leads of the columns of views, kept until a name gets another meaning.

    ``changes`` returns how often one has.
    """

    circuit: Callable[[View], Circuit]
    relations: Mapping[RelationId, Relation]
    planning: RLock
    changes: Callable[[], int]
    _kept: dict[RelationId, tuple[int, Mapping[str, int]]] = field(default_factory=dict)

    def of(self, view: View) -> Mapping[str, int]:
        """Return the leads of the columns of a view that have one."""
        with self.planning:
            known = self._kept.get(view.id)
            if known is None or known[0] != self.changes():
                self._kept[view.id] = known = (self.changes(), self._found(view))
            return known[1]

    def _found(self, view: View) -> Mapping[str, int]:
        def of_relation(id_: RelationId) -> Mapping[str, int]:
            relation = self.relations[id_]
            return self.of(relation) if isinstance(relation, View) else given_leads(relation)

        top = self.circuit(view).output.child.plan
        found = _Reading(self.relations, of_relation).leads(top)
        pairs = zip(view.schema.names, top.attributes, strict=True)
        return {name: found[each.id] for name, each in pairs if each.id in found}


def given_leads(relation: Relation) -> dict[str, int]:
    """Return the leads of the columns of a stream or table: of the time of its rows alone.

    That is the time that is declared, or the only column of times, if it is a TIMESTAMP: a DATE is
    the beginning of the day in which something happened.
    """
    if isinstance(relation, Table) and relation.effective_from is not None:
        return {relation.effective_from: 0}
    columns: Sequence[Column] = relation.schema.columns
    times = [each for each in columns if isinstance(each.type, _TIMES)]
    declared = relation.event_time if isinstance(relation, Stream) else None
    if declared is not None:
        times = [each for each in times if each.name == declared]
    if len(times) != 1:
        return {}
    return {times[0].name: 0 if isinstance(times[0].type, _INSTANTS) else -DAY}


@dataclass(frozen=True, slots=True)
class _Reading:
    relations: Mapping[RelationId, Relation]
    of_relation: Callable[[RelationId], Mapping[str, int]]

    def leads(self, node: plan.Plan) -> _Leads:
        match node:
            case plan.Scan():
                return self._of_scan(node)
            case plan.Filter():
                return _compared(node.condition.handle, self.leads(node.child))
            case plan.Temporal() | plan.Generate():
                return self.leads(node.child)
            case plan.Project():
                handles = [each.handle for each in node.expressions]
                return _projected(handles, node.attributes, self.leads(node.child))
            case plan.Expand():
                below = self.leads(node.child)
                ways = [_projected(each, node.attributes, below) for each in node.projections]
                return _least(ways)
            case plan.UnionAll():
                return _least([self._as_union(node, child) for child in node.children])
            case plan.Aggregate() if node.session is None:
                grouping = [each.handle for each in node.grouping]
                groups = _projected(grouping, node.grouping_attributes, self.leads(node.child))
                results = [each.handle for each in node.results]
                return _projected(results, node.attributes, groups)
            case plan.Window():
                return self._of_window(node)
            case plan.FirstRows():
                kept = {key.passes for key in node.keys}
                if node.order and not node.order[0].descending:
                    kept.add(node.order[0].expression.passes)
                return _only(self.leads(node.child), kept)
            case plan.Join() if node.kind in {plan.JoinKind.INNER, plan.JoinKind.LEFT}:
                return self._of_join(node)
            case _:
                return {}

    def _of_scan(self, node: plan.Scan) -> _Leads:
        names = self.relations[node.relation].schema.names
        known = self.of_relation(node.relation)
        pairs = zip(node.columns, node.attributes, strict=True)
        return {a.id: known[names[c]] for c, a in pairs if c < len(names) and names[c] in known}

    def _as_union(self, node: plan.UnionAll, child: plan.Plan) -> _Leads:
        below = self.leads(child)
        pairs = zip(child.attributes, node.attributes, strict=True)
        return {new.id: below[old.id] for old, new in pairs if old.id in below}

    def _of_window(self, node: plan.Window) -> _Leads:
        kept: set[_Place | None] = {key.passes for key in node.partition}
        order = items(node.handle.orderSpec())
        functions = items(node.handle.windowExpressions())
        if order and str(order[0].direction().sql()) == "ASC" and all(map(_sees_before, functions)):
            kept.add(_place(order[0].child()))
        return _only(self.leads(node.child), kept)

    def _of_join(self, node: plan.Join) -> _Leads:
        """Return leads of times that are those of both sides."""
        left, right = self.leads(node.left), self.leads(node.right)
        found: _Leads = {}
        for own, other in zip(node.left_keys, node.right_keys, strict=True):
            leads = _lead(own.handle, left), _lead(other.handle, right)
            if leads[0] is not None and leads[1] is not None:
                both = min(leads[0], leads[1])
                found |= {p: both for p in (_place(own.handle),) if p is not None}
                if node.kind is plan.JoinKind.INNER:
                    found |= {p: both for p in (_place(other.handle),) if p is not None}
        return found


def _projected(
    handles: Sequence[Any], attributes: Sequence[plan.Attribute], below: _Leads
) -> _Leads:
    found: _Leads = {}
    for handle, attribute in zip(handles, attributes, strict=True):
        lead = _lead(handle, below)
        if lead is not None:
            found[attribute.id] = lead
        for position, part in _fields(handle, below):
            found[attribute.id, position] = part
    return found


def _fields(handle: Any, below: _Leads) -> Iterator[tuple[int, int]]:
    """Yield the positions and leads of the fields of a struct."""
    kind = kind_of(handle)
    if kind in _PASSING:
        yield from _fields(handle.child(), below)
    elif kind == "AttributeReference":
        id_ = id_of(handle)
        yield from (
            (p[1], lead) for p, lead in below.items() if isinstance(p, tuple) and p[0] == id_
        )
    elif kind == "CreateNamedStruct":
        for position, value in enumerate(items(handle.children())[1::2]):
            lead = _lead(value, below)
            if lead is not None:
                yield position, lead


def _least(ways: Sequence[_Leads]) -> _Leads:
    shared = set(ways[0]).intersection(*ways[1:])
    return {place: min(way[place] for way in ways) for place in shared}


def _only(below: _Leads, kept: Collection[_Place | None]) -> _Leads:
    return {
        place: lead
        for place, lead in below.items()
        if (place[0] if isinstance(place, tuple) else place) in kept or place in kept
    }


def _compared(condition: Any, below: _Leads) -> _Leads:
    """Return leads in rows that meet a condition: what is later than a time has its lead."""
    kind = kind_of(condition)
    children = items(condition.children())
    if kind == "And":
        return _compared(children[1], _compared(children[0], below))
    if kind in ("LessThan", "LessThanOrEqual"):
        early, late = children
    elif kind in ("GreaterThan", "GreaterThanOrEqual"):
        late, early = children
    else:
        return below
    lead, place = _lead(early, below), _place(late)
    if lead is None or place is None or place not in below:
        return below
    return below | {place: max(below[place], lead)}


def _sees_before(function: Any) -> bool:
    """Whether a column of window functions sees rows up to its own alone."""
    calls = [part for part in within(function) if kind_of(part) == "WindowExpression"]
    return all(map(_ends_at_its_row, calls))


def _ends_at_its_row(call: Any) -> bool:
    if kind_of(call.windowFunction()) not in _SEE_ROWS_BEFORE:
        return False
    upper = call.windowSpec().frameSpecification().upper()
    if kind_of(upper) == "CurrentRow$":
        return True
    most = _number(upper)
    return most is not None and most <= 0


def _place(handle: Any) -> _Place | None:
    kind = kind_of(handle)
    if kind == "AttributeReference":
        return id_of(handle)
    if kind in _PASSING:
        return _place(handle.child())
    if kind == "GetStructField" and kind_of(handle.child()) == "AttributeReference":
        return id_of(handle.child()), int(handle.ordinal())
    return None


_PASSING: Final = frozenset({"Alias", "KnownNotNull", "KnownNullable"})


def _lead(handle: Any, below: _Leads) -> int | None:
    """Return the lead of an expression, or None."""
    place = _place(handle)
    if place is not None:
        return below.get(place)
    kind, children = kind_of(handle), items(handle.children())
    match kind:
        case "PreciseTimestampConversion" | "Alias" | "KnownNotNull" | "KnownNullable":
            return _lead(children[0], below)
        case "Cast" if isinstance(type_of(children[0]), _TIMES):
            if not isinstance(type_of(handle), _TIMES):
                return None
            whole = isinstance(type_of(handle), DateType)
            return _known_by_moved(children[0], below, -DAY if whole else 0)
        case "Add" | "TimestampAddInterval" | "TimeAdd":
            return _known_by_moved(children[0], below, _number(children[1]))
        case "Subtract":
            most = _most(children[1])
            return _known_by_moved(children[0], below, None if most is None else -most)
        case "DateAdd" | "DateSub":
            days = _number(children[1])
            sign = DAY if kind == "DateAdd" else -DAY
            return _known_by_moved(children[0], below, None if days is None else days * sign)
        case "TimestampAddYMInterval" | "DateAddYMInterval":
            months = _number(children[1])
            shortest = 28 * DAY if (months or 0) > 0 else 31 * DAY
            return _known_by_moved(
                children[0], below, None if months is None else months * shortest
            )
        case "TruncTimestamp" | "TruncDate":
            unit, value = children[:2] if kind == "TruncTimestamp" else (children[1], children[0])
            longest = _LONGEST.get(str(unit.eval(None)).lower()) if unit.foldable() else None
            return _known_by_moved(value, below, None if longest is None else -longest)
        case "Greatest":
            found = [lead for each in children if (lead := _lead(each, below)) is not None]
            return max(found, default=None)
        case _:
            return None


def _known_by_moved(value: Any, below: _Leads, by: int | None) -> int | None:
    lead = None if by is None else _lead(value, below)
    return None if lead is None or by is None else lead + by


def _number(handle: Any) -> int | None:
    """Return a constant number, or a constant interval in microseconds or months."""
    found = handle.eval(None) if handle.foldable() else None
    return found if isinstance(found, int) else None


def _most(handle: Any) -> int | None:
    """Return the greatest value of what is subtracted from times to find their windows."""
    if kind_of(handle) != "CaseWhen":
        return _number(handle)
    (branch,), otherwise = items(handle.branches()), maybe(handle.elseValue())
    if otherwise is None or kind_of(otherwise) != "Remainder":
        return None
    rest, width = otherwise, _number(otherwise.right())
    added = branch._2()  # noqa: SLF001  (of Scala)
    below_zero = branch._1()  # noqa: SLF001  (of Scala)
    is_rest = (
        kind_of(added) == "Add"
        and kind_of(below_zero) == "LessThan"
        and _number(added.right()) == width
        and _number(below_zero.right()) == 0
        and added.left().semanticEquals(rest)
        and below_zero.left().semanticEquals(rest)
    )
    return width if is_rest and width is not None and width > 0 else None
