"""Runs folds in Spark's workers: over all events of a key, or from a stored state."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.errors import shortened
from headrace.functions.results import UnfitError, fitted
from headrace.functions.states import NotPlainError, decoded, encoded
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql.types import StructType

    from headrace.functions.call import Call

BY = "by"
"""The field of an event, as Spark sorts them, with the columns that order it."""

EVENT = "event"
"""The field with all columns of an event."""

_LONGEST = 300
_TOGETHER = 10_000
"""The most events that are Python values at once."""


@dataclass(frozen=True, slots=True)
class Folding:
    """A fold by name, its pickled parts, and the type of its rows."""

    call: Call
    type: StructType

    def fresh(self) -> Folding:
        """Return the fold with functions that were never called, as in another process."""
        return Folding(self.call.fresh(), self.type)

    def events(self, columns: pa.Table) -> Iterator[Any]:
        """Yield the rows of a table as events: named tuples of Python values."""
        if not columns.num_rows:
            return
        make = _event_type(tuple(columns.column_names))._make
        for batch in columns.to_batches(max_chunksize=_TOGETHER):
            values = [_without_zones(column).to_pylist() for column in batch.columns]
            yield from map(make, zip(*values, strict=True))

    def states(
        self, start: bytes | None, events: Iterator[Any], stops: Sequence[int]
    ) -> tuple[bytes, ...]:
        """Process as many events as the last of ``stops``; return the state after each of these.

        ``stops`` ascend. ``start`` is the state before, or None before the first event.

        Raises:
            HeadraceError: ``invalid`` if the function fails, or its state cannot be stored.
        """
        step, first, _ = self.call.parts()
        state = decoded(self._kept(first) if start is None else start)
        found, place, event = [], 0, None
        for stop in stops:
            try:
                for event in islice(events, stop - place):
                    state = step(state, event)
            except Exception as error:
                raise self.call.raised(error, f", at {shown(event)}") from error
            place = stop
            found.append(self._kept(state))
        return tuple(found)

    def rows(self, states: Sequence[bytes]) -> pa.StructArray:
        """Return the row of each state, as a struct of the declared type.

        Raises:
            HeadraceError: ``invalid`` if the function fails, or returns another type.
        """
        _, _, finish = self.call.parts()
        rows = [self._row(finish, decoded(state)) for state in states]
        kind = to_arrow(self.type)
        columns = list(zip(*rows, strict=True)) or [()] * len(self.type.fields)
        arrays = [
            pa.array(column, field.type) for column, field in zip(columns, kind.fields, strict=True)
        ]
        return pa.StructArray.from_arrays(arrays, fields=kind.fields)

    def _kept(self, state: Any) -> bytes:
        try:
            return encoded(state)
        except NotPlainError as error:
            raise self.call.failed(f"Its state cannot be kept: {error}.") from error

    def _row(self, finish: Callable[..., Any] | None, state: Any) -> tuple[Any, ...]:
        try:
            row = state if finish is None else finish(state)
        except Exception as error:
            shown = shortened(repr(state), _LONGEST)
            raise self.call.raised(error, f", finishing {shown}") from error
        if row is None:
            raise self.call.failed("It returned None in place of a row.")
        try:
            fit: tuple[Any, ...] = fitted(row, self.type)
        except UnfitError as error:
            raise self.call.failed(f"Its row does not have the declared type: {error}.") from error
        return fit


def shown(event: Any) -> str:
    """Return an event as text, for a message."""
    pairs = zip(event._fields, event, strict=True)
    return shortened(", ".join(f"{name}={value!r}" for name, value in pairs), _LONGEST)


def folded_lists(folding: Folding, lists: pa.Array) -> pa.StructArray:
    """Return the row of each list of events, which Spark has collected and sorted."""
    states: list[bytes] = []
    for found in lists:
        events = found.values.field(EVENT)
        names = [events.type.field(i).name for i in range(events.type.num_fields)]
        columns = pa.Table.from_arrays(events.flatten(), names=names)
        states += folding.states(None, folding.events(columns), [len(events)])
    return folding.rows(states)


@lru_cache(maxsize=64)
def _event_type(names: tuple[str, ...]) -> Any:
    return namedtuple("Event", names, rename=True)  # noqa: PYI024  (its fields are known only here)


def _without_zones(column: pa.Array) -> pa.Array:
    """Return times in UTC without a time zone, as passed to Python functions."""
    kind = _zoneless(column.type)
    return column if kind == column.type else column.cast(kind)


def _zoneless(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit)
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return pa.struct([field.with_type(_zoneless(field.type)) for field in fields])
    if pa.types.is_list(kind):
        return pa.list_(_zoneless(kind.value_type))
    return kind
