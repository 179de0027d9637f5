"""Finds ``IS NOT NULL`` conditions without effect, since a join above drops these rows anyway.

Spark infers such conditions from the equalities of joins, and pushes them down as far as possible.
So one use of a common table expression may have a condition that another use lacks. Without it, a
row with a NULL reaches the join and is dropped there: NULL equals nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.catalyst import plan
from headrace.catalyst.clock import all_of, conjuncts
from headrace.catalyst.plan import JoinKind
from headrace.catalyst.resolved import present

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from headrace.catalyst.plan import Expression, Plan
    from headrace.catalyst.scala import Scala

Ids = frozenset[int]
"""Attributes for which rows with NULL have no effect on the result."""

_ALONE_LEFT = (JoinKind.LEFT, JoinKind.FULL, JoinKind.ANTI, JoinKind.EXISTENCE)
_ALONE_RIGHT = (JoinKind.RIGHT, JoinKind.FULL)
_OF_LEFT = (JoinKind.INNER, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI, JoinKind.EXISTENCE)
_OF_RIGHT = (JoinKind.INNER, JoinKind.RIGHT)


@dataclass(frozen=True, slots=True)
class Relaxed:
    """A plan without some idle conditions; ``origin`` maps its nodes to those of the original plan.

    ``idle`` are the filters of the original plan with such a condition.
    """

    query: Plan
    origin: Mapping[Plan, Plan]
    idle: frozenset[Plan]


def relaxed(
    scala: Scala,
    expression: Callable[[Any], Expression],
    query: Plan,
    among: frozenset[Plan] | None = None,
) -> Relaxed:
    """Return the plan without ``IS NOT NULL`` conditions on columns that a join above compares.

    ``expression`` converts Catalyst's expressions. If ``among`` is given, only conditions of these
    filters are removed.
    """
    origin: dict[Plan, Plan] = {}
    found: set[Plan] = set()

    def of(node: Plan, idle: Ids) -> Plan:
        pairs = zip(node.inputs, _below(node, idle), strict=True)
        new: Plan = node.rebuilt(of(child, ids) for child, ids in pairs)
        if isinstance(new, plan.Filter) and (among is None or node in among):
            given = conjuncts(new.condition.handle)
            kept = [each for each in given if not _is_idle(each, idle)]
            if len(kept) < len(given):
                found.add(node)
                condition = all_of(scala, kept)
                if condition is None:
                    new = new.child
                else:
                    new = replace(new, condition=expression(condition), present=present(kept))
        origin[new] = node
        return new

    return Relaxed(of(query, frozenset()), origin, frozenset(found))


def _is_idle(condition: Any, idle: Ids) -> bool:
    asked = present([condition])
    return asked is not None and asked <= idle


def _below(node: Plan, idle: Ids) -> tuple[Ids, ...]:
    """Return the attributes of each input in which rows with NULL have no effect on the result."""
    if isinstance(node, plan.Join):
        return _below_join(node, idle)
    found = (frozenset(below for own, below in passed if own in idle) for passed in node.passed())
    if node.by_row:
        return tuple(found)
    return tuple(ids & _passes(node.groups) for ids in found)


def _below_join(node: plan.Join, idle: Ids) -> tuple[Ids, Ids]:
    """Return these attributes for a join, whose unmatched and repeated rows must not change."""
    left = idle if node.kind in _OF_LEFT else frozenset()
    right = idle if node.kind in _OF_RIGHT else frozenset()
    if node.kind not in _ALONE_LEFT:
        left |= _passes(node.left_keys)
    if node.kind not in _ALONE_RIGHT:
        right |= _passes(node.right_keys)
    return left & _ids(node.left), right & _ids(node.right)


def _passes(keys: Iterable[Expression]) -> Ids:
    return frozenset(key.passes for key in keys if key.passes is not None)


def _ids(node: Plan) -> Ids:
    return frozenset(attribute.id for attribute in node.attributes)
