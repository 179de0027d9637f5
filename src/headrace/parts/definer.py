"""Relations: declared to Spark, created, filled and dropped, each change published at once."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog import PlainView, Relation, Sink, Stream, Table, View
from headrace.circuit import own_arrangements, rows_of, shared
from headrace.circuit.digest import digest, is_comparable
from headrace.engine.lowering import table_layout
from headrace.errors import Code, HeadraceError
from headrace.ledger import EpochCommit, NewArrangement, NewObject
from headrace.parts.naming import HIDDEN
from headrace.runtime.fill import Fill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from headrace.catalog import Catalog
    from headrace.circuit import Circuit
    from headrace.parts.instance import Instance
    from headrace.runtime.fill import Progress as FillProgress
    from headrace.types import ArrangementId, Epoch, RelationId
    from headrace.zset import Layout


@dataclass(frozen=True, slots=True)
class Relations:
    """The relations of one instance."""

    instance: Instance

    def announce(self, relation: Relation) -> None:
        """Declare a relation to Spark, for views and for queries."""
        self.instance.engine.declare(relation)
        self.instance.queries.declare(relation)

    def announce_waiting(self, view: View | PlainView) -> None:
        """Declare a view whose query cannot be planned; its stored rows can be read."""
        self.instance.engine.declare(view, planned=False)
        self.instance.queries.declare(view, canonical=False)
        self.instance.unplanned.add(view.id)

    def plan_again(self, view: View | PlainView) -> None:
        """Plan a view again over its present inputs; views that read it are planned afterwards."""
        self.instance.engine.forget(view)
        self.announce(view)
        self.instance.unplanned.discard(view.id)
        if isinstance(view, View):
            records = self.instance.ledger.arrangements()
            self.check_stored(view, {record.id: dict(record.layout) for record in records})

    def check_stored(self, view: View, stored: Mapping[ArrangementId, object]) -> None:
        """Refuse a view whose state was stored by a circuit other than the planned one."""
        circuit = self.instance.engine.circuit(view)
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

    # -- changes of the catalog --------------------------------------------------------------

    def create(
        self, relation: Stream | Table | PlainView | Sink, dropped: tuple[RelationId, ...] = ()
    ) -> Epoch:
        """Create a relation without contents, in place of ``dropped``, in an epoch of its own."""
        instance, dropped = self.instance, tuple(self._with_sources(dropped))
        with instance.loop.exclusive(), instance.engine.planning:
            gone = self._live(dropped)
            if isinstance(relation, PlainView | Sink):
                self._live(relation.inputs)
            catalog = instance.catalog.without(dropped).with_(relation)
            layouts: dict[ArrangementId, Layout] = {}
            if isinstance(relation, Table):
                layouts = {rows_of(relation.id): table_layout(relation)}
            arrangements = tuple(NewArrangement(i, a.to_json()) for i, a in layouts.items())
            inputs = relation.inputs if isinstance(relation, PlainView | Sink) else ()
            created = NewObject(
                relation.id, relation.name, relation.kind, relation.to_json(), inputs, arrangements
            )
            commit = EpochCommit(
                instance.ledger.last_epoch(),
                f"create-{relation.id}",
                (),
                (),
                (created,),
                dropped,
            )
            if isinstance(relation, Sink):
                epoch = instance.ledger.commit(commit)
                self._withdraw(gone)
            else:
                with self._known(relation, gone):  # first: what Spark rejects is not committed
                    epoch = instance.ledger.commit(commit)
                self._withdraw(gone)
                if gone:
                    self.announce(relation)  # a withdrawn relation may have had its name
            self._publish(catalog, layouts)
            return epoch

    def create_view(
        self, view: View, progress: FillProgress, dropped: tuple[RelationId, ...] = ()
    ) -> Epoch:
        """Create a view, and fill it from stored rows, in place of ``dropped``."""
        instance = self.instance

        def join(fill: Fill, circuit: Circuit) -> Epoch:
            catalog = instance.catalog.without(dropped).with_(view)
            gone = self._live(dropped)
            epoch = fill.commit(dropped)
            self._withdraw(gone)
            self.announce(view)
            self._publish(catalog, {rows_of(view.id): circuit.output.operator.layout})
            return epoch

        return self._fill(view, progress, join)

    def replace_view(self, former: View, view: View, progress: FillProgress) -> Epoch:
        """Replace the query of a view: what reads it follows the difference, in the same epoch."""
        instance = self.instance

        def join(fill: Fill, _circuit: Circuit) -> Epoch:
            self._live([former.id], {former.id: former})
            catalog = instance.catalog.with_(view)
            epoch = fill.take_over(former.build)
            self.announce(view)
            for above in catalog.dependants(view.id):
                if not isinstance(above, Sink) and above.id not in instance.unplanned:
                    instance.queries.declare(above)  # its text names the view
            self._publish(catalog, {})
            return epoch

        return self._fill(view, progress, join)

    def differing(self, former: View, view: View) -> str | None:
        """Return why the contents of a view cannot be kept with another query; None if they can."""
        before, after = former.schema.columns, view.schema.columns
        if len(before) != len(after):
            return f"it would have {len(after)} columns instead of {len(before)}"
        for old, new in zip(before, after, strict=True):
            if (old.name, old.type) != (new.name, new.type):
                shown = f"{new.name} {new.type.simpleString()}"
                return f"it would have {shown} instead of {old.name} {old.type.simpleString()}"
            if old.nullable != new.nullable:
                return f'its column "{new.name}" {"may" if new.nullable else "could not"} be NULL'
        layout = self.instance.engine.circuit(view).output.operator.layout
        stored = self.instance.published.layout(former)
        if (former.key, stored) == (view.key, layout):
            return None
        keys = [f"({', '.join(key)})" if key else "unknown" for key in (view.key, former.key)]
        return f"its key would be {keys[0]} instead of {keys[1]}"

    def _fill(
        self, view: View, progress: FillProgress, join: Callable[[Fill, Circuit], Epoch]
    ) -> Epoch:
        """Fill a build of a view, and have it join the epochs; return the epoch in which it does.

        Epochs and other fills go on meanwhile: the lock is held for the last changes only, and for
        ``join``. A view that has recursions is filled with the lock.
        """
        instance = self.instance
        for relation in self._live(view.depends_on):
            instance.reader.require_running(relation)
        inputs = {relation.id: relation for relation in self._live(view.inputs)}
        circuit = instance.engine.begin_fill(view)
        fill = Fill(instance.loop, view, progress, clocked=bool(circuit.temporal()))
        alone = bool(circuit.loops())
        try:
            if not alone:
                fill.begin(instance.reader.settled(view.depends_on))
                while fill.catch_up(instance.published) > instance.loop.settings.small_rows:
                    pass
            with instance.loop.exclusive():
                for relation in self._live(inputs, inputs):
                    instance.reader.require_running(relation)
                if alone:
                    fill.begin(instance.pump.settle(), instance.loop.quiet_clock())
                else:
                    state = instance.pump.settle(fill.ends, frozenset())
                    fill.catch_up(state, instance.loop.quiet_clock())
                with instance.engine.planning:
                    return join(fill, circuit)
        except BaseException as error:
            fill.abandon()
            if isinstance(error, HeadraceError):
                self._live(inputs, inputs)  # if one is gone, that is why
            raise
        finally:
            instance.engine.end_fill(view)

    def drop(self, ids: list[RelationId]) -> Epoch:
        """Drop relations together; no other relation may depend on them.

        A hidden view of a dropped sink is dropped too.
        """
        instance, ids = self.instance, self._with_sources(ids)
        with instance.loop.exclusive(), instance.engine.planning:
            gone = self._live(ids)
            catalog = instance.catalog.without(ids)
            epoch = instance.ledger.commit(
                EpochCommit(instance.ledger.last_epoch(), f"drop-{ids[0]}", dropped=tuple(ids))
            )
            for relation in gone:
                instance.ledger.clear_dirty(relation.id)
            self._withdraw(gone)
            self._publish(catalog, {})
            return epoch

    # -- pieces ----------------------------------------------------------------------------

    @contextmanager
    def _known(
        self, relation: Stream | Table | PlainView, former: Iterable[Relation]
    ) -> Iterator[None]:
        """Declare a relation in place of others; restore these if the block fails."""
        try:
            self.announce(relation)
            yield
        except BaseException:
            self._withdraw([relation])
            for each in former:
                if each.id in self.instance.unplanned:
                    self.instance.engine.declare(each, planned=False)
                    self.instance.queries.declare(each, canonical=False)
                elif not isinstance(each, Sink):
                    self.announce(each)
            raise

    def _live(
        self, ids: Iterable[RelationId], before: Mapping[RelationId, Relation] | None = None
    ) -> list[Relation]:
        """Return relations that a statement found when it began, unless one was dropped since.

        With ``before``, unless one is another than it was.
        """
        found = [self.instance.catalog.by_id.get(id_) for id_ in ids]
        live = [relation for relation in found if relation is not None]
        if len(live) < len(found) or (before and any(r is not before[r.id] for r in live)):
            raise HeadraceError(
                Code.CONFLICT,
                "a relation of the statement was dropped or replaced meanwhile",
                hint="Run the statement again.",
            )
        return live

    def _with_sources(self, ids: Sequence[RelationId]) -> list[RelationId]:
        """Stop the sinks among relations to drop; return these, with the sinks' hidden views."""
        found = list(ids)
        for sink in [r for r in map(self.instance.catalog.by_id.get, ids) if isinstance(r, Sink)]:
            self.instance.deliveries.forget(sink.id)
            source = self.instance.catalog.by_id[sink.source]
            if source.name.startswith(HIDDEN) and source.id not in found:
                found.append(source.id)
        return found

    def _withdraw(self, relations: list[Relation]) -> None:
        order = {view.id: i for i, view in enumerate(self.instance.catalog.defined_in_order())}
        for relation in sorted(relations, key=lambda r: -order.get(r.id, -1)):
            # A relation that replaced it may have its name.
            self.instance.engine.forget(relation)
            self.instance.queries.forget(relation)

    def _publish(self, catalog: Catalog, new: Mapping[ArrangementId, Layout]) -> None:
        """Publish a catalog, and the layouts of the contents of relations that it did not have."""
        live = {rows_of(relation.id) for relation in catalog}
        layouts = {**self.instance.published.layouts, **new}
        kept = {id_: layout for id_, layout in layouts.items() if id_ in live}
        self.instance.loop.published.publish(catalog, kept)
