"""Converts typed values to the type of the column that they are written to.

This is the rule for values that have a type: columns of Arrow, pandas and Parquet, Python objects,
and the results of Spark for ``INSERT`` and ``UPDATE``. Each value is converted independently, and
exactly or not at all; :mod:`headrace.io.formats.values` has the same rule for text and JSON.

- Integers and DECIMAL take any number that they represent exactly. A binary floating-point number
  counts as its shortest decimal representation, so 9.99 fits DECIMAL(9,2).
- FLOAT and DOUBLE take every number within their range, rounded to the nearest.
- DATE takes a timestamp at midnight, timestamps take a date as its midnight, in UTC. TIME takes
  times of day. Digits below a microsecond, or the precision of a TIME, are truncated, as in Spark.
- BOOLEAN, STRING, BINARY and intervals take only their own kind.
- Arrays, maps and structs follow the rule in all their parts. Fields are matched by name if
  all given names are known, and otherwise by position.

Values converted to a column's type, and the reasons for the rejected ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from headrace.algebra.zset.sums import exactly
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.offenders import divided
from headrace.io.formats.values import RejectedValueError, out_of_range, refuse
from headrace.types import holds, is_variant, to_arrow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.errors import Span
    from headrace.io.formats.values import Converter
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


Conversion: TypeAlias = Callable[[Any], Any]
"""A function between Arrow arrays; raises ``pa.ArrowException`` if a value does not fit."""

_NANOSECONDS_PER_DAY = 86_400 * 10**9
_FRACTIONS = (
    *((1, "second"), (100, "millisecond"), (10, "millisecond"), (1, "millisecond")),
    *((100, "microsecond"), (10, "microsecond"), (1, "microsecond")),
)
"""The value of the last digit for each precision of TIME, from 0 to 6: number and unit."""


def fitted(
    values: pa.Array | pa.ChunkedArray, data_type: t.DataType, *, first: bool = False
) -> Fitted:
    """Convert values to a type; with ``first``, stop at the first value that does not fit."""
    wanted = to_arrow(data_type)
    if values.type == wanted and not holds(data_type, (t.TimeType,)):
        return Fitted(values, {})
    if isinstance(values, pa.ChunkedArray):
        return _fitted_chunks(values, data_type, first=first)
    conversion = _conversion(values.type, data_type)
    if conversion is None:
        present = pc.indices_nonzero(pc.is_valid(values)).to_pylist()[: 1 if first else None]
        refused = {row: refuse(_shown(values[row]), data_type) for row in present}
        return Fitted(pa.nulls(len(values), wanted), refused)
    whole = _converted(conversion, values)
    if whole is not None:
        return Fitted(whole, {})
    return _bisected(values, conversion, data_type, first=first)


def is_of_kind(found: pa.DataType, data_type: t.DataType) -> bool:
    """Return whether values of an Arrow type could fit the column's type."""
    return _conversion(found, data_type) is not None


def _converted(conversion: Conversion, values: pa.Array) -> pa.Array | None:
    try:
        return conversion(values)
    except pa.ArrowException:
        return None


def _fitted_chunks(values: pa.ChunkedArray, data_type: t.DataType, *, first: bool) -> Fitted:
    chunks: list[Any] = []
    refused: dict[int, RejectedValueError] = {}
    start = 0
    for chunk in values.chunks:
        found = fitted(chunk, data_type, first=first)
        chunks.append(found.values)
        refused |= {start + row: reason for row, reason in found.refused.items()}
        start += len(chunk)
    return Fitted(pa.chunked_array(chunks, to_arrow(data_type)), refused)


