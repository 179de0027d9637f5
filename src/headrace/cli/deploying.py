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
from headrace.deploying.applying import difference, make, next_round, swap
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

    def apply(self, paths: Sequence[Path], *, prune: bool, review: bool, yes: bool) -> int:
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
            return self._make(database, plan, review=review, yes=yes)

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

    def _make(self, database: AnyDatabase, plan: DeploymentPlan, *, review: bool, yes: bool) -> int:
        """Make the changes; if one fails, say what was done and what was not."""
        made: list[PlannedChange] = []
        rest: tuple[PlannedChange, ...] = tuple(plan.changes)
        try:
            while rest:
                now = next_round(rest) if review else None
                for change in rest if now is None else now.changes:
                    self._make_one(database, change, as_candidate=review)
                    if now is None or change.candidate is None:
                        made.append(change)
                if now is None:
                    break
                if now.candidates and not self._swapped(database, now.candidates, yes=yes):
                    _show_undone(plan.changes, made)
                    return _FAILED
                made += now.candidates
                rest = now.rest
        except HeadraceError as error:
            report(error, sys.stderr, debug=self.debug)
            _show_undone(plan.changes, made)
            return _FAILED
        click.echo(f"{_counted(len(made), 'change')} made")
        return _SAME

    def _make_one(
        self, database: AnyDatabase, change: PlannedChange, *, as_candidate: bool
    ) -> None:
        with ProgressBar(sys.stderr) as bar:
            messages = self.thread.call(
                lambda: list(make(database, change, bar.update, as_candidate=as_candidate)),
                database.cancel,
            )
        for each in messages:
            click.echo(each)

    def _swapped(
        self, database: AnyDatabase, candidates: Sequence[PlannedChange], *, yes: bool
    ) -> bool:
        """Show what candidates change, and swap them if that is wanted; return whether it is."""
        printer = printer_of("table", Environment.of())
        for each in candidates:
            table = self._call(database, partial(difference, database, each))
            click.echo(f"\n{each.title} would change:")
            printer.rows(table)
        if not yes and not _agreed():
            names = ", ".join(each.name for each in candidates)
            click.echo(f"the candidates of {names} wait: SWAP VIEW lets one serve, DROP CANDIDATE"
                       " OF VIEW ends it", err=True)  # fmt: skip
            return False
        for each in candidates:
            click.echo(self._call(database, partial(swap, database, each)))
        click.echo("ROLLBACK VIEW goes back; DROP CANDIDATE OF VIEW ends the upkeep of what served"
                   " before", err=True)  # fmt: skip
        return True

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
