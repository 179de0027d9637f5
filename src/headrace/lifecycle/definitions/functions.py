"""The Python functions of a database: registered in this process, recorded in the catalog.

Only a record of each function is stored, never its code, so no code is loaded from a data
directory: a view that calls a function which this process has not registered waits for it, see
:mod:`headrace.lifecycle.definitions.waiting`.

Checks folds before they are published: every way to fold the same events must agree.

A fold promises that the row of a key depends on the key's events alone. A function breaks this if
it reads what changes, such as the clock, a counter or a random number, or if it keeps a part of its
state elsewhere. A sample of events is therefore folded in each of the ways in which epochs may fold
them: all at once, repeatedly, in another process, resumed from a stored state, and event by event
in another order, with copies and retractions. If two ways differ, the events are reduced to the
fewest for which they still do, and the error shows these.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.algebra.operators import FOLDED, Fold
from headrace.algebra.spine import Run, Spine
from headrace.algebra.zset import WEIGHT, ZSet
from headrace.algebra.zset.zset import column, take
from headrace.errors import Code, HeadraceError
from headrace.planning.circuit import FoldedRows
from headrace.planning.functions import Function, FunctionRecord
from headrace.planning.functions.folds import Folding, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from headrace.algebra.spine import RunFile
    from headrace.execution.engine.engine import Engine
    from headrace.execution.engine.reading.queries import Queries
    from headrace.execution.engine.verifying.history import CanonicalHistory
    from headrace.planning.catalog import Catalog, PlainView, View
    from headrace.planning.catalyst.python import Registered
    from headrace.planning.circuit import Circuit
    from headrace.storage.ledger import Ledger
    from headrace.types import ArrangementId


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


KEYS = 6
"""The number of sampled keys: those with the most events among the first few."""

EVENTS = 40
"""The most events of a key in a sample: its last ones."""

_LOOKED_AT = 2_000
_EPOCHS = 8
_SPACING = 2
_SEED = 7


def check_folds(
    circuit: Circuit,
    runs: Mapping[ArrangementId, Sequence[RunFile]],
    directory: Path,
    folding: Folding | None = None,
) -> None:
    """Check the folds of a circuit on a sample of the events that are stored for them.

    ``folding``, if given, replaces the circuit's function of the same name.

    Raises:
        HeadraceError: ``invalid`` if two ways to fold the same events give different rows.
    """
    for node in circuit.stateful():
        if not isinstance(node, FoldedRows):
            continue
        operator = node.operator
        if folding is not None:
            if node.plan.function != folding.call.name:
                continue
            operator = replace(operator, folding=folding)
        events = node.arrangements[0]
        spine = Spine.open(directory, operator.layout, runs.get(events, ()))
        for sample in _samples(spine):
            check_agreement(operator, sample)


def check_agreement(operator: Fold, events: ZSet) -> None:
    """Check a fold on the consolidated events of one key, which are stored in reverse order.

    Raises:
        HeadraceError: ``invalid``, with the fewest events found for which two ways differ.
    """
    weights = np.minimum(events.weights, 2).clip(0)
    rows = take(events.table, np.repeat(np.arange(events.rows), weights)[::-1])
    trial = _Trial(operator, rows)
    for way in _WAYS:
        found = trial.differing(way, list(range(rows.num_rows)))
        if found is not None:
            raise _refusal(operator, rows, trial, way, trial.smallest(way, rows.num_rows))


def _samples(spine: Spine) -> Iterator[ZSet]:
    """Yield the last events of a few keys."""
    parts = [run.slice(0, min(run.rows, _LOOKED_AT)) for run in spine.runs[:2] if run.rows]
    if not parts:
        return
    hashes, counts = np.unique(np.concatenate([part.hashes for part in parts]), return_counts=True)
    for hash_ in hashes[np.argsort(-counts, kind="stable")[:KEYS]].tolist():
        part = next(part for part in parts if (part.hashes == hash_).any())
        one = part.take(np.flatnonzero(part.hashes == hash_)[:1])
        found = spine.first_rows(one.hashes, one.keys, EVENTS)
        yield found.rows


@dataclass(frozen=True)
class _Trial:
    """Folds the events at some positions of a table, in several ways."""

    operator: Fold
    events: pa.Table

    def differing(self, way: _Way, chosen: list[int]) -> tuple[Any, Any] | None:
        """Return the row of folding all events at once and a differing row of ``way``; else None.

        A function may fail on some subsets of events: that is not a difference.
        """
        if not chosen:
            return None
        rows = take(self.events, np.array(chosen, np.int64))
        try:
            expected = self.row(self.states(rows)[-1])
            for found in way.rows(self, rows):
                if repr(found) != repr(expected):
                    return expected, found
        except HeadraceError as error:
            if error.code is not Code.INVALID:
                raise
        return None

    def smallest(self, way: _Way, count: int) -> list[int]:
        """Return few positions for which a way still differs, found by repeated halving."""
        chosen, size = list(range(count)), count // 2
        while size:
            at = 0
            while at < len(chosen):
                fewer = chosen[:at] + chosen[at + size :]
                if self.differing(way, fewer) is not None:
                    chosen = fewer
                else:
                    at += size
            size //= 2
        return chosen

    def states(
        self, rows: pa.Table, start: bytes | None = None, folding: Folding | None = None
    ) -> tuple[bytes, ...]:
        """Return the states before the first event and after each."""
        used: Any = folding or self.operator.folding
        names = self.operator.layout.columns.names
        events = used.events(rows.select(names).rename_columns(list(self.operator.names)))
        return tuple(used.states(start, events, range(rows.num_rows + 1)))

    def row(self, state: bytes) -> Any:
        """Return the row of a state."""
        return self.operator.folding.rows([state]).to_pylist()[0]


def _again(trial: _Trial, rows: pa.Table) -> Iterator[Any]:
    yield trial.row(trial.states(rows)[-1])


def _elsewhere(trial: _Trial, rows: pa.Table) -> Iterator[Any]:
    """Fold with a copy of the function that was never called, as in another process."""
    folding = trial.operator.folding
    if isinstance(folding, Folding):
        fresh = folding.fresh()
        yield fresh.rows([trial.states(rows, None, fresh)[-1]]).to_pylist()[0]


def _from_kept(trial: _Trial, rows: pa.Table) -> Iterator[Any]:
    """Resume from the stored state after each event."""
    for place, state in enumerate(trial.states(rows)):
        yield trial.row(trial.states(rows.slice(place), state if place else None)[-1])


def _by_epochs(trial: _Trial, rows: pa.Table) -> Iterator[Any]:
    """Step the operator over the events in order, then in another order with retracted copies."""
    count = rows.num_rows
    in_order = np.array_split(np.arange(count), min(count, _EPOCHS))
    yield _maintained(trial.operator, [(rows.take(pa.array(part)), 1) for part in in_order])
    dice = random.Random(_SEED)  # noqa: S311  (the same order in every check)
    order = dice.sample(range(count), count)
    epochs = []
    for part in np.array_split(np.array(order), min(count, _EPOCHS)):
        taken = rows.take(pa.array(part))
        epochs += [(pa.concat_tables([taken, taken]), 1), (taken, -1)]
    folding = trial.operator.folding
    fresh = folding.fresh() if isinstance(folding, Folding) else folding
    yield _maintained(replace(trial.operator, folding=fresh), epochs)


def _maintained(operator: Fold, epochs: list[tuple[pa.Table, int]]) -> Any:
    """Return the row that the operator maintains after epochs, each of events and a weight."""
    operator = replace(operator, spacing=_SPACING)
    spines = tuple(Spine(layout) for layout in operator.layouts)
    rows = ZSet.empty(operator.answer)
    for events, weight in epochs:
        weights = pa.array(np.full(events.num_rows, weight, np.int64))
        at = events.schema.get_field_index(WEIGHT)
        step = operator.step((events.set_column(at, events.schema.field(at), weights),), spines)
        rows = rows.plus(ZSet(operator.answer, step.output)).consolidated()
        spines = tuple(
            Spine(spine.layout, (*spine.runs, Run.of(update)))
            for spine, update in zip(spines, step.updates, strict=True)
        )
    found = column(rows.table, FOLDED).to_pylist()
    return found[0] if len(found) == 1 else found


@dataclass(frozen=True)
class _Way:
    """A way to fold events: the function that yields its rows, and its name in the error."""

    name: str
    rows: Callable[[_Trial, pa.Table], Iterator[Any]]


_WAYS = (
    _Way("once more", _again),
    _Way("in another process", _elsewhere),
    _Way("on from a state that was kept", _from_kept),
    _Way("in several epochs, out of order, with copies that are retracted", _by_epochs),
)


def _refusal(
    operator: Fold, rows: pa.Table, trial: _Trial, way: _Way, chosen: list[int]
) -> HeadraceError:
    folding: Any = operator.folding
    found = trial.differing(way, chosen)
    expected, other = found if found is not None else ("another row each time",) * 2
    names = operator.layout.columns.names
    taken = take(rows, np.array(chosen, np.int64)).select(names)
    events = folding.events(taken.rename_columns(list(operator.names)))
    listed = "; ".join(f"({nth}) {shown(event)}" for nth, event in enumerate(events, 1))
    return HeadraceError(
        Code.INVALID,
        f'fold "{folding.call.name}" gives different rows for the same events',
        detail=f"All at once: {expected!r}; {way.name}: {other!r}. Events: {listed}",
        hint="Its row must depend on its events alone: not on the clock, on random numbers, on"
        " globals, or on anything that it keeps outside of its state.",
    )
