"""Where a row of a view comes from, and why there is none: its slice, computed step by step.

The slice is filled as for a replay, and nothing is stored. The rows that pass each node are
counted. A row of an input is a *source* of the slice if it meets the slice's condition on that
input, and is among the rows of every node above it that passes its rows on one by one: filters,
joins, windows and first rows, up to the first aggregate.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.catalog import Stream
from headrace.catalyst import plan
from headrace.circuit import (
    Compared,
    First,
    Join,
    Match,
    Output,
    Recompute,
    Source,
    Stateless,
    Temporal,
    inputs,
)
from headrace.circuit.explain import title_of
from headrace.engine.watching import watched_layout
from headrace.errors import Code, HeadraceError
from headrace.log import EmbeddedLog
from headrace.parts.pruning import Pruned
from headrace.runtime.fill import Fill
from headrace.runtime.shares import log_share
from headrace.serving.values import json_value
from headrace.spine import Spine
from headrace.types import ArrangementId, BuildId, Offset
from headrace.zset import WEIGHT, row_codes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.catalog import Relation, View
    from headrace.circuit import Node, Sliced
    from headrace.engine.engine import Engine
    from headrace.ledger import Ledger
    from headrace.parts.reader import Reader
    from headrace.parts.replaying import Replays
    from headrace.runtime.epoch import EpochLoop
    from headrace.runtime.fill import Progress
    from headrace.runtime.published import Published
    from headrace.runtime.step import Report
    from headrace.types import Epoch

MOST_LISTED: Final = 20
"""The sources of each input that are listed."""
MOST_READ: Final = 1_000_000
"""The rows of inputs that may be read to explain a row."""


@dataclass(frozen=True, slots=True)
class Passed:
    """A node of a view's circuit, and how many rows of a slice pass it; None if it is not read."""

    depth: int
    title: str
    rows: int | None


@dataclass(frozen=True, slots=True)
class Sources:
    """The rows of an input that a slice comes from: how many, and the first ones, as text.

    Those of a stream have their offsets. If they are not ``whole``, there may be more.
    """

    name: str
    kind: str
    rows: int
    listed: tuple[str, ...]
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Explained:
    """Where the rows of a slice come from, at an epoch; ``missing`` says why there are none."""

    epoch: Epoch
    rows: int
    passed: tuple[Passed, ...]
    sources: tuple[Sources, ...]
    missing: str


