"""EXPLAIN CHANGE: the effect of a statement on each view, without running it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headrace.catalog import Stream, Table
from headrace.history.changes import in_effect
from headrace.parts.naming import shown_name
from headrace.sql import Insert, Invalidate, Name
from headrace.statements.checking.invalidations import invalidated
from headrace.statements.describing.definitions import DEFINITIONS
from headrace.statements.results import Listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headrace.history.changes import ChangeClassifier
    from headrace.history.slices import Slices
    from headrace.ledger import Carried
    from headrace.parts.access import Principal
    from headrace.parts.reader import Reader
    from headrace.sql import ExplainChange, ExplainScript
    from headrace.statements.changing.trials import RowChange, Trials
    from headrace.statements.describing.alteration_effects import Row as DefinitionRow
    from headrace.statements.describing.definitions import DefinitionChanges

CARRIED = ("view", "path", "rule", "rows", "changed", "rebuild_rows")
_TYPES = dict.fromkeys(("rows", "changed", "rebuild_rows"), pa.int64())

CREATE: Final = "create"
"""The path of a view that a statement of a script creates."""
DEFINED: Final = "defined"
"""Of a view or sink whose definition follows a statement: it has another name in it."""
WRONG: Final = "wrong"
"""Of a statement that would fail; the row has its error."""
UNCHECKED: Final = "unchecked"
"""Of a statement over what another one would not make, or that cannot be tried offline."""


@dataclass(frozen=True, slots=True)
class ChangeExplanations:
    """Explains the effects of statements, without running them."""

    reader: Reader
    slices: Slices
    changes: ChangeClassifier
    definition_changes: DefinitionChanges
    trials: Trials
    principal: Principal

    def explain(self, statement: ExplainChange) -> Listed:
        """List, for each view, how it follows the change, why, and the number of affected rows."""
        target = statement.target
        match target:
            case Name():
                carried = self.definition_changes.of_function(target)
            case Invalidate():
                view = invalidated(self.reader.catalog, target)
                carried = self.changes.of_slice(view, self.slices.read(view, target.slice))
            case _ if isinstance(target, DEFINITIONS):
                return Listed(CARRIED, self._shown(self.definition_changes.of(target)), _TYPES)
            case _:
                carried = self._of_rows(target)
        return Listed(CARRIED, self._rows(carried), _TYPES)

    def _rows(self, carried: Sequence[Carried]) -> list[tuple[Any, ...]]:
        names = self.reader.catalog.by_id
        return [
            (names[c.view].name, c.path.value, c.rule, c.cost, c.changed, c.whole)
            for c in carried
            if self.principal.sees(names[c.view].name)
        ]

    def _shown(self, found: Iterable[DefinitionRow]) -> list[tuple[Any, ...]]:
        catalog = self.reader.catalog
        return [
            (shown_name(relation, catalog), how, why, None, None, whole)
            for relation, how, why, whole in found
            if self.principal.sees(relation.name)
        ]

    def _of_rows(self, target: RowChange) -> list[Carried]:
        written = self.trials.written(target)
        if written is None:
            return []
        relation, rows = written
        note = in_effect(relation, rows) if isinstance(relation, Table) else ""
        corrects = isinstance(relation, Stream) and not isinstance(target, Insert)
        return self.changes.of_rows(relation, rows, note, corrects=corrects)


@dataclass(frozen=True, slots=True)
class ScriptExplanations:
    """Explains the statements of a script, each after those before it."""

    rehearse: Callable[[ExplainScript], Listed]

    def explain(self, statement: ExplainScript) -> Listed:
        """List, for each statement, its effects on views, or why it would fail."""
        return self.rehearse(statement)
