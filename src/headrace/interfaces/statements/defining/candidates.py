"""SWAP VIEW, ROLLBACK VIEW and DROP CANDIDATE: what computes a view is exchanged, and back.

PAUSE FILL and RESUME FILL.

The option ``keep_former`` of SWAP VIEW: how long ROLLBACK VIEW has what served before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.execution.serving.values import json_text
from headrace.interfaces.statements.defining.options import require_known
from headrace.interfaces.statements.defining.stream_options import seconds_of
from headrace.interfaces.statements.results import Listed, shown_time
from headrace.lifecycle.definitions.candidates import candidate_difference
from headrace.lifecycle.definitions.filling import FillState
from headrace.lifecycle.states.swapping import swapping
from headrace.planning.catalog import View

if TYPE_CHECKING:
    from headrace.interfaces.statements.defining.candidate_sets import CandidateSets
    from headrace.lifecycle.definitions.definer import Definer
    from headrace.lifecycle.definitions.filling import FillProgress, Fills
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.sql import (
        DropCandidate,
        Name,
        Option,
        PauseFill,
        ResumeFill,
        ShowDiff,
        SwapView,
    )


@dataclass(frozen=True, slots=True)
class FillChanges:
    """Lets running fills wait and go on."""

    fills: Fills

    def pause(self, statement: PauseFill) -> str:
        """Let the fills of a view wait, each after the part that it reads now."""
        found, name = self._of(statement.name), statement.name
        if not all(fill.pauses for fill in found):
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'pausing the fill of "{name}" is not supported',
                "Others wait until it has ended: epochs, refreshes or writes.",
                "Cancel its statement instead.",
                name.span,
            )
        if all(fill.state is FillState.PAUSED for fill in found):
            return f"the fill of {name} is paused"
        for fill in found:
            fill.pause()
        return f"the fill of {name} pauses after the part that it reads"

    def resume(self, statement: ResumeFill) -> str:
        """Let the fills of a view go on."""
        found, name = self._of(statement.name), statement.name
        resumed = [fill.resume() for fill in found]
        return f"resumed the fill of {name}" if any(resumed) else f"the fill of {name} is running"

    def _of(self, name: Name) -> list[FillProgress]:
        found = [fill for fill in self.fills.listed() if fill.name.lower() == name.dotted.lower()]
        if not found:
            raise HeadraceError(
                Code.INVALID,
                f'no fill of view or index "{name}" is running',
                hint="SELECT * FROM information_schema.fills lists those that run.",
                span=name.span,
            )
        return found


KEEP_FORMER: Final = "keep_former"
FOREVER: Final = "forever"
"""The value with which it is kept until it is dropped."""


def kept_for(options: tuple[Option, ...], default: int | None) -> int | None:
    """Return for how many seconds what served before is kept; None: until it is dropped.

    Raises:
        HeadraceError: ``invalid``, at the option, for another option or a value that is not a
            duration.
    """
    require_known(options, KEEP_FORMER)
    if not options:
        return default
    (option,) = options
    return None if option.value.strip().lower() == FOREVER else seconds_of(option)


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