def _bisected(
    values: pa.Array, conversion: Conversion, data_type: t.DataType, *, first: bool
) -> Fitted:
    """Convert as many values at once as fit, bisecting arrays with values that do not."""
    wanted = to_arrow(data_type)
    refused: dict[int, RejectedValueError] = {}
    parts: list[Any] = []

    def attempt(start: int, stop: int) -> pa.Array | None:
        return _converted(conversion, values.slice(start, stop - start))

    for piece, part in divided(len(values), attempt, lambda part: part is None):
        if part is not None:
            parts.append(part)
            continue
        refused[piece.start] = out_of_range(_shown(values[piece.start]), data_type)
        parts.append(pa.nulls(1, wanted))
        if first:
            parts.append(pa.nulls(len(values) - piece.stop, wanted))
            break
    return Fitted(pa.concat_arrays(parts), refused)


def _shown(scalar: pa.Scalar) -> Any:
    """Return a value as shown in messages."""
    if isinstance(scalar, pa.DictionaryScalar):
        return _shown(scalar.value)
    if pa.types.is_float32(scalar.type) or pa.types.is_float16(scalar.type):
        return float(scalar.cast(pa.string()).as_py())
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):  # a time that Python cannot represent
        return f"{scalar.value} {scalar.type}"


def _conversion(found: pa.DataType, data_type: t.DataType) -> Conversion | None:
    """Return the conversion from an Arrow type to a column's type; None if no value can fit."""
    wanted = to_arrow(data_type)
    if found == wanted and not holds(data_type, (t.TimeType,)):
        return _same
    if pa.types.is_null(found):
        return lambda values: pa.nulls(len(values), wanted)
    if pa.types.is_dictionary(found):
        return _after(lambda values: values.dictionary_decode(), found.value_type, data_type)
    if isinstance(found, pa.BaseExtensionType):
        return _after(lambda values: values.storage, found.storage_type, data_type)
    match data_type:
        case t.ArrayType():
            return _list_conversion(found, data_type)
        case t.MapType():
            return _map_conversion(found, data_type)
        case t.StructType():
            return _struct_conversion(found, data_type)
        case t.VariantType():
            return _variant_conversion(found, wanted) if is_variant(found) else None
    return _scalar_conversion(found, data_type, wanted)


def _variant_conversion(found: pa.DataType, wanted: pa.DataType) -> Conversion:
    """Return the conversion of variants whose parts have another order or width."""
    places = [found.get_field_index(field.name) for field in wanted]

    def convert(values: Any) -> Any:
        parts = values.flatten()
        made = [parts[at].cast(field.type) for at, field in zip(places, wanted, strict=True)]
        return pa.StructArray.from_arrays(made, fields=list(wanted), mask=values.is_null())

    return convert


def _same(values: Any) -> Any:
    return values


def _after(first: Conversion, between: pa.DataType, data_type: t.DataType) -> Conversion | None:
    then = _conversion(between, data_type)
    return None if then is None else lambda values: then(first(values))


def _scalar_conversion(
    found: pa.DataType, data_type: t.DataType, wanted: pa.DataType
) -> Conversion | None:
    kinds = pa.types
    is_number = kinds.is_integer(found) or kinds.is_floating(found) or kinds.is_decimal(found)

    def cast(values: Any) -> Any:
        return pc.cast(values, wanted)

    match data_type:
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            return cast if is_number else None
        case t.DecimalType():
            return (lambda values: _decimals(values, wanted)) if is_number else None
        case t.FloatType() | t.DoubleType():
            return (lambda values: _floats(values, wanted)) if is_number else None
        case t.BooleanType():
            return cast if kinds.is_boolean(found) else None
        case t.StringType():
            texts = (kinds.is_string, kinds.is_large_string, kinds.is_string_view)
            return cast if any(holds(found) for holds in texts) else None
        case t.BinaryType():
            octets = (
                kinds.is_binary,
                kinds.is_large_binary,
                kinds.is_binary_view,
                kinds.is_fixed_size_binary,
            )
            return cast if any(holds(found) for holds in octets) else None
        case t.DateType():
            if kinds.is_timestamp(found):
                return _dates
            return cast if kinds.is_date(found) else None
        case t.TimestampType() | t.TimestampNTZType():
            if kinds.is_timestamp(found):
                return lambda values: pc.cast(_microseconds(values), wanted)
            return cast if kinds.is_date(found) else None
        case t.TimeType():
            cut = _FRACTIONS[data_type.precision]
            return (lambda values: _times_of_day(values, cut)) if kinds.is_time(found) else None
    return cast if kinds.is_duration(found) and kinds.is_duration(wanted) else None


