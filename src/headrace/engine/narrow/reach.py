"""How many rows a program can take in this process: whether all that it does is vectorised here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.jobs.guard_tasks import GuardTask
from headrace.engine.narrow.evaluated import of_catalyst
from headrace.engine.narrow.exploded import Exploded
from headrace.engine.narrow.nodes import (
    DoubtfulNode,
    Filtered,
    JobNode,
    Projected,
    Task,
    nodes_of,
)
from headrace.engine.narrow.ways import operators_of
from headrace.operators import Fold, NearRows, TouchedGroups
from headrace.runtime.ports import Reach

if TYPE_CHECKING:
    from headrace.engine.narrow.nodes import RowsNode


def reach_of(node: RowsNode) -> Reach:
    """Return how much of a fill a program does in this process.

    A job, an expression that Catalyst evaluates and a function that is called for each row take
    few rows. Groups that are recomputed would be so in every part.
    """
    found = Reach.MANY
    for each in nodes_of(node):
        match each:
            case JobNode():
                return Reach.FEW
            case Task():
                for task in operators_of(each.mapped.task):
                    if isinstance(task, GuardTask) or isinstance(task.operator, Fold):
                        return Reach.FEW
                    if isinstance(task.operator, TouchedGroups | NearRows):
                        found = Reach.WHOLE
            case Projected(evaluated=columns) | Filtered(condition=columns) if (
                columns is not None and columns.crosses
            ):
                return Reach.FEW
            case Exploded() if any(c.crosses for c in of_catalyst(each.exploding.array)):
                return Reach.FEW
            case DoubtfulNode() if any(columns.crosses for columns in each.evaluated):
                return Reach.FEW
            case _:
                pass
    return found
