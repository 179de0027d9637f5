"""The condition of a slice, as conditions on the attributes of a view's circuit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.catalyst.predicates import Conjunct, Predicates
from headrace.catalyst.resolved import attributes_of
from headrace.catalyst.scala import kind_of
from headrace.errors import Code, HeadraceError, Span
from headrace.sql import quote_dotted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.catalog import View
    from headrace.catalyst.analysed import Analysed
    from headrace.catalyst.plan import Attribute
    from headrace.catalyst.planner import Planner


ALIAS: Final = "_slice"
"""The name of the view in the condition of a slice; any relation with its columns can have it."""


def slice_query(view: View, where: str) -> Span:
    """Return a query with the condition of a slice as its WHERE clause."""
    return Span.whole(f"SELECT * FROM {quote_dotted(view.name)} AS {ALIAS} WHERE (({where}))")


def slice_conditions(
    analyse: Callable[[View, str], Analysed],
    planner: Planner,
    view: View,
    where: str,
    attributes: Sequence[Attribute],
) -> tuple[Conjunct, ...]:
    """Return the conditions over ``attributes``, which are the view's columns in order.

    Raises:
        HeadraceError: ``invalid`` or ``unsupported``, with the place in the condition.
    """
    if not where:
        return ()
    place = Span.whole(where)
    try:
        analysed = analyse(view, where)
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
