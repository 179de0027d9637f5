"""Recursive WITH: reads Spark's loop as a plan whose rows have the level that created them.

Spark evaluates the step of a recursion once per level, over the rows of the previous level alone. A
view has the rows of all levels at once, so rows carry their level, and operators that process
several rows process those of one level: joins of the recursion with itself have the level among
their keys, and so has grouping. If this is not possible, the recursion is refused.

Common subplans: equal parts of a query, such as a common table expression, become one node.

Spark expands a common table expression at each use. Parts that are equal except for the ids that
Spark generates become one node; each further use renames its columns. Only parts with stored state
are shared: filtering twice costs less than sharing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headrace.planning.catalyst import plan
from headrace.planning.catalyst.implied import Relaxed, relaxed
from headrace.planning.catalyst.numbered import PlanNumbers, core_of, shape_of
from headrace.planning.catalyst.pieces import select_columns
from headrace.planning.catalyst.plan import (
    Aggregate,
    Attribute,
    Expand,
    Generate,
    Join,
    JoinKind,
    Loop,
    LoopRef,
    Plan,
    Project,
    Selection,
    UnionAll,
)
from headrace.planning.catalyst.resolved import attribute_of, attributes_of
from headrace.planning.catalyst.scala import maybe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.errors import HeadraceError
    from headrace.planning.catalyst.pieces import Pieces
    from headrace.planning.catalyst.scala import Scala


LEVEL = "level"

_HINT = (
    "In the step, join the recursion by INNER JOIN, or have it on the side that a LEFT, SEMI or"
    " ANTI JOIN preserves."
)


@dataclass(slots=True)
class RecursionReader:
    """Reads the loops of one query; ``default_limit`` is the default limit of levels."""

    pieces: Pieces
    default_limit: int
    _numbers: dict[int, int] = field(default_factory=dict)
    loops: int = 0
    """The number of loops read so far."""

    def loop(self, node: Any, read: Callable[[Any], Plan]) -> Plan:
        """Return a loop's rows without their levels; ``read`` reads the input of a node."""
        limit = maybe(node.maxDepth())
        limit = self.default_limit if limit is None else int(limit)
        if limit < 0:
            hint = "Write WITH RECURSIVE name MAX RECURSION LEVEL n AS (...)."
            raise self.pieces.unsupported("a recursive WITH needs a limit of levels", hint, node)
        number, id_ = self.loops, int(node.id())
        self.loops += 1
        start = self._ending(read(node.anchor()), node.anchor(), self.pieces.scala.long(0))
        outer = dict(self._numbers)
        self._numbers[id_] = number
        leveled = _Leveled(self.pieces, number, node.recursion())
        step, level = leveled.read(read(node.recursion()))
        self._numbers = outer
        if level is None:
            raise leveled.refusal("no rows of the recursion")
        one = self.pieces.scala.expression("Add", level.handle, self.pieces.scala.long(1))
        step = self._ending(step, node.recursion(), one)
        own = attributes_of(node)
        rows = UnionAll((start, step), (*own, fresh(self.pieces, one)))
        return select_columns(self.pieces, Loop(number, rows, limit), own)

    def reference(self, node: Any) -> LoopRef:
        """Return the reference to a loop's rows within its step."""
        level = fresh(self.pieces, self.pieces.scala.long(0))
        return LoopRef(self._numbers[int(node.loopId())], (*attributes_of(node), level))

    def _ending(self, plan: Plan, node: Any, level: Any) -> Project:
        """Return the columns of a Catalyst node, followed by a level."""
        named = self.pieces.scala.alias(level, LEVEL)
        own = attributes_of(node)
        expressions = tuple(self.pieces.expression(e) for e in (*(a.handle for a in own), named))
        return Project(plan, expressions, (*own, attribute_of(named.toAttribute())))


