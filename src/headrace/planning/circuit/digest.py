"""A digest of a circuit: equal for circuits that store and compute the same.

The ledger has the digest of each view's circuit. After a database is opened, a view is planned
again when it is first needed, and stops if its circuit has another digest: its stored state would
be wrong for that circuit.

The digest covers the nodes and how they are connected, the expressions that they evaluate, and for
each operator its parameters and arrangements. It does not cover the wording of ``EXPLAIN``, names
of columns that are read by position, the ids that Spark generates each time it plans a query, and
the values of ``VALUES``: the view's query has these.

Fingerprints of builds: whether this version computes from their state what it computed before.

A kind of node or operator has a version, which whoever changes what it stores or means raises. An
expression that only Spark evaluates means what that version of Spark makes of it. Both are stored
with each build, and compared when a database is opened, before any epoch: no query is planned for
that. A build without a fingerprint was stored before there were any, when all versions were 1.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import cache
from importlib.metadata import version
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headrace.planning.catalog.policies import Fingerprint
from headrace.planning.catalyst import plan
from headrace.planning.catalyst.node import Evaluated, FieldRole
from headrace.planning.catalyst.scala import kind_of, node_name, within
from headrace.planning.catalyst.vectors import KNOWN
from headrace.planning.circuit.circuit import (
    Aggregate,
    Circuit,
    ComparedRows,
    Feedback,
    FoldedRows,
    Loop,
    Node,
    Output,
    Recompute,
    RelationDelta,
    Stateful,
    Stateless,
    TemporalRows,
    inputs,
    shared,
)
from headrace.types import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.planning.catalog import Catalog, View
    from headrace.types import RelationId


FORMAT = "3"
"""The version of :func:`structure`. A digest begins with it, so that readers know which others it
can be compared with; before there were versions, a digest had none."""

_SAME: Final[Mapping[RelationId, RelationId]] = MappingProxyType({})
_WORDS = re.compile(r"'(?:[^'\\]|\\.|'')*'|\w+|#\d+L?")
_GENERATED = re.compile(r"[#_]\d+L?\b")


def digest(circuit: Circuit, instead: Mapping[RelationId, RelationId] = _SAME) -> str:
    """Return a short text that differs if two circuits compute or store different things.

    The circuit is taken to read other relations ``instead`` of some that it reads.
    """
    text = json.dumps(structure(circuit, instead), separators=(",", ":"))
    return f"{FORMAT}:{hashlib.blake2s(text.encode(), digest_size=16).hexdigest()}"


def is_comparable(stored: str) -> bool:
    """Whether a stored digest has the current format, so that it can be compared with others."""
    return stored.startswith(f"{FORMAT}:")


def structure(circuit: Circuit, instead: Mapping[RelationId, RelationId] = _SAME) -> list[Any]:
    """Return the structure of a circuit as a JSON value: a list of nodes, inputs first.

    Each node is a list of its kind, the indexes of its inputs, and its own parts. For ``instead``
    see :func:`digest`.
    """
    return CircuitStructure(circuit, instead).nodes()


class CircuitStructure:
    """Describes a circuit as JSON values; see :func:`structure`."""

    def __init__(self, circuit: Circuit, instead: Mapping[RelationId, RelationId] = _SAME) -> None:
        self.circuit = circuit
        self.instead = instead
        self.contents: dict[str, str] = {
            rows_of(a): rows_of(b) for a, b in instead.items() if a != circuit.view
        }
        self.columns = frozenset(
            attribute.name for source in circuit.sources() for attribute in source.plan.attributes
        )

    def nodes(self) -> list[Any]:
        """Return the nodes, inputs first, each with its kind, inputs and parts."""
        index: dict[Node | Output, int] = {}
        described = []
        for node in self.circuit.nodes:
            index[node] = len(index)
            below = [index[child] for child in inputs(node)]
            kind, parts = self.node(node)
            state = self.state(node) if isinstance(node, Stateful | Loop) else []
            described.append([kind, below, parts, *state])
        return [*described, self.circuit.unique]

    def node(self, node: Node | Output) -> tuple[str, list[Any]]:
        """Return the kind and the parts of a node."""
        match node:
            case RelationDelta(guard=guard):
                kept = [] if guard is None else [list(guard.columns)]
                read = self.instead.get(node.plan.relation, node.plan.relation)
                return "source", [*self.parts(replace(node.plan, relation=read)), *kept]
            case Stateless() | FoldedRows() | TemporalRows() | ComparedRows():
                return type(node.plan).__name__.lower(), self.parts(node.plan)
            case Aggregate():
                sums = self.value(node.accumulators, node.plan.child)
                return "aggregate", [*self.parts(node.plan), sums]
            case Recompute():
                is_window = isinstance(node.plan, plan.Window)
                return "window" if is_window else "recomputed aggregate", self.parts(node.plan)
            case Feedback():
                return "feedback", [self.arrangement(node.arrangement), self.value(node.layout)]
            case Output():
                return "output", [list(node.key)]
            case _:
                return type(node).__name__.lower(), self.parts(node.plan)

    def state(self, node: Stateful | Loop) -> list[Any]:
        """Return the operator and arrangements of a node, including shared ones."""
        read = {} if isinstance(node, Loop) else shared(node)
        read = {
            position: replace(each, relation=self.instead.get(each.relation, each.relation))
            for position, each in read.items()
        }
        return [
            self.value(node.operator),
            [self.arrangement(id_) for id_ in node.arrangements],
            [[position, self.value(each)] for position, each in sorted(read.items())],
        ]

    # -- parts -----------------------------------------------------------------------------

    def parts(self, query: plan.Plan) -> list[Any]:
        """Return the parts of a node of the plan except its inputs, in the order of its fields."""
        own = [self.part(part.role, part.value, *part.inputs) for part in query.parts()]
        match query:
            case plan.Join():
                return [*own, query.flag is not None]
            case plan.Constant() | plan.UnionAll() | plan.Expand() | plan.Generate() | plan.Loop():
                return [*own, [attribute.type.simpleString() for attribute in query.attributes]]
            case _:
                return own

    def part(self, role: FieldRole, value: Any, *below: plan.Plan) -> Any:
        """Return a part of a node of the plan by its role."""
        match value:
            case tuple():
                return [self.part(role, each, *below) for each in value]
            case str() if role is FieldRole.WORDS:
                return self.text(value)
            case plan.JoinKind():
                return value.value
            case plan.AggregateFunction():
                return self.function(value, *below)
            case None | Evaluated():
                return self.value(value, *below)
            case _ if role is FieldRole.EXPRESSIONS:
                return self.text(str(value.sql()))
            case _:
                return self.value(value)

    def function(self, call: plan.AggregateFunction, *below: plan.Plan) -> list[Any]:
        """Return the parts of an aggregate call."""
        return [
            self.text(call.text),
            self.value(call.arguments, *below),
            self.value(call.condition, *below),
            [call.counts_rows, call.distinct, call.ordered],
        ]

    def arrangement(self, id_: str) -> str:
        """Return the name of an arrangement, without this circuit's build or view."""
        id_ = self.contents.get(id_, id_)
        return id_.removeprefix(f"{self.circuit.build}/").removeprefix(f"{self.circuit.view}/")

    def expression(self, found: plan.Expression, *below: plan.Plan) -> Any:
        """Return the position of a column that is passed on, else the text and the type."""
        ids = [attribute.id for query in below for attribute in query.attributes]
        if found.passes in ids:
            return ids.index(found.passes)
        return [self.text(found.text), found.type.simpleString()]

    def text(self, sql: str) -> str:
        """Return the text of an expression without generated ids, as in ``_gen_alias_12``.

        Strings and the names of columns that relations have are left as they are.
        """
        return _WORDS.sub(self._word, sql)

    def _word(self, found: re.Match[str]) -> str:
        word = found[0]
        if word.startswith("'") or word in self.columns:
            return word
        return _GENERATED.sub("", word)

    def value(self, value: Any, *below: plan.Plan) -> Any:
        """Return a parameter of a node or an operator as a JSON value.

        Fields of dataclasses that are not compared are computed from the others, and left out, as
        are those that say so: what they have makes no difference to a circuit.
        """
        match value:
            case str():
                return self.contents.get(value, value)
            case None | bool() | int() | float():
                return value
            case Enum():
                return value.name
            case plan.Expression():
                return self.expression(value, *below)
            case plan.AggregateFunction():
                return self.text(value.text)
            case pa.Schema():
                return [[field.name, str(field.type), field.nullable] for field in value]
            case pa.Field():
                return [value.name, str(value.type), value.nullable]
            case pa.DataType():
                return str(value)
            case Mapping():
                return [[self.value(k), self.value(v, *below)] for k, v in value.items()]
            case tuple() | list():
                return [self.value(each, *below) for each in value]
            case _ if is_dataclass(value):
                parts = {
                    field.name: self.value(getattr(value, field.name), *below)
                    for field in fields(value)
                    if field.compare and field.metadata.get("digest", True)
                }
                return [type(value).__name__, parts]
            case _:
                return value.simpleString()


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
