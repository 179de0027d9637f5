"""Column pruning: scans read only the columns that the query needs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.catalyst.plan import Scan

if TYPE_CHECKING:
    from headrace.catalyst.plan import Plan

Ids = frozenset[int]
"""The ids of the attributes that nodes above use."""


def pruned(plan: Plan) -> Plan:
    """Return the plan with the same output columns, and scans of only the columns that it needs."""
    return _pruned(plan, _all(plan))


def _pruned(plan: Plan, needed: Ids) -> Plan:
    if isinstance(plan, Scan):
        return _scan(plan, needed)
    below = zip(plan.inputs, _below(plan, needed), strict=True)
    return plan.rebuilt(_pruned(child, ids) for child, ids in below)


def _scan(scan: Scan, needed: Ids) -> Scan:
    kept = [n for n, attribute in enumerate(scan.attributes) if attribute.id in needed]
    return replace(
        scan,
        attributes=tuple(scan.attributes[n] for n in kept),
        columns=tuple(scan.columns[n] for n in kept),
    )


def _below(plan: Plan, needed: Ids) -> tuple[Ids, ...]:
    """Return the columns needed of each input: those used, and those passed on and needed above."""
    if plan.by_position:
        return tuple(map(_all, plan.inputs))
    uses = [(use.inputs, use.columns) for use in plan.uses()]
    found = []
    for child, passed in zip(plan.inputs, plan.passed(), strict=True):
        used = (columns for inputs, columns in uses if any(child is each for each in inputs))
        found.append(frozenset(below for own, below in passed if own in needed).union(*used))
    return tuple(found)


def _all(plan: Plan) -> Ids:
    return frozenset(attribute.id for attribute in plan.attributes)