@dataclass(frozen=True, slots=True)
class _Leveled:
    """Adds the level of a loop's rows to the nodes of the step."""

    pieces: Pieces
    number: int
    step: Any

    def read(self, plan: Plan) -> tuple[Plan, Attribute | None]:
        """Return a plan with the level, and its column, which is None without rows of the loop.

        Columns are only added: the others keep their order and their ids.
        """
        if isinstance(plan, LoopRef):
            return plan, plan.attributes[-1] if plan.number == self.number else None
        if not self._refers(plan):
            return plan, None
        match plan:
            case Join():
                return self._join(plan)
            case UnionAll():
                return self._union(plan)
            case Selection() if plan.by_row and not any(map(self._refers, plan.inputs[1:])):
                child, level = self.read(plan.child)
                return plan.rebuilt((child, *plan.inputs[1:])), level
            case Project() | Expand() | Generate() | Aggregate():
                child, level = self.read(plan.child)
                assert level is not None  # noqa: S101
                return self._unary(plan, child, level)
            case Loop():
                raise self.refusal("a recursion over its own rows")
            case _:
                raise self.refusal("window functions or LIMIT")

    def refusal(self, what: str) -> HeadraceError:
        """Return the refusal of a loop whose step cannot keep the levels separate."""
        primary = f"a recursive WITH whose step has {what} is not supported in a view"
        return self.pieces.unsupported(primary, _HINT, self.step)

    def _refers(self, plan: Plan) -> bool:
        if isinstance(plan, LoopRef):
            return plan.number == self.number
        return any(self._refers(child) for child in plan.inputs)

    def _unary(
        self,
        plan: Project | Expand | Generate | Aggregate,
        child: Plan,
        level: Attribute,
    ) -> tuple[Plan, Attribute]:
        passed = self.pieces.expression(level.handle)
        match plan:
            case Project():
                shown = (*plan.expressions, passed)
                return Project(child, shown, (*plan.attributes, level)), level
            case Expand():
                own = fresh(self.pieces, level.handle)
                projections = tuple((*values, level.handle) for values in plan.projections)
                return Expand(child, projections, (*plan.attributes, own)), own
            case Generate():
                # The columns that it passes on are given by position.
                child = self._last(child, plan.child.attributes, level)
                return replace(plan, child=child, attributes=(*plan.attributes, level)), level
            case Aggregate():
                if not plan.grouping:
                    raise self.refusal("an aggregate of all rows")
                return self._grouped(plan, child, level), level

    def _grouped(self, plan: Aggregate, child: Plan, level: Attribute) -> Aggregate:
        passed = self.pieces.expression(level.handle)
        return replace(
            plan,
            child=child,
            grouping=(*plan.grouping, passed),
            grouping_attributes=(*plan.grouping_attributes, level),
            results=(*plan.results, passed),
            attributes=(*plan.attributes, level),
        )

    def _union(self, plan: UnionAll) -> tuple[UnionAll, Attribute]:
        branches = []
        for branch in plan.children:
            read, level = self.read(branch)
            if level is None:
                raise self.refusal("a UNION with other rows")
            branches.append(self._last(read, branch.attributes, level))
        own = fresh(self.pieces, branches[0].attributes[-1].handle)
        return UnionAll(tuple(branches), (*plan.attributes, own)), own

    def _join(self, plan: Join) -> tuple[Plan, Attribute]:
        left, of_left = self.read(plan.left)
        right, of_right = self.read(plan.right)
        joined = replace(plan, left=left, right=right)
        if of_left is not None and of_right is not None:
            if plan.kind is JoinKind.FULL:
                raise self.refusal("a full join")
            joined = replace(
                joined,
                left_keys=(*plan.left_keys, self.pieces.expression(of_left.handle)),
                right_keys=(*plan.right_keys, self.pieces.expression(of_right.handle)),
            )
            return joined, of_right if plan.kind is JoinKind.RIGHT else of_left
        if of_left is not None and plan.kind not in (JoinKind.RIGHT, JoinKind.FULL):
            return joined, of_left
        if of_right is not None:
            if plan.kind in (JoinKind.INNER, JoinKind.RIGHT):
                return joined, of_right
            if plan.kind is JoinKind.SEMI and plan.residual is None:
                return self._found_in(plan, right, of_right)
        raise self.refusal(f"other rows that the {plan.kind.value} join keeps")

    def _found_in(self, plan: Join, right: Plan, level: Attribute) -> tuple[Plan, Attribute]:
        """Return the rows of the left side with a match, once for each level of their matches."""
        named = [self.pieces.scala.alias(key.handle, "key") for key in plan.right_keys]
        keys = tuple(attribute_of(each.toAttribute()) for each in named)
        values = tuple(self.pieces.expression(each) for each in named)
        passed = self.pieces.expression(level.handle)
        found = Project(right, (*values, passed), (*keys, level))
        own = tuple(self.pieces.expression(a.handle) for a in keys)
        shown, columns = (*own, passed), (*keys, level)
        distinct = Aggregate(found, shown, columns, (), shown, columns)
        joined = Join(JoinKind.INNER, plan.left, distinct, plan.left_keys, own, None)
        return self._last(joined, plan.left.attributes, level), level

    def _last(self, plan: Plan, attributes: tuple[Attribute, ...], level: Attribute) -> Project:
        """Return some columns of a plan, followed by the level."""
        return select_columns(self.pieces, plan, (*attributes, level))


def fresh(pieces: Pieces, value: Any) -> Attribute:
    """Return a new column for levels."""
    return attribute_of(pieces.scala.alias(value, LEVEL).toAttribute())


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
