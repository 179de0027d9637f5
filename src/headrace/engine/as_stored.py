"""The circuit by which a view is stored, among those that its query could have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.catalyst.editions import LATEST, Edition
from headrace.circuit import Given
from headrace.circuit.digest import digest

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.catalog import View
    from headrace.circuit import Circuit


def as_stored(view: View, made: Callable[[Given, Edition], Circuit]) -> Circuit:
    """Return the circuit that a view's state fits, by the digest that is stored with it.

    Editions of the planner differ in operators; before keys of one-row views were recorded, fewer
    keys were inferred. A view without a digest, or whose circuit no edition makes, has the latest.
    """
    if view.key or view.single:
        keys = [Given(view.key)]
    else:
        keys = [Given(None)] if view.single is not None else [Given(None), Given(())]
    for edition in sorted(Edition, reverse=True):
        for key in keys:
            found = made(key, edition)
            if not view.circuit or view.circuit == digest(found):
                return found
    return made(keys[0], LATEST)
