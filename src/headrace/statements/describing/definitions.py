"""EXPLAIN CHANGE of statements that change the catalog: their effect on each view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from headrace.catalog import View
from headrace.errors import unknown
from headrace.ledger import RepairPath
from headrace.parts.functions import above, users
from headrace.parts.naming import is_hidden
from headrace.sql import (
    AddColumns,
    AlterStream,
    AlterView,
    AlterViewQuery,
    CreateMaterializedView,
    CreateTableAs,
    Drop,
    DropColumns,
    DropFunction,
    RebuildView,
    RenameColumn,
    RetypeColumn,
    SwapView,
)
from headrace.statements.defining.altered_queries import redefined
from headrace.statements.defining.drops import dropped_with
from headrace.statements.defining.history import HISTORY
from headrace.statements.describing.alteration_effects import REFUSED, AlterationEffects, Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.history.changes import ChangeClassifier
    from headrace.ledger import Carried
    from headrace.parts.functions import Functions
    from headrace.parts.reader import Reader
    from headrace.sql import Name
    from headrace.statements.describing.build_effects import BuildEffects

Definition: TypeAlias = (
    AddColumns
    | DropColumns
    | RenameColumn
    | RetypeColumn
    | AlterStream
    | AlterView
    | AlterViewQuery
    | CreateMaterializedView
    | CreateTableAs
    | Drop
    | DropFunction
    | RebuildView
    | SwapView
)
"""The statements on the catalog whose effect on views can be explained."""
DEFINITIONS = (
    AddColumns, DropColumns, RenameColumn, RetypeColumn, AlterStream, AlterView, AlterViewQuery,
    CreateMaterializedView, CreateTableAs, Drop, DropFunction, RebuildView, SwapView,
)  # fmt: skip

DROP = "drop"


@dataclass(frozen=True, slots=True)
class DefinitionChanges:
    """Finds the effects of statements on views, without running them."""

    reader: Reader
    functions: Functions
    changes: ChangeClassifier
    alteration_effects: AlterationEffects
    build_effects: BuildEffects

    def of(self, statement: Definition) -> Iterator[Row]:
        """Yield the effect of a statement on each view; inputs come before their readers."""
        match statement:
            case Drop():
                yield from self._dropped(statement)
            case DropFunction():
                calling = users(self.reader.catalog, statement.name.dotted)
                how = DROP if statement.cascade else REFUSED
                for view in above(self.reader.catalog, calling):
                    yield view, how, f"needs function {statement.name.dotted}", None
            case AlterStream():
                yield from self.alteration_effects.of_retention(statement)
            case AddColumns() | DropColumns() | RenameColumn() | RetypeColumn():
                yield from self.alteration_effects.of_columns(statement)
            case AlterView():
                altered = self.reader.catalog.resolve(statement.name.dotted, statement.name.span)
                kept = any(option.key.lower() == HISTORY for option in statement.options)
                what = "how long its states are kept" if kept else "its refresh schedule"
                yield altered, RepairPath.NONE, f"its rows stay; {what} changes", None
            case AlterViewQuery():
                yield from self.build_effects.of_replaced(redefined(self.reader.catalog, statement))
            case CreateMaterializedView() | CreateTableAs():
                yield from self.build_effects.of_replaced(statement)
            case RebuildView():
                yield from self.build_effects.of_rebuilt(statement)
            case SwapView():
                yield from self.build_effects.of_swapped(statement)

    def of_function(self, name: Name) -> list[Carried]:
        """Return the effect of replacing a function on the views that call it.

        Raises:
            HeadraceError: ``invalid``, at the name, if the function does not exist.
        """
        key, known = name.dotted, self.functions.records
        if key not in known:
            otherwise = "SHOW FUNCTIONS lists what exists."
            raise unknown("function", name, known, otherwise, name.span)
        calling = users(self.reader.catalog, key)
        return self.changes.of_function([view for view in calling if isinstance(view, View)])

    def _dropped(self, statement: Drop) -> Iterator[Row]:
        catalog = self.reader.catalog
        relation = catalog.resolve(statement.name.dotted, statement.name.span)
        others = [view for view in dropped_with(catalog, relation) if not is_hidden(view)]
        how = REFUSED if others and not statement.cascade else DROP
        yield relation, how, "its rows are deleted" if how == DROP else "others read it", None
        for view in others:
            yield view, how, f"reads {relation.name}", None
