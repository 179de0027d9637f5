"""Reads the published state, and waits until it shows what was written."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.cancelling import check_cancelled
from headrace.execution.runtime.replay import Damage, damaged_runs
from headrace.execution.runtime.step import as_corrected, events_in, snapshot, whole_log
from headrace.execution.serving import Contents, History
from headrace.lifecycle.states.former_names import added_again
from headrace.lifecycle.states.stopped import refuse_stopped
from headrace.lifecycle.states.system_relations import is_system
from headrace.planning.catalog import Stream, Table
from headrace.storage.log import Events, Extent, InLedger, appended_at
from headrace.types import Epoch, Offset, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from pathlib import Path

    from headrace.execution.runtime.deliveries import Deliveries
    from headrace.execution.runtime.published import Published, Publisher
    from headrace.execution.runtime.pump import Pump
    from headrace.execution.runtime.step import Share
    from headrace.planning.catalog import Catalog, Relation, View
    from headrace.planning.sql import AsOfTimestamp
    from headrace.storage.ledger import Ledger
    from headrace.types import RelationId


_LISTEN_SECONDS = 0.1
"""The interval at which a statement that waits for an epoch checks for cancellation."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads published states. Nothing can be changed through it.

    A returned state stays readable for as long as it is held. Waiting for a state makes the missing
    epochs, unless they are made in the background.
    """

    directory: Path
    ledger: Ledger
    publisher: Publisher
    pump: Pump
    deliveries: Deliveries

    @property
    def published(self) -> Published:
        """The latest published state."""
        return self.publisher.current

    @property
    def catalog(self) -> Catalog:
        """The current relations."""
        return self.publisher.current.catalog

    @property
    def ends(self) -> Mapping[RelationId, Offset]:
        """The ends of all logs."""
        return self.ledger.head.ends

    def epoch_at(self, as_of: AsOfTimestamp) -> Epoch:
        """Return the last epoch committed at or before a time.

        Raises:
            HeadraceError: ``invalid`` if the time has not come.
        """
        if as_of.seconds > time.time():
            raise HeadraceError(
                Code.INVALID,
                "the time has not come yet",
                hint="Times without a zone are in UTC. Without a time, the present state is meant.",
                span=as_of.span,
            )
        return self.ledger.epochs.at(as_of.seconds)

    # -- waiting -----------------------------------------------------------------------------

    def settled(
        self, reads: Iterable[RelationId], wanted: Mapping[RelationId, Offset] | None = None
    ) -> Published:
        """Return a state in which some relations include all changes before the wanted offsets.

        By default, these are the present ends of all logs below the relations. Rows whose time is
        due by now have also entered or left them.
        """
        below = self.catalog.shown_by(reads, self.published.lagging)
        ends = self.ledger.head.ends if wanted is None else wanted
        return self.pump.settle({id_: end for id_, end in ends.items() if id_ in below}, below)

    def show_written(self, relation: RelationId, end: Offset) -> None:
        """Wait until the views with refresh ``on write`` show a write that ends at an offset."""
        state = self.published
        through = state.catalog.written_through(relation)
        if through:
            near = {i for i in through if relation in state.catalog.shown_by([i], state.lagging)}
            self.settled(near, {relation: end})

    def settle_all(self) -> Epoch:
        """Make epochs, and deliver all changes so far to sinks; failing sinks are skipped.

        One sink may feed another, so there are as many rounds as sinks.
        """
        epoch = self.pump.settle().epoch
        for _ in tuple(self.deliveries.by_sink):
            if not self.deliveries.advance() and not self.behind(self.published):
                break
            epoch = self.pump.settle().epoch
        return epoch

    def settle_sinks(self) -> None:
        """Make the writes of sinks visible to reads: they belong to no session.

        Does nothing where sinks are delivered to in the background.
        """
        if self.deliveries.by_sink and not self.pump.running:
            self.settle_all()

    def wait_beyond(self, epoch: Epoch | None, is_over: Callable[[], bool], seconds: float) -> None:
        """Wait until a later epoch is published, ``is_over`` returns True, or the seconds pass."""
        publisher = self.publisher
        publisher.wait_for(lambda: is_over() or (epoch or 0) < publisher.current.epoch, seconds)

    def wait_for(self, epoch: Epoch, ends: Mapping[RelationId, Offset]) -> None:
        """Wait until a state is published that has an epoch and all changes before some offsets.

        Dropped logs are not waited for.

        Raises:
            HeadraceError: ``invalid`` for an offset beyond the log's end; ``cancelled``.
        """
        known = self.ledger.head.ends
        if any(end > known[id_] for id_, end in ends.items() if id_ in known):
            raise HeadraceError(
                Code.INVALID,
                "the awaited write does not exist in this database",
                hint="Give a token of this database.",
            )
        there = {id_: end for id_, end in ends.items() if id_ in known}
        self.pump.settle(there, frozenset())
        while self.published.epoch < epoch:
            check_cancelled()
            self.require_epochs(ends)
            self.wait_beyond(Epoch(epoch - 1), lambda: False, _LISTEN_SECONDS)

    def unseen_since(self, state: Published, relation: RelationId) -> float | None:
        """Return when the oldest change below a relation that a state does not show arrived.

        In Unix seconds; None if it shows all changes.
        """
        return min(self.arrivals(state, relation).values(), default=None)

    def arrivals(
        self, state: Published, relation: RelationId | None = None
    ) -> dict[RelationId, float]:
        """Return when the oldest change that a state does not show arrived, by log.

        In Unix seconds; logs that are shown completely are left out. With a relation, only the logs
        below it count, compared with what it shows; by default, what no epoch has read.
        """
        ends, found = self.ledger.head.ends, {}
        every = relation is not None and state.lags(relation)
        for id_, at in state.shown(relation).items():
            if at < ends.get(id_, 0) and (every or id_ in state.maintained):
                segments = self.ledger.log.segments(id_, at, Offset(at + 1))
                if segments:
                    found[id_] = appended_at(self.directory / "log", segments, at)
        return found

    def fresh(self, reads: Iterable[RelationId], seconds: float) -> Published:
        """Return the last state, if no change of the relations has waited longer than ``seconds``.

        Raises:
            HeadraceError: ``unavailable`` if one has.
        """
        state = self.published
        for id_ in reads if seconds < math.inf else ():
            since = self.unseen_since(state, id_)
            age = 0.0 if since is None else time.time() - since
            if age > seconds:
                relation = state.catalog.by_id[id_]
                raise HeadraceError(
                    Code.UNAVAILABLE,
                    f'{relation.kind} "{relation.name}" was {age:.1f} seconds behind',
                    detail=f"At most {seconds:g} are wanted.",
                    hint="Try again in a second, or allow more with max_staleness.",
                )
        return state

    def require_epochs(self, among: Collection[RelationId] | None = None) -> None:
        """Raise the error that stopped the epochs made in the background, if there is one.

        Wide steps count of the sets of some relations, by default of all.
        """
        error = self.pump.error or self.pump.loop.beside.error(among)
        if error is not None:
            raise error

    def require_ledger(self) -> None:
        """Raise the error of a ledger that does not answer at present."""
        if self.ledger.trouble is not None:
            raise self.ledger.trouble

    def behind(self, state: Published) -> int:
        """Return the number of changes that have arrived and a state does not show."""
        return state.behind(self.ledger.head.ends)

    # -- what a state has ----------------------------------------------------------------------

    def contents(self, state: Published, relation: Relation) -> Contents:
        """Return the rows of a table or view in a state."""
        return Contents.of(self.directory, state, relation)

    def events(self, state: Published, stream: Stream) -> Events:
        """Return the events of a stream in a state.

        If no view reads the stream, epochs do not read its log, and these are all events.
        """
        return events_in(self.directory, stream, self.extent(state, stream), InLedger(self.ledger))

    def extent(self, state: Published, stream: Stream) -> Extent:
        """Return the offsets of the events of a stream in a state."""
        first = state.starts.get(stream.id, Offset(0))
        return Extent.of(self.ledger, stream.id, first, self._end(state, stream.id))

    def rows(self, state: Published, relation: Relation) -> Contents | Events:
        """Return the rows of a stream, table or view in a state."""
        if isinstance(relation, Stream):
            return self.events(state, relation)
        return self.contents(state, relation)

    def _end(self, state: Published, log: RelationId) -> Offset:
        """Return the end of the changes of a log that a state shows."""
        if log in state.maintained:
            return state.positions.get(log, Offset(0))
        return self.ledger.head.log_end(log)

    def indexes(self, state: Published, *relations: Relation) -> list[View]:
        """Return the indexes of relations that are at the same epoch as the state."""
        views = (view for each in relations for view in state.catalog.indexes(each.id))
        return [v for v in views if v.id not in state.stopped and rows_of(v.id) in state.spines]

    def history(self, state: Published, relation: RelationId) -> History:
        """Return the snapshots and deltas of a table or view of a state."""
        rows = rows_of(relation)
        return History(self.ledger, self.directory, rows, state.layouts[rows])

    def shares(self, ids: Iterable[RelationId], state: Published) -> dict[RelationId, Share]:
        """Return the contents of relations in a state, for a query of Spark; see :meth:`events`."""
        relations = [state.catalog.by_id[id_] for id_ in sorted(set(ids)) if not is_system(id_)]
        for relation in relations:
            self.require_running(relation, state)
        ends = {each.id: self._end(state, each.id) for each in relations}
        shares = snapshot(self.ledger, state, relations, ends)
        return {id_: as_corrected(share) for id_, share in shares.items()}

    def extents(
        self, ids: Iterable[RelationId], state: Published
    ) -> dict[RelationId, Share | Extent]:
        """Return what :meth:`shares` does, without listing the segments of streams."""
        by_id, ids = state.catalog.by_id, sorted(set(ids))
        streams = {i: s for i in ids if isinstance(s := by_id.get(i), Stream)}
        found: dict[RelationId, Share | Extent] = {
            id_: self.extent(state, stream) for id_, stream in streams.items()
        }
        return found | self.shares([id_ for id_ in ids if id_ not in streams], state)

    def logs(self, ids: Iterable[RelationId], state: Published) -> dict[RelationId, Share]:
        """Return all changes of streams and tables that a state shows."""
        ends = {id_: state.positions.get(id_, Offset(0)) for id_ in ids}
        return {id_: whole_log(self.ledger, state, id_, end) for id_, end in ends.items()}

    def damaged(self, relations: Iterable[Relation]) -> dict[RelationId, list[Damage]]:
        """Return the damaged files of relations' contents and state; reads every byte."""
        ids = {relation.id for relation in relations}
        found: dict[RelationId, list[Damage]] = {}
        for each in damaged_runs(self.ledger, self.directory / "runs", ids):
            found.setdefault(each.owner, []).append(each)
        return found

    def as_of(self, epoch: Epoch, last: Published, relations: Iterable[Relation]) -> Published:
        """Return the state in which relations of the last state are read at an earlier epoch.

        Raises:
            HeadraceError: INVALID if the epoch is no longer retained, or a table had another column
                under the name of one that it has now.
        """
        relations = list(relations)
        for relation in relations:
            again = added_again(relation, epoch) if isinstance(relation, Table) else None
            if again is not None:
                raise HeadraceError(
                    Code.INVALID,
                    f'column "{again.name}" of table "{relation.name}" did not exist at epoch'
                    f" {epoch}",
                    f"It was added in epoch {again.since}, after another column of that name was"
                    " dropped or renamed, whose values cannot be read by the name.",
                    f"Read it as of epoch {again.since} or later; or RENAME COLUMN"
                    f" {again.name} first.",
                )
        return last if epoch == last.epoch else self.publisher.as_of(epoch, *relations)

    def require_running(
        self, relation: Relation, state: Published | None = None, epoch: Epoch | None = None
    ) -> None:
        """Refuse a view that has stopped: by now, at the epoch of a state, or at an earlier one."""
        if relation.id in (state or self.published).stopped:
            at = epoch if epoch is not None or state is None else state.epoch
            refuse_stopped(self.ledger, self.catalog, relation, at)