def _decimals(values: Any, wanted: pa.DataType) -> Any:
    if pa.types.is_floating(values.type):
        values = pc.cast(values, pa.string())
    return exactly(values, wanted)


def _floats(values: Any, wanted: pa.DataType) -> Any:
    if pa.types.is_decimal(values.type):
        values = pc.cast(values, pa.string())  # Arrow's cast may miss the nearest number
        return _finite(values, pc.cast(values, wanted))
    return _finite(values, pc.cast(values, wanted, safe=False))


def _finite(values: Any, made: Any) -> Any:
    """Reject values that became infinite in the conversion."""
    infinite = pc.is_inf(made)
    if pa.types.is_floating(values.type):
        infinite = pc.and_not(infinite, pc.is_inf(values))
    if pc.any(infinite).as_py():
        raise pa.ArrowInvalid("out of range")
    return made


def _microseconds(values: Any) -> Any:
    fine = values.type.unit == "ns"
    return pc.floor_temporal(values, unit="microsecond") if fine else values


def _times_of_day(values: Any, cut: tuple[int, str]) -> Any:
    nanos = pc.cast(values, pa.time64("ns"))
    number = pc.cast(nanos, pa.int64())
    if pc.any(pc.or_(pc.less(number, 0), pc.greater_equal(number, _NANOSECONDS_PER_DAY))).as_py():
        raise pa.ArrowInvalid("not within a day")
    return pc.floor_temporal(nanos, multiple=cut[0], unit=cut[1])


def _dates(values: Any) -> Any:
    times = pc.cast(values, pa.timestamp(values.type.unit))
    dates = pc.cast(times, pa.date32(), safe=False)
    if pc.any(pc.not_equal(pc.cast(dates, times.type), times)).as_py():
        raise pa.ArrowInvalid("it has a time of day")
    return dates


def _list_conversion(found: pa.DataType, data_type: t.ArrayType) -> Conversion | None:
    kinds = pa.types
    lists = (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list)
    if not any(holds(found) for holds in lists):
        return None
    items = _conversion(found.value_type, data_type.elementType)
    wanted = to_arrow(data_type)
    if items is None:
        return _only_empty(wanted)
    return lambda values: list_array(
        _offsets(values), values.is_null(), [items(values.flatten())], wanted
    )


def _map_conversion(found: pa.DataType, data_type: t.MapType) -> Conversion | None:
    if not pa.types.is_map(found):
        return None
    keys = _conversion(found.key_type, data_type.keyType)
    items = _conversion(found.item_type, data_type.valueType)
    wanted = to_arrow(data_type)
    if keys is None or items is None:
        return _only_empty(wanted)
    pairs = pa.list_(
        pa.struct([pa.field("key", found.key_type), pa.field("value", found.item_type)])
    )

    def convert(values: Any) -> Any:
        listed = pc.cast(values, pairs)
        found_keys, found_items = listed.flatten().flatten()
        parts = [keys(found_keys), items(found_items)]
        return list_array(_offsets(listed), listed.is_null(), parts, wanted)

    return convert


def _struct_conversion(found: pa.DataType, data_type: t.StructType) -> Conversion | None:
    if not pa.types.is_struct(found):
        return None
    places = _places([field.name for field in found], data_type.names)
    if places is None:
        return None
    wanted = to_arrow(data_type)
    conversions: list[tuple[int, Conversion] | None] = []
    for field, place in zip(data_type.fields, places, strict=True):
        if place is None:
            conversions.append(None)
            continue
        conversion = _conversion(found.field(place).type, field.dataType)
        one = _only_nulls(to_arrow(field.dataType)) if conversion is None else conversion
        conversions.append((place, one))

    def convert(values: Any) -> Any:
        parts = values.flatten()
        made = [
            pa.nulls(len(values), field.type) if each is None else each[1](parts[each[0]])
            for each, field in zip(conversions, wanted, strict=True)
        ]
        return pa.StructArray.from_arrays(made, fields=list(wanted), mask=values.is_null())

    return convert


