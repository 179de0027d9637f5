"""Common subplans: equal parts of a query, such as a common table expression, become one node.

Spark expands a common table expression at each use. Parts that are equal except for the ids that
Spark generates become one node; each further use renames its columns. Only parts with stored state
are shared: filtering twice costs less than sharing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.catalyst import plan
from headrace.catalyst.numbered import PlanNumbers, core_of, shape_of
from headrace.catalyst.presence import Relaxed, relaxed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.catalyst.scala import Scala

_ROWWISE = (
    plan.Scan,
    plan.Constant,
    plan.Project,
    plan.Filter,
    plan.Expand,
    plan.Generate,
    plan.UnionAll,
)


def once(scala: Scala, expression: Callable[[Any], plan.Expression], query: plan.Plan) -> plan.Plan:
    """Return the plan with each set of equal parts with stored state as one node.

    ``expression`` converts an expression of Catalyst.
    """
    shapes = Counter(shape_of(node) for node in _nodes(query) if not isinstance(node, _ROWWISE))
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
    _numbers: PlanNumbers = field(init=False)
    _uses: dict[int, list[plan.Plan]] = field(default_factory=lambda: defaultdict(list))
    _made: dict[int, plan.Plan] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._numbers = PlanNumbers(self.scala)

    def count(self, node: plan.Plan) -> None:
        """Count the uses of nodes with stored state, without those inside of a repeated node."""
        if not _keeps(node):
            return
        numbers = [self._numbers.of(node)]
        if isinstance(node, plan.Aggregate):
            numbers.append(self._numbers.of_core(node))
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
        number = self._numbers.of(node)
        if self._several(number):
            return self._one(number, node.attributes, lambda: self._alone(node))
        return self._alone(node)

    def _alone(self, node: plan.Plan) -> plan.Plan:
        if isinstance(node, plan.Aggregate) and self._several(self._numbers.of_core(node)):
            core = core_of(node)
            one = self._one(self._numbers.of_core(node), core.attributes, lambda: self._over(core))
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
