"""The incremental program of a view: nodes that turn the deltas of its inputs into its own delta.

A node's *columns* are those of its plan node. Stateless nodes are linear: they map a delta as they
map a table. Stateful nodes have arrangements, named ``"<build id>/<node>.<part>"``; that of the
contents is the view's own, ``"<view id>/rows"``, whichever build computes them.

Circuits of builds that take other places: as they are, over relations with other ids.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, cast

from headrace.planning.catalyst import node as plans
from headrace.planning.catalyst import plan
from headrace.types import ArrangementId, BuildId, RelationId, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.algebra.operators import (
        Compared,
        FirstRows,
        Fold,
        GlobalAggregate,
        GroupAggregate,
        InnerJoin,
        Integrate,
        Matches,
        NearRows,
        OuterJoin,
        Quarantine,
        Recursion,
        SemiJoin,
        SessionAggregate,
        StatefulOperator,
        Temporal,
        TouchedGroups,
        TouchedSessions,
    )
    from headrace.algebra.zset import Layout
    from headrace.planning.circuit.accumulators import Accumulators
    from headrace.types import DataType


@dataclass(frozen=True, slots=True)
class Shared:
    """The contents of a table or a view, read by an operator instead of a copy of its own.

    ``layout`` is that of the contents; ``columns`` are the columns to read, in the operator's
    order. Rows with NULL in one of the operator's columns ``present`` are ignored.
    Only the relation's own node writes them. Operators that share them read the contents before the
    step, and their input is the delta of the same step.
    """

    relation: RelationId
    layout: Layout
    columns: tuple[str, ...]
    present: tuple[str, ...] = ()

    @property
    def id(self) -> ArrangementId:
        """The name of the arrangement."""
        return rows_of(self.relation)


@dataclass(frozen=True, slots=True, eq=False)
class InputGuard:
    """The quarantine of a view for the rows of one relation, shared by all leaves that read it.

    ``columns`` are the positions, as in a scan, of the columns that any of these leaves reads, and
    ``types`` their types. The operator knows them by name.
    """

    name: str
    relation: RelationId
    columns: tuple[int, ...]
    types: tuple[DataType, ...]
    operator: Quarantine
    arrangement: ArrangementId


@dataclass(frozen=True, slots=True, eq=False)
class RelationDelta:
    """The delta of a stream, a table or another view; a guard withholds rows in quarantine."""

    plan: plan.Scan
    guard: InputGuard | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """Rows that are written in the query: inserted when the view is created, never changed."""

    name: str
    plan: plan.Constant


@dataclass(frozen=True, slots=True, eq=False)
class Stateless:
    """A linear map of rows, evaluated by Spark: ``Δ f(a) = f(Δa)``."""

    plan: plan.Project | plan.Filter | plan.Expand | plan.Generate
    child: Node


@dataclass(frozen=True, slots=True, eq=False)
class Sum:
    """``UNION ALL``: ``Δ(a + b) = Δa + Δb``."""

    plan: plan.UnionAll
    children: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """A join by key. Key expressions that are plain columns are not stored twice.

    The operator's columns are named ``l0``, ``l1``, ... and ``r0``, ``r1``, ... by the position of
    the attributes of its sides. ``shared`` are the arrangements that it reads but does not own, by
    position.
    """

    name: str
    plan: plan.Join
    operator: InnerJoin | OuterJoin | SemiJoin
    arrangements: tuple[ArrangementId, ...]
    shared: Mapping[int, Shared]
    left: Node
    right: Node


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """The rows of one side of a join by whether they have a pair that meets the whole condition."""

    name: str
    plan: plan.Join
    operator: Matches
    arrangements: tuple[ArrangementId]
    child: Join | Match


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate:
    """Exact accumulators per group or session; results are computed from them by Spark."""

    name: str
    plan: plan.Aggregate
    operator: GroupAggregate | GlobalAggregate | SessionAggregate
    arrangements: tuple[ArrangementId, ...]
    accumulators: Accumulators
    child: Node


@dataclass(frozen=True, slots=True, eq=False)
class First:
    """The first rows of each group, in an order; columns are named as in :class:`Recompute`."""

    name: str
    plan: plan.FirstRows
    operator: FirstRows
    arrangements: tuple[ArrangementId]
    child: Node


@dataclass(frozen=True, slots=True, eq=False)
class FoldedRows:
    """The row of each key, by a Python function; columns are named as in :class:`Recompute`."""

    name: str
    plan: plan.Fold
    operator: Fold
    arrangements: tuple[ArrangementId, ArrangementId]
    child: Node


@dataclass(frozen=True, slots=True, eq=False)
class TemporalRows:
    """The rows that meet a condition on the clock; columns are named as in :class:`Recompute`."""

    name: str
    plan: plan.Temporal
    operator: Temporal
    arrangements: tuple[ArrangementId]
    child: Node


@dataclass(frozen=True, slots=True, eq=False)
class ComparedRows:
    """The rows on one side of a value; columns are named as in :class:`Recompute`."""

    name: str
    plan: plan.Compared
    operator: Compared
    arrangements: tuple[ArrangementId, ArrangementId]
    child: Node
    value: Node


@dataclass(frozen=True, slots=True, eq=False)
class Recompute:
    """Groups, or sessions, computed again if a row has changed, from all rows or those nearby.

    ``reason`` says why from all rows; it is empty where the operator finds the rows nearby.

    The operator's columns are named ``x0``, ``x1``, ... by the position of the child's attributes.
    """

    name: str
    plan: plan.Aggregate | plan.Window
    operator: TouchedGroups | TouchedSessions | NearRows
    arrangements: tuple[ArrangementId, ...]
    reason: str
    child: Node


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """The rows of a recursive WITH; columns are named as in :class:`Recompute`, the level last.

    ``arrangements`` exist during one attempt at an epoch: the feedback, which is the input of the
    next round, and the rows of levels at or over the limit.
    """

    name: str
    plan: plan.Loop
    operator: Recursion
    arrangements: tuple[ArrangementId, ArrangementId]
    child: Node


@dataclass(frozen=True, slots=True, eq=False)
class Feedback:
    """The delta of a loop in the round before, as an input of the loop's own step."""

    plan: plan.LoopRef
    layout: Layout
    arrangement: ArrangementId


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """The view itself: its contents by key, and its changelog. ``key`` has column positions."""

    name: str
    operator: Integrate
    arrangements: tuple[ArrangementId]
    key: tuple[int, ...]
    child: Node


