"""Fingerprints of builds: whether this version computes from their state what it computed before.

A kind of node or operator has a version, which whoever changes what it stores or means raises. An
expression that only Spark evaluates means what that version of Spark makes of it. Both are stored
with each build, and compared when a database is opened, before any epoch: no query is planned for
that. A build without a fingerprint was stored before there were any, when all versions were 1.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from headrace.catalog.fingerprint import Fingerprint
from headrace.catalyst.scala import kind_of, node_name, within
from headrace.catalyst.vectors import KNOWN
from headrace.circuit.circuit import Recompute
from headrace.circuit.digest import digest, is_comparable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.catalog import Catalog, View
    from headrace.circuit.circuit import Circuit, Node, Output

VERSIONS: Final[dict[str, int]] = {
    # Nodes of circuits.
    "Aggregate": 1,
    "ComparedRows": 1,
    "Constant": 1,
    "Feedback": 1,
    "First": 1,
    "FoldedRows": 1,
    "Join": 1,
    "Loop": 1,
    "Match": 1,
    "Output": 1,
    "Recompute": 1,
    "RelationDelta": 1,
    "Stateless": 1,
    "Sum": 1,
    "TemporalRows": 1,
    # Operators, each with its state.
    "Compared": 1,
    "FirstRows": 1,
    "Fold": 1,
    "GlobalAggregate": 1,
    "GroupAggregate": 1,
    "InnerJoin": 1,
    "Integrate": 1,
    "Matches": 1,
    "NearRows": 1,
    "OuterJoin": 1,
    "Quarantine": 1,
    "Recursion": 1,
    "SemiJoin": 1,
    "SessionAggregate": 1,
    "Temporal": 1,
    "TouchedGroups": 1,
    "TouchedSessions": 1,
    "Upsert": 1,
}
"""The version of each kind. Raise it where what a kind stores, or the rows that it makes, change:
the views that use it are rebuilt when they are opened."""

_BEFORE: Final = Fingerprint((), "4.3.0")
"""That of builds that were stored without one; their kinds are not known."""

_PLAIN: Final = frozenset(
    (
        *("Alias", "AttributeReference", "BoundReference", "Literal"),
        *("AggregateExpression", "Average", "Count", "Max", "Min", "Sum"),
    )
)
"""Classes of expressions that Headrace evaluates, besides those over Arrow columns."""


@cache
def spark_version() -> str:
    """Return the version of the installed Spark."""
    return version("pyspark")


def fingerprint(circuit: Circuit) -> Fingerprint:
    """Return the fingerprint of a build that this version makes."""
    kinds = {kind for node in circuit.nodes for kind in _kinds(node)}
    spark = spark_version() if any(map(_is_sparks, circuit.nodes)) else ""
    return Fingerprint(tuple(sorted((kind, VERSIONS[kind]) for kind in kinds)), spark)


def stamped(view: View, circuit: Circuit) -> View:
    """Return the definition of a build with the digest and the fingerprint of its circuit."""
    return replace(view, circuit=digest(circuit), fingerprint=fingerprint(circuit))


def changes_since(view: View) -> tuple[str, ...]:
    """Return what has changed of what a stored build rests on; nothing if its state is kept."""
    stored = view.fingerprint or _BEFORE
    found = []
    if view.circuit and not is_comparable(view.circuit):
        found.append("its circuit was recorded in another format")
    if view.fingerprint is None:
        raised = [kind for kind, now in VERSIONS.items() if now != 1]
        found += [f"it may use {kind}, which has version {VERSIONS[kind]}" for kind in raised]
    for kind, before in stored.versions:
        now = VERSIONS.get(kind)
        if now is None:
            found.append(f"{kind} is gone")
        elif now != before:
            found.append(f"{kind} has version {now}, and had {before}")
    if stored.spark not in ("", spark_version()):
        found.append(f"Spark is {spark_version()}, and was {stored.spark}")
    return tuple(found)


def outdated(catalog: Catalog) -> list[tuple[View, tuple[str, ...]]]:
    """Return the views whose stored state this version does not go on with, and why.

    Views come before those that they read.
    """
    found = [(view, changes_since(view)) for view in reversed([*catalog.views_in_order()])]
    return [(view, why) for view, why in found if why]


def _kinds(node: Node | Output) -> Iterator[str]:
    yield type(node).__name__
    for holder in (node, getattr(node, "guard", None)):
        operator = getattr(holder, "operator", None)
        if operator is not None:
            yield type(operator).__name__


def _is_sparks(node: Node | Output) -> bool:
    """Whether rows of a node are what Spark makes of an expression."""
    query = getattr(node, "plan", None)
    if query is None:
        return False
    return isinstance(node, Recompute) or not _are_ours(use.handle for use in query.uses())


def _are_ours(handles: Iterable[Any]) -> bool:
    return all(
        kind_of(part) in _PLAIN or kind_of(part) in KNOWN or node_name(part) in KNOWN
        for handle in handles
        for part in within(handle)
    )
