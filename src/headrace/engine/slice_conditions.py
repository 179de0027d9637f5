"""The condition of a slice, as conditions on the attributes of a view's circuit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    planner: Planner, view: View, where: Span | None, attributes: Sequence[Attribute]
) -> tuple[Conjunct, ...]:
    """Return what a row has to meet, over ``attributes``, which are the view's columns in order.

    Raises:
        HeadraceError: ``invalid`` or ``unsupported``, with its place in the condition.
    """
    if where is None:
        return ()
    before = f"SELECT * FROM {quote(view.name)} WHERE (("
    text = f"{before}{where.source}\n))"
    try:
        analysed = planner.analyse(Span.whole(text))
        if analysed.clocked or analysed.calls or set(analysed.reads) - {view.id}:
            raise HeadraceError(
                Code.UNSUPPORTED,
                "a slice of a view is a condition on its columns alone",
                detail="The clock, Python functions and other relations are not supported in it.",
                span=Span(text, len(before), len(before) + len(where.source)),
            )
    except HeadraceError as error:
        raise _placed(error, text, len(before), where) from error
    predicates = Predicates(planner.scala)
    plan = analysed.optimised
    found: list[Conjunct] = []
    while kind_of(plan) == "Filter":
        found += predicates.conjuncts(plan.condition())
        plan = plan.child()
    if kind_of(plan) == "LocalRelation" and not plan.data().length():
        return (predicates.conjunct(predicates.never()),)
    if kind_of(plan) != "LogicalRDD":
        raise HeadraceError(
            Code.UNSUPPORTED, "a slice of a view is a condition on its columns alone", span=where
        )
    own = {a.id: b.handle for a, b in zip(attributes_of(plan), attributes, strict=True)}
    return tuple(predicates.moved(each, own) for each in found)


def _placed(error: HeadraceError, text: str, shift: int, where: Span) -> HeadraceError:
    """Return an error of the query that was made of a condition, at its place in the condition."""
    span: Any = where
    if error.span is not None and error.span.text == text:
        length = where.end - where.start
        start = min(max(error.span.start - shift, 0), length)
        end = min(max(error.span.end - shift, start), length)
        if end > start:
            span = Span(where.text, where.start + start, where.start + end, where.file, where.line)
    return HeadraceError(error.code, error.primary, error.detail, error.hint, span)
