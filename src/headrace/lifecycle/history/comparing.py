"""Compares stored contents with the result of plain Spark batch over canonical history.

The confidence bound of a random sample: the exact bound of Clopper and Pearson.

The progress of reconciliation: rounds of samples that together cover all rows of a relation.

A round divides the rows of a view, both the stored and the expected ones, into slices by a salted
hash of its key, or of all columns if it has no key. Each slice is compared once, in a random order.
So a complete round has compared every row, and the slices compared so far are a random sample.

What is sampled is a *unit*: the rows with one value of the hashed columns. With a key, a unit is
one row that is stored, expected, or both. Each round draws a new salt, independent of the rows: as
far as the hash is random, the compared units are a random sample without replacement of all units,
and :func:`~headrace.lifecycle.history.comparing.upper_bound` holds for the share of units that were
wrong when they were compared. Rows that change afterwards are not sampled again before the next
round.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql.types import VariantType

from headrace.algebra.spine import HIGHEST, LOWEST
from headrace.execution.engine.verifying.comparisons import (
    EVERY_ROW,
    FROM_LOGS,
    TOLERANCE,
    Count,
    InQuarantine,
    Sample,
    StoredInputs,
    as_stored,
    quarantine_share,
)
from headrace.execution.engine.verifying.history import NOTHING_KEPT
from headrace.execution.runtime.step import RowsShare
from headrace.planning.catalog import Stream, Table, View
from headrace.planning.circuit import Aggregate, Recompute
from headrace.types import Column, RelationId, Schema, holds, is_collated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from headrace.execution.engine.engine import Engine
    from headrace.execution.engine.verifying.history import CanonicalHistory
    from headrace.execution.runtime.published import Published
    from headrace.execution.runtime.step import Share
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalyst.numbered import KeptRows
    from headrace.storage.ledger import Ledger
    from headrace.types import Epoch


CONFIDENCE: Final = 0.95

_HALVINGS: Final = 60
"""The bisections of [0, 1] that make a bound exact to a float's last digit."""


