"""``VERIFY``: compares views with their queries, run by Spark batch over the whole history."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import DoubleType, FloatType

from headrace.errors import Code, HeadraceError
from headrace.execution.engine.verifying.comparisons import EVERY_ROW, TOLERANCE, sampled_by
from headrace.execution.runtime.published import WAITING
from headrace.execution.serving.values import python_rows
from headrace.interfaces.statements.defining.candidates import candidate_of
from headrace.interfaces.statements.results import Listed, Progress
from headrace.lifecycle.history.comparing import Rounds
from headrace.planning.catalog import PlainView, Sink, View
from headrace.planning.catalog.naming import HIDDEN, shown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.execution.engine.verifying.comparisons import Sample
    from headrace.execution.runtime.published import Published
    from headrace.lifecycle.history.comparing import Comparing
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Relation
    from headrace.planning.catalyst.numbered import KeptRows
    from headrace.planning.sql import Name, ValidateView, Verify
    from headrace.types import RelationId


_MOST_DIFFERENCES = 20
_SLICES = 10_000
"""The parts into which rows are divided by a hash; a sample is some of these parts."""
_TOGETHER = 2
"""The number of views that are compared in one job. Spark plans them as one query, which takes
longer than planning each: 12 small views take 8.3 s together, 4.4 s in twos, 4.8 s one by one."""

EQUAL = "equal to batch"
STOPPED = "stopped"
UNCHECKED = "could not be checked"

Verdict = tuple[int, int, str]
"""The number of stored rows, the number of rows that differ, and the verdict in words."""


@dataclass(frozen=True, slots=True)
class Verifications:
    """Compares the stored rows of views with a recomputation from their inputs' logs."""

    reader: Reader
    comparing: Comparing
    report: Callable[[Progress], None]

    def verify(self, statement: Verify) -> Listed:
        """Return the verdict on each view, or on each of the named views."""
        reader = self.reader
        fed = {r.source: r.name for r in reader.catalog if isinstance(r, Sink)}
        views = self._views(statement.names, fed)
        damaged = self._damaged(views, everything=not statement.names)
        state = reader.published if damaged else reader.settled([v.id for v in views])
        verdicts = self._verdicts(views, damaged, state)
        others = [
            (reader.catalog.by_id[id_].name, 0, 0, text)
            for id_, text in damaged.items()
            if id_ not in verdicts
        ]
        found = [(shown_name(view, reader.catalog), *verdicts[view.id]) for view in views]
        return Listed(("view", "rows", "differences", "verdict"), others + found)

    def validate(self, statement: ValidateView) -> Listed:
        """Compare the rows of a view's candidate, or a sample of them, with its query by Spark."""
        view, candidate = candidate_of(self.reader, statement.name)
        damaged = self._damaged([candidate], everything=False)
        state = self.reader.published if damaged else self.reader.settled([candidate.id])
        different = 0
        if statement.percent is None or damaged:
            stored, different, verdict = self._verdicts([candidate], damaged, state)[candidate.id]
        else:
            sample = _share_of(candidate, statement.percent)
            (count,) = self.comparing.counted([candidate], state, {candidate.id: sample})
            stored, verdict = count.stored, EQUAL
            if count.different:
                stored, different, verdict = self._differing(candidate, stored, state, sample)
        found = (f"candidate of {view.name}", stored, different, verdict)
        return Listed(("view", "rows", "differences", "verdict"), [found])

    def _views(self, names: tuple[Name, ...], fed: dict[RelationId, str]) -> list[View]:
        catalog = self.reader.catalog
        views = [
            v
            for v in catalog.views_in_order()
            if v.id in fed or v.index is not None or not v.name.startswith(HIDDEN)
        ]
        named = set()
        for name in names:
            relation = catalog.resolve(name.dotted, name.span)
            if isinstance(relation, PlainView):
                raise HeadraceError(
                    Code.INVALID,
                    f'plain view "{relation.name}" stores no rows to verify',
                    hint="VERIFY the materialized views that read it, or VERIFY alone for all.",
                    span=name.span,
                )
            named.add(relation.id)
        return [view for view in views if not names or view.id in named]

    def _damaged(self, views: list[View], *, everything: bool) -> dict[RelationId, str]:
        """Return the damage of views or of everything, with the remedy, by relation id."""
        catalog = self.reader.catalog
        read = catalog if everything else [r for view in views for r in self._stored_below(view)]
        return {
            id_: f"damaged: {each.reason}: REPAIR {catalog.by_id[id_].name}"
            for id_, (each, *_) in self.reader.damaged(read).items()
        }

    def _stored_below(self, view: View) -> list[Relation]:
        """Return a view and all relations that it reads, directly or indirectly."""
        catalog = self.reader.catalog
        found, pending = [], [view.id]
        while pending:
            relation = catalog.by_id[pending.pop()]
            found.append(relation)
            pending += relation.depends_on if isinstance(relation, View) else ()
        return found

    def _verdicts(
        self, views: list[View], damaged: Mapping[RelationId, str], state: Published
    ) -> dict[RelationId, Verdict]:
        found: dict[RelationId, Verdict] = {}
        dirty = self.reader.ledger.head.dirty
        waits = {entry.view: entry.detail for entry in dirty if entry.cause == WAITING}
        for view in views:
            below = [relation.id for relation in self._stored_below(view)]
            unread = next((damaged[id_] for id_ in below if id_ in damaged), None)
            if unread is not None:
                found[view.id] = (0, 0, unread)
            elif view.id in waits:
                found[view.id] = (0, 0, f"{WAITING}: {waits[view.id]}")
            elif view.id in state.stopped:
                found[view.id] = (0, 0, STOPPED)
            elif cut := state.unkept(view):
                name, first = state.catalog.by_id[cut[0]].name, state.starts[cut[0]]
                why = f"the first {first:,} events of stream {name} are no longer kept"
                found[view.id] = (0, 0, f"{UNCHECKED}: {why}")
        running = [view for view in views if view.id not in found]
        with self.comparing.reading_once(running, state) as kept:
            for start in range(0, len(running), _TOGETHER):
                some = running[start : start + _TOGETHER]
                names = some[0].name if len(some) == 1 else f"{len(some)} views"
                self.report(Progress(f"verifying {names}", start, len(running), "views"))
                found |= self._together(some, (start, len(running)), state, kept)
        return found

    def _together(
        self,
        views: list[View],
        among: tuple[int, int],
        state: Published,
        kept: Mapping[str, KeptRows],
    ) -> dict[RelationId, Verdict]:
        """Compare some views in one job; if that fails, compare each in its own job.

        ``among`` are the number of views before them, and of all. If a view's query fails on the
        data, the failure is its verdict.
        """
        try:
            return self._compared(views, state, kept)
        except HeadraceError as error:
            if len(views) == 1:
                if error.code is Code.UNAVAILABLE:
                    raise
                return {views[0].id: (0, 0, f"{UNCHECKED}: {error.primary}")}
        found: dict[RelationId, Verdict] = {}
        for number, view in enumerate(views, among[0]):
            self.report(Progress(f"verifying {view.name}", number, among[1], "views"))
            found |= self._together([view], (number, among[1]), state, kept)
        return found

    def _compared(
        self, views: list[View], state: Published, kept: Mapping[str, KeptRows]
    ) -> dict[RelationId, Verdict]:
        counts = self.comparing.counted(views, state, kept=kept)
        return {
            view.id: self._with_inputs(
                view,
                (count.stored, 0, EQUAL)
                if not count.different
                else self._differing(view, count.stored, state),
                state,
            )
            for view, count in zip(views, counts, strict=True)
        }

    def _with_inputs(self, view: View, verdict: Verdict, state: Published) -> Verdict:
        """Add to a verdict the names of input views whose stored rows were read."""
        stored, different, words = verdict
        below = self.comparing.stored_below(view, state).views
        cut = [each for each in below if state.unkept(each)]
        keeping = [each for each in below if each.quarantines and each not in cut]
        replaced = [each for each in below if each not in (*cut, *keeping)]
        for views, why in (
            (cut, "some of whose events are no longer kept"),
            (keeping, "whose quarantine is kept in its last state only"),
            (replaced, "replaced or altered since the view was refreshed"),
        ):
            if views:
                names = ", ".join(shown_name(each, state.catalog) for each in views)
                words += f", by the stored rows of {names}, {why}"
        return stored, different, words

    def _differing(
        self, view: View, stored: int, state: Published, sample: Sample = EVERY_ROW
    ) -> Verdict:
        """Return the verdict on a view whose rows or only last digits of floats differ."""
        found = self.comparing.differing(view, state, _MOST_DIFFERENCES, sample)
        if not found.num_rows:
            types = {type(column.type) for column in view.schema.columns}
            return stored, 0, f"{EQUAL} ({_within(types)})"
        return stored, found.num_rows, f"differs: {python_rows(found)[0]}"


def _share_of(view: View, percent: float) -> Sample:
    """Return a random sample of about so many of the rows of a view."""
    rounds = Rounds(random.randrange(1 << 31), _SLICES)  # noqa: S311
    columns = sampled_by(view.schema, view.key)
    return rounds.sample(columns, max(1, round(percent / 100 * _SLICES)))


def _within(types: set[type]) -> str:
    """Return the tolerances by which floats were compared, in words."""
    tolerances = [f"doubles within {TOLERANCE[DoubleType]}"] if DoubleType in types else []
    tolerances += [f"floats within {TOLERANCE[FloatType]}"] if FloatType in types else []
    return ", ".join(tolerances)
