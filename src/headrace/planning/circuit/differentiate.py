"""Build the circuit that maintains a plan.

Linear nodes stay as they are; joins, aggregates and other nonlinear nodes become operators with
arrangements; an :class:`~headrace.algebra.operators.Integrate` at the root stores the view's
contents.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.algebra.operators import (
    MATCHES,
    OFFSET,
    ROW,
    Compared,
    Emits,
    Extremum,
    FirstRows,
    Fold,
    FrameReach,
    GlobalAggregate,
    GroupAggregate,
    InnerJoin,
    Integrate,
    Matches,
    NearRows,
    OuterJoin,
    Pairs,
    Quarantine,
    RangePairs,
    Recursion,
    RowKind,
    SemiJoin,
    SessionAggregate,
    Temporal,
    TouchedGroups,
    TouchedSessions,
    Within,
    counts_layout,
)
from headrace.algebra.spine import Rank
from headrace.algebra.zset import HASH, WEIGHT, Layout, OrderBy
from headrace.planning.catalog import ROWTIME
from headrace.planning.catalyst import plan
from headrace.planning.circuit.accumulators import accumulators_of
from headrace.planning.circuit.circuit import (
    Aggregate,
    Circuit,
    ComparedRows,
    Constant,
    Feedback,
    First,
    FoldedRows,
    InputGuard,
    Join,
    Loop,
    Match,
    Node,
    Output,
    Recompute,
    RelationDelta,
    Shared,
    Stateless,
    Sum,
    TemporalRows,
    output_of,
)
from headrace.planning.circuit.keys import (
    is_append_only,
    partitioning,
    reads_loop,
    recompute_reason,
    recomputes_sessions,
)
from headrace.planning.circuit.sharing import StoredAs, aligned, shared_counts, shared_rows
from headrace.types import (
    ArrangementId,
    BuildId,
    RelationId,
    Schema,
    quarantine_of,
    rows_of,
    to_arrow,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_UNNAMED = {plan.PLACE: OFFSET, plan.TIME: ROWTIME}
"""The names of the values that are read from a log in addition to its columns."""
_WEIGHT_FIELD = pa.field(WEIGHT, pa.int64())
_EMITS = {
    plan.JoinKind.SEMI: Emits.MATCHED,
    plan.JoinKind.ANTI: Emits.UNMATCHED,
    plan.JoinKind.EXISTENCE: Emits.FLAGGED,
}


def differentiate(
    view: RelationId,
    build: BuildId,
    query: plan.Plan,
    schema: Schema,
    unique: tuple[int, ...] | None,
    only_grows: Callable[[RelationId], bool],
    stored_as: StoredAs,
    *,
    by: Sequence[str] = (),
    guarded: bool = False,
    names_in_files: Callable[[RelationId], Sequence[str]] | None = None,
) -> Circuit:
    """Return the circuit of ``query`` as a build of a view; ``schema`` has the view's columns.

    ``unique`` are the positions of the columns of a unique key, None if no key is known. The
    contents are arranged ``by`` the given columns, unique or not, by default by those of
    :func:`_positions`. A ``guarded`` view has quarantines, whose columns are stored under the
    ``names_in_files`` of their relation, by default under their own. It shares no contents, since
    it may not read all rows of a relation.
    """
    if guarded:
        stored_as = _not_stored
    builder = _Builder(build, only_grows, stored_as)
    query = aligned(query, stored_as)
    if guarded:
        builder.guards = _guards(build, query, names_in_files)
    root = builder.node(query)
    unique = None if by else unique
    key = tuple(map(schema.names.index, by)) or _positions(query, unique)
    layout = Layout(
        key=tuple(schema.names[i] for i in key),
        columns=schema.arrow,
        summed=pa.schema([_WEIGHT_FIELD]),
        stored=() if schema.stored_names == schema.names else schema.stored_names,
    )
    output = Output(output_of(build), Integrate(layout), (rows_of(view),), key, root)
    return Circuit(view, build, output, unique is not None)


def _not_stored(_relation: RelationId) -> None:
    return None


def _guards(
    build: BuildId,
    query: plan.Plan,
    names_in_files: Callable[[RelationId], Sequence[str]] | None,
) -> dict[RelationId, InputGuard]:
    """Return a guard for each relation that a plan reads, over all columns that are read."""
    found: dict[RelationId, dict[int, plan.Attribute]] = {}
    for scan in plan.scans(query):
        read = zip(scan.columns, scan.attributes, strict=True)
        found.setdefault(scan.relation, {}).update(read)
    guards = {}
    for id_, attributes in found.items():
        columns = tuple(sorted(attributes))
        types = tuple(attributes[i].type for i in columns)
        names = tuple(_UNNAMED.get(i, attributes[i].name) for i in columns)
        files = names if names_in_files is None else names_in_files(id_)
        stored = tuple(_UNNAMED.get(i) or files[i] for i in columns)
        fields = [pa.field(n, to_arrow(t)) for n, t in zip(names, types, strict=True)]
        operator = Quarantine(pa.schema(fields), () if stored == names else stored)
        kept = quarantine_of(build, id_)
        guards[id_] = InputGuard(str(kept), id_, columns, types, operator, kept)
    return guards


def _positions(query: plan.Plan, unique: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the positions of the columns by which the contents of a view are arranged.

    These are the unique key, so that readers can look up rows. Without a unique key, they are the
    columns that partition the delta, so that rows are not moved, or else all columns.
    """
    if unique is not None:
        return unique
    ids = [attribute.id for attribute in query.attributes]
    found = partitioning(query)
    if not found or any(column.isdisjoint(ids) for column in found):
        return tuple(range(len(ids)))
    return tuple(min(ids.index(id_) for id_ in column if id_ in ids) for column in found)