Node = (
    RelationDelta
    | Constant
    | Stateless
    | Sum
    | Join
    | Match
    | Aggregate
    | First
    | FoldedRows
    | TemporalRows
    | ComparedRows
    | Recompute
    | Loop
    | Feedback
)
Stateful = (
    Join | Match | Aggregate | First | FoldedRows | TemporalRows | ComparedRows | Recompute | Output
)


@dataclass(frozen=True, slots=True, eq=False)
class Circuit:
    """A view's program. ``unique``: whether the output's key is unique, not only a partitioning."""

    view: RelationId
    build: BuildId
    output: Output
    unique: bool
    nodes: tuple[Node | Output, ...] = field(init=False, repr=False)
    """Every node once, inputs before the nodes that use them."""
    reads: frozenset[RelationId] = field(init=False, repr=False)
    """The relations that the view reads."""

    def __post_init__(self) -> None:
        """Walk the nodes once: each epoch asks for them."""
        object.__setattr__(self, "nodes", tuple(below(self.output)))
        read = frozenset(source.plan.relation for source in self.sources())
        object.__setattr__(self, "reads", read)

    def users(self) -> Counter[Node]:
        """Return how often each node is an input of another."""
        return Counter(below for node in self.nodes for below in inputs(node))

    def stateful(self) -> tuple[Stateful, ...]:
        """Return the nodes with arrangements, inputs first."""
        return tuple(n for n in self.nodes if isinstance(n, Stateful))

    def initial(self) -> frozenset[str]:
        """Return the names of the nodes that emit rows even for empty inputs."""
        return frozenset(
            node.name
            for node in self.nodes
            if isinstance(node, Constant)
            or (isinstance(node, Aggregate | Recompute) and node.operator.is_global)
        )

    def sources(self) -> tuple[RelationDelta, ...]:
        """Return the leaves."""
        return tuple(n for n in self.nodes if isinstance(n, RelationDelta))

    def guards(self) -> Mapping[RelationId, InputGuard]:
        """Return the quarantines, by relation; empty if the view has no quarantines."""
        found = (source.guard for source in self.sources())
        return {guard.relation: guard for guard in found if guard is not None}

    def arrangements(self) -> dict[ArrangementId, Layout]:
        """Return the arrangements that the view's contents and its nodes own."""
        owned = [own_arrangements(node) for node in self.stateful()]
        found = {id_: layout for each in owned for id_, layout in each.items()}
        return found | {g.arrangement: g.operator.layouts[0] for g in self.guards().values()}

    def temporal(self) -> tuple[TemporalRows, ...]:
        """Return the nodes whose rows change as the clock advances."""
        return tuple(n for n in self.nodes if isinstance(n, TemporalRows))

    def loops(self) -> tuple[Loop, ...]:
        """Return the recursions, each after the recursions that it reads."""
        return tuple(n for n in self.nodes if isinstance(n, Loop))


