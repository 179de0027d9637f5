"""One open database: its parts, and the steps that several statements share."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.catalog import (
    Catalog,
    PlainView,
    Relation,
    Sink,
    Stream,
    Table,
    View,
    relation_of_json,
)
from headrace.circuit import own_arrangements, rows_of, shared
from headrace.circuit.digest import digest, is_comparable
from headrace.engine.lowering import table_layout
from headrace.errors import Code, HeadraceError
from headrace.ledger import EpochCommit, Ledger, NewArrangement, NewObject
from headrace.runtime.deliveries import Deliveries, position
from headrace.runtime.fill import Fill
from headrace.runtime.fill import Progress as FillProgress
from headrace.runtime.shares import log_share, snapshot
from headrace.session.functions import Functions
from headrace.session.generated_columns import with_generated_columns
from headrace.session.naming import HIDDEN, SCHEMAS, SYSTEM_SCHEMA
from headrace.session.stopped import refuse_stopped
from headrace.session.system import is_system, system_relations, system_rows
from headrace.sources.log import write_segment
from headrace.types import ArrangementId, Epoch, Offset, RelationId
from headrace.zset import Layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from headrace.engine.engine import Engine
    from headrace.engine.queries import Queries
    from headrace.functions import Function
    from headrace.runtime.epoch import EpochLoop
    from headrace.runtime.pump import Pump
    from headrace.runtime.step import Share


@dataclass(slots=True)
class Instance:
    """The parts of one open database. Statements of all sessions work on it."""

    directory: Path
    ledger: Ledger
    engine: Engine
    queries: Queries
    loop: EpochLoop
    pump: Pump
    layouts: dict[ArrangementId, Layout] = field(default_factory=dict)
    unplanned: set[RelationId] = field(default_factory=set)
    """The views without a circuit, since a function is missing."""
    deliveries: Deliveries = field(default_factory=Deliveries)
    appending: threading.RLock = field(default_factory=threading.RLock)

    @property
    def catalog(self) -> Catalog:
        """The current relations."""
        return self.loop.catalog

    def schemas(self) -> tuple[str, ...]:
        """Return the names of all schemas: those created, and those of existing relations."""
        used = {relation.name.rpartition(".")[0] for relation in self.catalog} - {""}
        return tuple(sorted({*used, *(self.ledger.get(SCHEMAS) or ()), SYSTEM_SCHEMA}))

    # -- opening ---------------------------------------------------------------------------

    def restore(self, functions: Iterable[Function] = ()) -> None:
        """Load the catalog from the ledger into Spark, and drop temporary views.

        Views that lack a function wait for it; views whose function is now given resume.
        """
        records = self.ledger.objects()
        stored = {record.id: dict(record.layout) for record in self.ledger.arrangements()}
        catalog = Catalog.of(relation_of_json(dict(record.definition)) for record in records)
        for described in system_relations():
            self.engine.declare(described)
        for relation in catalog:
            if isinstance(relation, Stream | Table):
                self._announce(relation)
        registry = Functions(self)
        registry.restore(catalog, functions)
        lacking = registry.lacking(catalog)
        for view in catalog.defined_in_order():
            if view.id in lacking:
                self._announce_waiting(view, stored)
                continue
            self._announce(view)
            if isinstance(view, View):
                self._check_stored(view, stored)
        self.loop.catalog = catalog
        for record in records:  # before an epoch is made: their history is released step by step
            if isinstance(catalog.by_id[record.relation], Sink):
                at = position(self.ledger, record.relation)
                self.loop.held[record.relation] = record.created_epoch if at is None else at
        registry.wait(lacking)
        fed = {relation.source for relation in catalog if isinstance(relation, Sink)}
        hidden = [
            view.id
            for view in catalog.views_in_order()
            if view.name.startswith(HIDDEN) and view.id not in fed
        ]
        if hidden:
            self.drop(hidden)
        registry.resume()

    def _announce_waiting(
        self, view: View | PlainView, stored: Mapping[ArrangementId, Any]
    ) -> None:
        """Declare a view whose query cannot be planned; its stored rows can be read."""
        self.engine.declare(view, planned=False)
        self.queries.declare(view, canonical=False)
        if isinstance(view, View):
            self.layouts[rows_of(view.id)] = Layout.of_json(stored[rows_of(view.id)])
        self.unplanned.add(view.id)

    def plan_again(self, view: View | PlainView) -> None:
        """Plan a view again over its present inputs; views that read it are planned afterwards."""
        self.engine.forget(view)
        self._announce(view)
        self.unplanned.discard(view.id)
        if isinstance(view, View):
            records = self.ledger.arrangements()
            self._check_stored(view, {record.id: dict(record.layout) for record in records})

    def _check_stored(self, view: View, stored: Mapping[ArrangementId, object]) -> None:
        """Refuse a view whose state was stored by a circuit other than the planned one."""
        circuit = self.engine.circuit(view)
        planned: dict[ArrangementId, object] = {}
        for node in circuit.stateful():
            planned |= {id_: layout.to_json() for id_, layout in own_arrangements(node).items()}
            planned |= {each.id: each.layout.to_json() for each in shared(node).values()}
        differs = [id_ for id_, layout in planned.items() if stored.get(id_) != layout]
        if not differs and view.circuit in ("", digest(circuit)):
            return
        if view.circuit and not is_comparable(view.circuit):
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'view "{view.name}" was stored by another version of Headrace',
                detail="Whether this version computes it from its stored state is not known.",
                hint="Open the database with that version and DROP the view, then create it again"
                " with this version.",
            )
        raise HeadraceError(
            Code.CORRUPT,
            f'view "{view.name}" is stored in another form than it is planned',
            detail=f"Arrangement {differs[0]} differs." if differs else "Its circuit differs.",
            hint="Open it with the version that created it, or restore a backup.",
        )

    def _announce(self, relation: Relation) -> None:
        self.engine.declare(relation)
        self.queries.declare(relation)
        if isinstance(relation, Table):
            self.layouts[rows_of(relation.id)] = table_layout(relation)
        elif isinstance(relation, View):
            circuit = self.engine.circuit(relation)
            self.layouts[rows_of(relation.id)] = circuit.output.operator.layout

    # -- the catalog -----------------------------------------------------------------------

    def create(
        self, relation: Stream | Table | PlainView | Sink, dropped: tuple[RelationId, ...] = ()
    ) -> Epoch:
        """Create a relation without contents, in place of ``dropped``, in an epoch of its own."""
        dropped = tuple(self._with_sources(dropped))
        with self.loop.lock:
            catalog = self.catalog.without(dropped).with_(relation)
            gone = [self.catalog.by_id[id_] for id_ in dropped]
            arrangements: tuple[NewArrangement, ...] = ()
            if isinstance(relation, Table):
                layout = table_layout(relation)
                arrangements = (NewArrangement(rows_of(relation.id), layout.to_json()),)
            inputs = relation.inputs if isinstance(relation, PlainView | Sink) else ()
            created = NewObject(
                relation.id, relation.name, relation.kind, relation.to_json(), inputs, arrangements
            )
            commit = EpochCommit(
                self.ledger.last_epoch(), f"create-{relation.id}", (), (), (created,), dropped
            )
            if isinstance(relation, Sink):
                epoch = self.ledger.commit(commit)
                self._withdraw(gone)
            else:
                with self._known(relation, gone):  # first: what Spark rejects is not committed
                    epoch = self.ledger.commit(commit)
                self._withdraw(gone)
                if gone:
                    self._announce(relation)  # a withdrawn relation may have had its name
            self.loop.catalog = catalog
            return epoch

    @contextmanager
    def _known(
        self, relation: Stream | Table | PlainView, former: Iterable[Relation]
    ) -> Iterator[None]:
        """Declare a relation in place of others; restore these if the block fails."""
        try:
            self._announce(relation)
            yield
        except BaseException:
            self._withdraw([relation])
            for each in former:
                if each.id in self.unplanned:
                    self.engine.declare(each, planned=False)
                    self.queries.declare(each, canonical=False)
                elif not isinstance(each, Sink):
                    self._announce(each)
            raise

    def create_view(
        self, view: View, progress: FillProgress, dropped: tuple[RelationId, ...] = ()
    ) -> Epoch:
        """Create a view, and fill it from stored rows, in place of ``dropped``."""
        with self.loop.lock:
            for id_ in view.depends_on:
                self.require_running(self.catalog.by_id[id_])
            catalog = self.catalog.without(dropped).with_(view)
            self.settle(self.ledger.log_ends())
            self.engine.declare(view)
            try:
                circuit = self.engine.circuit(view)
                fill = Fill(self.loop, view, self.layouts, progress)
                epoch = fill.run(dropped)
            except BaseException:
                self.engine.forget(view)
                for id_ in dropped:
                    former = self.catalog.by_id[id_]
                    self.engine.declare(former, planned=id_ not in self.unplanned)
                raise
            if dropped:
                self._withdraw([self.catalog.by_id[id_] for id_ in dropped])
                self.engine.declare(view)  # a dropped relation may have had its name
            self.queries.declare(view)
            self.layouts[rows_of(view.id)] = circuit.output.operator.layout
            self.loop.catalog = catalog
        with self.loop.published:
            self.loop.published.notify_all()
        return epoch

    def drop(self, ids: list[RelationId]) -> Epoch:
        """Drop relations together; no other relation may depend on them.

        A hidden view of a dropped sink is dropped too.
        """
        ids = self._with_sources(ids)
        with self.loop.lock:
            catalog = self.catalog.without(ids)
            gone = [self.catalog.by_id[id_] for id_ in ids]
            epoch = self.ledger.commit(
                EpochCommit(self.ledger.last_epoch(), f"drop-{ids[0]}", dropped=tuple(ids))
            )
            self.loop.catalog = catalog
            for relation in gone:
                self.ledger.clear_dirty(relation.id)
            self._withdraw(gone)
            return epoch

    def _with_sources(self, ids: Sequence[RelationId]) -> list[RelationId]:
        """Stop the sinks among relations to drop; return these, with the sinks' hidden views."""
        found = list(ids)
        for sink in [r for r in map(self.catalog.by_id.get, ids) if isinstance(r, Sink)]:
            self.deliveries.forget(sink.id)
            source = self.catalog.by_id[sink.source]
            if source.name.startswith(HIDDEN) and source.id not in found:
                found.append(source.id)
        return found

    def _withdraw(self, relations: list[Relation]) -> None:
        order = {view.id: i for i, view in enumerate(self.catalog.defined_in_order())}
        for relation in sorted(relations, key=lambda r: -order.get(r.id, -1)):
            # A relation that replaced it may have its name.
            self.engine.forget(relation)
            self.queries.forget(relation)
            self.layouts.pop(rows_of(relation.id), None)

    # -- the log ---------------------------------------------------------------------------

    def append(self, relation: Stream | Table, rows: pa.Table, **recorded: object) -> Offset:
        """Append changes durably and wake the pump; return the log's end after them."""
        if relation.declaration.generated:
            with self.appending:
                first = self.ledger.log_end(relation.id)
                return self._append(
                    relation, with_generated_columns(self.queries, relation, rows, first), recorded
                )
        return self._append(relation, rows, recorded)

    def _append(
        self, relation: Stream | Table, rows: pa.Table, recorded: Mapping[str, object]
    ) -> Offset:
        segment = write_segment(self.directory / "log", rows) if rows.num_rows else None
        try:
            end = self.ledger.append(relation.id, segment, **recorded).end  # type: ignore[arg-type]
        except BaseException:
            if segment is not None:
                (self.directory / "log" / segment.name).unlink(missing_ok=True)
            raise
        self.pump.wake()
        return end

    def settle(self, wanted: Mapping[RelationId, Offset] | None = None) -> Epoch:
        """Make epochs until all changes before the wanted offsets (default: all) are read.

        Rows due by now have also entered or left the views.
        """
        now = self.loop.now()
        while True:
            done = self.ledger.positions()
            ends = self.ledger.log_ends() if wanted is None else wanted
            live = self.loop.maintained()
            behind = any(done.get(id_, 0) < end for id_, end in ends.items() if id_ in live)
            if not behind and not self.loop.due(now):
                return self.ledger.last_epoch()
            epoch = self.loop.advance()
            if epoch is not None:
                self.pump.made(epoch)

    def settle_all(self) -> Epoch:
        """Make epochs, and deliver all changes so far to sinks; failing sinks are skipped.

        One sink may write what another reads, so there are as many rounds as there are sinks.
        """
        epoch = self.settle()
        for _ in tuple(self.deliveries.by_sink):
            if not self.deliveries.advance() and not self.loop.pending():
                break
            epoch = self.settle()
        return epoch

    # -- reading ---------------------------------------------------------------------------

    def shares(self, ids: tuple[RelationId, ...], epoch: Epoch) -> dict[RelationId, Share]:
        """Return the contents of relations at an epoch.

        Epochs do not read a stream that no view reads: for such a stream, the whole log is
        returned.
        """
        relations = [self.catalog.by_id[id_] for id_ in sorted(set(ids)) if not is_system(id_)]
        for relation in relations:
            self.require_running(relation, epoch)
        live, done = self.loop.maintained(), self.ledger.positions()
        ends = {
            id_: done.get(id_, Offset(0)) if id_ in live else end
            for id_, end in self.ledger.log_ends().items()
        }
        return snapshot(self.ledger, relations, self.layouts, epoch, ends)

    def gather(self, names: tuple[RelationId, ...]) -> None:
        """Fill the named relations of the information schema, if there are any."""
        asked = [r for r in system_relations() if r.id in names]
        if not asked:
            return
        with self.loop.lock:
            for relation in asked:
                self.queries.provide(relation, system_rows(self, relation))

    def bases(self, view: View | PlainView) -> set[RelationId]:
        """Return the streams and tables that a view reads, directly or through other views."""
        found: set[RelationId] = set()
        for id_ in view.depends_on:
            relation = self.catalog.by_id[id_]
            found |= self.bases(relation) if isinstance(relation, View | PlainView) else {id_}
        return found

    def log_share(self, id_: RelationId, end: Offset) -> Share:
        """Return the part of a relation's log before an offset."""
        return log_share(self.ledger, id_, Offset(0), end)

    def require_running(self, relation: Relation, epoch: Epoch | None = None) -> None:
        """Refuse to read a view that stopped before an epoch (default: the last one)."""
        if relation.id in self.loop.stopped():
            refuse_stopped(self, relation, epoch)
