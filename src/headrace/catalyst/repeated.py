"""Common subplans: equal parts of a query, such as a common table expression, become one node.

Spark expands a common table expression at each use. Parts that are equal except for the ids that
Spark generates become one node; each further use renames its columns. Only parts with stored state
are shared: filtering twice costs less than sharing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headrace.catalyst import plan
from headrace.catalyst.presence import Relaxed, relaxed
from headrace.catalyst.resolved import attribute_of, columns_of, passed_on, type_of
from headrace.catalyst.scala import EXPRESSIONS, Numbers, Scala, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headrace.catalyst.node import Use

_ROWWISE = (
    plan.Scan,
    plan.Constant,
    plan.Project,
    plan.Filter,
    plan.Expand,
    plan.Generate,
    plan.UnionAll,
)
_ALONE = (plan.Constant, plan.Generate, plan.Loop, plan.LoopRef)
"""Nodes that are never merged: their rows depend on more than their fields."""
_QUERY_PLAN = "org.apache.spark.sql.catalyst.plans.QueryPlan"

Number = tuple[object, ...]
"""A key that is equal for equal values, and differs for different ones."""


def once(scala: Scala, expression: Callable[[Any], plan.Expression], query: plan.Plan) -> plan.Plan:
    """Return the plan with each set of equal parts with stored state as one node.

    ``expression`` converts an expression of Catalyst.
    """
    shapes = Counter(_shape(node) for node in _nodes(query) if not isinstance(node, _ROWWISE))
    if max(shapes.values(), default=0) <= 1:
        return query
    plain = _Repeated(scala)
    plain.count(query)
    free = relaxed(scala, expression, query)
    if not free.idle:
        return plain.rebuilt(query)
    loose = _Repeated(scala)
    loose.count(free.query)
    among = loose.conditions_between(free)
    if not among:
        return plain.rebuilt(query)
    free = relaxed(scala, expression, query, among)
    loose = _Repeated(scala)
    loose.count(free.query)
    # If both store as much, the plan of the query as written is chosen.
    return min(plain.rebuilt(query), loose.rebuilt(free.query), key=_kept)


def _kept(query: plan.Plan) -> int:
    """Return the number of nodes with stored state."""
    return len({node for node in _nodes(query) if not isinstance(node, _ROWWISE)})


def _shape(node: plan.Plan) -> Number:
    """Return a key that is equal for equal nodes, computed without calls to Spark."""
    below = tuple(_shape(child) for child in node.inputs)
    if isinstance(node, plan.Scan):
        return (plan.Scan, node.relation, node.columns)
    return below[0] if isinstance(node, plan.Filter) else (type(node), *below)


def _nodes(node: plan.Plan) -> Iterator[plan.Plan]:
    yield node
    for child in node.inputs:
        yield from _nodes(child)


def _keeps(node: plan.Plan) -> bool:
    return any(not isinstance(each, _ROWWISE) for each in _nodes(node))


@dataclass(slots=True)
class _Repeated:
    """Gives equal nodes equal numbers, and rebuilds the plan with one node for each number."""

    scala: Scala
    _numbers: dict[Number, int] = field(default_factory=dict)
    _of_nodes: dict[plan.Plan, int] = field(default_factory=dict)
    _of_expressions: Numbers = field(default_factory=Numbers)
    _uses: dict[int, list[plan.Plan]] = field(default_factory=lambda: defaultdict(list))
    _made: dict[int, plan.Plan] = field(default_factory=dict)

    def count(self, node: plan.Plan) -> None:
        """Count the uses of nodes with stored state, without those inside of a repeated node."""
        if not _keeps(node):
            return
        numbers = [self._number(node)]
        if isinstance(node, plan.Aggregate):
            numbers.append(self._core_number(node))
        for number in numbers:
            self._uses[number].append(node)
            if self._several(number):
                return
        for child in node.inputs:
            self.count(child)

    def conditions_between(self, free: Relaxed) -> frozenset[plan.Plan]:
        """Return the filters whose idle conditions prevent parts from being equal.

        One of the parts must lack these conditions already: then no expression is computed for
        additional rows with NULL.
        """
        found: set[plan.Plan] = set()
        for uses in self._uses.values():
            within = [free.idle.intersection(_nodes(free.origin[node])) for node in uses]
            if len(uses) > 1 and not all(within):
                found = found.union(*within)
        return frozenset(found)

    def _several(self, number: int) -> bool:
        return len(self._uses[number]) > 1

    def rebuilt(self, node: plan.Plan) -> plan.Plan:
        """Return the plan with one node in place of equal ones."""
        if not _keeps(node):
            return node
        number = self._number(node)
        if self._several(number):
            return self._one(number, node.attributes, lambda: self._alone(node))
        return self._alone(node)

    def _alone(self, node: plan.Plan) -> plan.Plan:
        if isinstance(node, plan.Aggregate) and self._several(self._core_number(node)):
            core = _core(node)
            one = self._one(self._core_number(node), core.attributes, lambda: self._over(core))
            return plan.Project(one, node.results, node.attributes)
        return self._over(node)

    def _over(self, node: plan.Plan) -> plan.Plan:
        return node.rebuilt(self.rebuilt(child) for child in node.inputs)

    def _one(
        self, number: int, attributes: tuple[plan.Attribute, ...], make: Callable[[], plan.Plan]
    ) -> plan.Plan:
        """Return the one node for a number, projected to the given attributes."""
        if number not in self._made:
            self._made[number] = make()
            return self._made[number]
        one = self._made[number]
        pairs = zip(one.attributes, attributes, strict=True)
        return plan.Project(one, tuple(self._as(a, b) for a, b in pairs), attributes)

    def _as(self, given: plan.Attribute, wanted: plan.Attribute) -> plan.Expression:
        handle = given.handle
        if given.id != wanted.id:
            handle = self.scala.alias(handle, wanted.name, wanted.handle)
        return plan.Expression(given.name, given.type, given.id, given.id, handle)

    # -- numbers ---------------------------------------------------------------------------

    def _number(self, node: plan.Plan) -> int:
        if node not in self._of_nodes:
            self._of_nodes[node] = self._numbered(self._parts(node))
        return self._of_nodes[node]

    def _core_number(self, node: plan.Aggregate) -> int:
        groups = (use for use in node.uses() if use.inputs)
        return self._numbered(("core", *self._own(node, groups)))

    def _numbered(self, parts: Number) -> int:
        return self._numbers.setdefault(parts, len(self._numbers))

    def _parts(self, node: plan.Plan) -> Number:
        """Return everything on which a node's rows depend, as numbers."""
        if isinstance(node, _ALONE) or len({a.id for a in node.attributes}) < len(node.attributes):
            return (node,)
        if isinstance(node, plan.Aggregate):
            results = (use for use in node.uses() if not use.inputs)
            return ("shown", self._core_number(node), *self._used(results, (_core(node),)))
        return (len(node.attributes), *self._own(node, node.uses()))

    def _own(self, node: plan.Plan, uses: Iterable[Use]) -> Number:
        """Return the kind of a node, its inputs, and some of its expressions over these."""
        below = (self._number(child) for child in node.inputs)
        return (type(node), *below, *node.parameters(), *self._used(uses, node.inputs))

    def _used(self, uses: Iterable[Use], inputs: tuple[plan.Plan, ...]) -> Iterator[Number]:
        attributes = [a for child in inputs for a in child.attributes]
        over: Any = None
        known = {a.id for a in attributes}
        for use in uses:
            if over is None:
                over = self.scala.named(f"{EXPRESSIONS}.package$AttributeSeq")(
                    self.scala.seq(a.handle for a in attributes)
                )
            yield use.field, use.how, self._expression(use.handle, over, known)

    def _expression(self, handle: Any, over: Any, known: set[int]) -> object:
        """Return the number of an expression, with its columns replaced by their positions."""
        while kind_of(handle) == "Alias":
            handle = handle.child()
        if not {passed_on(a) for a in columns_of(handle)} <= known:
            return handle  # it refers to other columns than those of its input: never equal
        normal = self.scala.module(_QUERY_PLAN).normalizeExpressions(handle, over)
        return self._of_expressions.of(normal)


def _core(node: plan.Aggregate) -> plan.Aggregate:
    """Return an aggregate whose results are its keys and the values of its functions."""
    results = tuple(
        replace(attribute_of(call.handle.resultAttribute()), name=call.text)
        for call in node.functions
    )
    shown = (*node.grouping_attributes, *results)
    return replace(node, results=tuple(_itself(a) for a in shown), attributes=shown)


def _itself(attribute: plan.Attribute) -> plan.Expression:
    handle = attribute.handle
    return plan.Expression(attribute.name, type_of(handle), attribute.id, attribute.id, handle)
