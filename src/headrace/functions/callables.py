"""Callables for Spark's workers that call a user's function: one for each kind of function.

Each contains the function pickled separately, so that a worker that cannot load the function
reports that as an error of this function.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import DataType, StructType

from headrace.errors import Code, HeadraceError, shortened
from headrace.functions.call import Call, pickled
from headrace.functions.folding import Folding, folded_lists
from headrace.functions.function import Function, Kind
from headrace.functions.results import UnfitError, fitted
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable

_LONGEST = 200


@dataclass(frozen=True, slots=True)
class RowCall:
    """A function that Spark calls with the values of one row."""

    call: Call

    def __call__(self, *arguments: Any) -> Any:
        """Return the result for one row."""
        listed = ", ".join(shortened(repr(each), _LONGEST) for each in arguments)
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
