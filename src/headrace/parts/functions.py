"""Python functions of one instance: registered by the process, recorded in the catalog.

The catalog has a record of each function. Code is never stored, so none is loaded from a data
directory. A view that calls a function which this process has not registered *waits*, and so do the
views that read it: they are marked dirty and skipped by epochs. Registering the function resumes
them; if epochs were made in the meantime, they are rebuilt.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.catalog import View
from headrace.catalyst.python import lacks
from headrace.errors import Code, HeadraceError, nearest
from headrace.functions import Function, FunctionRecord
from headrace.ledger import NO_EPOCH, Dirty, EpochCommit, Repaired
from headrace.parts.definer import Relations
from headrace.runtime.fill import Fill
from headrace.runtime.published import STOPPED, WAITING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headrace.catalog import Catalog, PlainView
    from headrace.catalyst.python import Registered
    from headrace.parts.instance import Instance
    from headrace.sql import DropFunction
    from headrace.types import RelationId

_RECORDS = "functions"


def _silent(_done: int, _total: int) -> None:
    """Ignore progress reports."""


@dataclass(frozen=True, slots=True)
class Functions:
    """Registers and drops functions of one instance, and resumes views that wait for them."""

    instance: Instance

    # -- the catalog -----------------------------------------------------------------------

    @property
    def records(self) -> dict[str, FunctionRecord]:
        """The functions recorded in the catalog, by name."""
        return self.instance.engine.remembered

    @property
    def registered(self) -> Mapping[str, Registered]:
        """The functions registered in this process, by name."""
        return self.instance.engine.planner.functions

    def restore(self, catalog: Catalog, given: Iterable[Function]) -> None:
        """Load the recorded functions, and register the given ones; views are restored later."""
        stored = self.instance.ledger.get(_RECORDS) or {}
        for name, record in stored.items():
            self.records[name] = FunctionRecord.of_json(record)
        for function in given:
            prepared = self._prepared(function)
            self._refuse_other(prepared.record, users(catalog, prepared.record.name))
            self._accept(prepared)

    def register(self, function: Function, *, replace: bool) -> FunctionRecord:
        """Register a function, and resume the views that waited for it.

        With ``replace``, views that call another function of this name are rebuilt.
        """
        instance = self.instance
        with instance.loop.exclusive():
            prepared = self._prepared(function)
            record = prepared.record
            calling = users(instance.catalog, record.name)
            if not replace or not self._replaceable(record):
                self._refuse_other(record, calling)
            changed = record != self.records.get(record.name, record)
            if changed and calling:
                why = f'Function "{record.name}" was replaced.'
                self.wait({v.id: why for v in above(instance.catalog, calling)}, changed=True)
            self._accept(prepared)
            self.resume()
            return record

    def drop(self, statement: DropFunction) -> str:
        """Drop a function; with CASCADE, drop the views that call it as well."""
        instance, name, span = self.instance, statement.name.dotted, statement.name.span
        key = name.lower()
        if key not in self.records:
            if statement.if_exists:
                return f'function "{name}" does not exist'
            close = nearest(key, self.records)
            hint = f'Did you mean "{close}"?' if close else "SHOW FUNCTIONS lists what exists."
            raise HeadraceError(
                Code.INVALID, f'function "{name}" does not exist', hint=hint, span=span
            )
        with instance.loop.exclusive():
            calling = users(instance.catalog, key)
            gone = above(instance.catalog, calling)
            if calling and not statement.cascade:
                raise HeadraceError(
                    Code.CONFLICT,
                    f'function "{key}" is used by {_listed(calling)}',
                    hint=f"Use DROP FUNCTION {key} CASCADE to drop these views too.",
                    span=span,
                )
            if gone:
                Relations(instance).drop([view.id for view in gone])
            registered = instance.engine.unregister(key)
            if registered is not None:
                instance.queries.forget_function(registered)
            del self.records[key]
            self._write()
        also = f" and {len(gone)} views that need it" if gone else ""
        return f"dropped function {key}{also}"

    def _prepared(self, function: object) -> Registered:
        if not isinstance(function, Function):
            raise HeadraceError(
                Code.INVALID,
                f"{function!r} is not a function that can be registered",
                hint='Make it one: headrace.function("name", body, returns="INT").',
            )
        return self.instance.engine.prepared(function)

    def _accept(self, prepared: Registered) -> None:
        self.instance.engine.register(prepared)
        self.instance.queries.declare_function(prepared)
        record = prepared.record
        if self.records.get(record.name) != record:
            self.records[record.name] = record
            self._write()

    def _write(self) -> None:
        records = {name: record.to_json() for name, record in sorted(self.records.items())}
        self.instance.ledger.set(_RECORDS, records)

    def _replaceable(self, record: FunctionRecord) -> bool:
        known = self.records.get(record.name, record)
        same = (record.returns, record.arguments) == (known.returns, known.arguments)
        return same and record.deterministic

    def _refuse_other(self, record: FunctionRecord, calling: tuple[View | PlainView, ...]) -> None:
        known = self.records.get(record.name)
        if known is None or known == record or not calling:
            return
        differs = known.differences(record)
        only_code = self._replaceable(record)
        raise HeadraceError(
            Code.CONFLICT,
            f'function "{record.name}" differs from the one called by {_listed(calling)}',
            detail=f"Different: {'; '.join(differs)}.",
            hint="Register it with replace=True (--replace-functions in the command), which"
            " rebuilds these views; or drop them and create them again."
            if only_code
            else "Drop these views, and create them again afterwards.",
        )

    # -- views that wait -------------------------------------------------------------------

    def lacking(self, catalog: Catalog) -> dict[RelationId, str]:
        """Return the views that lack a function, and those that read them, each with the reason."""
        found: dict[RelationId, str] = {}
        for view in catalog.defined_in_order():
            why = lacks(view.functions, self.registered)
            below = [catalog.by_id[id_].name for id_ in view.inputs if id_ in found]
            if why is not None:
                found[view.id] = why
            elif below:
                found[view.id] = f'It reads view "{below[0]}", which waits for a function.'
        return found

    def wait(self, why: Mapping[RelationId, str], *, changed: bool = False) -> None:
        """Exclude views from epochs from now on.

        ``changed``: whether their query has changed, so that their stored contents cannot be used.
        """
        instance, ledger = self.instance, self.instance.ledger
        live = {view.id for view in instance.catalog.views_in_order()}
        behind = instance.loop.stopped() - self._marked(WAITING)
        for id_, reason in why.items():
            if id_ not in live:
                continue
            after = NO_EPOCH if changed or id_ in behind else ledger.last_epoch()
            ledger.mark_dirty(Dirty(id_, WAITING, time.time(), reason, after))
            if changed:
                ledger.clear_dirty(id_, STOPPED)

    def resume(self, progress: Callable[[int, int], None] = _silent) -> None:
        """Include every view in epochs again that no longer waits for a function."""
        instance, ledger = self.instance, self.instance.ledger
        with instance.loop.exclusive():
            lacking, marked = self.lacking(instance.catalog), self._marked(WAITING)
            ready = [
                view
                for view in instance.catalog.defined_in_order()
                if view.id not in lacking and (view.id in marked or view.id in instance.unplanned)
            ]
            for view in ready:
                Relations(instance).plan_again(view)
            views = [view for view in ready if isinstance(view, View)]
            last = ledger.last_epoch()
            since = {entry.view: entry.after for entry in ledger.dirty() if entry.cause == WAITING}
            current = [view for view in views if since.get(view.id) == last]
            if current:  # the clock and history of the last epoch did not include them
                right = tuple(Repaired(view.id, WAITING, last) for view in current)
                ledger.commit(EpochCommit(last, uuid4().hex, repaired=right))
                instance.loop.published.publish()
            for view in [*current, *(view for view in views if view not in current)]:
                # Rebuilding does not help a view that stopped, or that reads a stopped one.
                if view not in current and not self._failed(view):
                    self._fill_again(view, progress)
                ledger.clear_dirty(view.id, WAITING)

    def _fill_again(self, view: View, progress: Callable[[int, int], None]) -> None:
        instance = self.instance
        instance.pump.settle()
        try:
            with instance.pump.compaction.busy:
                Fill(instance.loop, view, progress).again(Repaired(view.id, WAITING))
        except HeadraceError as error:
            if error.code is not Code.INVALID:
                raise
            instance.ledger.mark_dirty(Dirty(view.id, STOPPED, time.time(), str(error)))

    def _failed(self, view: View) -> bool:
        catalog = self.instance.catalog
        failed = tuple(catalog.by_id[id_] for id_ in self._marked(STOPPED))
        return any(view.id == f.id or view in catalog.dependants(f.id) for f in failed)

    def _marked(self, cause: str) -> frozenset[RelationId]:
        live = self.instance.catalog.by_id
        dirty = self.instance.ledger.dirty()
        return frozenset(e.view for e in dirty if e.cause == cause and e.view in live)


def users(catalog: Catalog, name: str) -> tuple[View | PlainView, ...]:
    """Return the views that call a function, inputs before the views that read them."""
    return tuple(view for view in catalog.defined_in_order() if name in view.functions)


def above(catalog: Catalog, views: tuple[View | PlainView, ...]) -> tuple[View | PlainView, ...]:
    """Return views and all that read them, inputs before the views that read them."""
    found = {v.id for view in views for v in (view, *catalog.dependants(view.id))}
    return tuple(view for view in catalog.defined_in_order() if view.id in found)


def _listed(views: tuple[View | PlainView, ...]) -> str:
    some = "view" if len(views) == 1 else "views"
    names = ", ".join(f'"{view.name}"' for view in views)
    return f"{some} {names}"
