"""Reconciliation: samples of all stored contents are repeatedly compared with their source.

A sample of a view is compared with the result of plain Spark batch over the logs below it, a sample
of a table with the contents of its log, by
:class:`~headrace.lifecycle.history.comparing.Comparing`. Differing rows are stored as evidence and,
for a view, marked dirty, in one transaction. Setting ``on_difference`` chooses what follows.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.execution.engine.verifying.comparisons import sampled_by
from headrace.execution.runtime.builds import fill_again
from headrace.execution.runtime.cancelling import StatementLock
from headrace.execution.runtime.connected import clocked
from headrace.execution.runtime.fill import Fill
from headrace.execution.runtime.published import STOPPED
from headrace.execution.runtime.replay import TableRebuild
from headrace.execution.runtime.settings import OnDifference
from headrace.execution.serving.values import json_value, python_rows
from headrace.lifecycle.history.comparing import Rounds, rounds_of
from headrace.lifecycle.states.stopped import mark_stopped
from headrace.planning.catalog import Sink, Table, View, key_of
from headrace.planning.catalog.naming import HIDDEN
from headrace.planning.circuit.digest import digest
from headrace.storage.ledger import Dirty, DirtyState, Evidence, RepairedView, RepairPath, Slice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from headrace.execution.engine.engine import Engine
    from headrace.execution.engine.verifying.comparisons import Count, Sample
    from headrace.execution.runtime.compaction import Compaction
    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.fill import Progress
    from headrace.execution.runtime.published import Published
    from headrace.lifecycle.history.comparing import Comparing, Stored
    from headrace.lifecycle.history.repairing import Repairing
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Relation
    from headrace.planning.catalyst.numbered import KeptRows
    from headrace.storage.ledger import Ledger
    from headrace.types import DirtyId, Epoch


RECONCILIATION: Final = "reconciliation"
"""The cause of dirty entries that reconciliation makes."""
COPIES: Final = "__copies"
"""The key in evidence for the number of a row's copies, if more than one."""

_STATES: Final = {
    OnDifference.REPAIR: DirtyState.OPEN,
    OnDifference.QUARANTINE: DirtyState.QUARANTINED,
    OnDifference.REPORT: DirtyState.REPORTED,
}
_BUILD: Final = "build"
"""The key of a view's build in the result of :meth:`Reconciling.inputs`."""
_MOST_ROWS: Final = 100
_TOGETHER: Final = 2
"""The number of views that are compared in one job: planning more of them takes longer."""


