"""REPLAY recomputes a slice of a view; EXPLAIN REPLAY shows its inputs, EXPLAIN ROW its steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.interfaces.statements.results import Progress, Result
from headrace.lifecycle.history.deep_sources import explained_deep
from headrace.planning.catalog import View
from headrace.planning.catalog.naming import HIDDEN
from headrace.planning.sql import ExplainReplay, ExplainRow, SliceOf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.execution.runtime.fill import Progress as FillProgress
    from headrace.lifecycle.history.deep_sources import Explanation
    from headrace.lifecycle.history.repairing import Repairing
    from headrace.lifecycle.history.replaying import InputPlan, ReplayPlan, Replays
    from headrace.lifecycle.history.row_sources import Explained, RowSources
    from headrace.lifecycle.history.slices import Slices
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.sql import Name, Replay
    from headrace.storage.ledger import Slice


@dataclass(frozen=True, slots=True)
class ReplayStatements:
    """Recomputes slices of views, and explains how rows are computed."""

    reader: Reader
    slices: Slices
    replays: Replays
    row_sources: RowSources
    repairing: Repairing
    report: Callable[[Progress], None]

    def run(self, statement: Replay | ExplainReplay | ExplainRow) -> Result:
        """Run a statement; return a message, or the explanation line by line."""
        last = self.reader.ledger.head.epoch
        if isinstance(statement, ExplainReplay):
            view, slice_ = self._named(statement.replay.name, statement.replay.slice)
            lines = [*_explained(view, self.replays.plan(view, slice_))]
            return Result.of(("plan",), [(line,) for line in lines], last)
        if isinstance(statement, ExplainRow):
            view, slice_ = self._named(statement.name, SliceOf(statement.where))
            progress = self._progress("tracing", view)
            if statement.deep:
                steps = explained_deep(self.row_sources, view, slice_.where, progress)
                lines = [line for step in steps for line in _traced_below(step, view)]
                return Result.of(("explanation",), [(line,) for line in lines], last)
            found = self.row_sources.explain(view, slice_.where, progress)
            lines = [*_traced(view, found)]
            return Result.of(("explanation",), [(line,) for line in lines], found.epoch)
        view, slice_ = self._named(statement.name, statement.slice)
        progress = self._progress("replaying", view)
        done = self.repairing.replay(view, slice_, progress)
        rows = "1 row" if done.changed == 1 else f"{done.changed:,} rows"
        message = (
            f"{rows} of view {view.name} changed; {done.read:,} of {done.whole:,} rows were read"
        )
        return Result(None, done.epoch, message)

    def _progress(self, doing: str, view: View) -> FillProgress:
        what = f"{doing} {view.name}"
        return lambda done, total: self.report(Progress(what, done, total, "rows"))

    def _named(self, name: Name, slice_: SliceOf) -> tuple[View, Slice]:
        found = self.reader.catalog.resolve(name.dotted, name.span)
        if not isinstance(found, View) or found.name.startswith(HIDDEN):
            raise HeadraceError(
                Code.INVALID,
                f'"{found.name}" is a {found.kind}, not a materialized view',
                hint="Only the rows of materialized views are computed from others.",
                span=name.span,
            )
        return found, self.slices.read(found, slice_)


def _traced_below(step: Explanation, view: View) -> Iterator[str]:
    """Yield the explanation of rows of a view and of its input views, after an empty line."""
    if step.view is not view:
        yield ""
        yield f"== View {step.view.name} WHERE {step.where}"
    if isinstance(step.found, HeadraceError):
        yield f"Not explained: {step.found.primary}"
    else:
        yield from _traced(step.view, step.found)


def _traced(view: View, found: Explained) -> Iterator[str]:
    rows = f"{found.rows:,} {'row' if found.rows == 1 else 'rows'}" if found.rows else "No row"
    yield f"-- {rows} of view {view.name} at epoch {found.epoch}"
    yield from found.missing
    yield ""
    yield "-- Rows that pass each step"
    for each in found.passed:
        count = "" if each.rows is None else f": {each.rows:,}"
        if each.looked_up:
            count = ": looked up by key"
        yield f"{'  ' * each.depth}{each.title}{count}"
    if found.keys:
        yield ""
        yield f"-- Of the rows with the keys that were found: {found.keys}"
    if found.wider:
        yield ""
        yield "-- Why rows below may be those of other rows of the view too"
        yield from found.wider
    for source in found.sources:
        yield ""
        named = f"{source.relation.kind} {source.relation.name}"
        if source.rows is None:
            yield f"-- Rows of {named} are looked up by key, and not listed"
            continue
        least = "" if source.whole else "at least "
        yield f"-- {least}{source.rows:,} of {named}"
        yield from source.listed
        if source.rows > len(source.first):
            yield f"... and {source.rows - len(source.first):,} more"


def _explained(view: View, plan: ReplayPlan) -> Iterator[str]:
    yield f"-- Replay of view {view.name}: about {plan.cost:,} of {plan.whole:,} rows are read"
    yield from (_input(each) for each in plan.inputs)
    if plan.state:
        yield ""
        yield "-- State that is replaced with the rows of the view"
    for each in plan.state:
        found = f"rows where {each.condition}" if each.condition else "all rows"
        yield f"{each.arrangement}: {found}, of {each.rows:,}"
    if plan.reasons:
        yield ""
        yield "-- Why no less"
    yield from plan.reasons


def _input(each: InputPlan) -> str:
    if each.looked_up:
        return f"{each.name}: the rows that joins find by key, of {each.rows:,}"
    if not each.condition:
        return f"{each.name}: all {each.rows:,} rows"
    return f"{each.name}: about {each.read:,} of {each.rows:,} rows, where {each.condition}"
