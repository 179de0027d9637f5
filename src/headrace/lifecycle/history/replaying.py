"""Replays slices of views beside the epochs; see :mod:`headrace.execution.runtime.replay`.

Prunes the inputs of a replay: segments whose bounds exclude the slice are not read.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.fill import Fill
from headrace.execution.runtime.fill_parts import OfSlice
from headrace.execution.runtime.replay import replace_slice
from headrace.execution.runtime.retirement import known_of
from headrace.execution.runtime.step import log_share
from headrace.lifecycle.definitions.filling import live
from headrace.lifecycle.history.amending import changed_since, why_unknown
from headrace.planning.catalog import Stream
from headrace.storage.log import EmbeddedLog, Pruning, read_bounds
from headrace.types import BuildId, Offset, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from headrace.algebra.zset import Restriction
    from headrace.execution.engine.engine import Engine
    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.fill import Progress
    from headrace.execution.runtime.replay import Replaced
    from headrace.lifecycle.definitions.filling import Filling
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Relation, View
    from headrace.planning.catalyst.predicates import Conjunct
    from headrace.planning.circuit import Sliced
    from headrace.storage.ledger import Ledger, Segment, Slice
    from headrace.storage.log import LogShare
    from headrace.types import ArrangementId, DirtyId, Epoch, RelationId


_SAMPLES: Final = 16
_SAMPLED_ROWS: Final = 4096
_SAMPLED_SEGMENTS: Final = 4
"""An estimate reads the tested columns of up to so many rows, of up to so many segments, at each of
``_SAMPLES`` places."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """Finds the parts of the inputs that may contain rows of a slice."""

    ledger: Ledger
    relations: Mapping[RelationId, Relation]
    sliced: Sliced

    def inputs(self, build: BuildId, expects: int) -> OfSlice:
        """Return the inputs of a fill of a build, which reads about ``expects`` rows."""
        return OfSlice(build, self.sliced.lookups, self.kept, expects)

    def kept(self, relation: RelationId, share: LogShare) -> LogShare:
        """Return the changes of a log share in those segments that may have rows of the slice."""
        restrictions = self._restrictions(relation)
        if not all(each.tests for each in restrictions):
            return share
        prunings = [Pruning.of(each) for each in restrictions]
        bounds = dict(self.ledger.log.bounds(relation, share.end))

        def may_hold(segment: Segment) -> bool:
            known = bounds.get(segment.range, {})
            return any(each.may_hold(known) for each in prunings)

        return share.among(tuple(filter(may_hold, share.segments)))

    def estimated(self, relation: Relation, first: int, end: int, directory: Path) -> int:
        """Estimate from a sample how many rows of the offsets ``[first, end)`` have to be read."""
        restrictions = self._restrictions(relation.id)
        if not isinstance(relation, Stream) or not all(r.tests for r in restrictions):
            return end - first
        whole = log_share(self.ledger, relation.id, Offset(first), Offset(end))
        kept = self.kept(relation.id, whole)
        left, tested, passed, schema = kept.rows, 0, 0, relation.schema.stored
        for share in _samples(kept):
            tested += share.rows
            for restriction in restrictions:
                read = EmbeddedLog().read(
                    directory / "log",
                    share,
                    pa.schema([schema.field(restriction.tests[0].column)]),
                    offsets=False,
                    restriction=restriction,
                )
                passed += sum(batch.num_rows for batch in read)
        return min(left, -(-left * passed // tested)) if tested else 0

    def _restrictions(self, relation: RelationId) -> list[Restriction]:
        leaves = self.sliced.leaves.items()
        return [each for leaf, each in leaves if leaf.plan.relation == relation]


def _samples(share: LogShare) -> Iterator[LogShare]:
    """Yield short parts of a share at equal distances, of few segments each."""
    rows = share.rows
    size = min(_SAMPLED_ROWS, -(-rows // _SAMPLES))
    for number in range(_SAMPLES if rows else 0):
        at = number * rows // _SAMPLES
        part = share.between(at, at + size)
        yield part.among(part.segments[:_SAMPLED_SEGMENTS])


@dataclass(frozen=True, slots=True)
class Replayed:
    """A committed replay: its epoch, its cost, and the number of changed rows.

    ``read`` counts the rows of inputs that were read, ``whole`` those that a rebuild reads.
    ``changed`` counts the changed rows of the view, ``state`` the changed rows of its operators'
    state. ``how`` is the plan in words.
    """

    epoch: Epoch
    read: int
    whole: int
    changed: int
    how: str
    state: int = 0


@dataclass(frozen=True, slots=True)
class InputPlan:
    """What a replay reads of an input: the rows that meet a condition; "" is all ``rows``.

    If ``looked_up``, joins find the needed rows by key, and the input is not scanned.
    """

    relation: RelationId
    name: str
    condition: str
    rows: int
    read: int
    looked_up: bool = False


@dataclass(frozen=True, slots=True)
class StatePlan:
    """What a replay replaces in an arrangement: the rows that meet a condition; "" is all rows."""

    arrangement: ArrangementId
    condition: str
    rows: int


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """What a replay would read and replace, before it runs.

    ``cost`` is the estimated number of input rows that it reads, ``whole`` the number that a
    rebuild reads. ``reasons`` say why it does not read fewer.
    """

    inputs: tuple[InputPlan, ...]
    state: tuple[StatePlan, ...]
    reasons: tuple[str, ...]

    @property
    def cost(self) -> int:
        """The estimated number of input rows that the replay reads."""
        return sum(each.read for each in self.inputs)

    @property
    def whole(self) -> int:
        """The number of input rows that a rebuild reads."""
        return sum(each.rows for each in self.inputs)

    @property
    def how(self) -> str:
        """What is read, in words."""
        return "; ".join(_shown(each) for each in self.inputs)


@dataclass(frozen=True, slots=True)
class Replays:
    """Plans and runs replays: one at a time for each view, while epochs continue."""

    reader: Reader
    ledger: Ledger
    engine: Engine
    loop: EpochLoop
    filling: Filling
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _locks: dict[RelationId, threading.Lock] = field(
        default_factory=lambda: defaultdict(threading.Lock)
    )

    def plan(self, view: View, slice_: Slice) -> ReplayPlan:
        """Return what the replay of a slice would read and replace.

        Raises:
            HeadraceError: ``invalid`` or ``unsupported`` if the slice's condition cannot be
                evaluated on the view's columns.
        """
        return self.planned(view, *self._sliced(view, slice_))

    def replay(
        self, view: View, slice_: Slice, progress: Progress, cleaned: tuple[DirtyId, ...] = ()
    ) -> Replayed:
        """Recompute a slice of a view from its inputs and replace it, whether or not it is dirty.

        ``cleaned`` are the dirty entries that this repairs.

        Raises:
            HeadraceError: as :meth:`plan`; ``conflict`` if the view or an input is stopped, or is
                dropped or replaced meanwhile, or if events of the slice may not be retained any
                more; any error of the view's query. Nothing is replaced then.
        """
        self.reader.require_running(view)
        with self._alone(view):
            found, why = self._sliced(view, slice_)
            planned = self.planned(view, found, why)
            self.require_kept(view, found)
            known_as, circuit = BuildId(-next(self._numbers)), found.circuit
            pruned = Pruned(self.ledger, self.reader.catalog.by_id, found)
            fill = Fill(
                self.loop,
                view,
                progress,
                clocked=bool(circuit.temporal()),
                of_slice=pruned.inputs(known_as, planned.cost),
                may_miss=None,
                keeps=True,
            )
            self.engine.begin_replay(known_as, found)
            try:
                done = self._replaced(fill, known_as, cleaned, alone=bool(circuit.loops()))
            finally:
                fill.attempt.abandon()
                self.engine.end_replay(known_as)
        return Replayed(
            done.epoch, fill.taken, planned.whole, done.changed, planned.how, done.state
        )

    def _replaced(
        self, fill: Fill, known_as: BuildId, cleaned: tuple[DirtyId, ...], *, alone: bool
    ) -> Replaced:
        """Fill the slice, and replace it at the view's frontier."""
        view, loop = fill.view, self.loop

        def join(*, lags: bool = False) -> Replaced:
            live(loop.catalog, [view.id], {view.id: view})
            return replace_slice(fill, known_as, cleaned, lags=lags)

        if view.id not in self.reader.published.lagging:
            return self.filling.join(fill, join, alone=alone)
        return self.filling.join_standing(fill, lambda: join(lags=True))

    def _sliced(self, view: View, slice_: Slice) -> tuple[Sliced, tuple[str, ...]]:
        """Return the sliced circuit of a view, and why a time does not restrict its inputs."""
        if slice_.since is None:
            return self.engine.sliced(view, slice_.where), ()
        found = changed_since(self.engine, self.loop, view, slice_.since)
        if found is None:
            why = f"SINCE does not narrow it: {why_unknown(view, self.reader.catalog)}"
            return self.engine.sliced(view, slice_.where), (why,)
        both = f"({slice_.where}) AND ({found})" if slice_.where else found
        return self.engine.sliced(view, both), ()

    def planned(self, view: View, found: Sliced, why: tuple[str, ...] = ()) -> ReplayPlan:
        """Return what the replay of a slice of a view's circuit would read and replace."""
        catalog, state = self.reader.catalog, self.reader.published
        inputs, directory, ends = [], self.loop.directory, state.read_by(view)
        pruned = Pruned(self.ledger, catalog.by_id, found)
        for id_ in sorted(found.circuit.reads):
            relation = catalog.by_id[id_]
            first = state.starts.get(id_, 0) if isinstance(relation, Stream) else 0
            if isinstance(relation, Stream):
                rows = ends.get(id_, 0) - first
            else:
                rows = sum(run.file.rows for run in state.runs(relation))
            leaves = [leaf for leaf in found.circuit.sources() if leaf.plan.relation == id_]
            texts = {_conditions(found.nodes[leaf]) for leaf in leaves}
            text = "" if "" in texts else " OR ".join(sorted(texts))
            looked_up = id_ in found.lookups
            read = 0 if looked_up else pruned.estimated(relation, first, first + rows, directory)
            inputs.append(InputPlan(id_, relation.name, text, rows, read, looked_up))
        stored = state.spines
        kept = tuple(
            StatePlan(
                id_, _conditions(each.conditions), sum(r.file.rows for r in stored.get(id_, ()))
            )
            for id_, each in found.arrangements.items()
            if id_ != rows_of(view.id)
        )
        reasons = tuple(
            dict.fromkeys(f"{each.condition.text}: {each.reason}" for each in found.lost)
        )
        return ReplayPlan(tuple(inputs), kept, (*reasons, *why))

    def require_possible(self, view: View, slice_: Slice) -> None:
        """Refuse a slice that cannot be recomputed because its events may not be retained any more.

        Raises:
            HeadraceError: as :meth:`plan`; ``conflict``.
        """
        self.require_kept(view, self._sliced(view, slice_)[0])

    def require_kept(self, view: View, found: Sliced) -> None:
        """Refuse a slice some of whose events may not be retained any more.

        Raises:
            HeadraceError: ``conflict``.
        """
        for stream in self.unkept(view, found):
            start = self.reader.published.starts[stream.id]
            raise HeadraceError(
                Code.CONFLICT,
                f'the first {start:,} events of stream "{stream.name}" are no longer kept',
                f'Rows of this slice of view "{view.name}" may derive from them.',
                "Choose a slice by columns whose values these events did not have, such as a later"
                " time; or CREATE OR REPLACE the view WITH (since = 'earliest').",
            )

    def unkept(self, view: View, found: Sliced) -> list[Stream]:
        """Return the streams that no longer retain all events that may belong to a slice."""
        state, missing = self.reader.published, []
        for id_ in state.unkept(view):
            stream = state.catalog.by_id[id_]
            if not isinstance(stream, Stream):
                continue
            retired = known_of(self.ledger, self.loop.directory / "log", stream)
            if retired is None:
                continue
            known = read_bounds(retired.bounds, stream.schema.stored)
            leaves = [leaf for leaf in found.circuit.sources() if leaf.plan.relation == id_]
            if not all(
                each in found.leaves and not found.leaves[each].may_hold(known) for each in leaves
            ):
                missing.append(stream)
        return missing

    @contextmanager
    def _alone(self, view: View) -> Iterator[None]:
        with self._locks[view.id]:
            yield


def _conditions(found: Iterable[Conjunct]) -> str:
    return " AND ".join(each.text for each in found)


def _shown(each: InputPlan) -> str:
    if each.looked_up:
        return f"{each.name} by key"
    return f"{each.name} where {each.condition}" if each.condition else f"all of {each.name}"
