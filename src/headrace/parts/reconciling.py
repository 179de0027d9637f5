"""Reconciliation: samples of every view, compared with its query, again and again.

A sample of the stored rows is compared with what plain Spark batch makes of the logs below the
view, by :class:`~headrace.parts.comparing.Comparing`. Rows that differ are kept as evidence, with
a dirty entry, in one transaction; what happens then is a setting.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from headrace.catalog import Sink, View
from headrace.circuit.digest import digest
from headrace.engine.comparisons import sampled_by
from headrace.errors import Code, HeadraceError
from headrace.ledger import Dirty, DirtyState, Evidence, Repair, Repaired, Slice
from headrace.parts.naming import HIDDEN
from headrace.parts.sampling import Rounds, rounds_of
from headrace.parts.stopped import mark_stopped
from headrace.runtime.cancelling import StatementLock
from headrace.runtime.fill import Fill
from headrace.runtime.published import STOPPED
from headrace.runtime.settings import OnDifference
from headrace.serving.values import json_value
from headrace.zset import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from headrace.catalog import Relation
    from headrace.engine.comparisons import Count, Sample
    from headrace.engine.engine import Engine
    from headrace.ledger import Ledger
    from headrace.parts.comparing import Comparing
    from headrace.parts.reader import Reader
    from headrace.parts.repairing import Repairing
    from headrace.runtime.compaction import Compaction
    from headrace.runtime.epoch import EpochLoop
    from headrace.runtime.fill import Progress
    from headrace.runtime.published import Published
    from headrace.types import DirtyId, Epoch

RECONCILIATION: Final = "reconciliation"
"""The cause of the dirty entry of a slice that reconciliation has found to differ."""
COPIES: Final = "__copies"
"""The key of the number of a row's copies in evidence, where they are several."""

