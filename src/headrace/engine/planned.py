"""Circuits of views that no epoch steps: planned, being filled, or found for a stored state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.catalyst.editions import LATEST, Edition
from headrace.circuit import GivenKey
from headrace.circuit.digest import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.catalog import Relation, View
    from headrace.circuit import Circuit, Node, Sliced
    from headrace.types import RelationId


@dataclass(frozen=True, slots=True)
class Planned:
    """A build of a view that need not be declared, and its circuit after so many ``changes``."""

    view: View
    circuit: Circuit
    changes: int


@dataclass(frozen=True, slots=True)
class RunningFill:
    """What is being filled: a circuit, or a slice of one, and the relations at the time.

    One that is dropped meanwhile can be read to the end.
    """

    circuit: Circuit
    relations: Mapping[RelationId, Relation]
    sliced: Sliced | None = None
    watch: Mapping[Node, str] = field(default_factory=dict)


def as_stored(view: View, made: Callable[[GivenKey, Edition], Circuit]) -> Circuit:
    """Return the circuit that a view's state fits, by the digest that is stored with it.

    Editions of the planner differ in operators; before keys of one-row views were recorded, fewer
    keys were inferred. A view without a digest, or whose circuit no edition makes, has the latest.
    """
    if view.key or view.single:
        keys = [GivenKey(view.key)]
    else:
        keys = [GivenKey(None)] if view.single is not None else [GivenKey(None), GivenKey(())]
    for edition in sorted(Edition, reverse=True):
        for key in keys:
            found = made(key, edition)
            if not view.circuit or view.circuit == digest(found):
                return found
    return made(keys[0], LATEST)
