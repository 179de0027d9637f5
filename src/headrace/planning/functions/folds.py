"""The states of folds as bytes: plain values, so that a stored state is never code.

A state is JSON. A value without a JSON form is an object with one field, whose name is its type. A
value decodes to an equal one of the same type, and dictionaries keep their order.

Folds: a row per key, made by a Python function over the key's events in order.

Runs folds in Spark's workers: over all events of a key, or from a stored state.

Callables for Spark's workers that call a user's function: one for each kind of function.

Each contains the function pickled separately, so that a worker that cannot load the function
reports that as an error of this function.
"""

from __future__ import annotations

import base64
import json
from collections import namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import DataType, StructType

from headrace.errors import Code, HeadraceError, shortened
from headrace.planning.functions.function import Body, Folded, Function, Kind
from headrace.planning.functions.results import Call, UnfitError, fitted, pickled
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


_NATIVE = frozenset({type(None), bool, int, float, str})
_LONGEST = 60


class NotPlainError(Exception):
    """Raised for a value that is not plain; the message has the value and why."""


def encoded(value: Any) -> bytes:
    """Return a plain value as bytes.

    Plain are None, bool, int, float, str, bytes, Decimal, date, datetime (without a time zone or in
    UTC), time (without a time zone), timedelta, and lists, tuples and dictionaries of these.

    Raises:
        NotPlainError: for any other value, also nested.
    """
    return json.dumps(_to_json(value), separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )


def decoded(text: bytes) -> Any:
    """Return the value that :func:`encoded` converted to bytes; each call returns a new one."""
    return _of_json(json.loads(text.decode("utf-8", "surrogatepass")))


def _to_json(value: Any) -> Any:
    kind = type(value)
    if kind in _NATIVE:
        return value
    if kind is list:
        return [_to_json(each) for each in value]
    write = _WRITTEN.get(kind)
    if write is None:
        raise NotPlainError(_refusal(value))
    name, form = write
    return {name: form(value)}


def _of_json(value: Any) -> Any:
    if type(value) is list:
        return [_of_json(each) for each in value]
    if type(value) is not dict:
        return value
    ((name, form),) = value.items()
    return _READ[name](form)


def _datetime(value: datetime) -> str:
    if value.tzinfo not in (None, UTC):
        raise NotPlainError(f"{value!r} has another time zone than UTC")
    return value.isoformat()


def _time_of_day(value: time) -> str:
    if value.tzinfo is not None:
        raise NotPlainError(f"{value!r} has a time zone")
    return value.isoformat()


def _entries(value: dict[Any, Any]) -> list[list[Any]]:
    return [[_to_json(key), _to_json(each)] for key, each in value.items()]


_WRITTEN: dict[type, tuple[str, Callable[[Any], Any]]] = {
    tuple: ("tuple", lambda value: [_to_json(each) for each in value]),
    dict: ("dict", _entries),
    bytes: ("bytes", lambda value: base64.b64encode(value).decode("ascii")),
    Decimal: ("decimal", str),
    date: ("date", date.isoformat),
    datetime: ("time", _datetime),
    time: ("time of day", _time_of_day),
    timedelta: ("length", lambda value: [value.days, value.seconds, value.microseconds]),
}
_READ: dict[str, Callable[[Any], Any]] = {
    "tuple": lambda form: tuple(_of_json(each) for each in form),
    "dict": lambda form: {_of_json(key): _of_json(each) for key, each in form},
    "bytes": base64.b64decode,
    "decimal": Decimal,
    "date": date.fromisoformat,
    "time": datetime.fromisoformat,
    "time of day": time.fromisoformat,
    "length": lambda form: timedelta(*form),
}


def _refusal(value: Any) -> str:
    shown = shortened(repr(value), _LONGEST)
    why = "is a set, whose order differs between processes" if _is_set(value) else "is not plain"
    return f"{shown}, a Python {type(value).__name__}, {why}"


