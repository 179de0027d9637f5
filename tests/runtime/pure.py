"""A database without Spark: real ledger, log, runs, epochs, fills, sinks; steps in plain Python.

It has one table by primary key and views that count its rows by group. :class:`PureRunner` stands
where the engine stands, behind the same protocol, and calls the same operators on the same files.
So what an epoch, a fill, a delivery or a crash does is tested in milliseconds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql.types import LongType

from headrace.catalog import Catalog, Sink, Table, View, relation_of_json
from headrace.circuit import rows_of
from headrace.ledger import EpochCommit, Ledger, NewArrangement, NewObject
from headrace.log import Append, Appender, EmbeddedLog, LogShare, SegmentWriter
from headrace.operators import OFFSET, ROWS, GroupAggregate, Integrate, StatefulOperator, Upsert
from headrace.runtime.compaction import Compaction
from headrace.runtime.deliveries import Delivery
from headrace.runtime.epoch import EpochLoop
from headrace.runtime.fill import Fill
from headrace.runtime.ports import StepPlan
from headrace.runtime.published import Publisher
from headrace.runtime.settings import RuntimeSettings
from headrace.runtime.step import Report, RowsShare, Share, Step
from headrace.serving import Contents, History
from headrace.serving.keys import spark_hash
from headrace.spine import Spine, partition_of, ranges, sync_directory, write_run
from headrace.types import ArrangementId, Column, Epoch, Offset, RelationId, Schema
from headrace.zset import HASH, WEIGHT, Layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from headrace.catalog import Relation

PARTITIONS = 2
BIGINT = pa.int64()
WEIGHTS = pa.schema([pa.field(WEIGHT, BIGINT)])
ROW = pa.schema([pa.field("k", BIGINT), pa.field("g", BIGINT)])
TABLE = Layout(("k",), ROW, WEIGHTS)
GROUPS = Layout(("g",), pa.schema([pa.field("g", BIGINT)]), WEIGHTS)
COUNTS = Layout(("g",), pa.schema([pa.field("g", BIGINT), pa.field("n", BIGINT)]), WEIGHTS)

Change = tuple[int, int, int]
"""A key, its group, and +1 to insert or replace the row or -1 to delete it."""


def hashed(rows: pa.Table, key: str) -> pa.Table:
    """Return the rows with the hash of a BIGINT column in place of any hash they have."""
    hashes = [spark_hash([value], [BIGINT]) for value in rows[key].to_pylist()]
    bare = rows.drop_columns([HASH]) if HASH in rows.schema.names else rows
    return bare.add_column(0, HASH, pa.array(hashes, BIGINT))


@dataclass
class PureRunner:
    """Steps the table and the views that the catalog has, in this thread; see ``StepRunner``."""

    relations: dict[RelationId, Table | View] = field(default_factory=dict)
    filling: dict[RelationId, View] = field(default_factory=dict)
    """The views that are being filled, and that no epoch steps yet."""

    def plan_live(
        self,
        changed: frozenset[RelationId],
        without: frozenset[RelationId],
        partitions: int,
        looping: frozenset[RelationId] = frozenset(),
    ) -> StepPlan:
        """Return what the table and the views need."""
        del partitions, looping
        kept: dict[ArrangementId, Layout] = {}
        for relation in self.relations.values():
            if isinstance(relation, Table):
                kept[rows_of(relation.id)] = TABLE
            elif relation.id not in without:
                kept |= self._of_view(relation)
        return StepPlan(changed, kept, frozenset(), {})

    def run_live(
        self,
        step: Step,
        changed: frozenset[RelationId],
        without: frozenset[RelationId],
        looping: frozenset[RelationId] = frozenset(),
    ) -> tuple[Report, ...]:
        """Step the table over its changes, and the views over the table's delta."""
        del looping
        reports: list[Report] = []
        for id_ in changed:
            delta = self._step(step, Upsert(TABLE), rows_of(id_), self._log(step, id_), reports)
            for view in self.relations.values():
                if isinstance(view, View) and view.id not in without and id_ in view.depends_on:
                    self._view(step, view, delta, reports)
        sync_directory(step.runs_directory)
        return tuple(reports)

    def temporal(self) -> Mapping[RelationId, Mapping[ArrangementId, Layout]]:
        """No view is over the clock."""
        return {}

    def plan_fill(
        self, view: RelationId, partitions: int, *, looping: bool = False, ticks: bool = False
    ) -> StepPlan:
        """Return what filling a view needs."""
        del partitions, looping, ticks
        filled = self.filling.get(view) or self.relations[view]
        assert isinstance(filled, View)
        return StepPlan(frozenset(filled.depends_on), self._of_view(filled), frozenset(), {})

    def run_fill(
        self, step: Step, view: RelationId, *, looping: bool = False, ticks: bool = False
    ) -> tuple[Report, ...]:
        """Step a view over a part of the table's rows."""
        del looping, ticks
        filled, reports = self.filling.get(view) or self.relations[view], []
        assert isinstance(filled, View)
        for share in step.shares.values():
            self._view(step, filled, _stored(step, share), reports)
        sync_directory(step.runs_directory)
        return tuple(reports)

    @staticmethod
    def _of_view(view: View) -> dict[ArrangementId, Layout]:
        return {ArrangementId(f"{view.id}/groups"): GROUPS, rows_of(view.id): COUNTS}

    @staticmethod
    def _log(step: Step, id_: RelationId) -> pa.Table:
        share = step.shares[id_]
        assert isinstance(share, LogShare)
        found = EmbeddedLog().read(step.log_directory, share, ("k", "g"), offsets=True)
        return pa.Table.from_batches(found).select(["k", "g", WEIGHT, OFFSET])

    def _view(self, step: Step, view: View, delta: pa.Table, reports: list[Report]) -> None:
        groups, operator = ArrangementId(f"{view.id}/groups"), GroupAggregate(GROUPS)
        counted = self._step(step, operator, groups, delta.select(["g", WEIGHT]), reports)
        rows = counted.select(["g", ROWS, WEIGHT]).rename_columns(["g", "n", WEIGHT])
        self._step(step, Integrate(COUNTS), rows_of(view.id), rows, reports)

    @staticmethod
    def _step(
        step: Step,
        operator: StatefulOperator,
        id_: ArrangementId,
        change: pa.Table,
        reports: list[Report],
    ) -> pa.Table:
        """Step an operator in every partition that has changes; return its output."""
        layout = step.arrangements[id_].layout
        change = hashed(change, layout.key[0])
        owners = partition_of(change[HASH].to_numpy(), step.partitions)
        outputs = []
        for partition, (low, high) in enumerate(ranges(step.partitions)):
            own = change.filter(pa.array(owners == partition))
            if not own.num_rows:
                continue
            runs = step.arrangements[id_].runs
            before = Spine.open(step.runs_directory, layout, runs, low, high)
            taken = operator.step((own,), (before,))
            (update,) = taken.updates
            written = {id_: write_run(step.runs_directory, update)} if update.rows else {}
            counts = (own.num_rows, taken.output.num_rows, before.reads.rows)
            reports.append(Report(str(id_), partition, written, *counts, 0.0))
            outputs.append(taken.output)
        empty = operator.step((change.slice(0, 0),), (Spine.open(step.runs_directory, layout, ()),))
        return pa.concat_tables([empty.output, *outputs])


