"""The program of a fill that takes over state of views: which shares restore which inputs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from headrace.catalyst.numbered import PlanNumbers
from headrace.circuit.reuse import restored
from headrace.engine.lowering.restored import StateShare
from headrace.runtime.takeover import Takeover
from headrace.types import RelationId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.catalyst.scala import Scala
    from headrace.circuit import Circuit
    from headrace.circuit.reuse import Input
    from headrace.runtime.takeover import Sizes

MOST_PLANNED = 4
"""How many views are planned to see what they keep: planning takes as long as reading many rows."""
_SHARES = -(1 << 33)
"""Names of shares with state are below this one: they are ids of no relation."""


@dataclass(frozen=True, slots=True)
class Restoring:
    """What a fill takes over, and the shares of each input that is restored."""

    takeover: Takeover
    inputs: Mapping[Input, tuple[StateShare, ...]]


def restoring(
    circuit: Circuit, kept: Mapping[RelationId, Circuit], scala: Scala, rows: Sizes
) -> Restoring | None:
    """Return what a circuit takes over of views that are kept; None if it is not worth it."""
    found = restored(circuit, kept.values(), PlanNumbers(scala), rows)
    if not found.inputs:
        return None
    names = count(_SHARES, -1)
    shares = {
        at: tuple(StateShare(RelationId(next(names)), each) for each in stored)
        for at, stored in found.inputs.items()
    }
    groups = tuple({share.name: share.kept for share in of_input} for of_input in shares.values())
    taken = {each.arrangement for stored in found.inputs.values() for each in stored}
    views = tuple(id_ for id_, each in kept.items() if not taken.isdisjoint(each.arrangements()))
    return Restoring(Takeover(groups, found.copied, found.unread, views), shares)