def _is_set(value: Any) -> bool:
    return isinstance(value, set | frozenset)


_OF_STEP = 2
_OF_FINISH = 1


def fold(
    *,
    key: Sequence[str],
    order_by: Sequence[str],
    returns: str,
    start: Any = None,
    finish: Body | None = None,
    name: str | None = None,
) -> Callable[[Body], Function]:
    """Make a function of a state and an event a fold; a decorator.

    ``key`` and ``order_by`` are columns of the events, ``returns`` the further columns of the
    result as SQL writes them. ``start`` is the state before the first event, and ``finish``
    converts a state to its row, a dictionary or a tuple; without it, a state is its row. States are
    plain values: numbers, texts, dates, and lists, tuples and dictionaries of these. The function
    owns its state: it may change and return the one that it is given. An event has the columns as
    attributes; timestamps are in UTC and have no time zone.

    >>> @fold(key=["account"], order_by=["at"], returns="balance BIGINT", start=0,
    ...       finish=lambda state: {"balance": state})
    ... def balance(state, event):
    ...     return state + event.amount
    >>> balance.name, balance.folded.key
    ('balance', ('account',))

    Queries call it on the rows of a relation or a query::

        SELECT * FROM balance(TABLE payments)

    Events that are equal in ``order_by`` are ordered by all their columns, from left to right.

    Raises:
        HeadraceError: ``invalid`` if it cannot be a fold.
    """

    def of(step: Body) -> Function:
        if not callable(step):
            raise HeadraceError(Code.INVALID, f"{step!r} cannot be called")
        called = name or str(getattr(step, "__name__", "?"))
        keys, order = _columns(called, "key", key), _columns(called, "order_by", order_by)
        folded = Folded(keys, order, start, finish)
        found = Function(
            called, step, f"STRUCT<{returns}>", kind=Kind.FOLD, deterministic=True, folded=folded
        )
        _check_arity(called, "a state and an event", found.arity, _OF_STEP)
        if finish is not None:
            arity = Function(called, finish, "STRING").arity
            _check_arity(called, "a state, to finish it,", arity, _OF_FINISH)
        try:
            encoded(start)
        except NotPlainError as error:
            raise _refused(called, f"starts with a state that cannot be kept: {error}") from error
        return found

    return of


def check_result(function: Function, returns: StructType) -> None:
    """Raise ``invalid`` for a column of the result that has the name of a key."""
    folded = function.folded
    names = [] if folded is None else [*folded.key, *returns.names]
    for place, each in enumerate(names):
        if each.lower() in (other.lower() for other in names[:place]):
            raise _refused(
                function.name,
                f'has the column "{each}" twice',
                "It returns the columns of its key.",
            )


def _columns(name: str, what: str, given: Sequence[str]) -> tuple[str, ...]:
    found = (given,) if isinstance(given, str) else tuple(given)
    if not found or not all(isinstance(each, str) and each for each in found):
        raise _refused(name, f"needs names of columns as {what}", f'Such as {what}=["id"].')
    return found


def _check_arity(name: str, takes: str, arity: tuple[int, int | None], wanted: int) -> None:
    least, most = arity
    if least > wanted or (most is not None and most < wanted):
        raise _refused(name, f"does not take {takes} as its only arguments")


def _refused(name: str, why: str, hint: str | None = None) -> HeadraceError:
    return HeadraceError(Code.INVALID, f'fold "{name}" {why}', hint=hint)


BY = "by"
"""The field of an event, as Spark sorts them, with the columns that order it."""

EVENT = "event"
"""The field with all columns of an event."""

_FOLDING_LONGEST = 300
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
            shown = shortened(repr(state), _FOLDING_LONGEST)
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
    return shortened(", ".join(f"{name}={value!r}" for name, value in pairs), _FOLDING_LONGEST)


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


_CALLABLES_LONGEST = 200