def output_of(build: BuildId) -> str:
    """Return the name of the operator that keeps the contents that a build computes."""
    return f"{build}/rows"


def shared(node: Stateful) -> Mapping[int, Shared]:
    """Return the arrangements that a node reads but does not own, by position."""
    return node.shared if isinstance(node, Join) else {}


def own_arrangements(node: Stateful) -> dict[ArrangementId, Layout]:
    """Return the arrangements that a node owns."""
    operator: StatefulOperator = node.operator
    pairs = enumerate(zip(node.arrangements, operator.layouts, strict=True))
    return {id_: layout for i, (id_, layout) in pairs if i not in shared(node)}


def inputs(node: Node | Output) -> tuple[Node, ...]:
    """Return the input nodes of ``node``."""
    match node:
        case RelationDelta() | Constant() | Feedback():
            return ()
        case Sum():
            return node.children
        case Join():
            return (node.left, node.right)
        case ComparedRows():
            return (node.child, node.value)
        case _:
            return (node.child,)


def below(node: Node | Output) -> Iterator[Node | Output]:
    """Yield the nodes at and below one, each once, inputs before the nodes that use them."""
    seen: set[Node | Output] = set()

    def visit(each: Node | Output) -> Iterator[Node | Output]:
        if each not in seen:
            seen.add(each)
            for child in inputs(each):
                yield from visit(child)
            yield each

    yield from visit(node)


def moved(circuit: Circuit, view: RelationId, ids: Mapping[RelationId, RelationId]) -> Circuit:
    """Return the circuit as that of another view, which reads relations with other ``ids``.

    Its state and its expressions stay, so nothing is planned. Relations with quarantines have no
    other id: these are the streams and tables that a view reads.
    """
    if view == circuit.view and ids.keys().isdisjoint(circuit.reads):
        return circuit
    found = _Moved(ids)
    for node in circuit.nodes:
        found.nodes[node] = found.node(node)
    output = cast("Output", found.nodes[circuit.output])
    output = replace(output, arrangements=(rows_of(view),))
    return Circuit(view, circuit.build, output, circuit.unique)


@dataclass(slots=True)
class _Moved:
    """The nodes and plans of a circuit, each once."""

    ids: Mapping[RelationId, RelationId]
    nodes: dict[Node | Output, Node | Output] = field(default_factory=dict)
    _plans: dict[plans.AnyPlan, plans.AnyPlan] = field(default_factory=dict)

    def node(self, node: Node | Output) -> Node | Output:
        """Return a node whose inputs have been moved."""
        values = {each.name: self._value(getattr(node, each.name)) for each in fields(node)}
        if isinstance(node, Join):
            shared = {
                i: replace(each, relation=self._id(each.relation))
                for i, each in node.shared.items()
            }
            values["shared"] = shared
            values["arrangements"] = tuple(
                shared[i].id if i in shared else id_ for i, id_ in enumerate(node.arrangements)
            )
        return type(node)(**values)

    def _value(self, value: Any) -> Any:
        match value:
            case plans.Node():
                return self._plan(value)
            case tuple():
                return tuple(map(self._value, value))
            case _:
                return self.nodes[value] if isinstance(value, Node) else value

    def _plan(self, query: plans.AnyPlan) -> plans.AnyPlan:
        if query not in self._plans:
            made = query.rebuilt(map(self._plan, query.inputs)) if query.inputs else query
            if isinstance(made, plan.Scan):
                made = replace(made, relation=self._id(made.relation))
            self._plans[query] = made
        return self._plans[query]

    def _id(self, relation: RelationId) -> RelationId:
        return self.ids.get(relation, relation)