def _stored(step: Step, share: Share) -> pa.Table:
    """Return the rows of a share, with their weights."""
    if isinstance(share, LogShare):
        assert not share.rows
        return TABLE.schema.empty_table()
    assert isinstance(share, RowsShare)
    spine = Spine.open(step.runs_directory, share.layout, share.runs, share.low, share.high)
    return pa.concat_tables([TABLE.schema.empty_table(), *(p.table for p in spine.scan(1000))])


@dataclass
class Outside:
    """What a sink wrote to: it survives a crash, and takes each epoch once."""

    epochs: dict[Epoch, Counter[tuple[int, int]]] = field(default_factory=dict)
    guarantee: str = "exactly once"

    def write(self, epoch: Epoch, changes: pa.Table) -> None:
        """Store the changes of an epoch; the same epoch again must be the same changes."""
        found: Counter[tuple[int, int]] = Counter()
        for row in changes.to_pylist():
            found[row["g"], row["n"]] += row[WEIGHT]
        assert self.epochs.setdefault(epoch, found) == found

    def rows(self) -> Counter[tuple[int, int]]:
        """Return what the changes add up to."""
        total: Counter[tuple[int, int]] = Counter()
        for changes in self.epochs.values():
            total.update(changes)
        return Counter({row: weight for row, weight in total.items() if weight})


def _layout(relation: Relation) -> Layout:
    return TABLE if isinstance(relation, Table) else COUNTS