@dataclass(frozen=True, slots=True)
class SampleOutcome:
    """The outcome of comparing a sample of a table or view.

    ``rows`` is the number of stored rows in the sample, ``differences`` the number of wrong rows,
    which ``evidence`` lists. ``outcome`` says what was done about them or, if the query fails in
    batch, why nothing was compared.
    """

    relation: Stored
    rounds: Rounds
    rows: int = 0
    differences: int = 0
    evidence: Evidence | None = None
    outcome: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Reconciling:
    """Compares samples of tables and views, one at a time, and repairs differences."""

    reader: Reader
    ledger: Ledger
    engine: Engine
    loop: EpochLoop
    compaction: Compaction
    comparing: Comparing
    repairing: Repairing
    on_difference: OnDifference
    _alone: StatementLock = field(default_factory=StatementLock)

    def relations(self, state: Published) -> list[Stored]:
        """Return the tables and views of a state that can be compared, inputs first.

        Queries of followers are left out because they end with their readers; views that have read
        events which are no longer retained are left out because they cannot be recomputed. A
        lagging view is compared at its own frontier.
        """
        catalog = state.catalog
        fed = {sink.source for sink in catalog if isinstance(sink, Sink)}
        tables = [r for r in catalog if isinstance(r, Table) and not r.name.startswith(HIDDEN)]
        views = (
            view
            for view in catalog.views_in_order()
            if view.id not in state.stopped
            and not state.unkept(view)
            and (view.id in fed or view.index is not None or not view.name.startswith(HIDDEN))
        )
        return [*tables, *views]

    def rounds(self, state: Published) -> dict[Stored, Rounds]:
        """Return the progress of each of these relations, as of its last comparison."""
        known = rounds_of(self.ledger)
        return {r: known.get(r.id) or self._first(r, state) for r in self.relations(state)}

    def inputs(self, relation: Stored, state: Published) -> dict[str, int]:
        """Return values that differ between two states if the rows of a relation may differ."""
        catalog = state.catalog
        found = {str(id_): int(at) for id_, at in state.shown(relation.id).items()}
        if catalog.below([relation.id]) & clocked(self.ledger.head):
            found["clock"] = state.clock
        if isinstance(relation, View):
            found[_BUILD] = relation.build
        return found

    def is_settled(self, relation: Stored, rounds: Rounds, state: Published) -> bool:
        """Whether all rows have been compared, and the inputs have not changed since."""
        return rounds.is_over and dict(rounds.began) == self.inputs(relation, state)

    def compare(
        self,
        relations: Sequence[Stored],
        state: Published,
        wanted: Callable[[int], int],
        report: Progress = lambda _done, _total: None,
    ) -> list[SampleOutcome]:
        """Compare the next samples of some relations in one job, or in several if that fails.

        ``wanted`` maps the number of rows of a relation to the number of rows to compare;
        ``report`` receives the progress of repairs.

        Raises:
            HeadraceError: ``conflict`` if the catalog has changed meanwhile; ``unavailable``,
                ``cancelled``.
        """
        with self._alone:
            known = self.rounds(state)
            begun = {r: self._begun(r, known[r], state, wanted) for r in relations}
            samples = {}
            for relation, rounds in begun.items():
                size = _rows(relation, state)
                columns = sampled_by(relation.schema, key_of(relation))
                slices = rounds.slices_for(size, wanted(size))
                samples[relation.id] = rounds.sample(columns, slices)
            with self.comparing.reading_once(relations, state) as kept:
                counts = self._counted(relations, state, samples, kept)
            return [
                SampleOutcome(each, begun[each], outcome=found.primary, failed=True)
                if isinstance(found, HeadraceError)
                else self._compared(each, state, begun[each], samples[each.id], found, report)
                for each, found in counts.items()
            ]

    # -- comparing -------------------------------------------------------------------------

    def _first(self, relation: Stored, state: Published) -> Rounds:
        return Rounds.first(_rows(relation, state), self.inputs(relation, state))

    def _begun(
        self, relation: Stored, rounds: Rounds, state: Published, wanted: Callable[[int], int]
    ) -> Rounds:
        """Return the current round, the next one if it is complete, or a restarted one.

        It is restarted if the view was rebuilt, or if all rows are wanted in the middle of a round.
        """
        rows, began = _rows(relation, state), self.inputs(relation, state)
        if rounds.done and not rounds.is_over and wanted(rows) >= rows:
            return rounds.restarted(rows, began)
        if rounds.began.get(_BUILD) != began.get(_BUILD):
            return rounds.restarted(rows, began)
        return rounds.next_round(rows, began) if rounds.is_over else rounds

    def _counted(
        self,
        relations: Sequence[Stored],
        state: Published,
        samples: Mapping[Any, Sample],
        kept: Mapping[str, KeptRows],
    ) -> dict[Stored, Count | HeadraceError]:
        """Return the counts of each relation, or the error if its query fails on the data."""
        found: dict[Stored, Count | HeadraceError] = {}
        for start in range(0, len(relations), _TOGETHER):
            some = relations[start : start + _TOGETHER]
            try:
                counts = self.comparing.counted(some, state, samples, kept)
                found |= zip(some, counts, strict=True)
            except HeadraceError as error:
                if error.code in (Code.UNAVAILABLE, Code.CANCELLED):
                    raise
                if len(some) == 1:
                    found[some[0]] = error
                else:
                    for each in some:
                        found |= self._counted([each], state, samples, kept)
        return found

    def _compared(
        self,
        relation: Stored,
        state: Published,
        rounds: Rounds,
        sample: Sample,
        count: Count,
        report: Progress,
    ) -> SampleOutcome:
        found = None
        if count.different:
            found = self.comparing.differing(relation, state, _MOST_ROWS, sample)
            if not found.num_rows:  # sums of floats that differ within the tolerance
                count, found = replace(count, different=0, wrong=0), None
        if not self._is_as_it_was(relation, state):
            raise HeadraceError(
                Code.CONFLICT,
                f'{relation.kind} "{relation.name}" was compared while another was changed',
                hint="Run the statement again.",
            )
        rounds = rounds.after(sample, count, time.time())
        if found is None:
            self.ledger.evidence.record(relation.id, rounds.to_json())
            return SampleOutcome(relation, rounds, count.stored)
        evidence = self._evidence(relation, state, sample, count, found)
        return self._acted(relation, rounds, sample, count, evidence, report)

    def _is_as_it_was(self, relation: Stored, state: Published) -> bool:
        """Whether the definitions of a relation and of its inputs are still those of a state."""
        before, now = state.catalog.by_id, self.reader.catalog.by_id
        return all(
            id_ in now and _defined(now[id_]) == _defined(before[id_])
            for id_ in state.catalog.below([relation.id])
        )

    def _evidence(
        self, relation: Stored, state: Published, sample: Sample, count: Count, found: pa.Table
    ) -> Evidence:
        sides: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
        for row in python_rows(found):
            weight = row.pop(WEIGHT)
            copies = {COPIES: abs(weight)} if abs(weight) > 1 else {}
            sides[weight > 0].append({**json_value(row), **copies})
        return Evidence(
            relation.id,
            state.epoch,
            time.time(),
            Slice(sample.where),
            state.shown(relation.id),
            digest(self.engine.circuit(relation)) if isinstance(relation, View) else "",
            tuple(sides[False]),
            tuple(sides[True]),
            count.wrong,
        )

    # -- acting on differences -------------------------------------------------------------

    def _acted(
        self,
        relation: Stored,
        rounds: Rounds,
        sample: Sample,
        count: Count,
        found: Evidence,
        report: Progress,
    ) -> SampleOutcome:
        """Store the evidence, mark a view's slice dirty, and apply ``on_difference``."""
        ledger, made = self.ledger, rounds.to_json()
        known = self._marked(relation)
        entries = self._entries(relation, found) if isinstance(relation, View) and not known else ()
        stops = any(entry.cause == STOPPED for entry in entries)
        with self.loop.exclusive([relation.id]) if stops else self.loop.between():
            evidence = ledger.evidence.record(relation.id, made, found, entries)
        compared = SampleOutcome(relation, rounds, count.stored, count.wrong, evidence)
        if known:
            return replace(compared, outcome="it is dirty already: SHOW DIRTY")
        match self.on_difference:
            case OnDifference.REPAIR if self.repairing.automatic:
                return self._repaired(compared, sample, report)
            case OnDifference.QUARANTINE if isinstance(relation, View):
                outcome = f"quarantined: REPAIR {relation.name} rebuilds it"
                return replace(compared, outcome=outcome)
            case OnDifference.QUARANTINE:  # a table cannot stop, and its log says what is right
                return self._repaired(compared, sample, report)
            case _:
                return replace(compared, outcome="not repaired")

    def _marked(self, relation: Stored) -> list[DirtyId]:
        """Return the dirty entries of a relation that reconciliation has made."""
        own = (e for e in self.ledger.head.dirty if e.view == relation.id)
        return [e.id for e in own if e.cause == RECONCILIATION and e.id is not None]

    def _entries(self, view: View, found: Evidence) -> tuple[Dirty, ...]:
        rows = "row differs" if found.differences == 1 else "rows differ"
        detail = f"{found.differences} {rows} from the query at epoch {found.epoch}"
        entry = Dirty(
            view.id,
            RECONCILIATION,
            found.at,
            detail,
            slice=found.slice,
            repair=RepairPath.REPLAY,
            state=_STATES[self.on_difference],
        )
        if self.on_difference is not OnDifference.QUARANTINE:
            return (entry,)
        stop = Dirty(view.id, STOPPED, found.at, f"Reconciliation has quarantined it: {detail}.")
        return (entry, stop)

    def _repaired(self, compared: SampleOutcome, sample: Sample, report: Progress) -> SampleOutcome:
        """Recompute a differing slice and compare it again, then all rows of the views above.

        Nothing is recomputed if the slice has become equal because an input was repaired meanwhile.
        """
        relation, evidence = compared.relation, compared.evidence
        equal = self._equal_in(relation, sample)
        outcome = f"equal in epoch {equal}, since what it reads was repaired"
        if equal is None:
            error = self._recompute(relation, report)
            equal = self._equal_in(relation, sample)
            if equal is None and error is None:
                self._compare_below(relation, report)
                equal = self._equal_in(relation, sample)
            outcome = f"recomputed, and equal in epoch {equal}"
            if equal is None:
                failed = "recomputed, and still differs"
                outcome = failed if error is None else f"not repaired: {error.primary}"
                self._keep_dirty(relation, evidence)
                return replace(compared, outcome=outcome)
        self.ledger.dirty.clear(relation.id, RECONCILIATION)
        if evidence is not None and evidence.id is not None:
            self.ledger.evidence.settle(evidence.id, outcome)
        state = self.reader.published
        now = self._live(relation, state)
        rounds = compared.rounds.restarted(_rows(now, state), self.inputs(now, state))
        self.ledger.evidence.record(relation.id, rounds.to_json())
        # One wrong row suggests others, here and in the views above: all rows are compared.
        again = [now] if sample.where else []
        for each in (*again, *self._above(relation)):
            self.compare([each], self.reader.published, lambda rows: rows, report)
        return replace(compared, outcome=outcome)

    def _compare_below(self, relation: Stored, report: Progress) -> None:
        """Compare all inputs of a relation: recomputing from a wrong input gives wrong rows again.

        Differences are repaired, which also compares the views above them, this relation included.
        """
        below = self.reader.catalog.below([relation.id]) - {relation.id}
        for each in self.relations(self.reader.published):
            if each.id in below:
                self.compare([each], self.reader.published, lambda rows: rows, report)

    def _keep_dirty(self, relation: Stored, evidence: Evidence | None) -> None:
        """Mark a slice that still differs as dirty, to be repaired only by a statement."""
        if isinstance(relation, View) and evidence is not None and not self._marked(relation):
            (entry, *_) = self._entries(relation, evidence)
            origin = {"evidence": evidence.id}
            self.ledger.dirty.mark(replace(entry, origin=origin, state=DirtyState.REPORTED))

    def _equal_in(self, relation: Stored, sample: Sample) -> Epoch | None:
        """Compare the sample in the current state; return its epoch if equal, else None."""
        state = self.reader.published
        now = self._live(relation, state)
        (count,) = self.comparing.counted([now], state, {now.id: sample})
        if count.different and self.comparing.differing(now, state, 1, sample).num_rows:
            return None
        return state.epoch

    def _recompute(self, relation: Stored, report: Progress) -> HeadraceError | None:
        """Recompute the wrong rows; return the error if that fails.

        Views above follow the difference by deltas. If they cannot, because they never read the
        wrong rows, they are stopped meanwhile and rebuilt.
        """
        error = self._replayed(relation, report)
        above = self._above(relation)
        if error is None or error.code not in (Code.INTERNAL, Code.INVALID) or not above:
            return error
        last = self.ledger.head.epoch
        ids, what = [relation.id, *(each.id for each in above)], f"the repair of {relation.name}"
        with self.loop.exclusive(ids):
            for each in above:
                why = f'It is rebuilt after {relation.kind} "{relation.name}" is repaired.'
                mark_stopped(self.ledger, each, last, why)
        error = self._replayed(relation, report)
        with self.loop.holding(ids, what), self.compaction.busy:
            for each in above:
                fill_again(Fill(self.loop, each, report), RepairedView(each.id, STOPPED, last))
        return error

    def _replayed(self, relation: Stored, report: Progress) -> HeadraceError | None:
        if isinstance(relation, Table):
            what = f"the repair of {relation.name}"
            with self.loop.holding([relation.id], what), self.compaction.busy:
                layout = self.reader.published.layout(relation)
                try:
                    TableRebuild(self.loop, relation, layout, report).correct()
                except HeadraceError as error:
                    return error
            return None
        done = self.repairing.repair(self._marked(relation), lambda _entry: report)
        errors = [each.done for each in done if isinstance(each.done, HeadraceError)]
        return errors[0] if errors else None

    def _above(self, relation: Stored) -> list[View]:
        """Return the maintained views that read a relation, inputs first."""
        state = self.reader.published
        ids = {each.id for each in state.catalog.dependants(relation.id)}
        views = (each for each in self.relations(state) if isinstance(each, View))
        return [view for view in views if view.id in ids]

    def _live(self, relation: Stored, state: Published) -> Stored:
        """Return the present definition of a relation in a state; of a view, its serving build.

        Raises:
            HeadraceError: ``conflict`` if it was dropped, or has stopped.
        """
        for there in self.relations(state):
            if there.id == relation.id:
                return there
        raise HeadraceError(
            Code.CONFLICT,
            f'{relation.kind} "{relation.name}" was dropped, or has stopped, meanwhile',
            hint="Run the statement again.",
        )


def _rows(relation: Stored, state: Published) -> int:
    """Return an upper bound of the number of rows of a relation that a state stores."""
    return sum(run.file.rows for run in state.runs(relation))


def _defined(relation: Relation) -> Relation:
    """Return a relation without the fields that differ between two builds of the same query."""
    return replace(relation, replacement=None) if isinstance(relation, View) else relation