@dataclass(slots=True)
class _Builder:
    build: BuildId
    only_grows: Callable[[RelationId], bool]
    stored_as: StoredAs
    count: int = field(default=0)
    built: dict[plan.Plan, Node] = field(default_factory=dict)
    loops: dict[int, tuple[ArrangementId, Layout]] = field(default_factory=dict)
    guards: dict[RelationId, InputGuard] = field(default_factory=dict)

    def node(self, query: plan.Plan) -> Node:
        """Return the node of a plan; a plan that is used twice has one node."""
        if query not in self.built:
            self.built[query] = self.new(query)
        return self.built[query]

    def new(self, query: plan.Plan) -> Node:
        match query:
            case plan.Scan():
                return RelationDelta(query, self.guards.get(query.relation))
            case plan.Constant():
                return Constant(self.name("constant"), query)
            case plan.Project() | plan.Filter() | plan.Expand() | plan.Generate():
                return Stateless(query, self.node(query.child))
            case plan.UnionAll():
                return Sum(query, tuple(self.node(child) for child in query.children))
            case plan.Join():
                return self.join(query)
            case plan.Aggregate():
                reason = recompute_reason(query)
                if reason is None:
                    return self.aggregate(query)
                return self.recompute(query, query.group_keys, reason, always=not query.grouping)
            case plan.FirstRows():
                return self.first(query)
            case plan.Fold():
                return self.fold(query)
            case plan.Temporal():
                return self.temporal(query)
            case plan.Compared():
                return self.compared(query)
            case plan.Loop():
                return self.loop(query)
            case plan.LoopRef():
                feedback, layout = self.loops[query.number]
                return Feedback(query, layout, feedback)
            case plan.Window():
                return self.window(query)

    def join(self, query: plan.Join) -> Join | Match:
        left, right = self.node(query.left), self.node(query.right)
        kind, name = query.kind, self.name("join")
        whole = query.residual is None
        sides = (
            side_layout("l", query.left.attributes, query.left_keys),
            side_layout("r", query.right.attributes, query.right_keys),
        )
        semi = kind.of_one_side and whole
        pairs = Pairs(
            left=sides[0],
            right=counts_layout(sides[1]) if semi else sides[1],
            left_output=tuple((n, n) for n in _own("l", query.left.attributes)),
            right_output=() if semi else tuple((n, n) for n in _own("r", query.right.attributes)),
            null_safe=(False,) * len(query.left_keys),
        )
        ranged = None if whole else self.ranged(query, pairs)
        pairs = ranged or pairs
        parts = ["left", "right"]
        operator: InnerJoin | OuterJoin | SemiJoin
        if kind is plan.JoinKind.INNER:
            operator = InnerJoin(pairs)
        elif not whole:
            operator = InnerJoin(pairs, (kind.keeps_left, kind.keeps_right))
        elif semi:
            operator = SemiJoin(pairs, _EMITS[kind])
        else:
            operator = OuterJoin(pairs, kind.keeps_left, kind.keeps_right)
            parts += ["right_counts"] if kind.keeps_left else []
            parts += ["left_counts"] if kind.keeps_right else []
        shared = {}
        if ranged is None:
            shared = self.shared(query, dict(zip(parts, operator.layouts, strict=True)))
        arrangements = tuple(
            shared[i].id if i in shared else ArrangementId(f"{name}.{part}")
            for i, part in enumerate(parts)
        )
        joined: Join | Match = Join(name, query, operator, arrangements, shared, left, right)
        if kind is plan.JoinKind.INNER or whole:
            return joined
        if kind.keeps_left:
            joined = self.match(query, joined, pairs, RowKind.LEFT)
        if kind.keeps_right:
            joined = self.match(query, joined, pairs, RowKind.RIGHT)
        return joined

    def ranged(self, query: plan.Join, pairs: Pairs) -> RangePairs | None:
        """Return the pairs of a join with the ranges of its condition; None if it has none.

        Contents that are stored by the keys are read as they are, in no order.
        """
        ranges = query.ranges
        if ranges is None or self.shared(query, {"left": pairs.left, "right": pairs.right}):
            return None
        left, lefts = bounded_layout(
            "l",
            query.left.attributes,
            query.left_keys,
            (ranges.left,),
            [bound.value for bound in ranges.of_left],
        )
        right, rights = bounded_layout(
            "r",
            query.right.attributes,
            query.right_keys,
            (ranges.right,),
            [bound.value for bound in ranges.of_right],
        )
        of_left, of_right = (
            tuple(
                Within(name, bound.is_low, bound.shift, bound.is_open)
                for bound, name in zip(bounds, names, strict=True)
            )
            for bounds, names in ((ranges.of_left, lefts), (ranges.of_right, rights))
        )
        return RangePairs(
            left,
            right,
            pairs.left_output,
            pairs.right_output,
            pairs.null_safe,
            of_left,
            of_right,
            ranges.nearest,
        )

    def shared(self, query: plan.Join, parts: dict[str, Layout]) -> dict[int, Shared]:
        """Return the arrangements that a join can share instead of owning, by position."""
        found = {}
        for i, (part, layout) in enumerate(parts.items()):
            is_left = part.startswith("left")
            side = query.left if is_left else query.right
            keys = query.left_keys if is_left else query.right_keys
            counts = part.endswith("counts") or (
                not is_left and query.kind.of_one_side and query.residual is None
            )
            read = (shared_counts if counts else shared_rows)(side, keys, layout, self.stored_as)
            if read is not None:
                found[i] = read
        return found

    def match(self, query: plan.Join, below: Join | Match, pairs: Pairs, side: RowKind) -> Match:
        name = self.name("matches")
        prefix, attributes = (
            ("l", query.left.attributes) if side is RowKind.LEFT else ("r", query.right.attributes)
        )
        own = pa.schema([pairs.schema.field(n) for n in _own(prefix, attributes)])
        sums = pa.schema([_WEIGHT_FIELD, pa.field(MATCHES, pa.int64())])
        passes = not query.kind.of_one_side
        columns = [f for f in pairs.schema if f.name not in (HASH, WEIGHT)]
        columns = [pairs.schema.field(HASH), *(columns if passes else own)]
        columns += [pa.field(ROW, pa.int64()), pairs.schema.field(WEIGHT)]
        operator = Matches(
            Layout(tuple(own.names), own, sums),
            pa.schema(columns),
            side,
            _EMITS.get(query.kind, Emits.UNMATCHED),
            passes,
        )
        return Match(name, query, operator, (ArrangementId(f"{name}.rows"),), below)

    def aggregate(self, query: plan.Aggregate) -> Aggregate:
        child = self.node(query.child)
        name = self.name("aggregate")
        append_only = is_append_only(query.child, self.only_grows)
        accumulators = accumulators_of(query.functions, query.ties, append_only=append_only)
        keys = [pa.field(f"g{i}", to_arrow(e.type)) for i, e in enumerate(query.grouping)]
        layout = Layout(
            key=tuple(key.name for i, key in enumerate(keys) if i != query.session),
            columns=pa.schema(keys),
            summed=pa.schema([_WEIGHT_FIELD, *(a.field for a in accumulators.columns)]),
        )
        operator: GroupAggregate | GlobalAggregate | SessionAggregate
        if query.session is not None:
            extrema = tuple(part for part in accumulators.parts if isinstance(part, Extremum))
            session = keys[query.session].name
            operator = SessionAggregate(layout, session, extrema, append_only)
            parts = ("sessions",) if append_only else ("rows", "sessions")
            of_sessions = tuple(ArrangementId(f"{name}.{part}") for part in parts)
            return Aggregate(name, query, operator, of_sessions, accumulators, child)
        kind = GroupAggregate if keys else GlobalAggregate
        operator = kind(layout, accumulators.parts)
        kept = [f"{name}.groups", *(f"{name}.values{i}" for i in range(len(accumulators.parts)))]
        kept += [f"{name}.marks{i}" for i in range(len(operator.layouts) - len(kept))]
        arrangements = tuple(ArrangementId(each) for each in kept)
        return Aggregate(name, query, operator, arrangements, accumulators, child)

    def first(self, query: plan.FirstRows) -> First:
        child = self.node(query.child)
        name = self.name("first")
        layout = side_layout("x", query.attributes, query.keys, query.order)
        operator = FirstRows(
            layout,
            query.count,
            Rank[query.rank.upper()],
            query.skip,
            # The output retracts rows when better ones arrive; in a loop, these retractions may
            # return as input.
            append_only=is_append_only(query.child, self.only_grows)
            and not reads_loop(query.child),
        )
        return First(name, query, operator, (ArrangementId(f"{name}.rows"),), child)

    def fold(self, query: plan.Fold) -> FoldedRows:
        child = self.node(query.child)
        name = self.name("fold")
        backwards = tuple(
            plan.SortKey(key.expression, not key.descending, not key.nulls_first)
            for key in query.order
        )
        layout = side_layout("x", query.child.attributes, query.keys, backwards)
        operator = Fold(layout, query.names, to_arrow(query.returns), query.folding)
        kept = ArrangementId(f"{name}.events"), ArrangementId(f"{name}.checkpoints")
        return FoldedRows(name, query, operator, kept, child)

    def temporal(self, query: plan.Temporal) -> TemporalRows:
        child = self.node(query.child)
        name = self.name("temporal")
        rows = side_layout("x", query.attributes, ()).columns
        enters = None if query.enters is None else "enters"
        leaves = None if query.leaves is None else "leaves"
        operator = Temporal(rows, enters, leaves)
        return TemporalRows(name, query, operator, (ArrangementId(f"{name}.moves"),), child)

    def compared(self, query: plan.Compared) -> ComparedRows:
        child, value = self.node(query.child), self.node(query.value)
        name = self.name("compared")
        rows = side_layout("x", query.attributes, ()).columns
        operator = Compared(rows, to_arrow(query.bound.type), query.below)
        kept = ArrangementId(f"{name}.rows"), ArrangementId(f"{name}.value")
        return ComparedRows(name, query, operator, kept, child, value)

    def loop(self, query: plan.Loop) -> Loop:
        name = self.name("loop")
        columns = side_layout("x", query.attributes, ()).columns
        layout = Layout(tuple(columns.names), columns, pa.schema([_WEIGHT_FIELD]))
        feedback, over_limit = ArrangementId(f"{name}.handed"), ArrangementId(f"{name}.beyond")
        self.loops[query.number] = feedback, layout
        operator = Recursion(layout, query.limit)
        return Loop(name, query, operator, (feedback, over_limit), self.node(query.child))

    def recompute(
        self,
        query: plan.Aggregate | plan.Window,
        keys: tuple[plan.Expression, ...],
        reason: str,
        *,
        always: bool,
    ) -> Recompute:
        child = self.node(query.child)
        if isinstance(query, plan.Aggregate) and recomputes_sessions(query):
            return self.recompute_sessions(query, reason, child)
        name = self.name("groups")
        operator = TouchedGroups(side_layout("x", query.child.attributes, keys), always)
        kept = (ArrangementId(f"{name}.rows"), ArrangementId(f"{name}.published"))
        return Recompute(name, query, operator, kept[: len(operator.layouts)], reason, child)

    def window(self, query: plan.Window) -> Recompute:
        near = query.near
        if near is None:
            reason = "its window functions may depend on all rows of their partition"
            return self.recompute(query, query.partition, reason, always=False)
        child = self.node(query.child)
        name = self.name("near")
        bounds = (*near.lowers, *near.uppers, *near.sums)
        child_attributes, keys = query.child.attributes, query.partition
        layout, names = bounded_layout("x", child_attributes, keys, near.order, bounds)
        count = len(near.lowers)
        reach = FrameReach(
            near.before,
            near.after,
            names[:count],
            names[count : 2 * count],
            bool(near.counted),
            near.peers,
            names[2 * count :],
            near.dense,
        )
        operator = NearRows(layout, reach)
        kept = (ArrangementId(f"{name}.rows"), ArrangementId(f"{name}.orders"))
        return Recompute(name, query, operator, kept[: len(operator.layouts)], "", child)

    def recompute_sessions(self, query: plan.Aggregate, reason: str, child: Node) -> Recompute:
        name = self.name("sessions")
        whole = side_layout("x", query.child.attributes, query.grouping)
        key = tuple(each for i, each in enumerate(whole.key) if i != query.session)
        session = whole.key[query.session or 0]
        operator = TouchedSessions(replace(whole, key=key), session)
        kept = (ArrangementId(f"{name}.rows"), ArrangementId(f"{name}.sessions"))
        return Recompute(name, query, operator, kept, reason, child)

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{self.build}/{kind}{self.count}"


