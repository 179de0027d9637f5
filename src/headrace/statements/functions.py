"""Registering Python functions, and DROP FUNCTION."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog import View
from headrace.errors import Code, HeadraceError, unknown
from headrace.parts.fold_checks import check_folds
from headrace.parts.functions import above, listed, users
from headrace.runtime.retirement import require_kept

if TYPE_CHECKING:
    from headrace.catalog import PlainView
    from headrace.catalyst.python import Registered
    from headrace.functions import Function, FunctionRecord
    from headrace.history.changes import ChangeClassifier
    from headrace.parts.definer import Definer
    from headrace.parts.functions import Functions
    from headrace.parts.waiting import WaitingViews
    from headrace.runtime.epoch import EpochLoop
    from headrace.sql import DropFunction


@dataclass(frozen=True, slots=True)
class FunctionChanges:
    """Registers and drops functions; views that call them resume or are dropped."""

    functions: Functions
    waiting: WaitingViews
    definer: Definer
    loop: EpochLoop
    changes: ChangeClassifier

    def register(self, function: Function, *, replace: bool) -> FunctionRecord:
        """Register a function, and resume the views that waited for it.

        With ``replace``, views that call another function of this name are rebuilt.
        """
        functions = self.functions
        with self.loop.exclusive():
            prepared = functions.prepared(function)
            record = prepared.record
            calling = users(self.loop.catalog, record.name)
            if not replace or not functions.is_replaceable(record):
                functions.refuse_other(record, calling)
            self._check(prepared, calling)
            changed = record != functions.records.get(record.name, record)
            if changed and calling:
                why = f'Function "{record.name}" was replaced.'
                over = above(self.loop.catalog, calling)
                for view in over:
                    if isinstance(view, View):
                        require_kept(self.loop.published.current, view)
                rebuilt = self.changes.of_function(v for v in calling if isinstance(v, View))
                self.changes.record(rebuilt, {"function": record.name})
                self.waiting.wait({view.id: why for view in over}, changed=True)
            functions.accept(prepared)
        self.waiting.resume()
        return record

    def _check(self, prepared: Registered, calling: tuple[View | PlainView, ...]) -> None:
        """Raise if a fold gives different rows for the same events of the views that call it."""
        if prepared.function.folded is None or prepared.record == self._known(prepared):
            return
        loop, engine = self.loop, self.functions.engine
        stopped = loop.published.current.stopped
        for view in calling:
            if isinstance(view, View) and view.id not in stopped:
                circuit = engine.circuit(view)
                stored = loop.ledger.spines.of(list(circuit.arrangements()))
                files = {id_: [run.file for run in runs] for id_, runs in stored.items()}
                check_folds(circuit, files, loop.directory / "runs", prepared.folding)

    def _known(self, prepared: Registered) -> FunctionRecord | None:
        return self.functions.records.get(prepared.record.name)

    def drop(self, statement: DropFunction) -> str:
        """Drop a function; with CASCADE, drop the views that call it as well."""
        functions, name, span = self.functions, statement.name.dotted, statement.name.span
        key = name.lower()
        if key not in functions.records:
            if statement.if_exists:
                return f'function "{name}" does not exist'
            otherwise = "SHOW FUNCTIONS lists what exists."
            raise unknown("function", name, functions.records, otherwise, span)
        with self.loop.exclusive():
            calling = users(self.loop.catalog, key)
            gone = above(self.loop.catalog, calling)
            if calling and not statement.cascade:
                raise HeadraceError(
                    Code.CONFLICT,
                    f'function "{key}" is used by {listed(calling)}',
                    hint=f"Use DROP FUNCTION {key} CASCADE to drop these views too.",
                    span=span,
                )
            if gone:
                self.definer.drop([view.id for view in gone])
            functions.forget(key)
        also = f" and {len(gone)} views that need it" if gone else ""
        return f"dropped function {key}{also}"
