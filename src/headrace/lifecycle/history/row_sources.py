"""Explains a row of a view by its source rows, or why it is missing: the slice, step by step.

The slice is computed as for a replay, without storing anything, and the rows that pass each node
are counted. A row of an input is a *source* of the slice if it meets the slice's condition on that
input, and is among the rows of every node above it that passes rows on one by one: filters, joins,
windows and first rows, up to the first aggregate. If a condition cannot be pushed below an
aggregate, and few rows meet it, these rows are explained by their keys instead.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.spine import Spine
from headrace.algebra.spine.candidates import candidates
from headrace.algebra.zset import EVERY_ROW, WEIGHT, Restriction, row_codes
from headrace.errors import Code, HeadraceError, Span
from headrace.execution.engine.lowering.watching import watched_layout
from headrace.execution.runtime.fill import Fill
from headrace.execution.runtime.step import whole_log
from headrace.execution.serving.values import csv_text, python_rows
from headrace.lifecycle.history.amending import is_among, is_literal
from headrace.lifecycle.history.missing_rows import MissingRows, leaves
from headrace.lifecycle.history.replaying import Pruned
from headrace.planning.catalog import Stream, key_of
from headrace.planning.catalyst import plan
from headrace.planning.circuit import (
    Aggregate,
    Constant,
    Join,
    Match,
    Output,
    Recompute,
    RelationDelta,
    Stateless,
    inputs,
)
from headrace.planning.circuit.explain import step_of, with_calls
from headrace.planning.dialects import OFFSET
from headrace.planning.sql.parameters import literal_text
from headrace.storage.log import EmbeddedLog
from headrace.types import ArrangementId, BuildId, Offset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from headrace.execution.engine.engine import Engine
    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.fill import Progress
    from headrace.execution.runtime.published import Published
    from headrace.lifecycle.history.replaying import ReplayPlan, Replays
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Relation, View
    from headrace.planning.circuit import Node, Sliced
    from headrace.planning.circuit.slices import Lost
    from headrace.storage.ledger import Ledger
    from headrace.types import Epoch, RelationId


MOST_LISTED: Final = 20
"""The most source rows listed for each input."""
MOST_NAMED: Final = 32
"""The most rows whose keys are used to explain them."""
MOST_READ: Final = 1_000_000
"""The most input rows that are read to explain a row."""


@dataclass(frozen=True, slots=True)
class Passed:
    """A node of a view's circuit, and the number of rows of the slice that pass it.

    ``rows`` is None where it is unknown: for rows ``looked_up`` by key, and between the parts of a
    join.
    """

    depth: int
    title: str
    rows: int | None
    looked_up: bool = False


@dataclass(frozen=True, slots=True)
class Sources:
    """The source rows of a slice in one input: their number, and the first of them.

    Each row has its key and the columns that the query reads, and an event of a stream its offset.
    If not ``whole``, there may be more rows. ``rows`` is None if unknown: joins look the rows up by
    key and pass none of their columns on.
    """

    relation: Relation
    rows: int | None
    first: tuple[tuple[Mapping[str, Any], int | None], ...]
    whole: bool = True

    @property
    def listed(self) -> Iterator[str]:
        """The first rows as text, with their offsets."""
        for row, offset in self.first:
            at = "" if offset is None else f"offset {offset}: "
            yield at + ", ".join(f"{k} = {_in_sql(v)}" for k, v in row.items())


@dataclass(frozen=True, slots=True)
class Explained:
    """The sources of the rows of a slice at an epoch; ``missing`` says why it has no rows.

    ``wider`` lists the conditions that do not restrict the inputs, so that sources of other rows
    may be included; ``keys`` is the condition on the keys of the found rows, if it was used.
    """

    epoch: Epoch
    rows: int
    passed: tuple[Passed, ...]
    sources: tuple[Sources, ...]
    missing: tuple[str, ...]
    keys: str = ""
    wider: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Seen:
    """A computed slice: the number of rows that pass each node, and the rows kept of some nodes."""

    state: Published
    sliced: Sliced
    rows: Mapping[Node, int]
    kept: Mapping[Node, pa.Table]


@dataclass(frozen=True, slots=True)
class RowSources:
    """Explains rows of views, while epochs continue."""

    reader: Reader
    ledger: Ledger
    engine: Engine
    loop: EpochLoop
    replays: Replays
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(10**9))

    def explain(self, view: View, where: str, progress: Progress) -> Explained:
        """Return the sources of the rows of a view that meet a condition.

        Raises:
            HeadraceError: ``invalid`` if the condition cannot be evaluated on the view's columns;
                ``unsupported`` if too many rows of inputs would have to be read.
        """
        self.reader.require_running(view)
        state = self.loop.published.at_frontier(view)
        seen = self._seen(view, where, state, progress)
        keys = self._keys(view, seen) if _wider(seen.sliced) else ()
        if keys:
            seen = self._seen(view, " AND ".join((*keys, f"({where})")), state, progress)
        return self._explained(seen, keys)

    def _keys(self, view: View, seen: _Seen) -> tuple[str, ...]:
        """Return conditions on the keys of the found rows, if these are few.

        They use only columns whose conditions can be pushed below all aggregates.
        """
        top = seen.sliced.circuit.output.child
        rows = seen.kept.get(top)
        if rows is None or not 0 < rows.num_rows <= MOST_NAMED:
            return ()
        found = []
        for i, name in enumerate(view.schema.names):
            values = rows[f"x{i}"].combine_chunks()
            if is_literal(values.type):
                condition = is_among(name, values)
                if not _wider(self.engine.sliced(view, condition)):
                    found.append(condition)
        return tuple(found)

    def _seen(self, view: View, where: str, state: Published, progress: Progress) -> _Seen:
        """Compute a slice in a state, without storing it."""
        sliced = self.engine.sliced(view, where)
        if sliced.circuit.loops():
            raise HeadraceError(
                Code.UNSUPPORTED, f'rows of "{view.name}" are not explained: it is recursive'
            )
        sliced, planned = self._planned(view, sliced)
        if planned.cost > MOST_READ:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f"about {planned.cost:,} rows of inputs would have to be read",
                detail=f"The limit is {MOST_READ:,}. It reads {planned.how}.",
                hint="Name a row by its key; EXPLAIN REPLAY VIEW says why no less is read.",
            )
        nodes = [n for n in sliced.circuit.nodes if not isinstance(n, Output)]
        names = {node: f"watch {i}" for i, node in enumerate(nodes) if _is_watched(node)}
        known_as = BuildId(-next(self._numbers))
        self.replays.require_kept(view, sliced)
        pruned = Pruned(self.ledger, self.reader.catalog.by_id, sliced)
        fill = Fill(
            self.loop,
            view,
            progress,
            clocked=bool(sliced.circuit.temporal()),
            of_slice=pruned.inputs(known_as, planned.cost),
            may_miss=None,
            keeps=True,
        )
        self.engine.begin_replay(known_as, sliced, names)
        try:
            fill.begin(state)
            kept = {node: self._kept(fill, name, node) for node, name in names.items()}
        finally:
            fill.attempt.abandon()
            self.engine.end_replay(known_as)
        counts: Counter[str] = Counter()
        for report in fill.attempt.reports:
            counts[report.operator] += report.rows_out
        rows = {node: counts[name] for node, name in names.items()}
        return _Seen(state, sliced, rows, kept)

    def _planned(self, view: View, sliced: Sliced) -> tuple[Sliced, ReplayPlan]:
        """Return the slice, extended to scan the right sides of semi and anti joins if cheap.

        These joins pass no column of the right side on, so its rows are found only by scanning.
        """
        partners = {
            leaf.plan.relation
            for join in sliced.circuit.nodes
            if isinstance(join, Join) and join.plan.kind.of_one_side
            for leaf in leaves(join.right)
        }
        read = replace(sliced, lookups=sliced.lookups - partners)
        planned = self.replays.planned(view, read)
        if planned.cost <= MOST_READ:
            return read, planned
        return sliced, self.replays.planned(view, sliced)

    def _kept(self, fill: Fill, name: str, node: Node) -> pa.Table:
        """Return the rows that were kept of a node, one column for each attribute."""
        layout = watched_layout(node.plan.attributes)
        runs, directory = fill.attempt.written(ArrangementId(name)), self.loop.runs
        parts = [part.table for part in Spine.open(directory, layout, runs).scan(1 << 16)]
        return pa.concat_tables([layout.schema.empty_table(), *parts])

    def _explained(self, seen: _Seen, keys: tuple[str, ...]) -> Explained:
        state, sliced, rows, kept = seen.state, seen.sliced, seen.rows, seen.kept
        circuit, catalog = sliced.circuit, state.catalog

        def name_of(id_: RelationId) -> str:
            return catalog.by_id[id_].name

        unread = _unread(sliced)
        read = {
            node: None if node in unread else rows.get(node)
            for node in circuit.nodes
            if not isinstance(node, Output)
        }
        top = circuit.output.child
        passed = tuple(_steps(top, 0, read, unread, name_of, set()))
        there = {node: int(pc.sum(table[WEIGHT]).as_py() or 0) for node, table in kept.items()}
        whole = all(there[node] == count for node, count in rows.items())
        found_in = (
            self._sources(leaf, catalog.by_id[leaf.plan.relation], state, sliced, kept)
            for leaf in circuit.sources()
        )
        sources = tuple(replace(each, whole=whole and each.whole) for each in found_in)
        found = rows.get(top, 0)
        missing = () if found else MissingRows(sliced, read, name_of).why(top)
        # Conditions on several key columns may also match rows that were not found.
        by_key = len(keys) == 1 or (bool(keys) and found == 1)
        wider = _wider(sliced, by_key=by_key)
        why = tuple(dict.fromkeys(_shown(lost, name_of) for lost in wider))
        return Explained(state.epoch, found, passed, sources, missing, " AND ".join(keys), why)

    # -- sources -----------------------------------------------------------------------------

    def _sources(
        self,
        leaf: RelationDelta,
        relation: Relation,
        state: Published,
        sliced: Sliced,
        kept: Mapping[Node, pa.Table],
    ) -> Sources:
        """Return the source rows of the slice in one leaf."""
        names = relation.schema.names
        pairs = zip(leaf.plan.attributes, leaf.plan.columns, strict=True)
        columns = {a.id: names[i] for a, i in pairs if i < len(names)}
        among, whole = _passed_on(sliced, leaf, columns, kept)
        if among is None:
            return Sources(relation, None, ())
        if not isinstance(relation, Stream):
            rows = self._stored(relation, state, sliced.leaves.get(leaf, EVERY_ROW), among)
            first = tuple((row, None) for row in python_rows(rows.slice(0, MOST_LISTED)))
            return Sources(relation, rows.num_rows, first, whole)
        events = self._events(leaf, relation, state, sliced, among)
        return Sources(relation, len(events), tuple(events[:MOST_LISTED]), whole)

    def _stored(
        self, relation: Relation, state: Published, restriction: Restriction, among: pa.Table
    ) -> pa.Table:
        """Return the stored rows of a relation that match ``among``, with its key columns added.

        If the relation has too many rows to scan, return ``among`` unchanged, without the key
        columns.
        """
        key = [name for name in key_of(relation) if name not in among.schema.names]
        spine = state.spine(relation, self.loop.directory)
        if spine.rows_upper_bound > MOST_READ:
            return among
        names = [*key, *among.schema.names]
        found = [among.schema.empty_table()] if not key else []
        for part in candidates(spine, restriction.named(spine.layout.shown)):
            rows = part.table.select([*names, WEIGHT])
            rows = rows.filter(pa.array(_is_among(rows, among)))
            copies = np.repeat(np.arange(rows.num_rows), rows[WEIGHT].to_numpy().clip(0))
            found.append(rows.take(pa.array(copies)).select(names))
        return pa.concat_tables(found) if found else among.slice(0, 0)

    def _events(
        self,
        leaf: RelationDelta,
        stream: Stream,
        state: Published,
        sliced: Sliced,
        among: pa.Table,
    ) -> list[tuple[dict[str, Any], int]]:
        """Return the events of a stream that match ``among``, each with its offset."""
        names = among.schema.names
        places = map(stream.schema.names.index, names)
        fields = [stream.schema.stored.field(place) for place in places]
        end = state.positions.get(stream.id, Offset(0))
        share = whole_log(self.ledger, state, stream.id, end)
        pruned = Pruned(self.ledger, self.reader.catalog.by_id, sliced)
        weights: dict[int, int] = defaultdict(int)
        rows: dict[int, dict[str, Any]] = {}
        for batch in EmbeddedLog().read(
            self.loop.directory / "log",
            pruned.kept(stream.id, share),
            pa.schema(fields),
            offsets=True,
            restriction=sliced.leaves[leaf],
        ):
            table = pa.Table.from_batches([batch]).rename_columns([*names, WEIGHT, OFFSET])
            for row in python_rows(table.filter(pa.array(_is_among(table, among)))):
                offset = row.pop(OFFSET)
                weights[offset] += row.pop(WEIGHT)
                rows[offset] = row
        return [(rows[o], o) for o in sorted(rows) if weights[o] > 0]


def _may_pass(node: Node | Output) -> bool:
    """Whether a node may pass rows on one by one."""
    if isinstance(node, Output):
        return False
    alone = isinstance(node, Stateless | Join | Match | Recompute)
    return alone or isinstance(node.plan, plan.Selection)


def _is_watched(node: Node) -> bool:
    """Whether the rows of a node can be counted: not for nodes between the parts of a join."""
    if not isinstance(node, Join):
        return True
    kind = node.plan.kind
    return node.plan.residual is None or not (kind.keeps_left or kind.keeps_right)


def _steps(
    node: Node,
    depth: int,
    rows: Mapping[Any, int | None],
    unread: set[Any],
    name_of: Callable[[RelationId], str],
    seen: set[Node],
) -> Iterator[Passed]:
    yield Passed(depth, step_of(node, name_of), rows.get(node), node in unread)
    if node not in seen:
        seen.add(node)
        for child in inputs(node):
            yield from _steps(child, depth + 1, rows, unread, name_of, seen)


def _wider(sliced: Sliced, *, by_key: bool = False) -> list[Lost]:
    """Return the conditions below which input rows cannot be traced to output rows.

    They can be traced if all nodes there pass rows on one by one or, with ``by_key``, group rows by
    the keys that the slice selects.
    """
    users = sliced.circuit.users()

    def traced(node: Node) -> bool:
        known = _is_by_row(node) or (by_key and _is_of_keys(sliced, node))
        return known and all(users[below] == 1 and traced(below) for below in inputs(node))

    return [e for e in sliced.lost if isinstance(e.node, Output) or not traced(e.node)]


def _is_by_row(node: Node) -> bool:
    """Whether a node passes rows on one by one, so that each output row has known input rows."""
    if isinstance(node, Join) and node.plan.kind.of_one_side:
        keys = *node.plan.left_keys, *node.plan.right_keys
        return node.plan.residual is None and all(key.passes is not None for key in keys)
    if isinstance(node, Recompute):
        return isinstance(node.plan, plan.Window)
    return isinstance(node, RelationDelta | Constant) or _may_pass(node)


def _is_of_keys(sliced: Sliced, node: Node) -> bool:
    """Whether a node groups rows, and the slice has conditions on all of its keys."""
    if not isinstance(node, Aggregate):
        return False
    used = {id_ for condition in sliced.nodes[node] for id_ in condition.uses}
    pairs = zip(node.plan.attributes, node.plan.results, strict=True)
    passed = {result.passes for attribute, result in pairs if attribute.id in used}
    return {a.id for a in node.plan.grouping_attributes} <= passed


def _shown(lost: Lost, name_of: Callable[[RelationId], str]) -> str:
    condition = with_calls(lost.node, lost.condition.text)
    return f"{condition} is not applied below {step_of(lost.node, name_of)}: {lost.reason}"


def _in_sql(value: Any) -> str:
    """Return a value as a SQL literal if it has one, otherwise as readable text."""
    if value is None or isinstance(value, str | bytes | date):
        return literal_text(value, Span.whole(""))
    return csv_text(value) or ""


def _passed_on(
    sliced: Sliced, leaf: RelationDelta, columns: dict[int, str], kept: Mapping[Node, pa.Table]
) -> tuple[pa.Table | None, bool]:
    """Return the distinct rows of a leaf, as far as the nodes above pass its columns on.

    None if none of its columns is read. The second value is whether these are all rows.
    """
    users: dict[Any, list[Any]] = defaultdict(list)
    for user in sliced.circuit.nodes:
        for child in inputs(user):
            users[child].append(user)
    unread, node, whole = _unread(sliced), leaf, True
    found: pa.Table | None = None
    padded = False
    while True:
        if node in kept and node not in unread:
            rows = _named(kept[node], node, columns)
            if not rows.schema.names:
                return found, whole
            if found is None:
                rows = _without_padding(rows) if padded else rows
                found = rows
            else:
                found = found.filter(pa.array(_is_among(found, rows)))
        if len(users[node]) != 1 or not _may_pass(users[node][0]):
            return found, whole
        below, (node,) = node, users[node]
        if isinstance(node, Join) and below is node.right:
            if node.plan.kind.of_one_side:
                return _partners(node, found, columns, kept), whole
            if node.plan.kind.keeps_left and found is None:
                # A row of NULLs is an input row only if keys compare NULL as equal.
                padded = True
                whole = all(key.passes is not None for key in node.plan.right_keys)
        if isinstance(node, Stateless) and isinstance(node.plan, plan.Project):
            pairs = zip(node.plan.attributes, node.plan.expressions, strict=True)
            passed = {a.id: columns[e.passes] for a, e in pairs if e.passes in columns}
            columns = {**columns, **passed}


def _without_padding(rows: pa.Table) -> pa.Table:
    """Return the rows that have a value other than NULL."""
    known = [column.is_valid() for column in rows.columns]
    return rows.filter(functools.reduce(pc.or_, known))


def _partners(
    join: Join, found: pa.Table | None, columns: dict[int, str], kept: Mapping[Node, pa.Table]
) -> pa.Table | None:
    """Return the rows of a semi or anti join's right side that decide its result.

    They are the partners of the rows that the join returns; for an anti join that returns none, of
    the rows of its left side. Partners are found by key columns; without any, all rows are
    returned.
    """
    if found is None or join not in kept or join.left not in kept:
        return found
    anti, rows = join.plan.kind is plan.JoinKind.ANTI, kept[join]
    if anti and rows.num_rows:
        return found.slice(0, 0)
    if anti:
        rows = kept[join.left]
    left = {a.id: f"x{i}" for i, a in enumerate(join.left.plan.attributes)}
    keys = {
        columns[theirs.passes]: left[mine.passes]
        for mine, theirs in zip(join.plan.left_keys, join.plan.right_keys, strict=True)
        if mine.passes in left and theirs.passes in columns
    }
    keys = {name: column for name, column in keys.items() if name in found.schema.names}
    if not keys:
        return found
    given = pa.table({name: rows[column] for name, column in keys.items()}).drop_null()
    return found.filter(pa.array(_is_among(found, given)))


def _unread(sliced: Sliced) -> set[Any]:
    """Return the nodes on lookup sides of joins: their inputs are not scanned."""
    found: set[Any] = set()
    for node in sliced.circuit.nodes:
        looked_up = isinstance(node, RelationDelta) and node.plan.relation in sliced.lookups
        if looked_up or (isinstance(node, Stateless) and node.child in found):
            found.add(node)
    return found


def _named(rows: pa.Table, node: Any, columns: dict[int, str]) -> pa.Table:
    """Return the distinct rows of a node, restricted to and named by the columns of a leaf."""
    found = {
        columns[a.id]: rows[f"x{i}"] for i, a in enumerate(node.plan.attributes) if a.id in columns
    }
    table = pa.table(found)
    if not found:
        return table
    codes = row_codes([c.combine_chunks() for c in table.columns], table.num_rows)
    _, first = np.unique(codes, return_index=True)
    return table.take(pa.array(np.sort(first)))


def _is_among(rows: pa.Table, others: pa.Table) -> np.ndarray:
    """Return a mask of the rows that equal one of ``others`` in the columns of ``others``."""
    columns: Sequence[str] = others.schema.names
    pairs = [
        pa.concat_arrays(
            [rows[name].combine_chunks(), others[name].combine_chunks().cast(rows[name].type)]
        )
        for name in columns
    ]
    codes = row_codes(pairs, rows.num_rows + others.num_rows)
    return np.isin(codes[: rows.num_rows], codes[rows.num_rows :])
