"""What differs between a project's definitions and those of a database, and the changes, in order.

Nothing is asked of the database here: both sides are given. A change comes after those of what it
reads, and a drop after those of what read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Code, HeadraceError
from headrace.tools.deploying.changes import (
    Action,
    PlannedChange,
    changed_by,
    created_by,
    existing,
    followed_through,
    jobs,
    note_on,
)
from headrace.tools.deploying.forms import dropping, has_secret
from headrace.tools.deploying.functions import with_callers_swapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.planning.sql.definitions import Definition
    from headrace.tools.deploying.stored import StoredDefinitions


_FIRST: Final = ("schema", "secret", "connection", "source")
"""The kinds that are created before all others, in this order."""
_PRUNED: Final = frozenset({
    "stream", "table", "materialized view", "view", "sink", "job", "function", "index",
})  # fmt: skip


@dataclass(slots=True)
class DeploymentPlan:
    """The changes in an order that works, what stays, and why it cannot be carried out, if so."""

    changes: list[PlannedChange] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    kept: list[tuple[str, str]] = field(default_factory=list)
    """The kinds and names of what the database has and the files do not."""
    problems: list[HeadraceError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[HeadraceError]:
        """The problems for which nothing is changed: of the files, not of the present."""
        return [each for each in self.problems if each.code is not Code.UNAVAILABLE]

    def counted(self) -> dict[Action, int]:
        """Return how many changes there are by action."""
        return {each: sum(c.action is each for c in self.changes) for each in Action}

    def to_json(self) -> dict[str, Any]:
        """Return a value that ``json`` can write."""
        return {
            "changes": [each.to_json() for each in self.changes],
            "unchanged": self.unchanged,
            "kept": [{"kind": kind, "name": name} for kind, name in self.kept],
            "problems": [each.to_json() for each in self.problems],
            "notes": self.notes,
        }


def planned(
    definitions: Iterable[Definition], stored: StoredDefinitions, *, prune: bool = False
) -> DeploymentPlan:
    """Return the changes by which a database gets some definitions.

    ``definitions`` come after those that they read. With ``prune``, what they lack is dropped.
    What cannot be changed is a problem of the plan, never a drop.
    """
    wanted = {each.name: each for each in definitions}
    plan, changes = DeploymentPlan(), {}
    found = {each.name: existing(each, stored) for each in wanted.values()} | jobs(
        wanted.values(), stored
    )
    for name, definition in wanted.items():
        former = found[name]
        try:
            change = (
                created_by(definition) if former is None else changed_by(definition, former, stored)
            )
        except HeadraceError as error:
            plan.problems.append(error)
            continue
        if change is None:
            plan.unchanged.append(name)
            if any(has_secret(each.span) for each in definition.statements):
                plan.notes.append(f"{name}: the values of secret options are not compared")
        else:
            changes[name] = change
    matched = {each.name for each in found.values() if each is not None}
    matched.update(followed_through(wanted.values(), stored))
    for name, former in stored.by_name.items():
        if name in matched or not former.own or former.kind not in _PRUNED:
            continue
        if prune:
            drop = dropping(former.kind, name)
            changes[name] = PlannedChange(Action.DROP, former.kind, name, (drop,))
        else:
            plan.kept.append((former.kind, name.removeprefix(f"{former.kind} ")))
    changes |= _dropping_columns(changes, stored)
    changes = {name: each for name, each in changes.items() if each.statements}
    changes = with_callers_swapped(changes, wanted, stored)
    plan.problems += _still_read(changes, stored)
    plan.problems += _unreplaceable(changes, stored)
    plan.changes = _in_order(changes, wanted, stored.read_by)
    return plan


def _dropping_columns(
    changes: Mapping[str, PlannedChange], stored: StoredDefinitions
) -> dict[str, PlannedChange]:
    """Return changes with the columns that they drop: after what reads the relation, if it changes.

    What is replaced may still use them.
    """
    found: dict[str, PlannedChange] = {}
    for name, change in changes.items():
        if not change.dropping:
            continue
        readers = stored.read_by.get(name, set()) & changes.keys()
        note = note_on(change.dropping)
        if not readers:
            statements = (*change.statements, *change.dropping)
            notes = ", ".join(filter(None, (change.note, note)))
            found[name] = replace(change, statements=statements, note=notes, dropping=())
            continue
        later = f"{name} (dropped columns)"
        found[name] = replace(change, dropping=())
        found[later] = replace(
            change,
            name=later,
            statements=change.dropping,
            definition=None,
            note=note,
            dropping=(),
            after=frozenset({name, *readers}),
        )
    return found


def _still_read(
    changes: Mapping[str, PlannedChange], stored: StoredDefinitions
) -> Iterable[HeadraceError]:
    """Yield an error for each drop of what something reads that stays."""
    for name, change in changes.items():
        if change.action is not Action.DROP:
            continue
        for reader in sorted(stored.read_by.get(name, ())):
            other = changes.get(reader)
            if other is not None and other.action is Action.DROP:
                continue
            reads = None if other is None else other.definition
            if reads is not None and name not in {*reads.surely, *reads.over}:
                continue
            yield HeadraceError(
                Code.CONFLICT,
                f'{change.title} is not in the files, but "{reader}" reads it',
                hint="Define it in the files too, or leave --prune out.",
                span=None if other is None else other.place,
            )


def _unreplaceable(
    changes: Mapping[str, PlannedChange], stored: StoredDefinitions
) -> Iterable[HeadraceError]:
    """Yield an error for each plain view or function to replace that something reads."""
    for name, change in changes.items():
        if change.action is not Action.REPLACE or change.kind not in {"view", "function"}:
            continue
        readers = sorted(
            each
            for each in stored.read_by.get(name, ())
            if each not in changes or changes[each].action is not Action.DROP
        )
        if readers and not change.after.issuperset(readers):
            listed = ", ".join(f'"{each}"' for each in readers)
            yield HeadraceError(
                Code.UNSUPPORTED,
                f"{change.title} cannot be replaced while {listed} depend"
                f"{'s' * (len(readers) == 1)} on it",
                hint="Give the new one another name, and let them read that.",
                span=change.place,
            )


def _in_order(
    changes: Mapping[str, PlannedChange],
    wanted: Mapping[str, Definition],
    read_by: Mapping[str, set[str]],
) -> list[PlannedChange]:
    """Return changes in an order that works, each with those that it needs; drops come late.

    A view is replaced after the drops of what read it, so that its columns can change; where that
    contradicts the rest, it is not asked for.
    """
    rank = {name: _rank(each, at) for at, (name, each) in enumerate(changes.items())}
    for reads in ("reads", "surely"):
        below = _below(changes, wanted, read_by, reads)
        for drops_first in (True, False):
            graph = {
                name: _before(each, changes, read_by, below, drops_first=drops_first)
                for name, each in changes.items()
            }
            try:
                order = _sorted(graph, rank)
            except CycleError as error:
                cycle = error.args[1]
                continue
            return [replace(changes[name], after=frozenset(graph[name])) for name in order]
    raise HeadraceError(
        Code.UNSUPPORTED,
        "the changes need each other",
        f"There is no order of the changes of {', '.join(cycle[1:])}.",
        "Deploy some of the files first.",
        wanted[cycle[0]].created.span if cycle[0] in wanted else None,
    )


def _below(
    changes: Mapping[str, PlannedChange],
    wanted: Mapping[str, Definition],
    read_by: Mapping[str, set[str]],
    reads: str,
) -> dict[str, set[str]]:
    """Return, for each changed definition, the changes of what it reads, also through others.

    What reads a view that is replaced gets other columns with it, though its own text stays.
    """
    direct: dict[str, set[str]] = {}
    for name, readers in read_by.items():
        for reader in readers:
            direct.setdefault(reader, set()).add(name)
    changed = {name: each.definition for name, each in changes.items() if each.definition}
    for name, each in {**wanted, **changed}.items():
        direct[name] = {*getattr(each, reads), *each.over}
    found: dict[str, set[str]] = {}
    for name, change in changes.items():
        if change.definition is None:
            continue
        pending, seen = [*direct.get(name, ())], set[str]()
        while pending:
            below = pending.pop()
            if below not in seen:
                seen.add(below)
                pending += () if below in changes else direct.get(below, ())
        found[name] = seen & changes.keys()
    return found


def _before(
    change: PlannedChange,
    changes: Mapping[str, PlannedChange],
    read_by: Mapping[str, set[str]],
    below: Mapping[str, set[str]],
    *,
    drops_first: bool,
) -> set[str]:
    """Return the names of the changes that must come before one."""
    readers = {each for each in read_by.get(change.name, ()) if each in changes}
    if change.action is Action.DROP:
        return readers | (change.after & changes.keys())
    found = {name for name in below.get(change.name, ()) if changes[name].action is not Action.DROP}
    found |= change.after & changes.keys()
    if drops_first and change.action is Action.REPLACE:
        found |= {each for each in readers if changes[each].action is Action.DROP}
    return found - {change.name}


def _rank(change: PlannedChange, at: int) -> tuple[int, int, int]:
    if change.action is Action.DROP:
        return (2, 0, at)
    return (0, _FIRST.index(change.kind), at) if change.kind in _FIRST else (1, 0, at)


def _sorted(graph: Mapping[str, set[str]], rank: Mapping[str, tuple[int, int, int]]) -> list[str]:
    """Return names in topological order, of those that are ready the one of least rank first."""
    sorter = TopologicalSorter(graph)
    sorter.prepare()
    ready: set[str] = set()
    found: list[str] = []
    while sorter.is_active():
        ready.update(sorter.get_ready())
        name = min(ready, key=rank.__getitem__)
        ready.remove(name)
        found.append(name)
        sorter.done(name)
    return found
