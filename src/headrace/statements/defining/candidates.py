"""SWAP VIEW, ROLLBACK VIEW and DROP CANDIDATE: what computes a view is exchanged, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.catalog import View
from headrace.errors import Code, HeadraceError
from headrace.parts.candidate_differences import candidate_difference
from headrace.parts.swapping import swapping
from headrace.serving.values import json_text
from headrace.statements.defining.keep_former import kept_for
from headrace.statements.results import Listed, shown_time

if TYPE_CHECKING:
    from headrace.parts.definer import Definer
    from headrace.parts.reader import Reader
    from headrace.sql import DropCandidate, Name, ShowDiff, SwapView
    from headrace.statements.defining.candidate_sets import CandidateSets

_SECOND: Final = 1_000_000
_TYPES: Final = {"column": pa.string(), "rows": pa.int64()}
_NONE: Final = "CREATE OR REPLACE it WITH (auto_swap = false) to make one."


@dataclass(frozen=True, slots=True)
class Candidates:
    """Lets candidates of views serve, and shows what that would change."""

    reader: Reader
    definer: Definer
    sets: CandidateSets

    def swap(self, statement: SwapView) -> str:
        """Let the candidate serve, or what served before."""
        pairs = self.roots(statement)
        loop = self.definer.loop
        keeps = None if statement.back else kept_for(statement.options, loop.settings.keep_former)
        until = None if keeps is None else loop.now() / _SECOND + keeps
        swapped = self.sets.swap(pairs, statement.names[0].span, kept_until=until)
        done = "rolled back" if statement.back else "swapped"
        names = ", ".join(view.name for view, _ in pairs)
        views = "view" if len(pairs) == 1 else "views"
        serving = [self.reader.catalog.resolve(view.name) for view, _ in pairs]
        there = self.reader.catalog.candidate(serving[0].id)
        ends = None if there is None else there.kept_until
        kept = "" if ends is None else f"; what served before is kept until {shown_time(ends)}"
        changed = swapped.changed
        # A view with other columns has got another's name: its rows are not counted.
        other = [
            now.name for (view, _), now in zip(pairs, serving, strict=True) if now.id != view.id
        ]
        if other:
            has = "has" if len(other) == 1 else "have"
            changed = f"{', '.join(other)} {has} other columns or another key; elsewhere {changed}"
        return f"{done} {views} {names}: {changed} in epoch {swapped.epoch}{kept}{swapped.note}"

    def roots(self, statement: SwapView) -> list[tuple[View, View]]:
        """Return the views that a statement names, with their candidates.

        Raises:
            HeadraceError: at its name, for one that has none which it lets serve by itself.
        """
        pairs = [candidate_of(self.reader, name) for name in statement.names]
        among = {view.id for view, _ in pairs}
        for name, (view, candidate) in zip(statement.names, pairs, strict=True):
            self.sets.require_root(view, name.span, among)
            if candidate.has_served != statement.back:
                raise HeadraceError(
                    Code.CONFLICT,
                    f'the candidate of view "{view.name}" has '
                    + ("served already" if candidate.has_served else "not served yet"),
                    hint=f"{swapping(self.reader.catalog, view)} lets it serve.",
                    span=name.span,
                )
        return pairs

    def difference(self, statement: ShowDiff) -> Listed:
        """Return what a swap would change: the number of rows by kind and column, and examples."""
        view, candidate = candidate_of(self.reader, statement.name)
        self.reader.settle_all()
        self.reader.require_running(candidate)
        found = candidate_difference(self.definer.loop, view, candidate)
        rows: list[tuple[str, str | None, int | None, str]] = [
            (change, column, None, json_text([]))
            for change, columns in (("new column", found.new), ("dropped column", found.dropped))
            for column in columns
        ]
        types = [
            {each.name: each.type.simpleString().upper() for each in relation.schema.columns}
            for relation in (view, candidate)
        ]
        rows += [
            ("other type", column, None, json_text([[each[column] for each in types]]))
            for column in found.retyped
        ]
        rows += [
            ("added", None, found.added, json_text(found.of_added)),
            ("gone", None, found.gone, json_text(found.of_gone)),
            ("changed", None, found.changed, json_text([])),
        ]
        for column, count in found.columns.items():
            if count:
                examples = [list(pair) for pair in found.of_column[column]]
                rows.append(("changed", column, count, json_text(examples)))
        return Listed(("change", "column", "rows", "examples"), rows, _TYPES)

    def drop(self, statement: DropCandidate) -> str:
        """Drop the candidate of a view, and those that read it, whether they have served or not."""
        pairs = [candidate_of(self.reader, name) for name in statement.names]
        among = {view.id for view, _ in pairs}
        for name, (view, _) in zip(statement.names, pairs, strict=True):
            self.sets.require_root(view, name.span, among)
        self.sets.drop([view.name for view, _ in pairs])
        many = len(pairs) > 1
        names = ", ".join(view.name for view, _ in pairs)
        return f"dropped the candidate{'s' * many} of view{'s' * many} {names}"


def candidate_of(reader: Reader, name: Name) -> tuple[View, View]:
    """Return a view and its candidate.

    Raises:
        HeadraceError: ``invalid``, at the name, if there is none.
    """
    catalog = reader.catalog
    found = catalog.resolve(name.dotted, name.span)
    candidate = catalog.candidate(found.id)
    if not isinstance(found, View) or candidate is None:
        raise HeadraceError(
            Code.INVALID,
            f'{found.kind} "{found.name}" has no candidate',
            hint=_NONE,
            span=name.span,
        )
    return found, candidate
