"""REFRESH and FLUSH, and ALTER MATERIALIZED VIEW ... SET (refresh = ...).

Adds rates and remaining times to the progress of statements.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError, masked, meant
from headrace.execution.runtime.spent import Pace
from headrace.interfaces.statements.defining.view_options import (
    REFRESH_OPTIONS,
    refresh_note,
    refresh_of,
)
from headrace.interfaces.statements.results import Progress, Result
from headrace.planning.catalog import View, title

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.execution.runtime.pump import Pump
    from headrace.lifecycle.definitions.definer import Definer
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.sql import AlterView, Flush, Name, Refresh


@dataclass(slots=True)
class Paced:
    """Passes on the progress of one statement, with the pace of each piece of work in it.

    Time in which the statement waits does not count.
    """

    report: Callable[[Progress], None]
    clock: Callable[[], float] = time.monotonic
    _by_work: dict[str, Pace] = field(default_factory=dict)

    def __call__(self, made: Progress) -> None:
        """Pass on one report."""
        if not made.unit:
            for pace in self._by_work.values():
                pace.wait()
            self.report(made)
            return
        pace = self._by_work.setdefault(made.what, Pace(self.clock))
        pace.report(made.done)
        rate, left = pace.rate, pace.seconds_left(made.total)
        self.report(
            replace(
                made,
                rate=None if rate is None else round(rate, 3),
                seconds_left=None if left is None else round(left, 1),
            )
        )


@dataclass(frozen=True, slots=True)
class Refreshing:
    """Refreshes views that lag behind their inputs, and changes their schedules."""

    reader: Reader
    definer: Definer
    pump: Pump
    report: Callable[[Progress], None]

    def flush(self, statement: Flush) -> Result:
        """Commit an epoch with all changes so far, and wait for it."""
        del statement
        epoch = self.reader.settle_all()
        return Result(None, epoch, f"epoch {epoch} is committed")

    def refresh(self, statement: Refresh) -> Result:
        """Refresh views up to all changes so far; return the epoch that shows these.

        Views refreshed together are consistent. Unnamed views are not refreshed: their readers use
        the rows that they currently show.
        """
        catalog = self.reader.catalog
        named = [catalog.resolve(name.dotted, name.span) for name in statement.names]
        for relation in named:
            self.reader.require_running(relation)
        epoch = self.reader.settle_all()
        state = self.reader.published
        wanted = {relation.id for relation in named}
        views = [
            view
            for view in state.catalog.views_in_order()
            if view.id in state.lagging
            and (view.id in wanted or (statement.everything and view.id not in state.stopped))
        ]
        if not views:
            return Result(None, epoch, f"all changes so far are readable in epoch {epoch}")
        what = views[0].name if len(views) == 1 else f"{len(views)} views"

        def progress(done: int, total: int) -> None:
            self.report(Progress(f"refreshing {what}", done, total, "changes"))

        epoch = self.pump.refreshes.refresh(views, progress)
        self.pump.made(epoch)
        return Result(None, epoch, f"refreshed {what} in epoch {epoch}")

    def alter(self, statement: AlterView) -> str:
        """Change when a view is refreshed."""
        view = self._view(statement.name)
        _require_known(statement)
        policy = refresh_of(statement.options)
        if policy is None:
            raise HeadraceError(
                Code.INVALID,
                "no option says when the view is refreshed",
                hint="Write SET (refresh = 'every 1 hour').",
                span=statement.span,
            )
        if view.quarantines and policy.lags:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f"a view that quarantines rows cannot be refreshed {policy}",
                hint=f"ALTER MATERIALIZED VIEW {view.name} SET (on_error = 'stop') first.",
                span=statement.span,
            )
        self.reader.require_running(view)
        written = f"{view.created_sql};\n{masked(statement.span.source)}"
        self.definer.regroup(view, replace(view, refresh=policy, created_sql=written))
        note = refresh_note(statement.options, policy) or f"; its refresh is {policy}"
        return f"altered view {view.name}{note}"

    def _view(self, name: Name) -> View:
        relation = self.reader.catalog.resolve(name.dotted, name.span)
        if isinstance(relation, View) and relation.into is None:
            return relation
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"{title(relation)} is not a materialized view, and cannot be refreshed separately",
            hint="Create a materialized view over it.",
            span=name.span,
        )


def _require_known(statement: AlterView) -> None:
    known: Sequence[str] = REFRESH_OPTIONS
    for option in statement.options:
        if option.key.lower() not in known:
            raise HeadraceError(
                Code.INVALID,
                f'option "{option.key}" cannot be altered',
                hint=meant(option.key, known, "CREATE OR REPLACE the view with it."),
                span=option.span,
            )
