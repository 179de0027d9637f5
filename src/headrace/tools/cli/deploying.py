"""The work of ``headrace plan`` and ``headrace apply``."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import click

from headrace.errors import Code, HeadraceError
from headrace.planning.sql.definitions import (
    Definitions,
    statements_left_out,
    statements_that_are_wrong,
)
from headrace.tools.cli.environment import Environment
from headrace.tools.cli.failures import report
from headrace.tools.cli.options import printer_of
from headrace.tools.cli.terminal import ProgressBar, status
from headrace.tools.deploying.applying import (
    difference,
    drop_candidates,
    explain,
    follow_renames,
    make,
    next_round,
    summary,
    swap,
    together,
    verdict,
)
from headrace.tools.deploying.plan import DeploymentPlan, planned
from headrace.tools.deploying.stored import read_definitions, read_dependencies

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from headrace.interfaces.connecting import AnyDatabase
    from headrace.planning.sql.definitions import Definition
    from headrace.tools.cli.statement_thread import StatementThread
    from headrace.tools.deploying.changes import PlannedChange


T = TypeVar("T")

_SAME, _FAILED, _CHANGES = 0, 1, 2
_WIDTH: Final = 9
"""The width of the column of actions."""
_MOST_NAMES: Final = 6
"""How many views are named in a line."""


@dataclass(frozen=True, slots=True)
class Swapping:
    """What happens before candidates serve: comparison with batch, and somebody's look at them.

    ``agreed``: that nobody is asked.
    """

    validate: bool
    review: bool
    agreed: bool


@dataclass(slots=True)
class Outcome:
    """What became of the changes of a plan: which were made, which failed, which need one of those.

    Names of changes, with the reasons.
    """

    failed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)

    def fails(self, change: PlannedChange, error: HeadraceError) -> None:
        """Record that a change failed."""
        self.failed[change.name] = error.primary

    def leaves_out(self, change: PlannedChange) -> bool:
        """Whether a change is left out: it cannot be made, or it needs one that was not."""
        if change.name in self.failed:
            return True
        needed = next((e for e in sorted(change.after) if e in self.failed | self.skipped), None)
        if needed is None:
            return False
        self.skipped[change.name] = f"it needs {needed}"
        return True

    def why(self, name: str) -> str:
        """Return why a change was not made; nothing if it was not tried."""
        return self.failed.get(name) or self.skipped.get(name, "")


@dataclass(frozen=True, slots=True)
class Deployment:
    """Compares files with a database, which ``opened`` opens, and changes it."""

    thread: StatementThread
    opened: Callable[[], AbstractContextManager[AnyDatabase]]
    debug: bool = False

    def plan(self, paths: Sequence[Path], *, prune: bool, offline: bool, as_json: bool) -> int:
        """Print what would change; return the exit code."""
        definitions, notes = self._read(paths)
        if definitions is None:
            return _FAILED
        with self.opened() as database:
            plan = self._plan(database, definitions, notes, prune=prune, offline=offline)
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
        definitions, notes = self._read(paths)
        if definitions is None:
            return _FAILED
        with self.opened() as database:
            plan = self._plan(database, definitions, notes, prune=prune)
            _show(plan)
            self._show_problems(plan)
            if plan.wrong:
                click.echo("nothing was changed", err=True)
                return _FAILED
            if not plan.changes:
                return _SAME
            click.echo()
            return self._make(database, plan, Swapping(validate, review, yes))

    def _read(self, paths: Sequence[Path]) -> tuple[list[Definition] | None, list[str]]:
        """Return the definitions of files, and a note on each statement that defines nothing.

        None if they cannot be read; all that is wrong has been shown then.
        """
        wrong = statements_that_are_wrong(paths)
        for each in wrong:
            report(each, sys.stderr, debug=self.debug)
        if wrong:
            return None, []
        found = Definitions.of(paths).every()
        notes = [
            f"{span.file}:{span.position[0]}: this statement defines nothing, and is left out"
            for span in statements_left_out(paths, found)
        ]
        return found, notes

    def _plan(
        self,
        database: AnyDatabase,
        definitions: list[Definition],
        notes: list[str],
        *,
        prune: bool,
        offline: bool = False,
    ) -> DeploymentPlan:
        def work() -> DeploymentPlan:
            stored = read_definitions(database)
            follow_renames(definitions, stored, database)
            plan = planned(definitions, stored, prune=prune)
            if plan.changes or plan.problems:
                read_dependencies(database, stored)
                plan = planned(definitions, stored, prune=prune)
            plan.notes += notes
            explain(plan, stored, database, offline=offline)
            return plan

        with status("comparing…", sys.stderr):
            return self.thread.call(work, database.cancel)

    def _make(self, database: AnyDatabase, plan: DeploymentPlan, how: Swapping) -> int:
        """Make the changes; what fails is left out, with all that needs it, and said at the end."""
        outcome = Outcome(
            {each.name: each.problem.primary for each in plan.changes if each.problem}
        )
        rest: tuple[PlannedChange, ...] = tuple(plan.changes)
        stopped = False
        while rest and not stopped:
            now = next_round(rest)
            waiting: list[PlannedChange] = []
            for change in now.changes:
                if outcome.leaves_out(change):
                    continue
                try:
                    self._make_one(database, change)
                except HeadraceError as error:
                    report(error, sys.stderr, debug=self.debug)
                    if error.code is Code.CANCELLED:
                        self._give_up(database, waiting)
                        raise
                    outcome.fails(change, error)
                    continue
                if change.candidate is None:
                    outcome.made.add(change.name)
                else:
                    waiting.append(change)
            stopped = not self._all_swapped(database, now.candidates, waiting, outcome, how)
            rest = now.rest
        if len(outcome.made) == len(plan.changes):
            click.echo(f"{_counted(len(outcome.made), 'change')} made")
            return _SAME
        _show_undone(plan.changes, outcome)
        return _FAILED

    def _all_swapped(
        self,
        database: AnyDatabase,
        candidates: Sequence[PlannedChange],
        filled: Sequence[PlannedChange],
        outcome: Outcome,
        how: Swapping,
    ) -> bool:
        """Let candidates serve, without those that need one that failed; return whether to go on.

        They are one swap: what needs each other changes at once, or not at all.
        """
        ready: list[PlannedChange] = []
        for members in together(candidates):
            there = [each for each in members if each in filled]
            if len(there) == len(members):
                ready += there
                continue
            self._give_up(database, there)
            failed = ", ".join(each.title for each in members if each not in filled)
            for each in there:
                outcome.skipped[each.name] = f"it changes together with {failed}"
        if not ready:
            return True
        ready.sort(key=candidates.index)
        try:
            swapped = self._swapped(database, ready, how)
        except HeadraceError as error:
            report(error, sys.stderr, debug=self.debug)
            self._give_up(database, ready)
            if error.code is Code.CANCELLED:
                raise
            for each in ready:
                outcome.fails(each, error)
            return True
        outcome.made |= {each.name for each in ready} if swapped else set()
        return swapped

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
            names = ", ".join(each.target for each in candidates)
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


def _agreed() -> bool:
    """Ask whether to swap; the end of the input is a no."""
    try:
        return click.confirm("Swap?", err=True)
    except click.Abort:
        click.echo(err=True)
        return False


def _show(plan: DeploymentPlan) -> None:
    """Print the changes, what reads most rows first; then what stays, and a total."""
    for change in sorted(plan.changes, key=lambda each: -(each.rows or 0)):
        differs = f": {', '.join(map(str, change.differs))}" if change.differs else ""
        place = change.place
        at = "" if place is None else f"  ({place.file}:{place.position[0]})"
        click.echo(f"{change.action.value:<{_WIDTH}}{change.title}{differs}{at}")
        said = [*_effects(change), change.note]
        if change.rows:
            said.insert(0, f"reads {_cost(change.rows, change.seconds)}")
        if change.problem is not None:
            said.append(f"cannot be made: {change.problem.primary}")
        for each in filter(None, said):
            click.echo(f"{'':<{_WIDTH}}  {each}")
    for kind, name in plan.kept:
        click.echo(f"{'kept':<{_WIDTH}}{kind} {name}: not in the files; --prune drops it")
    for note in plan.notes:
        click.echo(f"{'note':<{_WIDTH}}{note}")
    counts = [f"{count} to {action.value}" for action, count in plan.counted().items() if count]
    same = f"{len(plan.unchanged)} unchanged"
    rows = sum(each.rows or 0 for each in plan.changes)
    seconds = sum(each.seconds or 0.0 for each in plan.changes)
    cost = f"; {_cost(rows, seconds or None)} to read" if rows else ""
    total = ", ".join([*counts, same]) if counts else f"nothing to change, {same}"
    click.echo(f"{total}{cost}")


def _effects(change: PlannedChange) -> list[str]:
    """Return the effects of a change on others: those that are alike in one line."""
    alike: dict[tuple[str, str], list[str]] = {}
    for effect in change.effects:
        if effect.view != change.target or effect.path not in {"none", "rebuild"}:
            alike.setdefault((effect.path, effect.rule), []).append(effect.view)
        elif effect.path == "rebuild":
            alike.setdefault(("", effect.rule), []).append("")
    return [
        f"{_listed(views)}: {path}: {rule}" if path else rule
        for (path, rule), views in alike.items()
    ]


def _listed(names: Sequence[str]) -> str:
    shown = names if len(names) <= _MOST_NAMES else names[: _MOST_NAMES - 1]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} others" if more else "")


def _cost(rows: int, seconds: float | None) -> str:
    about = "" if seconds is None else f", about {_duration(seconds)}"
    return f"{_counted(rows, 'row')}{about}"


def _duration(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{max(1, round(seconds))} s"


def _show_undone(changes: Sequence[PlannedChange], outcome: Outcome) -> None:
    """Say which changes were not made, and why."""
    click.echo(
        f"{len(outcome.made)} of {_counted(len(changes), 'change')} made; not made:", err=True
    )
    for each in changes:
        if each.name not in outcome.made:
            why = outcome.why(each.name)
            click.echo(f"  {each.action.value} {each.title}{f': {why}' if why else ''}", err=True)
    click.echo("run the command again to continue", err=True)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