_STATES: Final = {
    OnDifference.REPAIR: DirtyState.OPEN,
    OnDifference.QUARANTINE: DirtyState.QUARANTINED,
    OnDifference.REPORT: DirtyState.REPORTED,
}
_MOST_ROWS: Final = 100
_TOGETHER: Final = 2
"""The number of views that are compared in one job: planning more of them takes longer."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The outcome of comparing a sample of a view.

    ``rows`` are the stored rows of the sample, ``differences`` how many are not what they should
    be, of which there is ``evidence``. ``outcome`` says what was done about them; or, if the query
    fails in batch, why nothing was compared.
    """

    view: View
    rounds: Rounds
    rows: int = 0
    differences: int = 0
    evidence: Evidence | None = None
    outcome: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Reconciling:
    """Compares samples of views, one comparison at a time, and has differences repaired."""

    reader: Reader
    ledger: Ledger
    engine: Engine
    loop: EpochLoop
    compaction: Compaction
    comparing: Comparing
    repairing: Repairing
    on_difference: OnDifference
    _alone: StatementLock = field(default_factory=StatementLock)

    def views(self, state: Published) -> list[View]:
        """Return the views that epochs maintain in a state, each after those that it reads.

        Queries that are followed are left out, since they live no longer than their readers, and
        views that lag, or read one that does, since what they show is not one state of the logs.
        """
        fed = {sink.source for sink in state.catalog if isinstance(sink, Sink)}
        return [
            view
            for view in state.catalog.views_in_order()
            if view.id not in state.stopped
            and not state.catalog.below([view.id]) & state.lagging.keys()
            and (view.id in fed or view.index is not None or not view.name.startswith(HIDDEN))
        ]

    def rounds(self, state: Published) -> dict[View, Rounds]:
        """Return how far each of these views has been compared, as of its last comparison."""
        known = rounds_of(self.ledger)
        return {v: known.get(v.id) or self._first(v, state) for v in self.views(state)}

    def inputs(self, view: View, state: Published) -> dict[str, int]:
        """Return what tells the contents of a view in a state from its contents in others."""
        catalog = state.catalog
        found = {str(id_): int(state.positions.get(id_, 0)) for id_ in catalog.bases([view.id])}
        if catalog.below([view.id]) & self.engine.temporal().keys():
            found["clock"] = state.clock
        return {**found, "build": view.build}

    def is_settled(self, view: View, rounds: Rounds, state: Published) -> bool:
        """Whether all rows were compared, and nothing that the view reads has changed since."""
        return rounds.is_over and dict(rounds.began) == self.inputs(view, state)

    def compare(
        self,
        views: Sequence[View],
        state: Published,
        wanted: Callable[[int], int],
        report: Progress = lambda _done, _total: None,
    ) -> list[Compared]:
        """Compare the next samples of some views in one job, or each in its own if that fails.

        ``wanted`` returns about how many rows to compare of a number of them; ``report`` is told
        how far the repair of a view is.

        Raises:
            HeadraceError: ``conflict`` if the catalog has changed meanwhile; ``unavailable``,
                ``cancelled``.
        """
        with self._alone:
            known = self.rounds(state)
            begun = {view: self._begun(view, known[view], state, wanted) for view in views}
            samples = {}
            for view, rounds in begun.items():
                size = _rows(view, state)
                columns, slices = (
                    sampled_by(view.schema, view.key),
                    rounds.slices_for(size, wanted(size)),
                )
                samples[view.id] = rounds.sample(columns, slices)
            counts = self._counted(views, state, samples)
            return [
                Compared(view, begun[view], outcome=found.primary, failed=True)
                if isinstance(found, HeadraceError)
                else self._compared(view, state, begun[view], samples[view.id], found, report)
                for view, found in counts.items()
            ]

    # -- comparing -------------------------------------------------------------------------

    def _first(self, view: View, state: Published) -> Rounds:
        return Rounds.first(_rows(view, state), self.inputs(view, state))

    def _begun(
        self, view: View, rounds: Rounds, state: Published, wanted: Callable[[int], int]
    ) -> Rounds:
        """Return the round at hand, the next one if it is over; a new one if all is wanted."""
        rows, began = _rows(view, state), self.inputs(view, state)
        if rounds.done and not rounds.is_over and wanted(rows) >= rows:
            return rounds.anew(rows, began)
        if rounds.began.get("build") != began["build"]:
            return rounds.anew(rows, began)
        return rounds.next_round(rows, began) if rounds.is_over else rounds

    def _counted(
        self, views: Sequence[View], state: Published, samples: Mapping[Any, Sample]
    ) -> dict[View, Count | HeadraceError]:
        """Return what was counted of each view; the error, if its query fails on the data."""
        found: dict[View, Count | HeadraceError] = {}
        for start in range(0, len(views), _TOGETHER):
            some = views[start : start + _TOGETHER]
            try:
                found |= zip(some, self.comparing.counted(some, state, samples), strict=True)
            except HeadraceError as error:
                if error.code in (Code.UNAVAILABLE, Code.CANCELLED):
                    raise
                if len(some) == 1:
                    found[some[0]] = error
                else:
                    for view in some:
                        found |= self._counted([view], state, samples)
        return found

    def _compared(
        self,
        view: View,
        state: Published,
        rounds: Rounds,
        sample: Sample,
        count: Count,
        report: Progress,
    ) -> Compared:
        found = None
        if count.different:
            found = self.comparing.differing(view, state, _MOST_ROWS, sample)
            if not found.num_rows:  # sums of floats, within the tolerance
                count, found = replace(count, different=0, wrong=0), None
        if not self._is_as_it_was(view, state):
            raise HeadraceError(
                Code.CONFLICT,
                f'view "{view.name}" was compared while relations were created or dropped',
                hint="Run the statement again.",
            )
        rounds = rounds.after(sample, count, time.time())
        if found is None:
            self.ledger.record_comparison(view.id, rounds.to_json())
            return Compared(view, rounds, count.stored)
        evidence = self._evidence(view, state, sample, count, found)
        return self._acted(view, rounds, sample, count, evidence, report)

    def _is_as_it_was(self, view: View, state: Published) -> bool:
        """Whether a view, and all that it reads, still has the query that it has in a state."""
        before, now = state.catalog.by_id, self.reader.catalog.by_id
        return all(
            id_ in now and _defined(now[id_]) == _defined(before[id_])
            for id_ in state.catalog.below([view.id])
        )

    def _evidence(
        self, view: View, state: Published, sample: Sample, count: Count, found: pa.Table
    ) -> Evidence:
        sides: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
        for row in found.to_pylist():
            weight = row.pop(WEIGHT)
            copies = {COPIES: abs(weight)} if abs(weight) > 1 else {}
            sides[weight > 0].append({**json_value(row), **copies})
        return Evidence(
            view.id,
            state.epoch,
            time.time(),
            Slice(sample.where),
            {id_: state.positions[id_] for id_ in state.catalog.bases([view.id])},
            digest(self.engine.circuit(view)),
            tuple(sides[False]),
            tuple(sides[True]),
            count.wrong,
        )

    # -- what is done about differences ----------------------------------------------------

    def _acted(
        self,
        view: View,
        rounds: Rounds,
        sample: Sample,
        count: Count,
        found: Evidence,
        report: Progress,
    ) -> Compared:
        """Keep the evidence, mark the slice dirty, and do what is to be done about it."""
        ledger, made = self.ledger, rounds.to_json()
        known = self._marked(view)
        entries = () if known else self._entries(view, found)
        with self.loop.exclusive():  # if the view stops, that is published
            evidence = ledger.record_comparison(view.id, made, found, entries)
        compared = Compared(view, rounds, count.stored, count.wrong, evidence)
        if known:
            return replace(compared, outcome="it is dirty already: SHOW DIRTY")
        match self.on_difference:
            case OnDifference.REPAIR if self.repairing.automatic:
                return self._repaired(compared, sample, report)
            case OnDifference.QUARANTINE:
                return replace(compared, outcome=f"quarantined: REPAIR {view.name} fills it anew")
            case _:
                return replace(compared, outcome=f"not repaired: REPAIR {view.name} does that")

    def _marked(self, view: View) -> list[DirtyId]:
        """Return the dirty entries of a view of which there is evidence."""
        of_view = (e for e in self.ledger.dirty() if e.view == view.id)
        return [e.id for e in of_view if e.cause == RECONCILIATION and e.id is not None]

    def _entries(self, view: View, found: Evidence) -> tuple[Dirty, ...]:
        rows = "row differs" if found.differences == 1 else "rows differ"
        detail = f"{found.differences} {rows} from the query at epoch {found.epoch}"
        entry = Dirty(
            view.id,
            RECONCILIATION,
            found.at,
            detail,
            slice=found.slice,
            repair=Repair.REPLAY,
            state=_STATES[self.on_difference],
        )
        if self.on_difference is not OnDifference.QUARANTINE:
            return (entry,)
        stop = Dirty(view.id, STOPPED, found.at, f"Reconciliation has quarantined it: {detail}.")
        return (entry, stop)

    def _repaired(self, compared: Compared, sample: Sample, report: Progress) -> Compared:
        """Have a slice recomputed that differs, and compare it again, and all that reads it.

        If a view that it reads was wrong and has been repaired since, it is right already.
        """
        view, evidence = compared.view, compared.evidence
        equal = self._equal_in(view, sample)
        outcome = f"equal in epoch {equal}, since what it reads was repaired"
        if equal is None:
            error = self._recompute(view, report)
            equal = self._equal_in(view, sample)
            outcome = f"recomputed, and equal in epoch {equal}"
            if equal is None:
                failed = "recomputed, and still differs"
                outcome = failed if error is None else f"not repaired: {error.primary}"
                return replace(compared, outcome=outcome)
        self.ledger.clear_dirty(view.id, RECONCILIATION)
        if evidence is not None and evidence.id is not None:
            self.ledger.settle_evidence(evidence.id, outcome)
        state = self.reader.published
        now = _live(state, view)
        rounds = compared.rounds.anew(_rows(now, state), self.inputs(now, state))
        self.ledger.record_comparison(view.id, rounds.to_json())
        for above in self._above(view):
            self.compare([above], self.reader.published, lambda rows: rows, report)
        return replace(compared, outcome=outcome)

    def _equal_in(self, view: View, sample: Sample) -> Epoch | None:
        """Compare a sample as it is now; return its epoch if it is equal, None if it differs."""
        state = self.reader.published
        now = _live(state, view)
        (count,) = self.comparing.counted([now], state, {view.id: sample})
        if count.different and self.comparing.differing(now, state, 1, sample).num_rows:
            return None
        return state.epoch

    def _recompute(self, view: View, report: Progress) -> HeadraceError | None:
        """Have the slices recomputed that are marked; return the error if that fails.

        What reads the view follows the difference. Where it cannot, since it never followed the
        rows that were wrong, it stops meanwhile, and is filled anew.
        """
        error = self._replayed(view, report)
        above = self._above(view)
        if error is None or error.code not in (Code.INTERNAL, Code.INVALID) or not above:
            return error
        last = self.ledger.last_epoch()
        with self.loop.exclusive():
            for each in above:
                why = f'It is filled anew after view "{view.name}", which is repaired.'
                mark_stopped(self.ledger, each, last, why)
        error = self._replayed(view, report)
        with self.loop.exclusive(), self.compaction.busy:
            for each in above:
                Fill(self.loop, each, report).again(Repaired(each.id, STOPPED, last))
        return error

    def _replayed(self, view: View, report: Progress) -> HeadraceError | None:
        done = self.repairing.repair(self._marked(view), lambda _entry: report)
        errors = [each.done for each in done if isinstance(each.done, HeadraceError)]
        return errors[0] if errors else None

    def _above(self, view: View) -> list[View]:
        """Return the maintained views that read a view, each after those that it reads."""
        state = self.reader.published
        ids = {relation.id for relation in state.catalog.dependants(view.id)}
        views = state.catalog.views_in_order()
        return [v for v in views if v.id in ids and v.id not in state.stopped]


def _rows(view: View, state: Published) -> int:
    """Return an upper bound of the number of rows that a state stores of a view."""
    return sum(run.rows for run in state.runs(view))


def _live(state: Published, view: View) -> View:
    """Return a view as a state has it: with its present build.

    Raises:
        HeadraceError: ``conflict`` if it was dropped.
    """
    for there in state.catalog.views_in_order():
        if there.id == view.id:
            return there
    raise HeadraceError(
        Code.CONFLICT,
        f'view "{view.name}" was dropped meanwhile',
        hint="Run the statement again.",
    )


def _defined(relation: Relation) -> Relation:
    """Return a relation without what differs between two builds of the same query."""
    return replace(relation, replacement=None) if isinstance(relation, View) else relation
