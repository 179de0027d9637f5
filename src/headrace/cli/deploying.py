"""The work of ``headrace plan`` and ``headrace apply``."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import click

from headrace.cli.environment import Environment
from headrace.cli.failures import report
from headrace.cli.options import printer_of
from headrace.cli.progress import ProgressBar, status
from headrace.deploying.applying import (
    difference,
    drop_candidates,
    make,
    next_round,
    summary,
    swap,
    verdict,
)
from headrace.deploying.explaining import explain
from headrace.deploying.plan import DeploymentPlan, planned
from headrace.deploying.stored import read_definitions
from headrace.errors import HeadraceError
from headrace.sql.definitions import Definitions, statements_left_out

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from headrace.cli.statement_thread import StatementThread
    from headrace.connecting import AnyDatabase
    from headrace.deploying.plan import PlannedChange
    from headrace.sql.definitions import Definition

T = TypeVar("T")

_SAME, _FAILED, _CHANGES = 0, 1, 2
_WIDTH: Final = 9
"""The width of the column of actions."""


@dataclass(frozen=True, slots=True)
class Swapping:
    """What happens before candidates serve: comparison with batch, and somebody's look at them.

    ``agreed``: that nobody is asked.
    """

    validate: bool
    review: bool
    agreed: bool


@dataclass(frozen=True, slots=True)
class Deployment:
    """Compares files with a database, which ``opened`` opens, and changes it."""

    thread: StatementThread
    opened: Callable[[], AbstractContextManager[AnyDatabase]]
    debug: bool = False

    def plan(self, paths: Sequence[Path], *, prune: bool, as_json: bool) -> int:
        """Print what would change; return the exit code."""
        definitions, notes = _read(paths)
        with self.opened() as database:
            plan = self._plan(database, definitions, notes, prune=prune)
        if as_json:
            click.echo(json.dumps(plan.to_json(), indent=2))
        else:
            _show(plan)
        if plan.problems:
            self._show_problems(plan)
            return _FAILED
        return _CHANGES if plan.changes else _SAME

    def apply(
        self, paths: Sequence[Path], *, prune: bool, validate: bool, review: bool, yes: bool
    ) -> int:
        """Print the plan and make its changes; return the exit code."""
        definitions, notes = _read(paths)
        with self.opened() as database:
            plan = self._plan(database, definitions, notes, prune=prune)
            _show(plan)
            if plan.problems:
                self._show_problems(plan)
                click.echo("nothing was changed", err=True)
                return _FAILED
            if not plan.changes:
                return _SAME
            click.echo()
            return self._make(database, plan, Swapping(validate, review, yes))

    def _plan(
        self,
        database: AnyDatabase,
        definitions: list[Definition],
        notes: list[str],
        *,
        prune: bool,
    ) -> DeploymentPlan:
        def work() -> DeploymentPlan:
            stored = read_definitions(database)
            plan = planned(definitions, stored, prune=prune)
            plan.notes += notes
            explain(plan, stored, database)
            return plan

        with status("comparing…", sys.stderr):
            return self.thread.call(work, database.cancel)

    def _make(self, database: AnyDatabase, plan: DeploymentPlan, how: Swapping) -> int:
        """Make the changes; if one fails, say what was done and what was not."""
        made: list[PlannedChange] = []
        waiting: list[PlannedChange] = []
        rest: tuple[PlannedChange, ...] = tuple(plan.changes)
        try:
            while rest:
                now = next_round(rest)
                for change in now.changes:
                    self._make_one(database, change)
                    (made if change.candidate is None else waiting).append(change)
                if now.candidates and not self._swapped(database, now.candidates, how):
                    _show_undone(plan.changes, made)
                    return _FAILED
                made += waiting
                waiting.clear()
                rest = now.rest
        except HeadraceError as error:
            report(error, sys.stderr, debug=self.debug)
            self._give_up(database, waiting)
            _show_undone(plan.changes, made)
            return _FAILED
        click.echo(f"{_counted(len(made), 'change')} made")
        return _SAME

    def _make_one(self, database: AnyDatabase, change: PlannedChange) -> None:
        with ProgressBar(sys.stderr) as bar:
            messages = self.thread.call(
                lambda: list(make(database, change, bar.update)), database.cancel
            )
        for each in messages:
            click.echo(each)

    def _give_up(self, database: AnyDatabase, candidates: Sequence[PlannedChange]) -> None:
        """Drop candidates that wait; a failure is shown, and nothing more."""
        try:
            if candidates:
                click.echo(self._call(database, partial(drop_candidates, database, candidates)))
        except HeadraceError as error:
            report(error, sys.stderr, debug=self.debug)

    def _swapped(
        self, database: AnyDatabase, candidates: Sequence[PlannedChange], how: Swapping
    ) -> bool:
        """Show what candidates change, and let them serve if that is wanted; return whether so."""
        printer = printer_of("table", Environment.of())
        for each in candidates:
            table = self._call(database, partial(difference, database, each))
            if how.review:
                click.echo(f"\n{each.title} would change:")
                printer.rows(table)
            else:
                click.echo(f"{each.title}: {summary(table)}")
        if how.validate and not self._validated(database, candidates):
            self._give_up(database, candidates)
            return False
        if how.review and not how.agreed and not _agreed():
            names = ", ".join(each.name for each in candidates)
            click.echo(f"the candidates wait: SWAP VIEW {names} lets them serve, DROP CANDIDATE"
                       f" OF {names} gives them up", err=True)  # fmt: skip
            return False
        click.echo(self._call(database, partial(swap, database, candidates)))
        if how.review:
            click.echo("ROLLBACK VIEW goes back; DROP CANDIDATE OF VIEW ends the upkeep of what"
                       " served before", err=True)  # fmt: skip
        else:
            self._call(database, partial(drop_candidates, database, candidates))
        return True

    def _validated(self, database: AnyDatabase, candidates: Sequence[PlannedChange]) -> bool:
        """Compare candidates with Spark batch; say which differ, and return whether none does."""
        found = {
            each.title: self._call(database, partial(verdict, database, each))
            for each in candidates
        }
        for title, differs in found.items():
            if differs is not None:
                click.echo(f"{title} is not what Spark batch computes: {differs}", err=True)
        return not any(found.values())

    def _call(self, database: AnyDatabase, function: Callable[[], T]) -> T:
        return self.thread.call(function, database.cancel)

    def _show_problems(self, plan: DeploymentPlan) -> None:
        for each in plan.problems:
            report(each, sys.stderr, debug=self.debug)


def _read(paths: Sequence[Path]) -> tuple[list[Definition], list[str]]:
    """Return the definitions of files, and a note on each statement that defines nothing."""
    found = Definitions.of(paths).every()
    notes = [
        f"{span.file}:{span.position[0]}: this statement defines nothing, and is left out"
        for span in statements_left_out(paths)
    ]
    return found, notes


def _agreed() -> bool:
    """Ask whether to swap; the end of the input is a no."""
    try:
        return click.confirm("Swap?", err=True)
    except click.Abort:
        click.echo(err=True)
        return False


def _show(plan: DeploymentPlan) -> None:
    for change in plan.changes:
        differs = f": {', '.join(change.differs)}" if change.differs else ""
        place = change.place
        at = "" if place is None else f"  ({place.file}:{place.position[0]})"
        click.echo(f"{change.action.value:<{_WIDTH}}{change.title}{differs}{at}")
        for effect in change.effects:
            click.echo(f"{'':<{_WIDTH}}  {effect}")
        if change.note:
            click.echo(f"{'':<{_WIDTH}}  {change.note}")
    for kind, name in plan.kept:
        click.echo(f"{'kept':<{_WIDTH}}{kind} {name}: not in the files; --prune drops it")
    for note in plan.notes:
        click.echo(f"{'note':<{_WIDTH}}{note}")
    counts = [f"{count} to {action.value}" for action, count in plan.counted().items() if count]
    same = f"{len(plan.unchanged)} unchanged"
    click.echo(", ".join([*counts, same]) if counts else f"nothing to change, {same}")


def _show_undone(changes: Sequence[PlannedChange], made: Sequence[PlannedChange]) -> None:
    """Say which changes were not made."""
    click.echo(f"{len(made)} of {_counted(len(changes), 'change')} made; not made:", err=True)
    names = {each.name for each in made}
    for each in changes:
        if each.name in names:
            continue
        click.echo(f"  {each.action.value} {each.title}", err=True)
    click.echo("run the command again to continue", err=True)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
