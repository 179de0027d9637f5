"""The change classifier: what carries a change to each view above it, by rule and by cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.trial import Tried, tried
from headrace.planning.catalog import Stream, Table, View
from headrace.planning.catalog.naming import HIDDEN
from headrace.planning.circuit.explain import summary
from headrace.storage.ledger import Carried, RepairPath
from headrace.storage.log import appended_with
from headrace.types import Offset, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from headrace.execution.engine.engine import Engine
    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.lifecycle.history.amending import Amending
    from headrace.lifecycle.history.replaying import Replays
    from headrace.lifecycle.states.reader import Reader
    from headrace.storage.ledger import Ledger, Slice
    from headrace.types import RelationId


_FOLLOWS = "follows the difference of what it reads, in the same epoch"
_ONCE = "stores less state until an event of {} changes: rebuilt once, then by deltas"
_LATER = "reads the change when it, or a view that it reads, is refreshed"
_MANY = 100_000
"""Changes of up to this many rows take a second or two, whatever a rebuild takes."""
_STOPPED = "has stopped: REPAIR rebuilds it"


@dataclass(frozen=True, slots=True)
class ChangeClassifier:
    """Classifies a change for each view above it: carried by deltas, by a replay or by a rebuild.

    Deltas carry every change of rows, late ones too, because operators keep the state that they
    need. The exception: over an append-only stream, the state of a maximum or of the first rows is
    reduced until the stream's first correction. A change of the query or of a function is not a
    change of rows: it rebuilds the view.
    """

    reader: Reader
    ledger: Ledger
    engine: Engine
    loop: EpochLoop
    replays: Replays
    amending: Amending

    def of_rows(
        self, relation: Stream | Table, rows: pa.Table, note: str, *, corrects: bool
    ) -> list[Carried]:
        """Classify changes of the rows of a stream or table by a trial step that is not committed.

        ``note`` is the prefix of the rule of each view. ``corrects``: whether the changes amend
        events of a stream.
        """
        rebuilt: dict[RelationId, Carried] = {}
        if corrects and isinstance(relation, Stream) and not relation.corrected:
            stopped = self.reader.published.stopped
            for view in self.amending.relying(relation):
                if view.id not in stopped:
                    rebuilt[view.id] = self._once(view, relation)
        above = {v.id for id_ in rebuilt for v in self.reader.catalog.dependants(id_)}
        found = self._tried(relation, rows, frozenset({*rebuilt, *above}))
        carried = []
        for view in self._above([relation.id]):
            did, whole = found.get(view.id), self.rows_below(view)
            if view.id in rebuilt:
                carried.append(rebuilt[view.id])
            elif (left_out := self._left_out(view, [relation.id], note)) is not None:
                carried.append(left_out)
            elif view.id in above:
                carried.append(Carried(view.id, RepairPath.DELTAS, _FOLLOWS, None, whole))
            else:
                touched = 0 if did is None else did.touched
                changed = 0 if did is None else did.changed
                how = summary(self.engine.circuit(view))
                rule = f"{note}{outcome(touched, changed, whole)} {how}"
                carried.append(Carried(view.id, RepairPath.DELTAS, rule, touched, whole, changed))
        return carried

    def of_slice(self, view: View, slice_: Slice) -> list[Carried]:
        """Classify the repair of a slice of a view."""
        plan = self.replays.plan(view, slice_)
        rule = "; ".join((plan.how, *plan.reasons))
        first = Carried(view.id, RepairPath.REPLAY, rule, plan.cost, plan.whole)
        return [first, *self.following([view.id])]

    def of_correction(self, stream: Stream, rebuilt: Iterable[View]) -> list[Carried]:
        """Classify a correction of a stream for which views have been rebuilt."""
        ids = {view.id for view in rebuilt}
        return [
            self._once(view, stream)
            if view.id in ids
            else self._left_out(view, [stream.id])
            or Carried(view.id, RepairPath.DELTAS, summary(self.engine.circuit(view)))
            for view in self._above([stream.id])
        ]

    def of_versions(self, table: Table, end: Offset) -> list[Carried]:
        """Classify what a statement wrote into a versioned table, up to an offset of its log.

        Empty for other tables, and if no view reads the table.
        """
        above = self._above([table.id])
        if table.effective_from is None or not above or not end:
            return []
        last = Offset(end - 1)
        segments = self.ledger.log.segments(table.id, last, end)
        columns = [c.stored_name for c in table.schema.columns if c.name == table.effective_from]
        rows = appended_with(self.loop.directory / "log", segments, last, columns)
        note = in_effect(table, table.schema.of_log(rows))
        return [
            self._left_out(view, [table.id], note)
            or Carried(view.id, RepairPath.DELTAS, note + summary(self.engine.circuit(view)))
            for view in above
        ]

    def of_replaced(self, view: View) -> list[Carried]:
        """Classify the replacement of a view's query."""
        whole = self.rows_below(view)
        rule = "rebuilt beside the serving build; rows change by the difference"
        return [
            Carried(view.id, RepairPath.REBUILD, rule, whole, whole),
            *self.following([view.id]),
        ]

    def of_function(self, calling: Iterable[View]) -> list[Carried]:
        """Classify the replacement of a Python function that views call."""
        views = {view.id: view for view in calling}
        carried = []
        for view in self.reader.catalog.views_in_order():
            if view.id in views:
                whole = self.rows_below(view)
                rule = "calls it: existing rows were computed by the former body"
                carried.append(Carried(view.id, RepairPath.REBUILD, rule, whole, whole))
        return [*carried, *self.following([*views])]

    def record(self, carried: list[Carried], origin: Mapping[str, Any]) -> None:
        """Store how a committed change was carried, for SHOW CHANGES."""
        self.ledger.dirty.record_changes(carried, origin)

    # -- steps -----------------------------------------------------------------------------

    def _tried(
        self, relation: Stream | Table, rows: pa.Table, without: frozenset[RelationId]
    ) -> Mapping[RelationId, Tried]:
        try:
            return tried(self.loop, relation, rows, without)
        except HeadraceError as error:
            if error.code is not Code.INVALID:
                raise
            raise HeadraceError(
                error.code,
                error.primary,
                error.detail,
                "The query of a view fails on this change: that view would stop, or quarantine the"
                " rows if it is declared so; other views continue.",
            ) from error

    def _once(self, view: View, stream: Stream) -> Carried:
        """Classify the rebuild of a view before the first correction of a stream."""
        why, whole = _ONCE.format(stream.name), self.rows_below(view)
        if self._later(view, [stream.id]):
            why = f"{why}; {_LATER}"
        return Carried(view.id, RepairPath.REBUILD, why, whole, whole)

    def _left_out(self, view: View, changed: list[RelationId], note: str = "") -> Carried | None:
        """Classify a view that the next epoch does not update: stopped or lagging; else None."""
        whole = self.rows_below(view)
        if view.id in self.reader.published.stopped:
            return Carried(view.id, RepairPath.RESUME, _STOPPED, None, whole)
        if self._later(view, changed):
            return Carried(view.id, RepairPath.DELTAS, note + _LATER, None, whole)
        return None

    def _later(self, view: View, changed: list[RelationId]) -> bool:
        """Whether a change of some relations becomes visible in a view only by a refresh."""
        lagging = self.reader.published.lagging
        near = self.reader.catalog.shown_by([view.id], lagging)
        return view.id in lagging or near.isdisjoint(changed)

    def following(self, ids: list[RelationId]) -> list[Carried]:
        """Classify what is above views that change by a difference."""
        return [
            self._left_out(view, ids)
            or Carried(view.id, RepairPath.DELTAS, _FOLLOWS, None, self.rows_below(view))
            for view in self._above(ids)
            if view.id not in ids
        ]

    def _above(self, ids: Iterable[RelationId]) -> list[View]:
        catalog = self.reader.catalog
        above = {v.id for id_ in ids for v in catalog.dependants(id_)}
        views = (view for view in catalog.views_in_order() if view.id in above)
        return [view for view in views if not view.name.startswith(HIDDEN)]

    def rows_below(self, view: View) -> int:
        """Return the number of stored rows of a view's inputs: a rebuild reads all of them."""
        state, rows = self.reader.published, 0
        ends = state.read_by(view) if view.id in state.lagging else self.ledger.head.ends
        for id_ in view.depends_on:
            if isinstance(state.catalog.by_id[id_], Stream):
                rows += ends.get(id_, 0) - state.starts.get(id_, 0)
            else:
                rows += sum(run.file.rows for run in state.spines[rows_of(id_)])
        return rows


def outcome(touched: int, changed: int, whole: int) -> str:
    """Describe what the next epoch changes in a view, and whether dropping it first costs less.

    A rebuild reads ``whole`` rows; it is suggested only if the change touches more than that.
    """
    if not changed:
        said = "No row of the view changes."
    else:
        rows = "1 row" if changed == 1 else f"{changed:,} rows"
        said = f"The next epoch changes {rows} of the view."
    if touched <= max(whole, _MANY):
        return f"{said} Nothing else needs to be done."
    return (
        f"{said} It touches {touched:,} rows, and a rebuild reads {whole:,}: to do less, DROP the"
        " view before the change, and create it again afterwards."
    )


def in_effect(table: Table, rows: pa.Table) -> str:
    """Return a sentence with the time from which changed versions apply; "" for other tables."""
    if table.effective_from is None:
        return ""
    return f"Versions in effect from {pc.min(rows[table.effective_from]).as_py()} on. "