class PureDatabase:
    """A data directory, opened as a database opens it; ``fault`` is called at every crash point."""

    def __init__(self, directory: Path, fault: Callable[[str], None] = lambda _stage: None) -> None:
        for name in ("log", "runs", "attempts"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.ledger = Ledger.open(directory / "ledger.db", fault=fault)
        self.ledger.acquire()
        self.runner = PureRunner()
        catalog = Catalog.of(relation_of_json(dict(r.definition)) for r in self.ledger.objects())
        layouts = {rows_of(r.id): _layout(r) for r in catalog if isinstance(r, Table | View)}
        settings = RuntimeSettings(epoch_rows=8, small_rows=4, fill_rows=3, history_epochs=4)
        self.loop = EpochLoop(
            directory,
            self.ledger,
            self.runner,
            settings,
            PARTITIONS,
            Publisher.of(self.ledger, catalog, layouts),
            fault,
        )
        for relation in catalog:
            if isinstance(relation, Table | View):
                self.runner.relations[relation.id] = relation
        self.segments = SegmentWriter(directory / "log")
        self.appender = Appender(self.segments, self.ledger)
        self.compaction = Compaction(self.loop, self.segments.close_pack)
        self.compaction.sweep_strays()

    def create_table(self) -> Table:
        """Create the table."""
        id_ = self.ledger.reserve_relation()
        columns = (Column("k", LongType(), nullable=False), Column("g", LongType()))
        table = Table(id_, "t", Schema(columns), ("k",))
        kept = (NewArrangement(rows_of(id_), TABLE.to_json()),)
        self._commit(NewObject(id_, table.name, table.kind, table.to_json(), (), kept))
        self.runner.relations[id_] = table
        self._publish(table)
        return table

    def create_view(self, name: str, over: Table) -> View:
        """Create a view that counts the table's rows by group, filled from what is stored."""
        fill = self.begin_view(name, over)
        return self.finish_view(fill)

    def begin_view(self, name: str, over: Table) -> Fill:
        """Begin to fill a view of what is stored now; epochs may be made before it is finished."""
        id_ = self.ledger.reserve_relation()
        columns = (Column("g", LongType()), Column("n", LongType(), nullable=False))
        query = "SELECT g, count(*) AS n FROM t GROUP BY g"
        view = View(id_, name, Schema(columns), query, (over.id,), key=("g",))
        self.runner.filling[id_] = view
        fill = Fill(self.loop, view, lambda _done, _total: None)
        fill.begin(self.loop.published.current)
        return fill

    def finish_view(self, fill: Fill) -> View:
        """Read what has changed meanwhile, and commit the view."""
        view = fill.view
        with self.loop.exclusive():
            fill.catch_up(self.loop.published.current)
            fill.commit()
            self.runner.relations[view.id] = self.runner.filling.pop(view.id)
            self._publish(view)
        return view

    def _publish(self, relation: Table | View | Sink) -> None:
        before = self.loop.published.current
        new = {} if isinstance(relation, Sink) else {rows_of(relation.id): _layout(relation)}
        self.loop.published.publish(before.catalog.with_(relation), {**before.layouts, **new})

    def create_sink(self, view: View) -> Sink:
        """Create a sink of a view."""
        id_ = self.ledger.reserve_relation()
        sink = Sink(id_, f"of_{view.name}", view.schema, view.id)
        self._commit(NewObject(id_, sink.name, sink.kind, sink.to_json(), sink.inputs))
        self._publish(sink)
        return sink

    def delivery(self, sink: Sink, outside: Outside) -> Delivery:
        """Return the delivery of a sink, from its stored position on."""
        (record,) = [r for r in self.ledger.objects() if r.relation == sink.id]
        changelog = self.history(sink.source)
        return Delivery(self.loop, sink.id, record.created_epoch, changelog, outside)

    def append(self, table: Table, changes: Iterable[Change]) -> Offset:
        """Append changes durably; return the log's end after them."""
        given = list(changes)
        columns = [[c[0] for c in given], [c[1] for c in given], [c[2] for c in given]]
        names = ["k", "g", WEIGHT]
        rows = pa.table([pa.array(column, BIGINT) for column in columns], names=names)
        return self.appender.append(Append(table.id, rows)).end

    def contents(self, id_: RelationId) -> Contents:
        """Return the contents of a relation in the published state."""
        state = self.loop.published.current
        return Contents.of(self.directory, state, state.catalog.by_id[id_])

    def history(self, id_: RelationId) -> History:
        """Return the history of a relation."""
        layout = _layout(self.loop.catalog.by_id[id_])
        return History(self.ledger, self.directory, rows_of(id_), layout)

    def rows(self, id_: RelationId, epoch: Epoch | None = None) -> Counter[tuple[int, ...]]:
        """Return a relation's rows at an epoch, by default the last one."""
        found = self.contents(id_).whole() if epoch is None else self.history(id_).whole(epoch)
        return Counter(zip(*(column.to_pylist() for column in found.columns), strict=True))

    def by_key(self, id_: RelationId, key: int) -> Counter[tuple[int, ...]]:
        """Return the rows of one key at the last epoch, by a lookup."""
        found = self.contents(id_).by_key([key])
        return Counter(zip(*(column.to_pylist() for column in found.columns), strict=True))

    def changelog(self, id_: RelationId, after: Epoch) -> Counter[tuple[int, ...]]:
        """Return the sum of a relation's deltas since an epoch."""
        total: Counter[tuple[int, ...]] = Counter()
        for _, delta in self.history(id_).changes(after, self.ledger.last_epoch()):
            columns = [delta.table[name].to_pylist() for name in delta.layout.columns.names]
            for row, weight in zip(zip(*columns, strict=True), delta.weights, strict=True):
                total[row] += int(np.int64(weight))
        return total

    def close(self) -> None:
        """Release the ledger, as the end of a process does."""
        self.segments.close()
        self.ledger.close()

    def _commit(self, created: NewObject) -> None:
        commit = EpochCommit(self.ledger.last_epoch(), f"create-{created.name}", created=(created,))
        self.ledger.commit(commit)
