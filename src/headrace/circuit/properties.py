"""Properties of a plan's rows that follow from the plan alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.catalyst import plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.types import RelationId


def partitioning(node: plan.Plan) -> tuple[frozenset[int], ...] | None:
    """Return the columns by whose hash a delta is partitioned, or None if it is not.

    Each column is given as the set of attributes with its value, by id; it may be empty.
    """
    match node:
        case plan.FirstRows():
            passed = tuple(key.passes for key in node.keys)
            return tuple(frozenset() if p is None else frozenset({p}) for p in passed)
        case plan.Fold():
            return tuple(frozenset({attribute.id}) for attribute in node.attributes[:-1])
        case plan.Filter():
            return partitioning(node.child)
        case plan.Project():
            return _renamed_sets(partitioning(node.child), node.expressions, node.attributes)
        case plan.Aggregate() if recompute_reason(node) is None:
            attributes = enumerate(node.grouping_attributes)
            grouping = tuple(frozenset({a.id}) for i, a in attributes if i != node.session)
            return _renamed_sets(grouping, node.results, node.attributes)
        case plan.Join():
            return _by_join_key(node)
        case _:
            return None


def is_append_only(node: plan.Plan, only_grows: Callable[[RelationId], bool]) -> bool:
    """Whether no row of a plan is ever retracted."""
    match node:
        case plan.Scan():
            return only_grows(node.relation)
        case plan.Constant() | plan.LoopRef():
            return True  # a loop is append-only if everything else in it is
        case plan.Project() | plan.Filter() | plan.Expand() | plan.Generate() | plan.Loop():
            return is_append_only(node.child, only_grows)
        case plan.UnionAll():
            return all(is_append_only(child, only_grows) for child in node.children)
        case plan.Join():
            sides = (node.left, node.right)
            inner = node.kind is plan.JoinKind.INNER
            return inner and all(is_append_only(side, only_grows) for side in sides)
        case _:
            return False


def reads_loop(node: plan.Plan) -> bool:
    """Whether a plan reads the rows of a recursion."""
    return isinstance(node, plan.LoopRef) or any(map(reads_loop, node.inputs))


def recompute_reason(node: plan.Aggregate) -> str | None:
    """Return why changed groups of an aggregate are recomputed, or None if they are not."""
    if node.session is not None and not node.kept:
        return "sessions merge and split when rows change"
    for call in node.functions:
        if call.needs_rows is not None:
            return f"{call.text} {call.needs_rows}"
        alone = call.distinct or call.adds_floats or call.pick or call.percentiles
        if alone and node.session is not None:
            return f"{call.text} is not kept by session"
    return None


def recomputes_sessions(node: plan.Aggregate) -> bool:
    """Whether sessions are recomputed by themselves, and not all those of their key together.

    Beside DISTINCT, Spark unites sessions before it evaluates arguments: these would differ if they
    read the session.
    """
    if node.session is None or not node.kept:
        return False
    session = node.grouping[node.session].passes
    read = {id_ for use in node.uses() if use.field == "functions" for id_ in use.columns}
    return session not in read or not any(call.distinct for call in node.functions)


def _by_join_key(node: plan.Join) -> tuple[frozenset[int], ...] | None:
    if node.residual is not None and node.kind is not plan.JoinKind.INNER:
        return None  # the last operator partitions its rows by all columns
    match node.kind:
        case plan.JoinKind.INNER:
            pairs = list(zip(node.left_keys, node.right_keys, strict=True))
        case plan.JoinKind.FULL:
            return None
        case plan.JoinKind.RIGHT:
            pairs = [(key, key) for key in node.right_keys]
        case _:
            pairs = [(key, key) for key in node.left_keys]
    return tuple(frozenset(e.passes for e in pair if e.passes is not None) for pair in pairs)


def _renamed_sets(
    columns: tuple[frozenset[int], ...] | None,
    expressions: tuple[plan.Expression, ...],
    attributes: tuple[plan.Attribute, ...],
) -> tuple[frozenset[int], ...] | None:
    if columns is None:
        return None
    pairs = list(zip(expressions, attributes, strict=True))
    return tuple(frozenset(a.id for e, a in pairs if e.passes in column) for column in columns)