def side_layout(
    prefix: str,
    attributes: tuple[plan.Attribute, ...],
    keys: tuple[plan.Expression, ...],
    order: tuple[plan.SortKey, ...] = (),
) -> Layout:
    """Return the layout of an input: its columns, and the computed keys and order columns."""
    own = {attribute.id: f"{prefix}{i}" for i, attribute in enumerate(attributes)}
    fields = [pa.field(own[a.id], to_arrow(a.type)) for a in attributes]
    names = []
    for i, key in enumerate(keys):
        stored = own.get(key.passes) if key.passes is not None else None
        if stored is None:
            stored = f"{prefix}k{i}"
            fields.append(pa.field(stored, to_arrow(key.type)))
        names.append(stored)
    by = []
    for i, sort in enumerate(order):
        value = sort.expression
        stored = own.get(value.passes) if value.passes is not None else None
        if stored is None:
            stored = f"{prefix}o{i}"
            fields.append(pa.field(stored, to_arrow(value.type)))
        by.append(OrderBy(stored, sort.descending, sort.nulls_first))
    summed = pa.schema([_WEIGHT_FIELD])
    return Layout(tuple(names), pa.schema(fields), summed, tuple(by))


def bounded_layout(
    prefix: str,
    attributes: tuple[plan.Attribute, ...],
    keys: tuple[plan.Expression, ...],
    order: tuple[plan.SortKey, ...],
    bounds: Sequence[plan.Expression],
) -> tuple[Layout, tuple[str, ...]]:
    """Return :func:`side_layout` with bounds of frames and sums, and the names of their columns."""
    layout = side_layout(prefix, attributes, keys, order)
    own = {attribute.id: f"{prefix}{i}" for i, attribute in enumerate(attributes)}
    more, names = {}, []
    for i, bound in enumerate(bounds):
        stored = own.get(bound.passes) if bound.passes is not None else None
        names.append(stored or f"{prefix}b{i}")
        if stored is None:
            more[names[-1]] = pa.field(names[-1], to_arrow(bound.type))
    columns = pa.schema([*layout.columns, *more.values()])
    return replace(layout, columns=columns), tuple(names)


def _own(prefix: str, attributes: tuple[plan.Attribute, ...]) -> list[str]:
    return [f"{prefix}{i}" for i in range(len(attributes))]
