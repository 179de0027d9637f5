"""Values converted to a column's type, and the reasons for the rejected ones."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.formats.values import RejectedValueError
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import types as t

    from headrace.errors import Span
    from headrace.formats.values import Converter
    from headrace.types import Column


class Fitted(NamedTuple):
    """Values of a column's type, NULL where rejected; the reasons by position from 0."""

    values: pa.Array | pa.ChunkedArray
    refused: dict[int, RejectedValueError]


def of_texts(
    texts: pa.Array,
    target: pa.DataType,
    whole: Callable[[pa.Array], pa.Array] | None,
    one: Callable[[], Converter],
) -> Fitted:
    """Return texts as values of an Arrow type: all at once, or one by one if that fails.

    ``whole`` converts an array, and raises a ``pa.ArrowException`` or ``ValueError`` unless every
    text certainly fits; it is None for a type without such a conversion. ``one`` returns the
    converter of a single text, which raises ``RejectedValueError`` if it does not fit.
    """
    if whole is not None:
        with suppress(pa.ArrowException, ValueError):
            return Fitted(whole(texts), {})
    convert = one()
    values: list[Any] = []
    refused: dict[int, RejectedValueError] = {}
    for row, text in enumerate(texts.to_pylist()):
        try:
            values.append(None if text is None else convert(text))
        except RejectedValueError as why:
            values.append(None)
            refused[row] = why
    return Fitted(pa.array(values, target), refused)


def scattered(
    count: int, groups: Iterable[tuple[list[int], Fitted]], data_type: t.DataType
) -> Fitted:
    """Return a column of ``count`` rows with fitted values at their positions; others are NULL."""
    listed = list(groups)
    if len(listed) == 1 and len(listed[0][0]) == count:  # most columns: complete and in order
        return listed[0][1]
    if not listed:
        return Fitted(pa.nulls(count, to_arrow(data_type)), {})
    parts: list[Any] = []
    indices = np.full(count, -1, np.int64)
    refused: dict[int, RejectedValueError] = {}
    start = 0
    for places, found in listed:
        indices[places] = np.arange(start, start + len(places))
        refused |= {places[at]: reason for at, reason in found.refused.items()}
        parts.append(found.values)
        start += len(places)
    taken = pa.array(indices, mask=indices < 0)
    return Fitted(pa.concat_arrays(parts).take(taken), refused)


def require_fitting(columns: Sequence[Column], found: Sequence[Fitted], span: Span | None) -> None:
    """Raise if a value does not fit; the error names the first row, its column and value.

    Raises:
        HeadraceError: ``invalid``; the caller writes nothing then.
    """
    bad = [
        (row, place, reason)
        for place, column in enumerate(found)
        for row, reason in column.refused.items()
    ]
    if bad:
        row, place, reason = min(bad, key=lambda each: each[:2])
        raise not_fitting(f'column "{columns[place].name}" in row {row + 1}', reason, span)


def not_fitting(place: str, reason: RejectedValueError, span: Span | None) -> HeadraceError:
    """Return the error for a rejected value."""
    return HeadraceError(
        Code.INVALID,
        f"{place}: {reason}",
        detail="Nothing was written: a value is taken exactly, or not at all.",
        hint="Convert the value, for instance with CAST or round(), or declare the column with"
        " another type.",
        span=span,
    )
