"""Reconciliation: samples of every view, compared with its query, again and again.

A sample of the stored rows is compared with what plain Spark batch makes of the logs below the
view, by :class:`~headrace.parts.comparing.Comparing`. Rows that differ are kept as evidence, with
a dirty entry, in one transaction; what happens then is a setting.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from headrace.catalog import View
from headrace.circuit.digest import digest
from headrace.engine.comparisons import sampled_by
from headrace.errors import Code, HeadraceError
from headrace.ledger import Dirty, DirtyState, Evidence, Repair, Slice
from headrace.parts.sampling import Rounds
from headrace.runtime.cancelling import StatementLock
from headrace.runtime.published import STOPPED
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
    from headrace.parts.definer import Definer
    from headrace.parts.reader import Reader
    from headrace.runtime.epoch import EpochLoop
    from headrace.runtime.fill import Progress
    from headrace.runtime.published import Published
    from headrace.types import Epoch

RECONCILIATION: Final = "reconciliation"
"""The cause of the dirty entry of a slice that reconciliation has found to differ."""
COPIES: Final = "__copies"
"""The key of the number of a row's copies in evidence, where they are several."""

_MOST_ROWS: Final = 100
_TOGETHER: Final = 2
"""The number of views that are compared in one job: planning more of them takes longer."""


class OnDifference(StrEnum):
    """What is done about rows that differ, besides keeping evidence and marking them dirty."""

    REPAIR = "repair"
    """They are recomputed, and compared again."""
    QUARANTINE = "quarantine"
    """The view stops: it is neither maintained nor read until REPAIR has filled it anew."""
    REPORT = "report"
    """Nothing: the view goes on."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The outcome of comparing a sample of a view.

    ``rows`` are the stored rows of the sample, ``differences`` the distinct rows that differ, of
    which there is ``evidence``. ``outcome`` says what was done about them; or, if the query fails
    in batch, why nothing was compared.
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
    comparing: Comparing
    definer: Definer
    on_difference: OnDifference
    _alone: StatementLock = field(default_factory=StatementLock)

    def views(self, state: Published) -> list[View]:
        """Return the views that a state maintains, each after those that it reads."""
        return [view for view in state.catalog.views_in_order() if view.id not in state.stopped]

    def rounds(self, state: Published) -> dict[View, Rounds]:
        """Return how far each of these views has been compared, as of its last comparison."""
        known = self.ledger.reconciled()
        found = {}
        for view in self.views(state):
            made = known.get(view.id)
            rows, began = self._inputs(view, state)
            found[view] = Rounds.of_json(made) if made else Rounds.first(rows, began)
        return found

    def is_settled(self, view: View, rounds: Rounds, state: Published) -> bool:
        """Whether all rows were compared, and nothing that the view reads has changed since."""
        _, began = self._inputs(view, state)
        return rounds.is_over and dict(rounds.began) == began

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
            begun = {view: self._begun(view, known[view], state) for view in views}
            samples = {
                view.id: rounds.sample(
                    sampled_by(view.schema, view.key),
                    rounds.slices_for(size, wanted(size)),
                )
                for view, rounds in begun.items()
                for size, _ in (self._inputs(view, state),)
            }
            counts = self._counted(views, state, samples)
            return [
                Compared(view, begun[view], outcome=found.primary, failed=True)
                if isinstance(found, HeadraceError)
                else self._compared(view, state, begun[view], samples[view.id], found, report)
                for view, found in counts.items()
            ]

    # -- comparing -------------------------------------------------------------------------

    def _inputs(self, view: View, state: Published) -> tuple[int, dict[str, int]]:
        """Return about how many rows a view has, and what tells its contents from others."""
        rows = sum(run.rows for run in state.runs(view))
        catalog = state.catalog
        began = {str(id_): state.positions.get(id_, 0) for id_ in sorted(catalog.bases([view.id]))}
        if catalog.below([view.id]) & self.engine.temporal().keys():
            began["clock"] = state.clock
        return rows, {**began, "build": view.build}

    def _begun(self, view: View, rounds: Rounds, state: Published) -> Rounds:
        """Return the round at hand, the next one if it is over."""
        rows, began = self._inputs(view, state)
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
            count.different,
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
        marked = any(e.cause == RECONCILIATION and e.view == view.id for e in self.ledger.dirty())
        action = OnDifference.REPORT if marked else self.on_difference
        entries = () if marked else self._entries(view, found, action)
        made = rounds.to_json()
        if action is OnDifference.QUARANTINE:
            with self.loop.exclusive():
                evidence = self.ledger.record_comparison(view.id, made, found, entries)
        else:
            evidence = self.ledger.record_comparison(view.id, made, found, entries)
        compared = Compared(view, rounds, count.stored, count.different, evidence)
        match action:
            case OnDifference.REPAIR:
                return self._repaired(compared, sample, report)
            case OnDifference.QUARANTINE:
                return replace(compared, outcome=f"quarantined: REPAIR {view.name} fills it anew")
            case OnDifference.REPORT:
                return replace(compared, outcome="not repaired")

    @staticmethod
    def _entries(view: View, found: Evidence, action: OnDifference) -> tuple[Dirty, ...]:
        rows = "row differs" if found.differences == 1 else "rows differ"
        detail = f"{found.differences} {rows} from the query at epoch {found.epoch}"
        quarantined = action is OnDifference.QUARANTINE
        entry = Dirty(
            view.id,
            RECONCILIATION,
            found.at,
            detail,
            slice=found.slice,
            repair=Repair.REPLAY if action is OnDifference.REPAIR else Repair.REBUILD,
            state=DirtyState.QUARANTINED if quarantined else DirtyState.OPEN,
        )
        stop = Dirty(view.id, STOPPED, found.at, f"Reconciliation has quarantined it: {detail}.")
        return (entry, stop) if quarantined else (entry,)

    def _repaired(self, compared: Compared, sample: Sample, report: Progress) -> Compared:
        """Have a sample recomputed that differs, unless it has become right, and compare it again.

        It has if a view that it reads was wrong, and has been repaired since.
        """
        view, evidence = compared.view, compared.evidence
        outcome = self._made_equal(view, sample)
        if outcome is None:
            epoch = self._rebuild(view, report)
            equal = self._made_equal(view, sample) is not None
            again = "equal again" if equal else "still differs"
            outcome = f"rebuilt in epoch {epoch}, and {again}"
            if not equal:
                return replace(compared, outcome=outcome)
        self.ledger.clear_dirty(view.id, RECONCILIATION)
        if evidence is not None and evidence.id is not None:
            self.ledger.settle_evidence(evidence.id, outcome)
        state = self.reader.published
        rounds = compared.rounds.anew(*self._inputs(_live(state, view), state))
        self.ledger.record_comparison(view.id, rounds.to_json())
        return replace(compared, outcome=outcome)

    def _made_equal(self, view: View, sample: Sample) -> str | None:
        """Compare a sample as it is now; return since when it is equal, None if it differs."""
        state = self.reader.published
        now = _live(state, view)
        (count,) = self.comparing.counted([now], state, {view.id: sample})
        if count.different and self.comparing.differing(now, state, 1, sample).num_rows:
            return None
        return f"equal again in epoch {state.epoch}"

    def _rebuild(self, view: View, report: Progress) -> Epoch:
        """Fill a new build of a view beside the epochs; what reads it follows the difference."""
        now = _live(self.reader.published, view)
        again = replace(now, replacement=self.ledger.reserve_build())
        return self.definer.replace_view(now, again, report)


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