def upper_bound(failures: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """Return the greatest share of failures that is compatible with a random sample.

    It is the one-sided bound of Clopper and Pearson: the share ``p`` for which at most this many
    ``failures`` among the ``trials`` have the probability ``1 - confidence``. If the true share is
    ``p`` or more, so few failures are found with that probability at most. Without failures it is
    ``1 - (1 - confidence) ** (1 / trials)``, about 3 / trials for 95%; without trials it is 1.
    """
    if failures >= trials:
        return 1.0
    low, high = failures / trials, 1.0
    for _ in range(_HALVINGS):
        share = (low + high) / 2
        if _at_most(failures, trials, share) > 1 - confidence:
            low = share
        else:
            high = share
    return high


def _at_most(failures: int, trials: int, share: float) -> float:
    """Return the probability of at most some failures, if each trial fails with a share."""
    if not 0 < share < 1:
        return float(share <= 0)
    odds = math.log(share) - math.log1p(-share)
    term = trials * math.log1p(-share)
    logs = [term]
    for k in range(1, failures + 1):
        term += odds + math.log(trials - k + 1) - math.log(k)
        logs.append(term)
    greatest = max(logs)
    return math.exp(greatest) * sum(math.exp(each - greatest) for each in logs)


SLICE_ROWS: Final = 256
"""About how many rows a slice has."""
_MOST_SLICES: Final = 1 << 16
_SALTS: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class Tally:
    """The number of compared units, and how many of them were wrong."""

    units: int = 0
    wrong: int = 0

    def plus(self, units: int, wrong: int) -> Tally:
        """Return the tally with further units added."""
        return Tally(self.units + units, self.wrong + wrong)


@dataclass(frozen=True, slots=True)
class Rounds:
    """The samples of one view: the current round, the last complete one, and the total.

    ``done`` of the ``slices`` of the current round have been compared. ``began`` identifies the
    state of the inputs when the round began; ``samples`` and ``total`` count over all rounds.
    ``at`` is the time of the last comparison, in Unix seconds.
    """

    salt: int
    slices: int
    began: Mapping[str, int] = field(default_factory=dict)
    done: int = 0
    tally: Tally = Tally()
    last: Tally = Tally()
    complete: int = 0
    samples: int = 0
    total: Tally = Tally()
    at: float | None = None

    @classmethod
    def first(cls, rows: int, began: Mapping[str, int]) -> Rounds:
        """Return the first round of a view with about ``rows`` rows."""
        return cls(_salt(), _slices(rows), began)

    @property
    def is_over(self) -> bool:
        """Whether every slice of the current round has been compared."""
        return self.done >= self.slices

    @property
    def covered(self) -> float:
        """The share of the rows that the current round has compared."""
        return self.done / self.slices

    @property
    def bound(self) -> float:
        """The upper bound, at 95% confidence, on the share of wrong units, rounded up to 4 digits.

        It uses the samples of the current round and of the last complete one.
        """
        wrong, units = self.tally.wrong + self.last.wrong, self.tally.units + self.last.units
        bound = upper_bound(wrong, units)
        digit = 10.0 ** (math.floor(math.log10(bound)) - 3)
        return min(1.0, float(f"{math.ceil(bound / digit) * digit:.4g}"))

    def slices_for(self, rows: int, wanted: int) -> int:
        """Return the number of slices that together have about ``wanted`` of ``rows`` rows."""
        return max(1, min(self.slices, -(-wanted * self.slices // max(rows, 1))))

    def sample(self, columns: tuple[str, ...], slices: int = 1) -> Sample:
        """Return the next slices to compare; fewer if the round ends before."""
        order = random.Random(self.salt).sample(range(self.slices), self.slices)  # noqa: S311
        chosen = tuple(sorted(order[self.done : self.done + slices]))
        return Sample(columns, self.salt, self.slices, chosen)

    def after(self, sample: Sample, found: Count, at: float) -> Rounds:
        """Return the progress after a sample was compared."""
        return replace(
            self,
            done=self.done + len(sample.chosen),
            tally=self.tally.plus(found.units, found.wrong),
            samples=self.samples + 1,
            total=self.total.plus(found.units, found.wrong),
            at=at,
        )

    def next_round(self, rows: int, began: Mapping[str, int]) -> Rounds:
        """Return the progress at the start of the next round."""
        fresh = self.restarted(rows, began)
        return replace(fresh, last=self.tally, complete=self.complete + 1)

    def restarted(self, rows: int, began: Mapping[str, int]) -> Rounds:
        """Return a first round after the rows were replaced: earlier samples no longer count."""
        return replace(
            self,
            salt=_salt(),
            slices=_slices(rows),
            began=began,
            done=0,
            tally=Tally(),
            last=Tally(),
        )

    def to_json(self) -> dict[str, Any]:
        """Return a value that ``json`` can write and :meth:`of_json` reads."""
        return asdict(self)

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Rounds:
        """Return the rounds that :meth:`to_json` wrote."""
        tallies = {name: Tally(**value[name]) for name in ("tally", "last", "total")}
        return cls(**{**value, **tallies})


def rounds_of(ledger: Ledger) -> dict[RelationId, Rounds]:
    """Return the progress of each view that has been sampled."""
    return {id_: Rounds.of_json(made) for id_, made in ledger.evidence.progress().items()}


def _slices(rows: int) -> int:
    return max(1, min(_MOST_SLICES, rows // SLICE_ROWS))


def _salt() -> int:
    return random.SystemRandom().randrange(_SALTS)


Stored: TypeAlias = Table | View
"""A relation with stored rows."""

_MOST_KEPT_BYTES: Final = 1 << 30
"""The most bytes of logs whose rows Spark keeps, in memory or on its local disks."""


@dataclass(frozen=True, slots=True)
class Comparing:
    """Compares the contents stored in a published state with a recomputation from the logs.

    A view is compared with its query over the logs of its inputs, a table with its log. Logs are
    read up to the offsets that the state's epoch has read; for lagging views, up to the offsets of
    their own frontier. No code is shared with the operators.

    Some views enter the recomputation as stored rows: those that have read events which are no
    longer retained; and, below a lagging view, those that have been replaced since, or lagged
    behind at that epoch, because the lagging view shows the result of their former query and
    position.
    """

    reader: Reader
    engine: Engine
    canonical: CanonicalHistory

    def counted(
        self,
        relations: Sequence[Stored],
        state: Published,
        samples: Mapping[RelationId, Sample] = MappingProxyType({}),
        kept: Mapping[str, KeptRows] = NOTHING_KEPT,
    ) -> list[Count]:
        """Compare tables and views exactly, or samples of them, in one job.

        ``kept`` is what :meth:`reading_once` yields for the state.

        Raises:
            HeadraceError: if the query of one fails on the data.
        """
        found: dict[RelationId, Count] = {}
        for at, some, stored in self._together(relations, state):
            shares = self._shares(some, at, stored)
            whole = kept if at is state and stored is FROM_LOGS else NOTHING_KEPT
            counts = self.canonical.counted(some, shares, at.clock, samples, stored, whole)
            found |= zip((each.id for each in some), counts, strict=True)
        return [found[each.id] for each in relations]

    @contextmanager
    def reading_once(
        self, relations: Sequence[Stored], state: Published
    ) -> Iterator[Mapping[str, KeptRows]]:
        """Read each log only once in a block, for all relations that are compared by it.

        Spark keeps what is read, unless the logs are large: then each comparison reads them.
        """
        catalog, used = state.catalog, Counter[RelationId]()
        for each in relations:
            ids = catalog.shown_by(each.inputs, state.lagging) if isinstance(each, View) else ()
            used.update({each.id, *ids} if isinstance(each, Table) else ids)
        logs = [catalog.by_id[id_] for id_, count in used.items() if count > 1]
        among = [each for each in logs if isinstance(each, Stream | Table) and _can_keep(each)]
        shares = self.reader.logs([each.id for each in among], state)
        left, kept = _MOST_KEPT_BYTES, list[Stream | Table]()
        for log in sorted(among, key=lambda log: shares[log.id].bytes):
            left -= shares[log.id].bytes
            if left >= 0:
                kept.append(log)
        with self.canonical.keeping(kept) as rows:
            yield rows

    def differing(
        self, relation: Stored, state: Published, most: int, sample: Sample = EVERY_ROW
    ) -> pa.Table:
        """Return up to ``most`` rows that differ; ``__weight`` is the surplus of stored copies.

        Where floats may be sums, only rows that differ by more than the tolerance.
        """
        ((at, _, stored),) = self._together([relation], state)
        return self.canonical.differences(
            relation,
            self._shares([relation], at, stored),
            most,
            at.clock,
            sample,
            stored,
            beyond_tolerance=isinstance(relation, View) and self._adds_floats(relation),
        )

    def stored_below(self, view: View, state: Published) -> StoredInputs:
        """Return the views below a view, at any depth, that are read as stored rows."""
        stands, catalog = state.lagging.get(view.id), state.catalog
        near = catalog.shown_by(view.inputs, state.lagging) - state.lagging.keys()
        live = [each for each in catalog.views_in_order() if each.id in near]
        stored = [each for each in live if state.unkept(each)]
        if stands is not None and stands.epoch is not None and live:
            stored += self._other_than(stands.epoch, [each for each in live if each not in stored])
        ids = {each.id for each in stored}
        above = [each for each in live if each.id not in ids and catalog.below([each.id]) & ids]
        return StoredInputs(tuple(stored), (*above, view)) if stored else FROM_LOGS

    def _other_than(self, epoch: Epoch, views: Sequence[View]) -> list[View]:
        """Return the views whose contents at an epoch cannot be recomputed by their present query.

        These are views whose query was another one, views that lagged at that epoch, and views that
        quarantine rows, because which rows were in quarantine then is not recorded.
        """
        objects, head = self.reader.ledger.relations.existing(epoch), self.reader.ledger.head
        then = {each.relation: each.definition for each in objects}

        def is_other(each: View) -> bool:
            was, build = View.of_json(dict(then[each.id])), head.serving(each.id)
            altered = build.joined_epoch > max(epoch, build.created_epoch)
            return was.query != each.query or was.refresh.lags or altered or each.quarantines

        return [each for each in views if is_other(each)]

    def _together(
        self, relations: Sequence[Stored], state: Published
    ) -> Iterator[tuple[Published, list[Stored], StoredInputs]]:
        """Yield groups of relations that are compared in one state with the same inputs.

        A view that lags, or that reads stored rows, is a group of its own.
        """
        views = [each for each in relations if isinstance(each, View)]
        stored = {view.id: self.stored_below(view, state) for view in views}
        apart = [v for v in views if v.id in state.lagging or stored[v.id].views]
        together = [each for each in relations if each not in apart]
        if together:
            yield state, together, self._in_quarantine(together, state)
        for view in apart:
            below = stored[view.id]
            if view.id in state.lagging:
                yield self.reader.publisher.at_frontier(view, below.views), [view], below
            else:
                yield state, [view], _both(below, self._in_quarantine([view], state), state)

    def _shares(
        self, relations: Sequence[Stored], state: Published, inputs: StoredInputs
    ) -> dict[RelationId, Share]:
        """Return the stored contents of relations, and the logs that they are recomputed from.

        Lagging views below them, and the ``inputs``, are read as stored contents instead of logs.
        """
        reader, catalog, ids = self.reader, state.catalog, [each.id for each in relations]
        below = {id_ for each in relations if isinstance(each, View) for id_ in each.inputs}
        apart = state.lagging.keys() | {view.id for view in inputs.views}
        near = catalog.shown_by(below, apart)
        late = near & apart
        logs = {id_ for id_ in near if isinstance(catalog.by_id[id_], Stream | Table)}
        logs |= {each.id for each in relations if isinstance(each, Table)}
        stored = {as_stored(id_): share for id_, share in reader.shares(ids, state).items()}
        apart_rows: dict[RelationId, Share] = {}
        for each in inputs.quarantine:
            guard = self.engine.circuit(each.view).guards()[each.relation.id]
            runs = tuple(run.file for run in state.spines[guard.arrangement])
            (layout,) = guard.operator.layouts
            apart_rows[each.share] = RowsShare(layout, runs, LOWEST, HIGHEST)
        return stored | apart_rows | reader.shares(late, state) | reader.logs(logs, state)

    def _in_quarantine(self, relations: Sequence[Stored], state: Published) -> StoredInputs:
        """Return the quarantined rows of maintained relations and of the views below them."""
        catalog, wanted = state.catalog, {each.id for each in relations}
        near = wanted | catalog.below(wanted)
        views = [each for each in catalog.views_in_order() if each.id in near]
        found: list[InQuarantine] = []
        for view in views:
            guards = self.engine.circuit(view).guards() if view.quarantines else {}
            for id_, guard in guards.items():
                relation = catalog.by_id[id_]
                if isinstance(relation, Stream | Table) and state.spines.get(guard.arrangement):
                    names = tuple(guard.operator.columns.names)
                    read = zip(names, guard.types, strict=True)
                    schema = Schema(tuple(Column(name, type_) for name, type_ in read))
                    schema = schema.renamed(names, guard.operator.stored)
                    share = quarantine_share(view.id, id_)
                    found.append(InQuarantine(view, relation, schema, share))
        keeping = {each.view.id for each in found}
        above = [v for v in views if v.id not in keeping and catalog.below([v.id]) & keeping]
        return StoredInputs(above=tuple(above), quarantine=tuple(found)) if found else FROM_LOGS

    def _adds_floats(self, view: View) -> bool:
        """Return whether a view has floats that may be sums, of its own or of its inputs."""
        if not any(type(column.type) in TOLERANCE for column in view.schema.columns):
            return False
        return self._adds_up(view)

    def _adds_up(self, view: View) -> bool:
        nodes = self.engine.circuit(view).stateful()
        if any(isinstance(node, Aggregate | Recompute) for node in nodes):
            return True
        below = (self.reader.catalog.by_id[id_] for id_ in view.depends_on)
        return any(self._adds_up(each) for each in below if isinstance(each, View))


def _can_keep(log: Stream | Table) -> bool:
    """Whether Spark keeps rows of a log as they are, without a variant or a collation."""
    return not any(holds(c.type, VariantType) or is_collated(c.type) for c in log.schema.columns)


def _both(stored: StoredInputs, quarantined: StoredInputs, state: Published) -> StoredInputs:
    """Combine what a view reads as stored rows with the quarantined rows of the other views."""
    left = tuple(each for each in quarantined.quarantine if each.view not in stored.views)
    above = {view.id for view in (*stored.above, *(quarantined.above if left else ()))}
    in_order = (view for view in state.catalog.views_in_order() if view.id in above)
    return StoredInputs(stored.views, tuple(in_order), left)
