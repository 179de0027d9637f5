"""Circuits of views outside of epochs: planned, being filled, or found for a stored state."""

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
    from headrace.circuit.reuse import Input
    from headrace.engine.lowering.restored import StateShare
    from headrace.engine.restoring import Restoring
    from headrace.types import RelationId


@dataclass(frozen=True, slots=True)
class Planned:
    """A build of a view and its circuit, as planned when the engine counted ``changes``."""

    view: View
    circuit: Circuit
    changes: int


@dataclass(frozen=True, slots=True)
class RunningFill:
    """A circuit, or a slice of it, that is being filled, and the relations at the start.

    A relation that is dropped meanwhile can still be read until the fill ends.
    """

    circuit: Circuit
    relations: Mapping[RelationId, Relation]
    sliced: Sliced | None = None
    watch: Mapping[Node, str] = field(default_factory=dict)
    restoring: Restoring | None = None
    """What it takes over of other builds, while it reads that."""

    @property
    def inputs(self) -> Mapping[Input, tuple[StateShare, ...]]:
        """The inputs that are restored now, with their shares."""
        return {} if self.restoring is None else self.restoring.inputs


def as_stored(
    view: View,
    made: Callable[[GivenKey, Edition], Circuit],
    fits: Callable[[Circuit], bool] | None = None,
) -> Circuit:
    """Return the circuit that fits the stored state of a view, by default by its stored digest.

    Editions of the planner choose different operators, and older versions inferred fewer keys. The
    latest edition is used for a view without a digest, and if no edition fits.
    """

    def is_stored(found: Circuit) -> bool:
        return not view.circuit or view.circuit == digest(found)

    fits = is_stored if fits is None else fits
    if view.key or view.single:
        keys = [GivenKey(view.key)]
    else:
        keys = [GivenKey(None)] if view.single is not None else [GivenKey(None), GivenKey(())]
    for edition in sorted(Edition, reverse=True):
        for key in keys:
            found = made(key, edition)
            if fits(found):
                return found
    return made(keys[0], LATEST)
