"""Plans brought to the columns that are wanted of them.

A node of Spark's may have a column twice, as ``SELECT k, k`` has it. What keeps rows keeps each
column once; where columns are told by their positions, they have to be as Spark has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.catalyst.plan import Project

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.catalyst.pieces import Pieces
    from headrace.catalyst.plan import Attribute, Plan


def onto(pieces: Pieces, plan: Plan, attributes: Iterable[Attribute]) -> Project:
    """Return the given columns of a plan, in their order."""
    wanted = tuple(attributes)
    return Project(plan, tuple(pieces.expression(a.handle) for a in wanted), wanted)


def each_once(pieces: Pieces, plan: Plan) -> Plan:
    """Return a plan in which no column is twice: the input of a node that keeps its rows."""
    own = _by_id(plan.attributes)
    return plan if len(own) == len(plan.attributes) else onto(pieces, plan, own.values())


def without_added(pieces: Pieces, plan: Plan, attributes: Iterable[Attribute]) -> Plan:
    """Return a plan without the columns that are not among the given ones, each of these once."""
    own = _by_id(attributes)
    if own.keys() >= _by_id(plan.attributes).keys():
        return plan
    return onto(pieces, plan, own.values())


def as_given(pieces: Pieces, plan: Plan, attributes: tuple[Attribute, ...]) -> Plan:
    """Return a plan with just the given columns, in their order, also those that are twice."""
    if [a.id for a in plan.attributes] == [a.id for a in attributes]:
        return plan
    return onto(pieces, plan, attributes)


def _by_id(attributes: Iterable[Attribute]) -> dict[int, Attribute]:
    return {attribute.id: attribute for attribute in attributes}