@dataclass(frozen=True, slots=True)
class RowSources:
    """Explains rows of views. Epochs go on meanwhile."""

    reader: Reader
    ledger: Ledger
    engine: Engine
    loop: EpochLoop
    replays: Replays
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(10**9))

    def explain(self, view: View, where: str, progress: Progress) -> Explained:
        """Return where the rows of a view that meet a condition come from.

        Raises:
            HeadraceError: ``invalid`` if the condition is none on the view's columns;
                ``unsupported`` if too many rows of inputs would have to be read.
        """
        self.reader.require_running(view)
        sliced = self.engine.sliced(view, where)
        if sliced.circuit.loops():
            raise HeadraceError(
                Code.UNSUPPORTED, f'rows of "{view.name}" are not explained: it is recursive'
            )
        planned = self.replays.planned(view, sliced)
        if planned.cost > MOST_READ:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f"about {planned.cost:,} rows of inputs would have to be read",
                detail=f"The limit is {MOST_READ:,}. It reads {planned.how}.",
                hint="Name a row by its key; EXPLAIN REPLAY VIEW says why no less is read.",
            )
        nodes = [n for n in sliced.circuit.nodes() if not isinstance(n, Output)]
        names = {node: f"watch {i}" for i, node in enumerate(nodes) if _is_watched(node)}
        counts: Counter[str] = Counter()

        def heard(report: Report) -> None:
            counts[report.operator] += report.rows_out

        known_as = BuildId(-next(self._numbers))
        fill = Fill(
            self.loop,
            view,
            progress,
            clocked=bool(sliced.circuit.temporal()),
            build=known_as,
            lookups=sliced.lookups,
            expects=planned.cost,
            narrowed=Pruned(self.ledger, self.reader.catalog.by_id, sliced).parts,
            heard=heard,
        )
        state = self.loop.published.at_frontier(view)
        self.engine.begin_replay(known_as, sliced, names)
        try:
            fill.begin(state)
            kept = {node: self._kept(fill, name, node) for node, name in names.items()}
        finally:
            fill.abandon()
            self.engine.end_replay(known_as)
        rows = {node: counts[name] for node, name in names.items()}
        return self._explained(state, sliced, rows, kept)

    def _kept(self, fill: Fill, name: str, node: Node) -> pa.Table:
        """Return the rows that were kept of a node, a column for each attribute."""
        layout = watched_layout(node.plan.attributes)
        runs, directory = fill.kept(ArrangementId(name)), self.loop.directory / "runs"
        parts = [part.table for part in Spine.open(directory, layout, runs).scan(1 << 16)]
        return pa.concat_tables([layout.schema.empty_table(), *parts])

    def _explained(
        self,
        state: Published,
        sliced: Sliced,
        rows: dict[Node, int],
        kept: dict[Node, pa.Table],
    ) -> Explained:
        circuit, catalog = sliced.circuit, state.catalog
        unread = _unread(sliced)
        read = {
            node: None if node in unread else rows.get(node)
            for node in circuit.nodes()
            if not isinstance(node, Output)
        }
        top = circuit.output.child
        passed = tuple(self._steps(top, 0, read, state, set()))
        there = {node: int(pc.sum(table[WEIGHT]).as_py() or 0) for node, table in kept.items()}
        whole = all(there[node] == count for node, count in rows.items())
        found_in = (
            self._sources(leaf, catalog.by_id[leaf.plan.relation], state, sliced, kept)
            for leaf in circuit.sources()
        )
        sources = tuple(replace(each, whole=whole) for each in found_in)
        found = rows.get(top, 0)
        missing = "" if found else self._missing(top, read, state, sliced)
        return Explained(state.epoch, found, passed, sources, missing)

    def _steps(
        self,
        node: Node,
        depth: int,
        rows: dict[Any, int | None],
        state: Published,
        seen: set[Node],
    ) -> Iterator[Passed]:
        yield Passed(depth, self._title(node, state), rows.get(node))
        if node not in seen:
            seen.add(node)
            for child in inputs(node):
                yield from self._steps(child, depth + 1, rows, state, seen)

    def _title(self, node: Node, state: Published) -> str:
        return title_of(node, lambda id_: state.catalog.by_id[id_].name)

    def _missing(
        self, node: Node, rows: dict[Any, int | None], state: Published, sliced: Sliced
    ) -> str:
        """Return the first node, from the inputs up, that no row of the slice passes."""
        empty = [child for child in inputs(node) if rows.get(child) == 0]
        if empty:
            return self._missing(empty[0], rows, state, sliced)
        conditions = " AND ".join(c.text for c in sliced.nodes[node])
        if isinstance(node, Source):
            name = state.catalog.by_id[node.plan.relation].name
            return f"{name} has no row where {conditions}" if conditions else f"{name} is empty"
        title = self._title(node, state)
        if isinstance(node, Join | Match):
            return f"no row that comes up to it has a partner: {title}"
        also = f" and {conditions}" if conditions else ""
        return f"rows come up to it, and none passes {title}{also}"

    # -- sources -----------------------------------------------------------------------------

    def _sources(
        self,
        leaf: Source,
        relation: Relation,
        state: Published,
        sliced: Sliced,
        kept: dict[Node, pa.Table],
    ) -> Sources:
        """Return the rows of a leaf that the slice comes from."""
        names = relation.schema.names
        pairs = zip(leaf.plan.attributes, leaf.plan.columns, strict=True)
        columns = {a.id: names[i] for a, i in pairs if i < len(names)}
        among = _passed_on(sliced, leaf, columns, kept)
        if among is None:
            return Sources(relation.name, relation.kind, 0, ())
        if isinstance(relation, Stream):
            found = self._events(leaf, relation, state, sliced, among)
        else:
            found = [(row, "") for row in among.to_pylist()]
        listed = tuple(
            f"{at}{', '.join(f'{k} = {v}' for k, v in json_value(row).items())}"
            for row, at in found[:MOST_LISTED]
        )
        return Sources(relation.name, relation.kind, len(found), listed)

    def _events(
        self,
        leaf: Source,
        stream: Stream,
        state: Published,
        sliced: Sliced,
        among: pa.Table,
    ) -> list[tuple[dict[str, Any], str]]:
        """Return the events of a stream that are among some rows, each with its offset."""
        fields = [stream.schema.arrow.field(name) for name in among.schema.names]
        end = state.positions.get(stream.id, Offset(0))
        share = log_share(self.ledger, stream.id, Offset(0), end)
        pruned = Pruned(self.ledger, self.reader.catalog.by_id, sliced)
        weights: dict[int, int] = defaultdict(int)
        rows: dict[int, dict[str, Any]] = {}
        for part in pruned.parts(stream.id, share):
            for batch in EmbeddedLog().read(
                self.loop.directory / "log",
                part,
                pa.schema(fields),
                offsets=True,
                restriction=sliced.leaves[leaf],
            ):
                table = pa.Table.from_batches([batch])
                for row in table.filter(pa.array(_is_among(table, among))).to_pylist():
                    offset = row.pop("__offset")
                    weights[offset] += row.pop("__weight")
                    rows[offset] = row
        return [(rows[o], f"offset {o}: ") for o in sorted(rows) if weights[o] > 0]


