"""Has a query of Spark batch break ties as views do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.catalyst.asof import has_asof, without_ties
from headrace.catalyst.ties import with_ties_marked, with_ties_settled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.catalyst.transplant import Transplant


def with_one_order(transplant: Transplant, frame: DataFrame, logical: Any) -> DataFrame:
    """Return a query, analysed as ``logical``, that breaks ties as views do.

    As-of joins and the groups of ordered functions are changed after Spark has optimised the query:
    the first use the columns that are read, the second the marks in the plan.
    """
    marked = with_ties_marked(transplant.scala, logical)
    if marked is not transplant.logical(frame):
        frame = transplant.frame(marked)
    if marked is logical and not has_asof(logical):
        return frame
    optimised = transplant.optimised(frame)
    chosen = without_ties(transplant.scala, optimised) if has_asof(logical) else optimised
    settled = with_ties_settled(transplant.scala, chosen)
    # Spark's own optimiser creates plans that its analyser would refuse.
    return frame if settled is optimised else transplant.frame(transplant.finished(settled))
