"""SWAP VIEW, ROLLBACK VIEW and DROP CANDIDATE: what computes a view is exchanged, and back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.catalog import View
from headrace.errors import Code, HeadraceError
from headrace.parts.candidate_differences import candidate_difference
from headrace.serving.values import json_text
from headrace.statements.results import Listed

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.parts.definer import Definer
    from headrace.parts.reader import Reader
    from headrace.sql import DropCandidate, Name, Option, ShowDiff, SwapView
    from headrace.statements.defining.candidate_sets import CandidateSets

AUTO_SWAP: Final = "auto_swap"
"""The option of a replaced view: with ``false``, the new build waits for SWAP VIEW."""
_OPTIONS: Final = re.compile(r"\s*\b\w+\s*\($")
"""The word before options, and what begins them."""
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
        view, candidate = candidate_of(self.reader, statement.name)
        self.sets.require_root(view, statement.name.span)
        if candidate.has_served != statement.back:
            raise HeadraceError(
                Code.CONFLICT,
                f'the candidate of view "{view.name}" has '
                + ("served already" if candidate.has_served else "not served yet"),
                hint=f"{'ROLLBACK' if candidate.has_served else 'SWAP'} VIEW {view.name} lets it"
                " serve.",
                span=statement.name.span,
            )
        epoch = self.sets.swap((view, candidate), statement.name.span)
        done = "rolled back" if statement.back else "swapped"
        return f"{done} view {view.name}: {self.sets.changed_in(epoch)} in epoch {epoch}"

    def difference(self, statement: ShowDiff) -> Listed:
        """Return what a swap would change: the number of rows by kind and column, and examples."""
        view, candidate = candidate_of(self.reader, statement.name)
        self.reader.settle_all()
        found = candidate_difference(self.definer.loop, view, candidate)
        rows: list[tuple[str, str | None, int | None, str]] = [
            (change, column, None, json_text([]))
            for change, columns in (("new column", found.new), ("dropped column", found.dropped))
            for column in columns
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
        view, _ = candidate_of(self.reader, statement.name)
        self.sets.require_root(view, statement.name.span)
        self.sets.drop(view.name)
        return f"dropped the candidate of view {view.name}"


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


def without_swap(statement: Span, options: tuple[Option, ...]) -> str:
    """Return the text of a statement without the option: what serves in the end was swapped."""
    text = statement.source
    for option in options:
        if option.key.lower() == AUTO_SWAP and option.span.text is statement.text:
            before = text[: option.span.start - statement.start].rstrip()
            after = text[option.span.end - statement.start :].lstrip()
            if after.startswith(","):
                after = after[1:].lstrip()
            elif before.endswith(","):
                before = before[:-1]
            if before.endswith("(") and after.startswith(")"):
                before, after = _OPTIONS.sub("", before), f" {after[1:].lstrip()}"
            text = before + after
    return text


def swaps_by_itself(options: tuple[Option, ...]) -> bool:
    """Return whether a new build of a view serves as soon as it is filled.

    Raises:
        HeadraceError: ``invalid``, at the option, for a value that is neither true nor false.
    """
    given = next((option for option in options if option.key.lower() == AUTO_SWAP), None)
    if given is None or given.value.lower() == "true":
        return True
    if given.value.lower() == "false":
        return False
    raise HeadraceError(
        Code.INVALID,
        f"'{given.value}' is not a value of {AUTO_SWAP}",
        hint="Use true or false.",
        span=given.span,
    )
