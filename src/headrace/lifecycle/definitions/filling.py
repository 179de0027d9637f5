"""Fills views beside the epochs, and lets them join.

The fills of views that are running: how far they are, and which of them wait.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.cancelling import check_cancelled, running_statement
from headrace.execution.runtime.connected import CLOCK
from headrace.execution.runtime.fill import Fill
from headrace.execution.runtime.retirement import known_of, latest_times
from headrace.execution.runtime.spent import Pace
from headrace.lifecycle.definitions.functions import check_folds
from headrace.planning.catalog import Stream, View
from headrace.planning.catalog.naming import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from headrace.execution.engine.circuits import Planned
    from headrace.execution.engine.engine import Engine
    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.fill import Progress
    from headrace.execution.runtime.published import Published
    from headrace.execution.runtime.pump import Pump
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Catalog, Relation
    from headrace.planning.circuit import Circuit
    from headrace.types import Epoch, Offset, RelationId


_LISTEN_SECONDS: Final = 0.1
"""The interval at which a fill that waits looks whether its statement was cancelled."""


class FillState(StrEnum):
    """What a fill does now."""

    RUNNING = "running"
    PAUSING = "pausing"
    """It is to wait after the part that it reads."""
    PAUSED = "paused"


@dataclass(slots=True, eq=False)
class FillProgress:
    """The fill of a build of a view, how far it is, and whether it is to wait.

    ``progress`` is called with what is reported.
    """

    name: str
    """The name of the view, of the one whose candidate is filled, or of the index."""
    kind: str
    progress: Progress
    pauses: bool = True
    """Whether it may wait: nobody else waits for its end then."""
    began_at: float = field(default_factory=time.time)
    """In Unix seconds."""
    pace: Pace = field(default_factory=Pace)
    done: int = 0
    """How many rows of its inputs have been read."""
    total: int | None = None
    """How many rows its inputs had when it began; None until that is known."""
    _state: FillState = FillState.RUNNING
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @classmethod
    def of(cls, view: View, catalog: Catalog, progress: Progress, *, pauses: bool) -> FillProgress:
        """Return the fill of a view before it begins."""
        return cls(*_named(view, catalog), progress, pauses)

    @property
    def state(self) -> FillState:
        """What it does now."""
        return self._state

    def pause(self) -> None:
        """Let it wait after the part that it reads; the caller has asked :attr:`pauses`."""
        with self._changed:
            if self._state is FillState.RUNNING:
                self._state = FillState.PAUSING

    def resume(self) -> bool:
        """Let it go on; return whether it was to wait."""
        with self._changed:
            waited = self._state is not FillState.RUNNING
            self._state = FillState.RUNNING
            self._changed.notify_all()
        return waited

    def report(self, done: int, total: int) -> None:
        """Report the rows read so far and their total to the statement; wait if that is asked.

        Raises:
            HeadraceError: ``cancelled`` if the statement is cancelled.
        """
        self.done, self.total = done, total
        self.pace.report(done)
        self.progress(done, total)
        self.wait()

    def wait(self) -> None:
        """Wait until it may go on, between two parts of the work: on the statement's thread.

        Raises:
            HeadraceError: ``cancelled`` if the statement is cancelled meanwhile.
        """
        if self._state is FillState.RUNNING:
            return
        self.pace.wait()
        if (statement := running_statement()) is not None:
            name = self.name
            statement.waits(f"filling {name} is paused; RESUME FILL OF {name} continues it")
        with self._changed:
            while self._state is not FillState.RUNNING:
                self._state = FillState.PAUSED
                self._changed.wait(_LISTEN_SECONDS)
                check_cancelled()
        self.pace.report(self.done)
        self.progress(self.done, self.total or 0)


@dataclass(slots=True)
class Fills:
    """The running fills of an open database. Thread-safe."""

    _running: list[FillProgress] = field(default_factory=list)
    _changing: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def running(self, fill: FillProgress) -> Iterator[None]:
        """List a fill while the block runs it."""
        with self._changing:
            self._running.append(fill)
        try:
            yield
        finally:
            with self._changing:
                self._running.remove(fill)

    def listed(self) -> list[FillProgress]:
        """Return those that have a name, oldest first: not those of queries that are followed."""
        with self._changing:
            return [fill for fill in self._running if not fill.name.startswith(HIDDEN)]


def _named(view: View, catalog: Catalog) -> tuple[str, str]:
    """Return the name by which users know what is filled, and what it is."""
    if view.candidate_of is not None:
        of = catalog.by_id.get(view.candidate_of)
        if isinstance(of, View):
            return _named(of, catalog)[0], "candidate"
    if view.index is not None:
        return view.index.name, "index"
    return view.name, "view"


T = TypeVar("T")

FILL_RATE: Final = "fill_rate"
"""The ledger's setting with the rows per second that the last fill of some length has read."""