_BY_ROW = (Stateless, Join, Match, Temporal, Compared, Recompute, First)
"""The nodes that may pass rows on one by one."""


def _is_watched(node: Node) -> bool:
    """Whether the rows of a node can be counted: not those between the parts of a join."""
    if not isinstance(node, Join):
        return True
    kind = node.plan.kind
    return node.plan.residual is None or not (kind.keeps_left or kind.keeps_right)


def _passed_on(
    sliced: Sliced, leaf: Source, columns: dict[int, str], kept: dict[Node, pa.Table]
) -> pa.Table | None:
    """Return the rows of a leaf that pass the nodes above it, as far as these pass its columns on.

    Distinct, by name; None if none of its columns is read.
    """
    users: dict[Any, list[Any]] = defaultdict(list)
    for user in sliced.circuit.nodes():
        for child in inputs(user):
            users[child].append(user)
    unread, node, found = _unread(sliced), leaf, None
    while True:
        if node in kept and node not in unread:
            rows = _named(kept[node], node, columns)
            if not rows.schema.names:
                return found
            found = rows if found is None else found.filter(pa.array(_is_among(found, rows)))
        if len(users[node]) != 1 or not isinstance(users[node][0], _BY_ROW):
            return found
        (node,) = users[node]
        if isinstance(node, Stateless) and isinstance(node.plan, plan.Project):
            pairs = zip(node.plan.attributes, node.plan.expressions, strict=True)
            passed = {a.id: columns[e.passes] for a, e in pairs if e.passes in columns}
            columns = {**columns, **passed}


def _unread(sliced: Sliced) -> set[Any]:
    """Return the nodes that pass rows on which joins look up: none of theirs are read."""
    found: set[Any] = set()
    for node in sliced.circuit.nodes():
        looked_up = isinstance(node, Source) and node.plan.relation in sliced.lookups
        if looked_up or (isinstance(node, Stateless) and node.child in found):
            found.add(node)
    return found


def _named(rows: pa.Table, node: Any, columns: dict[int, str]) -> pa.Table:
    """Return the distinct rows of a node in the columns of a leaf that it passes on, by name."""
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
    """Return which rows are, in the columns that others have, equal to one of these."""
    columns: Sequence[str] = others.schema.names
    pairs = [
        pa.concat_arrays(
            [rows[name].combine_chunks(), others[name].combine_chunks().cast(rows[name].type)]
        )
        for name in columns
    ]
    codes = row_codes(pairs, rows.num_rows + others.num_rows)
    return np.isin(codes[: rows.num_rows], codes[rows.num_rows :])
