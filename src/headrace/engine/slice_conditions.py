"""The condition of a slice, as conditions on the attributes of a view's circuit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.catalyst.predicates import Conjunct, Predicates
from headrace.catalyst.resolved import attributes_of
from headrace.catalyst.scala import kind_of
from headrace.errors import Code, HeadraceError, Span
from headrace.sql import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.catalog import View
    from headrace.catalyst.plan import Attribute
    from headrace.catalyst.planner import Planner


def slice_conditions(
    planner: Planner, view: View, where: str, attributes: Sequence[Attribute]
) -> tuple[Conjunct, ...]:
    """Return what a row has to meet, over ``attributes``, which are the view's columns in order.

    Raises:
        HeadraceError: ``invalid`` or ``unsupported``, with the place in the condition.
    """
    if not where:
        return ()
    text = f"SELECT * FROM {quote(view.name)} WHERE (({where}))"
    place = Span.whole(where)
    try:
        analysed = planner.analyse(Span.whole(text))
    except HeadraceError as error:
        raise error.at(place) from error
    predicates, plan = Predicates(planner.scala), analysed.optimised
    found: list[Conjunct] = []
    while kind_of(plan) == "Filter":
        found += predicates.conjuncts(plan.condition())
        plan = plan.child()
    kind = kind_of(plan)
    if kind == "LocalRelation" and not plan.data().length():
        return (predicates.conjunct(predicates.never()),)
    if kind != "LogicalRDD" or analysed.clocked or analysed.calls:
        raise HeadraceError(
            Code.UNSUPPORTED,
            "a slice of a view is a condition on its columns alone",
            detail="It has no subqueries, does not read the clock, and calls no Python functions.",
            span=place,
        )
    own = {a.id: b.handle for a, b in zip(attributes_of(plan), attributes, strict=True)}
    return tuple(predicates.moved(each, own) for each in predicates.stated(found))