def _places(given: Sequence[str], names: Sequence[str]) -> list[int | None] | None:
    """Return the index of each field: by name if all names are known, else by position.

    None if neither works: too many or too few, or a known name at another position.
    """
    known = [name.lower() for name in names]
    found = [name.lower() for name in given]
    if len(set(found)) == len(found) and set(found) <= set(known):
        return [found.index(name) if name in found else None for name in known]
    moved = any(name in known and known.index(name) != place for place, name in enumerate(found))
    if len(found) != len(known) or moved:
        return None
    return list(range(len(found)))


def _only_empty(wanted: pa.DataType) -> Conversion:
    """Accept NULL and empty lists, which have no elements of a wrong type."""

    def convert(values: Any) -> Any:
        offsets = _offsets(values)
        if offsets[-1].as_py():
            raise pa.ArrowInvalid("another kind")
        storage = wanted.key_type if pa.types.is_map(wanted) else wanted.value_type
        parts = [pa.nulls(0, storage)]
        if pa.types.is_map(wanted):
            parts.append(pa.nulls(0, wanted.item_type))
        return list_array(offsets, values.is_null(), parts, wanted)

    return convert


def _only_nulls(wanted: pa.DataType) -> Conversion:
    def convert(values: Any) -> Any:
        if values.null_count < len(values):
            raise pa.ArrowInvalid("another kind")
        return pa.nulls(len(values), wanted)

    return convert


def _offsets(values: Any) -> pa.Array:
    if pa.types.is_map(values.type):
        item = pa.struct([values.type.key_field, values.type.item_field])
        values = pc.cast(values, pa.list_(item))
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    return offsets_of(lengths)


def with_leaves(values: pa.Array, changed: Conversion) -> pa.Array:
    """Return values in all whose leaves a function was called, in the order of their types."""
    kind = values.type
    if pa.types.is_struct(kind):
        parts = [with_leaves(part, changed) for part in values.flatten()]
        fields = [each.with_type(part.type) for each, part in zip(kind, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=values.is_null())
    if pa.types.is_map(kind):
        pairs = pa.struct([kind.key_field, kind.item_field])
        listed = pc.cast(values, pa.list_(pairs))
        keys, items = (with_leaves(part, changed) for part in listed.flatten().flatten())
        wanted = pa.map_(keys.type, kind.item_field.with_type(items.type))
        return list_array(_offsets(listed), listed.is_null(), [keys, items], wanted)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        items = with_leaves(values.flatten(), changed)
        wanted = pa.list_(kind.value_field.with_type(items.type))
        return list_array(_offsets(values), values.is_null(), [items], wanted)
    return changed(values)


def offsets_of(lengths: Any) -> pa.Array:
    """Return the offsets of lists of these lengths."""
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), pa.int32())


def list_array(
    offsets: pa.Array, nulls: pa.Array, parts: Sequence[pa.Array], wanted: pa.DataType
) -> pa.Array:
    """Return lists, or maps of keys and values, from offsets, nulls and elements."""
    kind = pa.MapArray if pa.types.is_map(wanted) else pa.ListArray
    if pa.types.is_map(wanted):
        offsets = pa.Array.from_buffers(
            pa.int32(), len(offsets), [None, offsets.buffers()[1]], 0, 0
        )
        masked = pc.if_else(
            pa.concat_arrays([nulls, pa.array([False])]), pa.scalar(None, pa.int32()), offsets
        )
        return kind.from_arrays(masked, *parts, type=wanted)
    return kind.from_arrays(offsets, *parts, type=wanted, mask=nulls)
