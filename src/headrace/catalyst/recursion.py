"""Recursive WITH: reads Spark's loop as a plan whose rows have the level that created them.

Spark evaluates the step of a recursion once per level, over the rows of the previous level alone. A
view has the rows of all levels at once, so rows carry their level, and operators that process
several rows process those of one level: joins of the recursion with itself have the level among
their keys, and so has grouping. If this is not possible, the recursion is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headrace.catalyst.columns import select_columns
from headrace.catalyst.plan import (
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
from headrace.catalyst.resolved import attribute_of, attributes_of
from headrace.catalyst.scala import maybe

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.catalyst.pieces import Pieces
    from headrace.errors import HeadraceError

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
