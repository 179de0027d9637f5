"""Shrinks a case that fails: views, epochs, changes, clauses, columns, values."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from generator.cases import Case, View
from generator.changes import Epoch, possible
from generator.cuts import narrowed, smaller
from generator.execution import BatchError, Failed, Failure, Player, only, words
from generator.syntax import Text

if TYPE_CHECKING:
    from generator.changes import Change

SECONDS = 300


@dataclass(slots=True)
class Shrinker:
    """Makes a failing case smaller as long as it fails in the same way."""

    player: Player
    failure: Failure
    seconds: float = SECONDS
    tried: int = 0
    _deadline: float = field(default=0, init=False)

    def shrink(self, case: Case) -> Case:
        """Return the smallest case found in the time given; it fails like the first."""
        self._deadline = time.monotonic() + self.seconds
        blamed = [view for view in case.views if view.name == self.failure.view]
        if blamed and self._fails(only(case, blamed[0])):
            case = only(case, blamed[0])
        size = None
        while size != _size(case) and not self._late():
            size = _size(case)
            case = self._fewer_relations(self._fewer_steps(case))
            case = self._fewer_changes(case, least=max(1, len(_changes(case)) // 8))
            case = self._fewer_relations(self._smaller_queries(case))
            case = self._fewer_columns(self._fewer_changes(case))
        return self._simpler_values(case)

    # -- history ---------------------------------------------------------------------------

    def _fewer_steps(self, case: Case) -> Case:
        at = len(case.steps) - 1
        while at >= 0 and not self._late():
            steps = list(case.steps)
            del steps[at]
            found = self._accepted(case, steps)
            if found is None and isinstance(case.steps[at], Epoch):
                found = self._merged(case, at)
            case = found or case
            at = min(at, len(case.steps)) - 1
        return case

    def _merged(self, case: Case, at: int) -> Case | None:
        """Make one epoch of two that follow each other."""
        if at == 0 or not isinstance(case.steps[at - 1], Epoch):
            return None
        first, second = case.steps[at - 1], case.steps[at]
        names = {**first.changes, **second.changes}
        both = {n: (*first.changes.get(n, ()), *second.changes.get(n, ())) for n in names}
        return self._accepted(case, [*case.steps[: at - 1], Epoch(both), *case.steps[at + 1 :]])

    def _fewer_changes(self, case: Case, least: int = 1) -> Case:
        """Leave out ever smaller stretches of all changes, down to ``least`` of them."""
        chunk = max(1, len(_changes(case)) // 2)
        while not self._late():
            at = 0
            while at < len(_changes(case)) and not self._late():
                every = _changes(case)
                kept = every[:at] + every[at + chunk :]
                found = self._accepted(case, _with_changes(case, kept))
                if found is None:
                    at += chunk
                else:
                    case = found
            if chunk <= least:
                break
            chunk = max(1, chunk // 2)
        return case

    def _simpler_values(self, case: Case) -> Case:
        """Have every value of a column be the same, where it does not matter."""
        for relation in case.relations:
            for i, column in enumerate(relation.columns):
                values = [row[i] for n, _, (_, row) in _changes(case) if n == relation.name]
                if column.name in relation.key or len(set(map(repr, values))) < 2 or self._late():
                    continue
                kept = [
                    (
                        n,
                        at,
                        (w, (*row[:i], values[0], *row[i + 1 :]) if n == relation.name else row),
                    )
                    for n, at, (w, row) in _changes(case)
                ]
                case = self._accepted(case, _with_changes(case, kept)) or case
        return case

    # -- queries and relations -------------------------------------------------------------

    def _smaller_queries(self, case: Case) -> Case:
        for name in [view.name for view in case.views]:
            skipped, changed = 0, True
            while changed and not self._late():
                changed = False
                view = next(v for v in case.views if v.name == name)
                for i, query in enumerate(smaller(view.query)):
                    if i < skipped:
                        continue
                    if self._late():
                        break
                    new = View(name, query)
                    found = self._accepted(case, [new if s is view else s for s in case.steps])
                    if found is not None:
                        case, changed, skipped = found, True, i
                        break
                if not changed and skipped:
                    changed, skipped = True, 0
        return case

    def _fewer_relations(self, case: Case) -> Case:
        read = set().union(*(words(view.sql) for view in case.views))
        left = tuple(r for r in case.relations if r.name in read)
        kept = [c for c in _changes(case) if c[0] in read]
        if len(left) == len(case.relations):
            return case
        return self._accepted(replace(case, relations=left), _with_changes(case, kept)) or case

    def _fewer_columns(self, case: Case) -> Case:
        for relation in case.relations:
            for column in relation.columns:
                now = next(r for r in case.relations if r.name == relation.name)
                if column.name in now.key or len(now.columns) == 1 or self._late():
                    continue
                i = now.columns.index(column)
                left = (*now.columns[:i], *now.columns[i + 1 :])
                kept = [
                    (n, at, (w, (*row[:i], *row[i + 1 :]) if n == now.name else row))
                    for n, at, (w, row) in _changes(case)
                ]
                names = tuple(c.name for c in left)
                steps = [
                    View(s.name, narrowed(s.query, now.name, names)) if isinstance(s, View) else s
                    for s in _with_changes(case, kept)
                ]
                relations = tuple(
                    replace(r, columns=left) if r is now else r for r in case.relations
                )
                case = self._accepted(replace(case, relations=relations), steps) or case
        return case

    # -- trying ----------------------------------------------------------------------------

    def _late(self) -> bool:
        return time.monotonic() > self._deadline

    def _accepted(self, case: Case, steps: list[object]) -> Case | None:
        """Return the case with other steps, made possible, if it still fails."""
        epochs = iter(possible(case.relations, (s for s in steps if isinstance(s, Epoch))))
        made = [next(epochs) if isinstance(step, Epoch) else step for step in steps]
        made = [step for step in made if not isinstance(step, Epoch) or step.size]
        found = replace(case, steps=tuple(made))
        return found if self._valid(found) and self._fails(found) else None

    def _valid(self, case: Case) -> bool:
        """Return whether Spark takes the queries: cheaper to ask than to play the case."""
        if not case.views:
            return False
        session = self.player.batch
        for relation in case.relations:
            schema = StructType.fromDDL(relation.columns_sql)
            session.createDataFrame([], schema).createOrReplaceTempView(relation.name)
        try:
            for view in case.views:
                session.sql(view.sql).createOrReplaceTempView(view.name)
        except PySparkException:
            return False
        return True

    def _fails(self, case: Case) -> bool:
        self.tried += 1
        try:
            self.player.play(case)
        except Failed as failed:
            return failed.failure.sort == self.failure.sort
        except BatchError:
            return False
        return False


def _changes(case: Case) -> list[tuple[str, int, Change]]:
    """Return all changes: the relation, the step, and the change."""
    return [
        (name, at, change)
        for at, step in enumerate(case.steps)
        if isinstance(step, Epoch)
        for name, changes in step.changes.items()
        for change in changes
    ]


def _with_changes(case: Case, kept: list[tuple[str, int, Change]]) -> list[object]:
    found: dict[int, dict[str, list[Change]]] = {}
    for name, at, change in kept:
        found.setdefault(at, {}).setdefault(name, []).append(change)
    return [
        Epoch({n: tuple(c) for n, c in found.get(at, {}).items()}) if isinstance(s, Epoch) else s
        for at, s in enumerate(case.steps)
    ]


def _size(case: Case) -> tuple[int, ...]:
    text = sum(len(v.sql) for v in case.views if not isinstance(v.query, Text))
    columns = sum(len(r.columns) for r in case.relations)
    return len(case.steps), len(_changes(case)), text, columns