Join: TypeAlias = "Callable[[Fill, Circuit], Epoch]"
"""Commits a fill that has caught up, while the sets that it touches are held."""


@dataclass(frozen=True, slots=True)
class Filling:
    """Fills builds of views from stored rows. A failed fill leaves nothing behind."""

    reader: Reader
    engine: Engine
    loop: EpochLoop
    pump: Pump
    fills: Fills

    def fill(
        self,
        planned: Planned,
        progress: Progress,
        join: Join,
        *,
        stays: bool = False,
        earliest: bool = False,
        reuse: bool = False,
        names_row: bool = False,
        held: bool = False,
        dropped: Iterable[RelationId] = (),
    ) -> Epoch:
        """Fill a build of a view and let it join the epochs; return the epoch that it joins in.

        Epochs and other fills continue: the sets that the view is or will be part of are held only
        for the last changes and for ``join``, those of other views not at all; for a view with
        recursions, during the whole fill. ``dropped`` are relations that the build replaces. If it
        ``stays`` and lags, it is filled as of its frontier; so is any view if its set is ``held``.
        With ``earliest``, it is filled from the events that streams still retain. With ``reuse``,
        state of other views is read in place of inputs, where that costs less. With ``names_row``,
        the error of a failing query quotes a row that it fails on: only for clients that may read
        the inputs.

        It can be paused between two parts, unless others wait for its end: if it ``stays``, if its
        set is ``held``, or if the view has recursions.

        Raises:
            HeadraceError: ``conflict`` if a stream no longer retains all its events.
        """
        view, circuit = planned.view, self.engine.begin_fill(planned)
        clocked = bool(circuit.temporal())
        standing = stays and view.id in self.reader.published.lagging
        may_miss = {} if earliest or standing else self._without(view, circuit)
        alone = bool(circuit.loops())
        pauses = not (stays or held or alone)
        running = FillProgress.of(view, self.reader.catalog, progress, pauses=pauses)
        fill = Fill(
            self.loop,
            view,
            running.report,
            clocked=clocked,
            may_miss=None if earliest else may_miss,
            names_row=names_row,
            takes_over=reuse and not (standing or held or alone),
        )

        def joined() -> Epoch:
            return join(fill, circuit)

        def begun() -> None:
            check_folds(circuit, fill.attempt.files, self.loop.runs)

        try:
            with self.fills.running(running), fill.attempt:
                if standing or held:
                    return self.join_standing(fill, joined, begun=begun)
                epoch = self.join(
                    fill, joined, alone=alone, begun=begun, between=running.wait, dropped=dropped
                )
            if running.pace.rate is not None:
                self.reader.ledger.settings.set(FILL_RATE, running.pace.rate)
            return epoch
        finally:
            self.engine.end_fill(view)

    def join(
        self,
        fill: Fill,
        join: Callable[[], T],
        *,
        alone: bool,
        begun: Callable[[], None] = lambda: None,
        between: Callable[[], None] = lambda: None,
        dropped: Iterable[RelationId] = (),
    ) -> T:
        """Fill the builds that the engine knows of, and publish them by ``join``.

        If ``alone``, the sets that it touches are held for the whole fill; otherwise ``begun`` is
        called without that, once most rows are written, and ``between`` whenever many changes have
        been read since.
        """
        reader, loop, view = self.reader, self.loop, fill.view
        for relation in live(reader.catalog, view.depends_on):
            reader.require_running(relation)
        inputs = {relation.id: relation for relation in live(reader.catalog, view.inputs)}
        among = self._among(fill).union(dropped)
        try:
            if not alone:
                fill.begin(reader.settled(view.depends_on))
                begun()
                while fill.catch_up(reader.published) > loop.settings.small_rows:
                    between()
            with loop.holding(among, f'the fill of view "{view.name}"'):
                for relation in live(reader.catalog, inputs, inputs):
                    reader.require_running(relation)
                if alone:
                    fill.begin(self.pump.settle_held(), loop.quiet_clock())
                else:
                    state = self.pump.settle(fill.ends, frozenset())
                    fill.catch_up(state, loop.quiet_clock())
                return join()
        except HeadraceError:
            live(reader.catalog, inputs, inputs)  # raises if the failure is due to a dropped input
            raise

    def join_standing(
        self, fill: Fill, join: Callable[[], T], *, begun: Callable[[], None] = lambda: None
    ) -> T:
        """Fill a build of a lagging view as of the view's frontier, and publish it by ``join``.

        The view is not refreshed meanwhile. Epochs of its set continue until ``join``, those of
        others also then; ``begun`` is called before it.
        """
        loop, catalog = self.loop, self.reader.catalog
        for relation in live(catalog, fill.view.depends_on):
            self.reader.require_running(relation)
        inputs = {relation.id: relation for relation in live(catalog, fill.view.inputs)}
        with loop.refreshing:
            fill.begin(self._standing(fill.view))
            begun()
            with loop.holding(self._among(fill), f'the fill of view "{fill.view.name}"'):
                for relation in live(loop.catalog, inputs, inputs):
                    self.reader.require_running(relation)
                return join()

    def _among(self, fill: Fill) -> frozenset[RelationId]:
        """Return relations of the sets that a filled build will belong to."""
        among = frozenset((fill.view.id, *fill.view.depends_on))
        return among | {CLOCK} if fill.clocked else among

    def _without(self, view: View, circuit: Circuit) -> dict[RelationId, Offset]:
        """Return, by stream, the offset before which no event is still part of the view's state."""
        found: dict[RelationId, Offset] = {}
        ledger = self.loop.ledger
        state, clock = self.reader.published, ledger.epochs.clock()
        for id_ in state.unkept(view):
            stream = state.catalog.by_id[id_]
            if not isinstance(stream, Stream):
                continue
            retired = known_of(ledger, self.loop.directory / "log", stream)
            if retired is not None:
                time = self.engine.left_by(circuit, stream, latest_times(stream, retired))
                if time is not None and time <= clock:
                    found[id_] = retired.start
        return found

    def _standing(self, view: View) -> Published:
        """Return the state at the frontier of a lagging view.

        Raises:
            HeadraceError: ``conflict`` if it is not retained, because an input was repaired since.
        """
        try:
            return self.loop.published.at_frontier(view)
        except HeadraceError as error:
            if error.code is not Code.INVALID:
                raise
            raise HeadraceError(
                Code.CONFLICT,
                f'the inputs of view "{view.name}" can no longer be read at its frontier',
                "It lags behind, and one of its inputs was repaired since.",
                f"CREATE OR REPLACE {view.name} rebuilds it; then run the statement again.",
            ) from error


def live(
    catalog: Catalog,
    ids: Iterable[RelationId],
    before: Mapping[RelationId, Relation] | None = None,
) -> list[Relation]:
    """Return the relations that a statement started with; raise if one was dropped since.

    With ``before``, also raise if one was replaced since.
    """
    found = [catalog.by_id.get(id_) for id_ in ids]
    there = [relation for relation in found if relation is not None]
    if len(there) < len(found) or (before and any(r is not before[r.id] for r in there)):
        raise HeadraceError(
            Code.CONFLICT,
            "a relation of the statement was dropped or replaced meanwhile",
            hint="Run the statement again.",
        )
    return there