@dataclass(frozen=True, slots=True)
class RowCall:
    """A function that Spark calls with the values of one row."""

    call: Call

    def __call__(self, *arguments: Any) -> Any:
        """Return the result for one row."""
        listed = ", ".join(shortened(repr(each), _CALLABLES_LONGEST) for each in arguments)
        value = self.call.run(arguments, f", called with ({listed})")
        try:
            return fitted(value, self.call.type)
        except UnfitError as error:
            raise self.call.failed(
                f"Its result does not have the declared type: {error}."
            ) from error


def callable_of(function: Function, type_: DataType) -> Callable[..., Any]:
    """Return the callable for Spark, by the function's kind.

    Raises:
        HeadraceError: ``invalid`` if the function cannot be sent to Spark's workers.
    """
    call = Call(function.key, pickled(function, function.parts), type_)
    match function.kind:
        case Kind.PYTHON:
            return RowCall(call)
        case Kind.PANDAS:
            return _of_series(call)
        case Kind.ARROW:
            return _of_arrays(call)
        case Kind.FOLD:
            return _of_lists(folding_of(function, type_))


def folding_of(function: Function, type_: DataType) -> Folding:
    """Return the fold in the form that processes events in workers.

    Raises:
        HeadraceError: ``invalid`` if the fold cannot be sent to Spark's workers.
    """
    if not isinstance(type_, StructType):
        raise HeadraceError(Code.INTERNAL, "a fold does not return a row")
    hint = "Correct the data, or the function, and register it with replace=True."
    return Folding(Call(function.key, pickled(function, function.parts), type_, hint), type_)


def _of_series(call: Call) -> Callable[..., Any]:
    import pandas as pd  # noqa: PLC0415  (it takes long to import, and few functions need it)

    frames = isinstance(call.type, StructType)

    def called(*arguments):  # type: ignore[no-untyped-def]  # noqa: ANN002, ANN202
        value = call.run(arguments, "")
        wanted = pd.DataFrame if frames else pd.Series
        if not isinstance(value, wanted):
            raise call.failed(
                f"It returned a {type(value).__name__}, not a pandas {wanted.__name__}."
            )
        _check_length(call, len(value), arguments)
        if not frames:
            _arrow(call, lambda: pa.Array.from_pandas(value, type=to_arrow(call.type)))
        return value

    # Spark takes the types of the arguments from these annotations.
    called.__annotations__ = {
        "arguments": pd.Series,
        "return": pd.DataFrame if frames else pd.Series,
    }
    return called


def _of_arrays(call: Call) -> Callable[..., Any]:
    wanted = to_arrow(call.type)

    def called(*arguments):  # type: ignore[no-untyped-def]  # noqa: ANN002, ANN202
        value = call.run(arguments, "")
        if isinstance(value, pa.ChunkedArray):
            value = value.combine_chunks()
        if not isinstance(value, pa.Array):
            raise call.failed(f"It returned a {type(value).__name__}, not a pyarrow Array.")
        _check_length(call, len(value), arguments)
        return _arrow(call, lambda: value if value.type == wanted else value.cast(wanted))

    called.__annotations__ = {"arguments": pa.Array, "return": pa.Array}
    return called


def _of_lists(folding: Folding) -> Callable[..., Any]:
    def called(lists):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return folded_lists(folding, lists)

    called.__annotations__ = {"lists": pa.Array, "return": pa.Array}
    return called


def _check_length(call: Call, rows: int, arguments: tuple[Any, ...]) -> None:
    if rows != len(arguments[0]):
        raise call.failed(f"It returned {rows} values for {len(arguments[0])} rows.")


def _arrow(call: Call, convert: Callable[[], pa.Array]) -> pa.Array:
    """Convert a result strictly with Arrow: Spark would truncate values that do not fit."""
    try:
        return convert()
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        wanted = call.type.simpleString().upper()
        raise call.failed(f"Its result is not of type {wanted}: {error}") from error
