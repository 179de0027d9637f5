"""Choosing the columns of a plan, and removing repeated ones.

A Catalyst node may list one column twice, as ``SELECT k, k`` does. A node that stores rows stores
each column once; where columns are matched by position, they must be exactly those of Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.catalyst.plan import Project

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.catalyst.pieces import Pieces
    from headrace.catalyst.plan import Attribute, Plan


def select_columns(pieces: Pieces, plan: Plan, attributes: Iterable[Attribute]) -> Project:
    """Return the given columns of a plan, in their order."""
    wanted = tuple(attributes)
    return Project(plan, tuple(pieces.expression(a.handle) for a in wanted), wanted)


def distinct_columns(pieces: Pieces, plan: Plan) -> Plan:
    """Return a plan without repeated columns, as the input of a node that stores its rows."""
    own = _by_id(plan.attributes)
    return plan if len(own) == len(plan.attributes) else select_columns(pieces, plan, own.values())


def only_columns(pieces: Pieces, plan: Plan, attributes: Iterable[Attribute]) -> Plan:
    """Return a plan with only the given columns, each once; unchanged if it has only these."""
    own = _by_id(attributes)
    if own.keys() >= _by_id(plan.attributes).keys():
        return plan
    return select_columns(pieces, plan, own.values())


def exact_columns(pieces: Pieces, plan: Plan, attributes: tuple[Attribute, ...]) -> Plan:
    """Return a plan with exactly the given columns, in their order, repeated ones included."""
    if [a.id for a in plan.attributes] == [a.id for a in attributes]:
        return plan
    return select_columns(pieces, plan, attributes)


def _by_id(attributes: Iterable[Attribute]) -> dict[int, Attribute]:
    return {attribute.id: attribute for attribute in attributes}
