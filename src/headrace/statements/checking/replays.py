"""REPLAY: a slice of a view is recomputed from its inputs; EXPLAIN REPLAY says from what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog import View
from headrace.errors import Code, HeadraceError
from headrace.parts.naming import HIDDEN
from headrace.sql import ExplainReplay
from headrace.statements.results import Progress, Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.ledger import Slice
    from headrace.parts.reader import Reader
    from headrace.parts.repairing import Repairing
    from headrace.parts.replaying import InputPlan, ReplayPlan, Replays
    from headrace.parts.slices import Slices
    from headrace.sql import Replay


@dataclass(frozen=True, slots=True)
class ReplayStatements:
    """Recomputes slices of views because somebody asks for it, and explains that."""

    reader: Reader
    slices: Slices
    replays: Replays
    repairing: Repairing
    report: Callable[[Progress], None]

    def run(self, statement: Replay | ExplainReplay) -> Result:
        """Run a statement; return a message, or the plan line by line."""
        if isinstance(statement, ExplainReplay):
            view, slice_ = self._named(statement.replay)
            lines = _explained(view, self.replays.plan(view, slice_))
            last = self.reader.ledger.last_epoch()
            return Result.of(("plan",), [(line,) for line in lines], last)
        view, slice_ = self._named(statement)

        def progress(done: int, total: int) -> None:
            self.report(Progress(f"replaying {view.name}", done, total, "rows"))

        done = self.repairing.replay(view, slice_, progress)
        rows = "1 row" if done.changed == 1 else f"{done.changed:,} rows"
        message = (
            f"{rows} of view {view.name} changed; {done.read:,} of {done.whole:,} rows were read"
        )
        return Result(None, done.epoch, message)

    def _named(self, statement: Replay) -> tuple[View, Slice]:
        found = self.reader.catalog.resolve(statement.name.dotted, statement.name.span)
        if not isinstance(found, View) or found.name.startswith(HIDDEN):
            raise HeadraceError(
                Code.INVALID,
                f'"{found.name}" is a {found.kind}, not a materialized view',
                hint="Only the rows of materialized views are computed from others.",
                span=statement.name.span,
            )
        return found, self.slices.read(found, statement.slice)


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
