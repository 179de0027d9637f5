"""Column pruning: scans read only the columns that the query needs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.catalyst.plan import (
    Aggregate,
    Compared,
    Constant,
    Expand,
    Filter,
    FirstRows,
    Fold,
    Generate,
    Join,
    Loop,
    LoopRef,
    Plan,
    Project,
    Scan,
    Temporal,
    UnionAll,
    Window,
)
from headrace.catalyst.resolved import columns_of
from headrace.catalyst.scala import items

if TYPE_CHECKING:
    from collections.abc import Iterable

Needed = frozenset[int] | None
"""The ids of the attributes that something above refers to; None stands for all of them."""


def pruned(plan: Plan, needed: Needed) -> Plan:
    """Return the plan with scans of only the columns that something above them needs."""
    match plan:
        case Scan():
            return _scan(plan, needed)
        case Constant() | LoopRef():
            return plan
        case Loop() | Fold():
            return replace(plan, child=pruned(plan.child, None))
        case Project():
            refs = _references(e.handle for e in plan.expressions)
            return replace(plan, child=pruned(plan.child, refs))
        case Filter():
            used = _and_also(needed, [plan.condition.handle])
            return replace(plan, child=pruned(plan.child, used))
        case Temporal():
            used = _and_also(needed, [time.handle for time in plan.times])
            return replace(plan, child=pruned(plan.child, used))
        case Expand():
            refs = _references(e for p in plan.projections for e in p)
            return Expand(pruned(plan.child, refs), plan.projections, plan.attributes)
        case Generate():
            # It refers to the columns that it passes on by position: keep them all.
            return Generate(pruned(plan.child, None), plan.text, plan.handle, plan.attributes)
        case UnionAll():
            branches = tuple(pruned(child, None) for child in plan.children)
            return UnionAll(branches, plan.attributes)
        case Join():
            return _join(plan, needed)
        case Compared():
            used = _and_also(needed, [plan.bound.handle])
            return replace(plan, child=pruned(plan.child, used), value=pruned(plan.value, None))
        case Aggregate():
            return _aggregate(plan)
        case FirstRows():
            used = _and_also(
                needed, [e.handle for e in (*plan.keys, *(key.expression for key in plan.order))]
            )
            return replace(plan, child=pruned(plan.child, used))
        case Window():
            ties = [tie.handle for tie in plan.ties]
            used = _and_also(needed, [*items(plan.handle.expressions()), *ties])
            child = pruned(plan.child, used)
            added = plan.attributes[len(plan.child.attributes) :]
            return replace(plan, child=child, attributes=child.attributes + added)


def _scan(plan: Scan, needed: Needed) -> Scan:
    if needed is None:
        return plan
    kept = [n for n, attribute in enumerate(plan.attributes) if attribute.id in needed]
    return Scan(
        plan.relation,
        tuple(plan.attributes[n] for n in kept),
        tuple(plan.columns[n] for n in kept),
    )


def _join(plan: Join, needed: Needed) -> Join:
    rest = [plan.residual.handle] if plan.residual else []
    keys = [e.handle for e in plan.left_keys + plan.right_keys]
    used = _and_also(needed, keys + rest)
    right_used = _references(keys + rest) if plan.kind.of_one_side else used
    left, right = pruned(plan.left, used), pruned(plan.right, right_used)
    return replace(plan, left=left, right=right)


def _aggregate(plan: Aggregate) -> Aggregate:
    used = [e.handle for e in (*plan.grouping, *plan.ties)]
    for call in plan.functions:
        used += [e.handle for e in call.arguments]
        used += [call.condition.handle] if call.condition else []
    return replace(plan, child=pruned(plan.child, _references(used)))


def _and_also(needed: Needed, handles: Iterable[Any]) -> Needed:
    return None if needed is None else needed | _references(handles)


def _references(handles: Iterable[Any]) -> frozenset[int]:
    return frozenset(int(a.exprId().id()) for handle in handles for a in columns_of(handle))
