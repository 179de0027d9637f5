"""The Python functions of a database: registered in this process, recorded in the catalog.

Only a record of each function is stored, never its code, so no code is loaded from a data
directory: a view that calls a function which this process has not registered waits for it, see
:mod:`headrace.parts.waiting`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.functions import Function, FunctionRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.catalog import Catalog, PlainView, View
    from headrace.catalyst.python import Registered
    from headrace.engine.engine import Engine
    from headrace.engine.reading.queries import Queries
    from headrace.engine.verifying.history import CanonicalHistory
    from headrace.ledger import Ledger

_RECORDS = "functions"


@dataclass(frozen=True, slots=True)
class Functions:
    """The functions that queries can call, and those that views call."""

    ledger: Ledger
    engine: Engine
    queries: Queries
    canonical: CanonicalHistory

    @property
    def records(self) -> dict[str, FunctionRecord]:
        """The functions recorded in the catalog, by name."""
        return self.engine.declared.remembered

    @property
    def registered(self) -> Mapping[str, Registered]:
        """The functions registered in this process, by name."""
        return self.engine.declared.functions

    def restore(self, catalog: Catalog, given: Iterable[Function]) -> None:
        """Load the recorded functions and register the given ones; views are restored later."""
        stored = self.ledger.settings.get(_RECORDS) or {}
        for name, record in stored.items():
            self.records[name] = FunctionRecord.of_json(record)
        for function in given:
            prepared = self.prepared(function)
            self.refuse_other(prepared.record, users(catalog, prepared.record.name))
            self.accept(prepared)

    def prepared(self, function: object) -> Registered:
        """Return a function in the form in which it can be registered.

        Raises:
            HeadraceError: ``invalid`` if it is not a function that can be called from SQL.
        """
        if not isinstance(function, Function):
            raise HeadraceError(
                Code.INVALID,
                f"{function!r} is not a function that can be registered",
                hint='Make it one: headrace.function("name", body, returns="INT").',
            )
        return self.engine.prepared(function)

    def accept(self, prepared: Registered) -> None:
        """Register a function, and record it."""
        self.engine.register(prepared)
        self.queries.declare_function(prepared)
        self.canonical.declare_function(prepared)
        record = prepared.record
        if self.records.get(record.name) != record:
            self.records[record.name] = record
            self._write()

    def forget(self, name: str) -> None:
        """Remove a function and its record."""
        registered = self.engine.unregister(name)
        if registered is not None:
            self.queries.forget_function(registered)
            self.canonical.forget_function(registered)
        del self.records[name]
        self._write()

    def is_replaceable(self, record: FunctionRecord) -> bool:
        """Whether views that call the recorded function of this name could call this one."""
        known = self.records.get(record.name, record)
        same = (record.returns, record.arguments) == (known.returns, known.arguments)
        return same and record.deterministic

    def refuse_other(self, record: FunctionRecord, calling: tuple[View | PlainView, ...]) -> None:
        """Refuse a function that differs from the record of its name, if views call it."""
        known = self.records.get(record.name)
        if known is None or known == record or not calling:
            return
        differs = known.differences(record)
        only_code = self.is_replaceable(record)
        raise HeadraceError(
            Code.CONFLICT,
            f'function "{record.name}" differs from the one called by {listed(calling)}',
            detail=f"Different: {'; '.join(differs)}.",
            hint="Register it with replace=True (--replace-functions in the command), which"
            " rebuilds these views; or drop them and create them again."
            if only_code
            else "Drop these views, and create them again afterwards.",
        )

    def _write(self) -> None:
        records = {name: record.to_json() for name, record in sorted(self.records.items())}
        self.ledger.settings.set(_RECORDS, records)


def users(catalog: Catalog, name: str) -> tuple[View | PlainView, ...]:
    """Return the views that call a function, inputs before the views that read them."""
    return tuple(view for view in catalog.defined_in_order() if name in view.functions)


def listed(views: tuple[View | PlainView, ...]) -> str:
    """Return the names of views, for a message."""
    some = "view" if len(views) == 1 else "views"
    names = ", ".join(f'"{view.name}"' for view in views)
    return f"{some} {names}"


def above(catalog: Catalog, views: tuple[View | PlainView, ...]) -> tuple[View | PlainView, ...]:
    """Return views and all that read them, inputs before the views that read them."""
    found = {v.id for view in views for v in (view, *catalog.dependants(view.id))}
    return tuple(view for view in catalog.defined_in_order() if view.id in found)
