"""Changes the catalog: the part behind CREATE, DROP, ALTER and REPLACE."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from headrace.errors import Code, HeadraceError
from headrace.execution.engine.lowering.programs import table_layout
from headrace.execution.runtime.builds import (
    ExchangedPlaces,
    create_filled,
    dirt_moved,
    exchange,
    take_over,
)
from headrace.execution.runtime.dirty import removed_with, repairable
from headrace.execution.runtime.refresh import ViewRefresh
from headrace.lifecycle.definitions.filling import live
from headrace.lifecycle.states.stopped import stops_moved
from headrace.lifecycle.states.swapping import (
    SwappedDefinitions,
    analysed_again,
    declared_in_order,
    require_complete,
    require_right,
)
from headrace.planning.catalog import Catalog, PlainView, Sink, Stream, Table, View, title
from headrace.planning.catalog.naming import HIDDEN, shown_name
from headrace.planning.circuit.digest import digest
from headrace.storage.ledger import LIVE, EpochCommit, NewArrangement, NewBuild, NewObject, Read
from headrace.types import Offset, rows_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from headrace.algebra.zset import Layout
    from headrace.execution.engine.circuits import Planned
    from headrace.execution.runtime.deliveries import Deliveries
    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.feeds import Feeds
    from headrace.execution.runtime.fill import Fill, Progress
    from headrace.execution.runtime.published import Published
    from headrace.lifecycle.definitions.filling import Filling
    from headrace.lifecycle.facts.openlineage import OpenLineage
    from headrace.lifecycle.states.declarations import Declarations
    from headrace.planning.circuit import Circuit
    from headrace.storage.ledger import Ledger
    from headrace.types import ArrangementId, BuildId, Epoch, FrontierId, RelationId


_OTHERS_FIRST_SECONDS: Final = 0.02
"""How long a thread leaves the lock of planning to others that wait for it."""


@dataclass(frozen=True, slots=True)
class Definer:
    """Changes the catalog: each change is one epoch, visible to Spark and to readers at once.

    A failed change leaves the catalog unchanged.
    """

    ledger: Ledger
    loop: EpochLoop
    declarations: Declarations
    filling: Filling
    deliveries: Deliveries
    feeds: Feeds
    openlineage: OpenLineage

    def new_relation(self) -> RelationId:
        """Return an unused id for a relation to be created."""
        return self.ledger.ids.relation()

    def new_build(self) -> BuildId:
        """Return an unused id for a build to be filled."""
        return self.ledger.ids.build()

    def planned(self, view: View) -> Planned:
        """Return a build of a view with its circuit, to be filled."""
        return self.declarations.engine.planned(view)

    def create(
        self, relation: Stream | Table | PlainView | Sink, dropped: tuple[RelationId, ...] = ()
    ) -> Epoch:
        """Create an empty relation, in place of ``dropped``, in an epoch of its own."""
        declarations, dropped = self.declarations, tuple(self._with_sources(dropped))
        with self._changing(dropped):
            gone = live(self.loop.catalog, dropped)
            if isinstance(relation, PlainView | Sink):
                live(self.loop.catalog, relation.inputs)
            catalog = self.loop.catalog.without(dropped).with_(relation)
            layouts: dict[ArrangementId, Layout] = {}
            if isinstance(relation, Table):
                layouts = {rows_of(relation.id): table_layout(relation)}
            arrangements = tuple(NewArrangement(i, a.to_json()) for i, a in layouts.items())
            inputs = relation.inputs if isinstance(relation, PlainView | Sink) else ()
            created = NewObject(
                relation.id, relation.name, relation.kind, relation.to_json(), inputs, arrangements
            )
            commit = EpochCommit(
                self.ledger.head.epoch,
                f"create-{relation.id}",
                (),
                (),
                (created,),
                dropped,
            )
            if isinstance(relation, Sink):
                epoch = self.ledger.commit(commit)
                declarations.withdraw(gone, self.loop.catalog)
            else:
                # First, so that a relation rejected by Spark is not committed.
                with declarations.announced(relation, gone, self.loop.catalog):
                    epoch = self.ledger.commit(commit)
                declarations.withdraw(gone, self.loop.catalog)
                if gone:
                    declarations.announce(relation)  # a withdrawn relation may have had this name
            self._publish(catalog, layouts)
        self._end_feeds(dropped)
        self.openlineage.dropped(gone)
        self.openlineage.created(relation)
        return epoch

    def create_view(
        self,
        planned: Planned,
        progress: Progress,
        dropped: tuple[RelationId, ...] = (),
        *,
        earliest: bool = False,
        reuse: bool = False,
    ) -> Epoch:
        """Create a view filled from its inputs, in place of ``dropped``.

        With ``earliest``, it is filled from the events that streams still retain; otherwise it is
        refused over streams that have lost events.
        """
        view = planned.view
        replaced = self.loop.catalog.find(view.name)
        former = replaced if isinstance(replaced, View) and replaced.id in dropped else None

        def join(fill: Fill, circuit: Circuit) -> Epoch:
            filled = create_filled(fill, dropped)
            with self._changing(()):
                catalog = self.loop.catalog.without(dropped).with_(view)
                gone = live(self.loop.catalog, dropped)
                epoch = filled.commit()
                self.declarations.withdraw(gone, self.loop.catalog)
                self.declarations.announce(view)
                self._publish(catalog, {rows_of(view.id): circuit.output.operator.layout})
            self.openlineage.dropped(each for each in gone if each is not former)
            return epoch

        with self.openlineage.filling(view, former):
            return self.filling.fill(
                planned,
                progress,
                join,
                earliest=earliest,
                reuse=reuse,
                names_row=True,
                dropped=dropped,
            )

    def replace_view(
        self,
        former: View,
        planned: Planned,
        progress: Progress,
        *,
        stays: bool = False,
        earliest: bool = False,
        reuse: bool = False,
        names_row: bool = False,
        held: bool = False,
    ) -> Epoch:
        """Replace the build of a view; views above follow the difference in the same epoch.

        Dirty entries that exist when this begins are repaired by it. A stopped view runs again;
        those above that had stopped stay so until they are filled again. If the view ``stays`` and
        lags, the new build is filled as of the view's frontier; otherwise up to the present. For
        ``earliest`` see :meth:`create_view`, for the others :meth:`Filling.fill`.
        """
        view, dirty = planned.view, repairable(self.ledger.head.dirty, former.id)

        def join(fill: Fill, _circuit: Circuit) -> Epoch:
            live(self.loop.catalog, [former.id], {former.id: former})
            known = self.loop.catalog
            right = removed_with(dirty, self.ledger.head.dirty, known)
            of = {view.id}
            stops = stops_moved(self.ledger, known, known.with_(view), of, {}, view.name)
            filled = take_over(fill, former.build, right, stops.ended, stops.marked, stays=stays)
            with self._changing(()):
                catalog = self.loop.catalog.with_(view)
                epoch = filled.commit()
                self.declarations.announce_replaced(view, catalog)
                self._publish(catalog, {})
            return epoch

        with self.openlineage.filling(view, former):
            return self.filling.fill(
                planned,
                progress,
                join,
                stays=stays,
                earliest=earliest,
                reuse=reuse,
                names_row=names_row,
                held=held,
            )

    def replace_stopped(self, former: View, planned: Planned) -> Epoch:
        """Replace the build of a stopped view by one that is filled when the view is repaired.

        Raises:
            HeadraceError: ``conflict`` if the view runs again, or has been dropped or replaced.
        """
        view, engine = planned.view, self.declarations.engine
        with self._changing([former.id]):
            live(self.loop.catalog, [former.id], {former.id: former})
            if former.id not in self.loop.stopped():
                raise HeadraceError(
                    Code.CONFLICT, f'view "{view.name}" runs again', hint="Try again."
                )
            served, rows = self.ledger.head.serving(view.id), rows_of(view.id)
            layouts = engine.begin_fill(planned).arrangements()
            state = tuple(NewArrangement(i, a.to_json()) for i, a in layouts.items() if i != rows)
            build = NewBuild(
                view.build,
                view.id,
                view.to_json(),
                view.inputs,
                state,
                served.frontier,
                begins=served.begins,
            )
            commit = EpochCommit(
                self.ledger.head.epoch, uuid4().hex, builds=(build,), retired=(served.id,)
            )
            try:
                epoch = self.ledger.commit(commit)
                catalog = self.loop.catalog.with_(view)
                self.declarations.announce_replaced(view, catalog)
            finally:
                engine.end_fill(view)
            self._publish(catalog, {})
        return epoch

    def swap(
        self, pairs: Sequence[tuple[View, View]], kept_until: float | None = None
    ) -> ExchangedPlaces:
        """Exchange views and their candidates, in one epoch.

        A view whose candidate has the same columns and key changes by the difference, and views
        above, followers and sinks get that in the same epoch. A candidate with other columns takes
        its view's name; all views that read it must be among the ``pairs``, whose inputs come
        first. The candidates are then what the views were, with the dirty slices of that, and have
        stopped if that had. All are maintained in every epoch. What served is kept until a time in
        Unix seconds, or until it is dropped. Views above that had stopped stay so until they are
        filled again.

        Raises:
            IncompleteSwapError: if a view reads one with other columns and is not among them.
            HeadraceError: ``conflict`` if a sink reads one with other columns; ``invalid`` if a
                plain view cannot.
        """
        before = {view.id: view for pair in pairs for view in pair}
        names = ", ".join(f'"{shown_name(view, self.loop.catalog)}"' for view, _ in pairs)
        with ExitStack() as held:
            held.enter_context(self.loop.holding(before, f"the swap of view {names}"))
            dirty, state = self.ledger.head.dirty, self.loop.published.current
            live(state.catalog, before, before)
            require_right(dirty, [candidate for _, candidate in pairs])
            require_complete(state.catalog, state, pairs)
            swapped = SwappedDefinitions(self.declarations, state, pairs, kept_until)
            with self.declarations.planning:
                places = swapped.places()
            exchanging = held.enter_context(exchange(self.loop, places))
            held.enter_context(self._changing(()))
            catalog = self.loop.catalog
            former, order = declared_in_order(catalog, places)
            exchanged = {p.view.id: p.candidate.id for p in places if not p.by_name}
            repaired = [each for view, _ in pairs for each in repairable(dirty, view.id)]
            right = frozenset(removed_with(repaired, dirty, catalog))
            after: list[View | PlainView] = []
            circuits = swapped.circuits(places)
            with self.declarations.redeclared(former, self._after(order, after), circuits):
                plain = [each for each in after if isinstance(each, PlainView)]
                changed = {each.id: each for each in after}
                catalog = Catalog.of(changed.get(each.id, each) for each in catalog)
                known = self.loop.catalog
                of = shown_name(pairs[0][0], known)
                stops = stops_moved(self.ledger, known, catalog, exchanged.keys(), exchanged, of)
                cleaned, moved = dirt_moved((e for e in dirty if e.id in right), places)
                marked = (*stops.marked, *moved)
                done = exchanging.committed(self.loop, plain, cleaned, stops.ended, marked)
            for each in after:
                self.declarations.announce_texts_above(each, catalog)
            replaced = self.loop.catalog
            self._publish(catalog, {})
            self.openlineage.replaced(replaced, ((pair.view, pair.serves) for pair in places))
        for each in after:
            self._require_stored(each)
        return done

    def _require_stored(self, view: View | PlainView) -> None:
        """Raise unless the query of a view that was swapped makes the circuit that it has.

        Epochs and reads that have to be planned come first: they have waited for the swap.
        """
        time.sleep(_OTHERS_FIRST_SECONDS)
        with self.declarations.planning:
            if not isinstance(view, View) or self.loop.catalog.by_id.get(view.id) is not view:
                return
            if self.declarations.circuit(view) is None:
                return
            circuit = self.declarations.engine.circuits.plan(view)
        if digest(circuit) != view.circuit:
            raise HeadraceError(
                Code.INTERNAL,
                f'the query of view "{view.name}" is not what its rows are of',
                hint="REBUILD VIEW computes them again. Please report this with the query.",
            )

    def _after(
        self, order: Iterable[View | PlainView], found: list[View | PlainView]
    ) -> Iterator[View | PlainView]:
        """Yield what views are after a swap, inputs first; each is added to ``found``."""
        for each in order:
            if isinstance(each, PlainView):
                each = analysed_again(self.declarations.engine, each)  # noqa: PLW2901
            found.append(each)
            yield each

    def regroup(self, view: View, altered: View) -> Epoch:
        """Change when a view is refreshed: on a schedule, manually, or in every epoch.

        Or how long its former states are kept.

        Its contents do not change, except that a lagging view that becomes maintained in every
        epoch is refreshed first, so that it joins the epochs at their frontier.
        """
        loop, ledger = self.loop, self.ledger
        begins, ends = altered.refresh.lags, view.refresh.lags
        with loop.refreshing:
            if ends and not begins:
                ViewRefresh(loop, (view,)).run()  # beside the epochs, so that few changes remain
            with self._changing([view.id]):
                live(loop.catalog, [view.id], {view.id: view})
                if ends and not begins:
                    ViewRefresh(loop, (view,)).run()
                state, build = loop.published.current, ledger.head.serving(view.id)
                frontier = build.frontier if begins == ends else LIVE
                if begins and not ends:
                    frontier = ledger.ids.frontier()
                catalog = loop.catalog.with_(altered)
                commit = EpochCommit(
                    ledger.head.epoch,
                    f"alter-{view.id}",
                    self._unread(view, state, frontier) if begins != ends else (),
                    caught_up=(frontier,) if begins and not ends else (),
                    regrouped={build.id: frontier},
                    redefined={view.id: altered.to_json()},
                )
                epoch = ledger.commit(commit)
                self.declarations.announce_replaced(altered, catalog)
                self._publish(catalog, {})
        return epoch

    def alter_sink(self, sink: Sink) -> Epoch:
        """Replace the options of a sink."""
        with self._changing(()):
            live(self.loop.catalog, [sink.id])
            change = {sink.id: sink.to_json()}
            commit = EpochCommit(self.ledger.head.epoch, f"alter-{sink.id}", redefined=change)
            epoch = self.ledger.commit(commit)
            self._publish(self.loop.catalog.with_(sink), {})
        return epoch

    def _unread(self, view: View, state: Published, frontier: FrontierId) -> tuple[Read, ...]:
        """Return the parts of logs that a view shows and its new frontier has not read."""
        shown = state.shown(view.id)
        streams = {id_ for id_ in view.depends_on if isinstance(state.catalog.by_id[id_], Stream)}
        if frontier == LIVE:
            shown = {id_: at for id_, at in shown.items() if id_ in streams}
        stands = self.ledger.head.frontiers.get(frontier)
        done = {} if stands is None else stands.offsets
        starts = {id_: done.get(id_, Offset(0)) for id_ in shown}
        return tuple(
            Read(id_, starts[id_], at, frontier) for id_, at in shown.items() if at > starts[id_]
        )

    def redefine(self, stream: Stream) -> Epoch:
        """Add columns to a stream; views over it must keep their schemas and circuits.

        Raises:
            HeadraceError: ``conflict`` if a view would change.
        """
        with self._changing([stream.id]):
            (former,) = live(self.loop.catalog, [stream.id])
            catalog = self.loop.catalog.with_(stream)
            above = [v for v in catalog.dependants(stream.id) if not isinstance(v, Sink)]
            try:
                self.declarations.announce(stream)
                for view in above:
                    self._require_same(view, stream)
                change = {stream.id: stream.to_json()}
                commit = EpochCommit(self.ledger.head.epoch, f"alter-{stream.id}", redefined=change)
                epoch = self.ledger.commit(commit)
            except BaseException:
                self.declarations.announce(former)
                for view in above:
                    self.declarations.plan_again(view)
                raise
            self._publish(catalog, {})
        return epoch

    def _require_same(self, view: View | PlainView, stream: Stream) -> None:
        """Plan a view over the redefined stream; raise if its columns would change."""
        try:
            self.declarations.plan_again(view)
        except HeadraceError as error:
            hidden = view.name.startswith(HIDDEN)
            followed = hidden and not (isinstance(view, View) and view.index)
            what = "a query that is followed" if followed else title(view)
            raise HeadraceError(
                Code.CONFLICT,
                f"{what} would have other columns",
                f'Its query reads all columns of stream "{stream.name}".',
                "DROP it, or name its columns in place of *, and create it again afterwards.",
            ) from error

    def drop(self, ids: Sequence[RelationId]) -> Epoch:
        """Drop relations together; no other relation may depend on them.

        A hidden view of a dropped sink is dropped too.
        """
        ids = self._with_sources(ids)
        with self._changing(ids):
            gone = live(self.loop.catalog, ids)
            catalog = self.loop.catalog.without(ids)
            epoch = self.ledger.commit(
                EpochCommit(self.ledger.head.epoch, f"drop-{ids[0]}", dropped=tuple(ids))
            )
            for relation in gone:
                self.ledger.dirty.clear(relation.id)
            self.declarations.withdraw(gone, self.loop.catalog)
            self._publish(catalog, {})
        self._end_feeds(ids)
        self.openlineage.dropped(gone)
        return epoch

    # -- pieces ----------------------------------------------------------------------------

    @contextmanager
    def _changing(self, among: Collection[RelationId]) -> Iterator[None]:
        """Hold the locks of epochs and of planning while the block runs.

        It may change what the sets of relations ``among`` consist of; so it may those of sets that
        this thread holds.
        """
        with self.loop.exclusive(among), self.declarations.planning:
            yield

    def _end_feeds(self, dropped: Sequence[RelationId]) -> None:
        """Stop the feeds of dropped relations; no lock may be held that a feed waits for."""
        for id_ in dropped:
            self.feeds.forget(id_)

    def _with_sources(self, ids: Sequence[RelationId]) -> list[RelationId]:
        """Stop the sinks among relations to drop; return the relations with their hidden ones.

        These are the hidden view of a sink, and the hidden stream of rows inserted into a view.
        """
        found, catalog = list(ids), self.loop.catalog
        for relation in map(catalog.by_id.get, ids):
            also: RelationId | None = None
            if isinstance(relation, Sink):
                self.deliveries.forget(relation.id)
                hidden = catalog.by_id[relation.source].name.startswith(HIDDEN)
                also = relation.source if hidden else None
            elif isinstance(relation, View):
                also = relation.into
                candidate = catalog.candidate(relation.id)
                if candidate is not None and candidate.id not in found:
                    found.append(candidate.id)
            if also is not None and also not in found:
                found.append(also)
        return found

    def _publish(self, catalog: Catalog, new: Mapping[ArrangementId, Layout]) -> None:
        """Publish a catalog, with the layouts of the contents of new relations."""
        kept = {rows_of(relation.id) for relation in catalog}
        layouts = {**self.loop.published.current.layouts, **new}
        self.loop.published.publish(catalog, {i: a for i, a in layouts.items() if i in kept})
