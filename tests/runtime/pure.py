"""A database without Spark: real ledger, log, runs, epochs, fills, sinks; steps in plain Python.

It has one table by primary key, views that count its rows by group, and views that count the rows of
those by their number. :class:`PureRunner` stands where the engine stands, behind the same protocol, and calls the same operators on the same files.
So what an epoch, a fill, a delivery or a crash does is tested in milliseconds.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import LongType

from headrace.algebra.operators import (
    OFFSET,
    ROWS,
    GroupAggregate,
    Integrate,
    Quarantine,
    StatefulOperator,
    Upsert,
    held_back,
)
from headrace.algebra.spine import (
    PackWriter,
    Spine,
    partition_of,
    ranges,
    sync_directory,
    write_run,
)
from headrace.algebra.zset import HASH, WEIGHT, Layout, ZSet
from headrace.algebra.zset.row_hash import spark_hash
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.builds import create_filled, take_over
from headrace.execution.runtime.compaction import Compaction
from headrace.execution.runtime.deliveries import Delivery
from headrace.execution.runtime.delivery_position import DeliveryPosition
from headrace.execution.runtime.epoch import EpochLoop
from headrace.execution.runtime.fill import Fill
from headrace.execution.runtime.fill_parts import OfSlice
from headrace.execution.runtime.ports import LEAF, RefusedRow, Stepped, StepPlan
from headrace.execution.runtime.published import Publisher
from headrace.execution.runtime.quarantine import Guarded, candidates_of, refusals
from headrace.execution.runtime.refresh import ViewRefresh
from headrace.execution.runtime.replay import Replaced, replace_slice
from headrace.execution.runtime.retirement import Retirement
from headrace.execution.runtime.settings import RuntimeSettings
from headrace.execution.runtime.step import Report, RowsShare, Share, Step
from headrace.execution.runtime.uploads import Uploads
from headrace.execution.serving import Contents, History
from headrace.files.mounts import store_of, upload_by
from headrace.lifecycle.inputs.log import with_correction
from headrace.lifecycle.states.quarantined import quarantined_count, quarantined_rows
from headrace.planning.catalog import (
    CONTINUOUS,
    Catalog,
    RefreshPolicy,
    Sink,
    Stream,
    Table,
    View,
    relation_of_json,
)
from headrace.storage.ledger import (
    Correction,
    EpochCommit,
    Ledger,
    NewArrangement,
    NewObject,
    NewRun,
    RunKind,
)
from headrace.storage.log import (
    AMENDED,
    Admitted,
    Append,
    Appender,
    EmbeddedLog,
    LogShare,
    SegmentWriter,
)
from headrace.types import (
    ArrangementId,
    BuildId,
    Column,
    DirtyId,
    Epoch,
    Offset,
    RelationId,
    Schema,
    quarantine_of,
    rows_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from headrace.execution.runtime.builds import Swap
    from headrace.planning.catalog import Relation

PARTITIONS = 2
BIGINT = pa.int64()
WEIGHTS = pa.schema([pa.field(WEIGHT, BIGINT)])
ROW = pa.schema([pa.field("k", BIGINT), pa.field("g", BIGINT)])
TABLE = Layout(("k",), ROW, WEIGHTS)
GROUPS = Layout(("g",), pa.schema([pa.field("g", BIGINT)]), WEIGHTS)
COUNTS = Layout(("g",), pa.schema([pa.field("g", BIGINT), pa.field("n", BIGINT)]), WEIGHTS)

QUARANTINE = Quarantine(ROW)

QUERIES = {
    "SELECT g, count(*) AS n FROM t GROUP BY g": 0,
    "SELECT g, count(*) AS n FROM t WHERE g >= 1 GROUP BY g": 1,
}
"""The queries of views over the table, each with the first group that it counts."""

EventChange = tuple[int | None, int, int]
"""A change of a stream: the event that it amends, or None if it is one; its number; its weight."""
Change = tuple[int, int, int]
"""A key, its group, and +1 to insert or replace the row or -1 to delete it."""


def hashed(rows: pa.Table, key: str) -> pa.Table:
    """Return the rows with the hash of a BIGINT column in place of any hash they have."""
    hashes = [spark_hash([value], [BIGINT]) for value in rows[key].to_pylist()]
    bare = rows.drop_columns([HASH]) if HASH in rows.schema.names else rows
    return bare.add_column(0, HASH, pa.array(hashes, BIGINT))


@dataclass
class Made:
    """What a step makes: reports, and runs that are all in one pack."""

    pack: PackWriter
    reports: list[Report] = field(default_factory=list)

    @classmethod
    @contextmanager
    def of(cls, step: Step) -> Iterator[Made]:
        """Yield what is empty yet, and sync the pack after a block."""
        with PackWriter(step.runs_directory, step.attempt) as pack:
            yield cls(pack)
            pack.finish()
        sync_directory(step.runs_directory)


@dataclass
class PureRunner:
    """Steps the table and the views that the catalog has, in this thread; see ``StepRunner``."""

    relations: dict[RelationId, Table | View] = field(default_factory=dict)
    failing: set[RelationId] = field(default_factory=set)
    """The views that fail on any change, with ``failure``."""
    failure: Code = Code.INVALID
    filling: dict[BuildId, View] = field(default_factory=dict)
    """The builds of views that are being filled, and that no epoch steps yet."""
    slices: dict[BuildId, frozenset[int]] = field(default_factory=dict)
    """Which groups of a view are replayed, by the id of the replay."""
    poison: frozenset[int] = frozenset()
    """The groups on whose rows the query of a view that quarantines rows fails."""
    trials: int = 0
    """How often such a query has been tried."""
    jobs_wait: bool = False

    def plan_live(
        self,
        changed: frozenset[RelationId],
        without: frozenset[RelationId],
        partitions: int,
        looping: frozenset[RelationId] = frozenset(),
        given: frozenset[RelationId] = frozenset(),
        *,
        few: bool = False,
    ) -> StepPlan:
        """Return what the tables that have changed need, and the views that this reaches."""
        del partitions, looping, few
        kept: dict[ArrangementId, Layout] = {}
        reached = {*changed, *given}
        for relation in sorted(self.relations.values(), key=lambda each: each.id):
            if isinstance(relation, Table):
                if relation.id in changed:
                    kept[rows_of(relation.id)] = TABLE
            elif relation.id not in without | given and reached & {*relation.depends_on}:
                reached.add(relation.id)
                kept |= self._of_view(relation)
        return StepPlan(changed | given, kept, frozenset(), {}, guards=_guards(kept))

    def run_live(
        self,
        step: Step,
        changed: frozenset[RelationId],
        without: frozenset[RelationId],
        looping: frozenset[RelationId] = frozenset(),
        given: frozenset[RelationId] = frozenset(),
    ) -> Stepped:
        """Step the table over its changes, and the views over the deltas of what they read."""
        del looping
        deltas = {
            id_: _stored(step, step.shares[id_], _layout(self.relations[id_])) for id_ in given
        }
        views = [r for r in self.relations.values() if isinstance(r, View)]
        with Made.of(step) as made:
            for id_ in changed:
                log = self._log(step, id_)
                deltas[id_] = self._step(step, Upsert(TABLE), rows_of(id_), log, made)
            for view in sorted(views, key=lambda v: v.id):
                (below,) = view.depends_on
                if below in deltas and view.id not in without | given:
                    if view.id in self.failing:
                        raise HeadraceError(self.failure, f'view "{view.name}" fails')
                    deltas[view.id] = self._view(step, view, deltas[below], made)
        return Stepped(tuple(made.reports), 0 if step.few else 1)

    def unfit(
        self, changed: frozenset[RelationId], without: frozenset[RelationId], *, few: bool
    ) -> Mapping[RelationId, HeadraceError]:
        """Nothing is planned."""
        del changed, without, few
        return {}

    def plan_fill(
        self,
        build: BuildId,
        partitions: int,
        *,
        looping: bool = False,
        ticks: bool = False,
        here: bool = False,
    ) -> StepPlan:
        """Return what filling a view needs."""
        del partitions, looping, ticks, here
        filled = self.filling[build]
        kept = self._of_view(filled)
        reads = frozenset(filled.depends_on)
        return StepPlan(reads, kept, frozenset(), {}, guards=_guards(kept))

    def run_fill(
        self, step: Step, build: BuildId, *, looping: bool = False, ticks: bool = False
    ) -> tuple[Report, ...]:
        """Step a view over a part of the table's rows."""
        del looping, ticks
        filled = self.filling[build]
        with Made.of(step) as made:
            for share in step.shares.values():
                layout = COUNTS if filled.query not in QUERIES else TABLE
                delta = _stored(step, share, layout)
                if build in self.slices:
                    name = "g" if filled.query in QUERIES else "n"
                    whole, delta = delta, _among(delta, name, self.slices[build])
                    rows = whole.num_rows, delta.num_rows, delta.num_rows
                    made.reports.append(Report(f"{LEAF}1", 0, {}, *rows, 0.0))
                self._view(step, filled, delta, made)
        return tuple(made.reports)

    def run_difference(self, step: Step, build: BuildId) -> tuple[Report, ...]:
        """Write by what the groups of a slice differ from what is stored."""
        reports: list[Report] = []
        for id_, stored in step.arrangements.items():
            for partition, (low, high) in enumerate(ranges(step.partitions)):
                parts = []
                for runs, sign in ((stored.runs, -1), (step.recomputed[id_], 1)):
                    spine = Spine.open(step.runs_directory, stored.layout, runs, low, high)
                    for part in spine.scan(1000):
                        rows = ZSet(part.layout, _among(part.table, "g", self.slices[build]))
                        parts.append(rows if sign > 0 else rows.negated())
                change = ZSet.sum_of(stored.layout, parts).consolidated()
                if change.rows:
                    written = {id_: write_run(step.runs_directory, change)}
                    reports.append(Report(str(id_), partition, written, 0, change.rows, 0, 0.0))
        sync_directory(step.runs_directory)
        return tuple(reports)

    def sieve(self, step: Step, build: BuildId, quarantine: ArrangementId) -> Mapping[int, str]:
        """Return the rows of the first poison group: those of others are left to trials."""
        del build
        rows, found = step.arrangements[quarantine], dict[int, str]()
        for part in Spine.open(step.runs_directory, rows.layout, rows.runs).scan(1000):
            for hash_, group in zip(*_lists(part.table, HASH, "g"), strict=True):
                if group == min(self.poison, default=None):
                    found[hash_] = f"group {group} is poison"
        return found

    @staticmethod
    def _of_view(view: View) -> dict[ArrangementId, Layout]:
        kept = {ArrangementId(f"{view.build}/groups"): GROUPS, rows_of(view.id): COUNTS}
        if view.quarantines:
            kept[quarantine_of(view.build, view.depends_on[0])] = QUARANTINE.layouts[0]
        return kept

    @staticmethod
    def _log(step: Step, id_: RelationId) -> pa.Table:
        share = step.shares[id_]
        assert isinstance(share, LogShare)
        found = EmbeddedLog().read(step.log_directory, share, ROW, offsets=True)
        return pa.Table.from_batches(found).select(["k", "g", WEIGHT, OFFSET])

    def _view(self, step: Step, view: View, delta: pa.Table, made: Made) -> pa.Table:
        """Step a view over the delta of what it reads; return its own."""
        groups, operator = ArrangementId(f"{view.build}/groups"), GroupAggregate(GROUPS)
        if view.quarantines:
            delta = self._passed(step, quarantine_of(view.build, view.depends_on[0]), delta, made)
            self.trials += 1
            read = {g for g, w in zip(*_lists(delta, "g", WEIGHT), strict=True) if w > 0}
            if read & self.poison:
                raise HeadraceError(Code.INVALID, f"group {min(read & self.poison)} is poison")
        if view.query in QUERIES:
            delta = delta.select(["g", WEIGHT])
            delta = delta.filter(pc.greater_equal(delta["g"], QUERIES[view.query]))
        else:
            delta = delta.select(["n", WEIGHT]).rename_columns(["g", WEIGHT])
        counted = self._step(step, operator, groups, delta, made)
        rows = counted.select(["g", ROWS, WEIGHT]).rename_columns(["g", "n", WEIGHT])
        return self._step(step, Integrate(COUNTS), rows_of(view.id), rows, made)

    @staticmethod
    def _passed(step: Step, id_: ArrangementId, delta: pa.Table, made: Made) -> pa.Table:
        """Divide the rows of a table between a view and its quarantine, in every partition."""
        guarded, stored = step.guards.get(id_, Guarded()), step.arrangements[id_]
        change, runs = hashed(delta.select(["k", "g", WEIGHT]), "k"), step.runs_directory
        owners = partition_of(change[HASH].to_numpy(), step.partitions)
        passed = [QUARANTINE.rows.schema.empty_table()]
        for partition, (low, high) in enumerate(ranges(step.partitions)):
            own = change.filter(pa.array(owners == partition))
            before = tuple(
                Spine.open(runs, stored.layout, files, low, high)
                for files in (stored.runs, guarded.known)
            )
            taken = QUARANTINE.step((own, refusals(guarded.refused)), before)
            (update,) = taken.updates
            written = {id_: made.pack.write(update)} if update.rows else {}
            output, inserted = held_back(taken.output, guarded.below)
            if guarded.listed and inserted.num_rows:
                rows = ZSet.of(QUARANTINE.rows, inserted)
                written[candidates_of(id_)] = made.pack.write(rows)
            if own.num_rows:
                counts = (own.num_rows, output.num_rows, 0)
                made.reports.append(Report(str(id_), partition, written, *counts, 0.0))
            passed.append(output)
        return pa.concat_tables(passed)

    @staticmethod
    def _step(
        step: Step,
        operator: StatefulOperator,
        id_: ArrangementId,
        change: pa.Table,
        made: Made,
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
            written = {id_: made.pack.write(update)} if update.rows else {}
            counts = (own.num_rows, taken.output.num_rows, before.reads.rows)
            made.reports.append(Report(str(id_), partition, written, *counts, 0.0))
            outputs.append(taken.output)
        empty = operator.step((change.slice(0, 0),), (Spine.open(step.runs_directory, layout, ()),))
        return pa.concat_tables([empty.output, *outputs])


def _guards(kept: Iterable[ArrangementId]) -> frozenset[ArrangementId]:
    return frozenset(id_ for id_ in kept if "/quarantine." in id_)


def _lists(rows: pa.Table, *names: str) -> list[list[int]]:
    return [rows[name].to_pylist() for name in names]


def _among(rows: pa.Table, column: str, groups: frozenset[int]) -> pa.Table:
    return rows.filter(pc.is_in(rows[column], pa.array(sorted(groups), BIGINT)))


def _stored(step: Step, share: Share, layout: Layout) -> pa.Table:
    """Return the rows of a share, with their weights."""
    if isinstance(share, LogShare):
        assert not share.rows
        return layout.schema.empty_table()
    assert isinstance(share, RowsShare)
    spine = Spine.open(step.runs_directory, share.layout, share.runs, share.low, share.high)
    return pa.concat_tables([layout.schema.empty_table(), *(p.table for p in spine.scan(1000))])


@dataclass
class Outside:
    """What a sink wrote to: it survives a crash, and takes each epoch once."""

    epochs: dict[Epoch, Counter[tuple[int, int]]] = field(default_factory=dict)
    guarantee: str = "exactly once"

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        """Store the changes of an epoch; the same epoch again must be the same changes."""
        found: Counter[tuple[int, int]] = Counter()
        for part in parts:
            for row in part.to_pylist():
                found[row["g"], row["n"]] += row[WEIGHT]
        assert self.epochs.setdefault(epoch, found) == found
        return ()

    def durable(self) -> Epoch | None:
        """Return None: the position is the ledger's alone."""
        return None

    def stored(self) -> None:
        """Return None: it cannot be read back."""

    def clear(self) -> None:
        """Forget everything."""
        self.epochs.clear()

    def close(self) -> None:
        """Do nothing."""

    def rows(self) -> Counter[tuple[int, int]]:
        """Return what the changes add up to."""
        total: Counter[tuple[int, int]] = Counter()
        for changes in self.epochs.values():
            total.update(changes)
        return Counter({row: weight for row, weight in total.items() if weight})


@lru_cache(maxsize=256)
def _relation(text: str) -> Relation:
    """Return the relation of a definition as JSON."""
    return relation_of_json(json.loads(text))


def _layout(relation: Relation) -> Layout:
    return TABLE if isinstance(relation, Table) else COUNTS


class PureDatabase:
    """A data directory, opened as a database opens it; ``fault`` is called at every crash point.

    ``clock`` returns the time in Unix seconds. The ``ledger`` may be a file elsewhere, or be open
    already: then the directory may be another one than before, if it is mounted to a store.
    """

    def __init__(
        self,
        directory: Path,
        fault: Callable[[str], None] = lambda _stage: None,
        clock: Callable[[], float] = time.time,
        ledger: Path | Ledger | None = None,
        runner: PureRunner | None = None,
    ) -> None:
        for name in ("log", "runs", "attempts"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.ledger = (
            ledger
            if isinstance(ledger, Ledger)
            else Ledger.open(ledger or directory / "ledger.db", clock=clock, fault=fault)
        )
        self.ledger.acquire()
        self.runner = runner or PureRunner()
        definitions = (r.definition for r in self.ledger.relations.existing())
        catalog = Catalog.of(_relation(json.dumps(dict(each))) for each in definitions)
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
            lambda: round(clock() * 1_000_000),
        )
        for relation in catalog:
            if isinstance(relation, Table | View):
                self.runner.relations[relation.id] = relation
        self.segments = SegmentWriter(directory / "log")
        self.appender = Appender(self.segments, self.ledger)
        store = store_of(directory)
        self.uploads = None if store is None else Uploads(self.ledger, store)
        without_uploads = nullcontext
        if self.uploads is not None:
            upload_by(directory, self.uploads)
            without_uploads = self.uploads.paused
        self.compaction = Compaction(
            self.loop,
            Retirement(self.loop),
            self.segments.close_pack,
            without_uploads=without_uploads,
        )
        self.compaction.sweep_strays()

    def create_table(self, name: str = "t") -> Table:
        """Create a table."""
        id_ = self.ledger.ids.relation()
        columns = (Column("k", LongType(), nullable=False), Column("g", LongType()))
        table = Table(id_, name, Schema(columns), ("k",))
        kept = (NewArrangement(rows_of(id_), TABLE.to_json()),)
        self._commit(NewObject(id_, table.name, table.kind, table.to_json(), (), kept))
        self.runner.relations[id_] = table
        self._publish(table)
        return table

    def create_stream(self, name: str = "s") -> Stream:
        """Create a stream that no view reads, whose events have a number ``n``."""
        id_ = self.ledger.ids.relation()
        stream = Stream(id_, name, Schema((Column("n", LongType()),)), corrected=True)
        self._commit(NewObject(id_, stream.name, stream.kind, stream.to_json()))
        self._publish(stream)
        return stream

    def create_view(
        self,
        name: str,
        over: Table | View,
        refresh: RefreshPolicy = CONTINUOUS,
        *,
        quarantines: bool = False,
    ) -> View:
        """Create a view that counts rows by group, filled from what is stored.

        Over a view, the groups are its counts.
        """
        fill = self.begin_view(name, over, refresh=refresh, quarantines=quarantines)
        return self.finish_view(fill)

    def refresh(self, *views: View) -> Epoch:
        """Have views that lag behind read everything up to now."""
        known = self.loop.catalog.by_id
        with self.loop.refreshing:
            current = tuple(v for v in map(known.get, (v.id for v in views)) if isinstance(v, View))
            return ViewRefresh(self.loop, current).run()

    def begin_view(
        self,
        name: str,
        over: Table | View,
        former: View | None = None,
        refresh: RefreshPolicy = CONTINUOUS,
        *,
        quarantines: bool = False,
    ) -> Fill:
        """Begin to fill a view of what is stored now; epochs may be made before it is finished.

        With a former view, that one's query is to be replaced by the other.
        """
        build = self.ledger.ids.build()
        columns = (Column("g", LongType()), Column("n", LongType(), nullable=False))
        unused = [query for query in QUERIES if former is None or query != former.query]
        query = unused[0] if isinstance(over, Table) else "SELECT n AS g, count(*) AS n FROM v ..."
        id_, replacement = (RelationId(build), None) if former is None else (former.id, build)
        schema = Schema(columns)
        view = View(
            id_,
            name,
            schema,
            query,
            (over.id,),
            key=("g",),
            replacement=replacement,
            refresh=refresh if former is None else former.refresh,
            quarantines=quarantines if former is None else former.quarantines,
        )
        self.runner.filling[view.build] = view
        fill = Fill(self.loop, view, lambda _done, _total: None)
        fill.begin(self.loop.published.current)
        return fill

    def finish_view(
        self, fill: Fill, former: View | None = None, cleaned: tuple[DirtyId, ...] = ()
    ) -> View:
        """Read what has changed meanwhile, and commit the view; dirty entries are cleaned."""
        with self.loop.holding([fill.view.id, *fill.view.depends_on]):
            fill.catch_up(self.loop.published.current)
            if former is not None:
                return self.take_over(fill, former, cleaned)
            return self._filled(fill, create_filled(fill))

    def take_over(
        self, fill: Fill, former: View, cleaned: tuple[DirtyId, ...] = (), *, stays: bool = False
    ) -> View:
        """Commit a build in place of a former one, with what has been read."""
        with self.loop.holding([fill.view.id, *fill.view.depends_on]):
            return self._filled(fill, take_over(fill, former.build, cleaned, stays=stays))

    def _filled(self, fill: Fill, filled: Swap) -> View:
        with self.loop.lock:
            filled.commit()
            self.runner.relations[fill.view.id] = self.runner.filling.pop(fill.view.build)
            self._publish(fill.view)
        return fill.view

    def _publish(self, relation: Relation | Sink) -> None:
        before = self.loop.published.current
        new = (
            {} if isinstance(relation, Sink | Stream) else {rows_of(relation.id): _layout(relation)}
        )
        self.loop.published.publish(before.catalog.with_(relation), {**before.layouts, **new})

    def begin_replay(self, view: View, groups: Iterable[int]) -> Fill:
        """Begin to recompute groups of a view, as other views would be filled."""
        replay = BuildId(-view.build)
        self.runner.filling[replay] = view
        self.runner.slices[replay] = frozenset(groups)
        fill = Fill(
            self.loop,
            view,
            lambda _done, _total: None,
            of_slice=OfSlice(replay),
        )
        if view.id not in self.loop.published.current.lagging:
            fill.begin(self.loop.published.current)
        return fill

    def finish_replay(self, fill: Fill, cleaned: tuple[DirtyId, ...] = ()) -> Replaced:
        """Read what has changed meanwhile, and replace what is stored of the groups."""
        lags = fill.view.id in self.loop.published.current.lagging
        with self.loop.refreshing, self.loop.holding([fill.view.id]):
            if lags:
                fill.begin(self.loop.published.at_frontier(fill.view))
            else:
                fill.catch_up(self.loop.published.current)
            done = replace_slice(fill, BuildId(-fill.view.build), cleaned, lags=lags)
        fill.attempt.abandon()
        return done

    def damage(self, view: View, group: int) -> None:
        """Have the view count a row too many in a group, in its state, its rows, and above.

        That is what a defect of an operator leaves.
        """
        n = next((n for g, n in self.rows(view.id) if g == group), 0)
        state = pa.table({"g": [group], WEIGHT: [1]})
        old = [{"g": group, "n": n, WEIGHT: -1}] if n else []
        new = [{"g": group, "n": n + 1, WEIGHT: 1}]
        runs = []
        for id_, layout, rows in (
            (ArrangementId(f"{view.build}/groups"), GROUPS, state),
            (rows_of(view.id), COUNTS, pa.Table.from_pylist([*old, *new])),
        ):
            given = ZSet.of(layout, hashed(rows, "g")).consolidated()
            for low, high in ranges(PARTITIONS):
                part = given.filter((given.hashes >= low) & (given.hashes <= high))
                if part.rows:
                    file = write_run(self.directory / "runs", part)
                    runs.append(NewRun(file, id_, RunKind.DELTA))
        with self.loop.exclusive():
            delta = tuple(run.file for run in runs if run.arrangement == rows_of(view.id))
            above = self.loop.follow({view.id: delta}, self.ledger.epochs.clock())
            last = self.ledger.head.epoch
            followed = above.new_runs(RunKind.DELTA)
            self.ledger.commit(EpochCommit(last, f"damage-{last}", runs=(*runs, *followed)))

    def drop(self, view: View) -> None:
        """Drop a view that nothing reads."""
        last = self.ledger.head.epoch
        self.ledger.commit(EpochCommit(last, f"drop-{view.name}", dropped=(view.id,)))
        del self.runner.relations[view.id]
        self.loop.published.publish(self.loop.catalog.without([view.id]))

    def create_sink(self, view: View) -> Sink:
        """Create a sink of a view."""
        id_ = self.ledger.ids.relation()
        sink = Sink(id_, f"of_{view.name}", view.schema, view.id)
        self._commit(NewObject(id_, sink.name, sink.kind, sink.to_json(), sink.inputs))
        self._publish(sink)
        return sink

    def delivery(self, sink: Sink, outside: Outside) -> Delivery:
        """Return the delivery of a sink, from its stored position on."""
        record = self.ledger.deliveries.all()[sink.id]
        return Delivery(
            self.loop, DeliveryPosition(self.loop, record), self.history(sink.source), outside
        )

    def append(self, table: Table, changes: Iterable[Change]) -> Offset:
        """Append changes durably; return the log's end after them."""
        given = list(changes)
        columns = [[c[0] for c in given], [c[1] for c in given], [c[2] for c in given]]
        names = ["k", "g", WEIGHT]
        rows = pa.table([pa.array(column, BIGINT) for column in columns], names=names)
        return self.appender.append(Append(table.id, rows)).end

    def append_events(self, stream: Stream, changes: Iterable[EventChange]) -> Offset:
        """Append events to a stream, or one correction of events; return the log's end then."""
        given = list(changes)
        names = [AMENDED, "n", WEIGHT]
        columns = zip(names, zip(*given, strict=True), strict=True)
        rows = pa.table({name: pa.array(column, BIGINT) for name, column in columns})
        amended = [event for event, _, _ in given if event is not None]
        if not amended:
            return self.appender.append(Append(stream.id, rows.select(["n"]))).end
        rows = rows.select(["n", WEIGHT, AMENDED])

        def numbered(first: Offset) -> Admitted:
            return Admitted(with_correction(rows, first))

        correction = Correction(len({*amended}), first=Offset(min(amended)))
        asked = Append(stream.id, rows, placed=numbered, correction=correction)
        return self.appender.append(asked).end

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

    def quarantined(self, view: View) -> Counter[tuple[int, int]]:
        """Return the rows of the table that a view has in quarantine."""
        found: Counter[tuple[int, int]] = Counter()
        state = self.loop.published.current
        for row in quarantined_rows(self.ledger, self.directory, state, view):
            assert "is poison" in row.error
            found[row.row["k"], row.row["g"]] += row.copies
        count = quarantined_count(self.ledger, self.directory, state, view)
        assert count == sum(found.values())
        return found

    def by_key(self, id_: RelationId, key: int) -> Counter[tuple[int, ...]]:
        """Return the rows of one key at the last epoch, by a lookup."""
        found = self.contents(id_).by_key([key])
        return Counter(zip(*(column.to_pylist() for column in found.columns), strict=True))

    def changelog(self, id_: RelationId, after: Epoch) -> Counter[tuple[int, ...]]:
        """Return the sum of a relation's deltas since an epoch."""
        total: Counter[tuple[int, ...]] = Counter()
        for _, delta in self.history(id_).changes(after, self.ledger.head.epoch):
            columns = [delta.table[name].to_pylist() for name in delta.layout.columns.names]
            for row, weight in zip(zip(*columns, strict=True), delta.weights, strict=True):
                total[row] += int(np.int64(weight))
        return total

    def close(self) -> None:
        """Release the ledger, as the end of a process does."""
        self.segments.close()
        self.ledger.close()

    def _commit(self, created: NewObject) -> None:
        commit = EpochCommit(self.ledger.head.epoch, f"create-{created.name}", created=(created,))
        self.ledger.commit(commit)
