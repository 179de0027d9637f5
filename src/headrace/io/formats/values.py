"""Converts single values: a JSON value or a CSV field to a column's type.

This defines the meaning of values. Vectorised paths must agree with it on the values that they
accept, and leave all others to it. Nothing is rounded and nothing wraps around: a value that its
type cannot hold exactly is rejected, and ``1.0`` is exactly an integer. There are two exceptions:
FLOAT and DOUBLE take the nearest representable number, and digits below a microsecond are
truncated, as in Spark. JSON text in a column of a number, BOOLEAN, date or time is read like a
field of CSV; only STRING and BINARY have text formats of their own.
:mod:`headrace.io.formats.fitting` has the same rule for typed values.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation
from math import isinf
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from headrace.algebra.zset.sums import exactly
from headrace.errors import Code, HeadraceError, shortened
from headrace.types import variant_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.types import Column


Converter = Callable[[Any], Any]
"""Converts a value other than NULL to one for ``pa.array``, or raises RejectedValueError."""

_RANGES: Final = {t.ByteType: 8, t.ShortType: 16, t.IntegerType: 32, t.LongType: 64}
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_WHOLE: Final = re.compile(r"-?\d{1,4000}", re.ASCII)
_BELOW_MICROSECOND: Final = re.compile(r"(\.\d{6})\d+", re.ASCII)
_TIME_OF_DAY: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.(\d+))?)?", re.ASCII)
_PLAIN_TIME: Final = r"^\d\d:\d\d(:\d\d(\.\d{1,9})?)?$"
_SOME_DAY: Final = "1970-01-01T"
_NANOSECOND: Final = 9
_SIGNED_YEAR: Final = re.compile(r"([+-]\d{4,6})(?=-)", re.ASCII)
_CYCLE_DAYS: Final = 146_097
"""The days of 400 years."""
_DAY: Final = 86_400_000_000
_MOST_MICROS: Final = 1 << 63
_EXACT: Final = Context(prec=200)
_INFINITE: Final = frozenset({"inf", "infinity"})
_SHOWN: Final = 60
_LONGEST: Final = 40
"""More digits than any integer type has."""
_MINUS_ZERO: Final = -0.0
"""The value of the JSON integer ``-0``: it has a sign in a DOUBLE, and none elsewhere."""


class RejectedValueError(ValueError):
    """A value that does not fit its column's type; the text is the reason."""


def field_of(found: dict[str, Any], name: str) -> Any:
    """Return a field of a JSON object, or None; the name matches regardless of case.

    Raises:
        RejectedValueError: if it is given twice.
    """
    if name in found:
        spelled = name
    else:
        folded = name.casefold()
        spellings = [each for each in found if each.casefold() == folded]
        if len(spellings) > 1:
            raise RejectedValueError("it is given twice")
        if not spellings:
            return None
        spelled = spellings[0]
    if isinstance(found, Twice) and spelled in found.twice:
        raise RejectedValueError("it is given twice")
    return found[spelled]


def place_of(name: str, given: Sequence[str]) -> int | None:
    """Return the index of a name among the given ones, regardless of case; None if absent.

    Raises:
        RejectedValueError: if several differ from it only in case.
    """
    if name in given:
        return given.index(name)
    folded = name.casefold()
    places = [place for place, each in enumerate(given) if each.casefold() == folded]
    if len(places) > 1:
        raise RejectedValueError(f'"{name}" is in its schema twice')
    return places[0] if places else None


class Twice(dict[str, Any]):
    """A JSON object with duplicate names, listed in ``twice``."""

    twice: frozenset[str] = frozenset()


def type_name(data_type: t.DataType) -> str:
    """Return a type's name for messages."""
    return str(data_type.simpleString()).upper()


def is_number_text(text: str) -> bool:
    """Return whether a text is a decimal number."""
    return _NUMBER.fullmatch(text) is not None


def parse_json(text: str) -> Any:
    """Parse one JSON value; numbers with a fraction stay exact.

    Raises:
        RejectedValueError: if it is not JSON, with the position of the error, from 1.
    """
    whole = text.rstrip(" \t\r\n")
    try:
        return _DECODER.decode(whole)
    except json.JSONDecodeError as error:
        if error.msg.startswith("Unterminated string"):
            why = f"it ends within the string that begins at character {error.pos + 1}"
        elif error.pos >= len(whole):
            why = f"it ends too early: {error.msg} at its end"
        else:
            why = f"{error.msg} at character {error.pos + 1}"
        raise RejectedValueError(f"not JSON: {why}") from error
    except (ValueError, RecursionError) as error:
        raise RejectedValueError(f"not JSON: {error}") from error


def _whole(text: str) -> int | float:
    return _MINUS_ZERO if text == "-0" else int(text)


def from_json(column: Column) -> Converter:
    """Return the converter of a column's JSON values.

    Raises:
        HeadraceError: UNSUPPORTED if the type has no JSON form.
    """
    try:
        return _json(column.type)
    except LookupError as error:
        raise _unsupported(column, "JSON") from error


def from_text(column: Column) -> Converter:
    """Return the converter of a column's CSV fields.

    Raises:
        HeadraceError: UNSUPPORTED if the type has no CSV form.
    """
    try:
        return _text(column.type)
    except LookupError as error:
        raise _unsupported(column, "CSV") from error


def from_number(data_type: t.DataType) -> Converter:
    """Return the converter of numbers: integers, decimals, and floats by their shortest decimal."""
    match data_type:
        case t.DecimalType():
            return lambda value: _decimal(
                Decimal(repr(value)) if isinstance(value, float) else value, data_type
            )
        case t.NumericType():
            return _json(data_type)

    def refused(value: Any) -> Any:
        raise refuse(value, data_type)

    return refused


def timestamp_micros(text: str, *, with_zone: bool) -> int:
    """Return an ISO-8601 time as microseconds since 1970; without a zone it is UTC.

    Raises:
        ValueError: if it is not such a time, or names a zone where ``with_zone`` is False.
    """
    cut = _BELOW_MICROSECOND.sub(r"\1", text)
    try:
        return int(pa.scalar(cut).cast(pa.timestamp("us")).value)
    except pa.ArrowInvalid:
        if not with_zone:
            raise
        return int(pa.scalar(cut).cast(pa.timestamp("us", "UTC")).value)


def time_nanos(text: str, data_type: t.TimeType) -> int:
    """Return a time of day, ``HH:MM[:SS[.fraction]]``, as nanoseconds since midnight.

    Digits of the fraction beyond the type's precision are truncated.

    Raises:
        RejectedValueError: if it is not such a time.
    """
    found = _TIME_OF_DAY.fullmatch(text)
    if found is None:
        raise refuse(text, data_type)
    hour, minute, second, fraction = found.groups()
    seconds = (int(hour) * 60 + int(minute)) * 60 + int(second or 0)
    kept = (fraction or "")[: data_type.precision]
    return seconds * 10**9 + int(kept.ljust(_NANOSECOND, "0"))


def cast_texts(texts: Any, data_type: t.DataType, arrow: pa.DataType) -> Any:
    """Cast an array of text to ``arrow``, the Arrow type of ``data_type``.

    Decimals, and what contains them, may also be wide.

    Raises:
        pa.ArrowException: if a text is not valid, or only :func:`from_text` can decide.
    """
    if not isinstance(data_type, t.TimeType):
        return exactly(texts, arrow)
    if pc.all(pc.match_substring_regex(texts, _PLAIN_TIME)).as_py() is False:
        raise pa.ArrowInvalid("no time of day")
    moments = pc.cast(pc.binary_join_element_wise(_SOME_DAY, texts, ""), pa.timestamp("ns"))
    unit = 10 ** (_NANOSECOND - data_type.precision)
    cut = pc.multiply(pc.divide(pc.cast(moments, pa.int64()), unit), unit)
    return pc.cast(cut, arrow)


def refuse(value: object, data_type: t.DataType) -> RejectedValueError:
    """Return the error for a value that is not of a type."""
    name = type_name(data_type)
    article = "an" if name[0] in "AEIOU" else "a"
    return RejectedValueError(f"{_shown(value)} is not {article} {name}")


def out_of_range(value: object, data_type: t.DataType) -> RejectedValueError:
    """Return the error for a number that does not fit its type."""
    return RejectedValueError(f"{_shown(value)} does not fit {type_name(data_type)}")


def _shown(value: object) -> str:
    text = (
        json.dumps(value, ensure_ascii=False, default=_plain)
        if not _is_number(value)
        else f"{value}"
    )
    return shortened(writable(text), _SHOWN)


def writable(text: str) -> str:
    """Replace unpaired surrogates, which UTF-8 cannot encode, by question marks."""
    return text.encode("utf-8", "replace").decode()


def _plain(value: object) -> object:
    return float(value) if isinstance(value, Decimal) else str(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _unsupported(column: Column, form: str) -> HeadraceError:
    return HeadraceError(
        Code.UNSUPPORTED,
        f'column "{column.name}" of type {type_name(column.type)} cannot be read from {form}',
        hint="Load it from Parquet, or declare it with another type.",
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    names = [name for name, _ in pairs]
    marked = Twice(found)
    marked.twice = frozenset(name for name in found if names.count(name) > 1)
    return marked


_DECODER: Final = json.JSONDecoder(parse_int=_whole, parse_float=Decimal, object_pairs_hook=_object)


def _json(data_type: t.DataType) -> Converter:
    match data_type:
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            return _text_or(data_type, lambda value: _integer_json(value, data_type))
        case t.FloatType() | t.DoubleType():
            return _text_or(data_type, lambda value: _floating(value, data_type))
        case t.DecimalType():
            return _text_or(data_type, lambda value: _decimal(value, data_type))
        case t.BooleanType():
            return _text_or(data_type, _typed(bool, data_type, lambda value: value))
        case t.DateType() | t.TimestampType() | t.TimestampNTZType():
            return _typed(str, data_type, _text(data_type))
        case t.StringType():
            return _typed(str, data_type, lambda value: _string(value, data_type))
        case t.BinaryType():
            return _typed(str, data_type, _binary)
        case t.TimeType():
            return _typed(str, data_type, lambda value: time_nanos(value, data_type))
        case t.ArrayType():
            return _array(data_type)
        case t.MapType():
            return _map(data_type)
        case t.StructType():
            return _struct(data_type)
        case t.VariantType():
            return _variant
    raise LookupError


def _text(data_type: t.DataType) -> Converter:
    match data_type:
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            return lambda text: _integer_text(text, data_type)
        case t.FloatType() | t.DoubleType():
            return lambda text: _floating_text(text, data_type)
        case t.DecimalType():
            return lambda text: _decimal(text.strip(), data_type)
        case t.BooleanType():
            return lambda text: _boolean_text(text, data_type)
        case t.StringType():
            return lambda text: text
        case t.BinaryType():
            return lambda text: text.encode()
        case t.DateType():
            return lambda text: _moment(text.strip(), data_type)
        case t.TimestampType() | t.TimestampNTZType():
            return lambda text: _moment(text, data_type)
        case t.TimeType():
            return lambda text: time_nanos(text.strip(), data_type)
        case t.VariantType():
            return lambda text: _variant(parse_json(text))
    raise LookupError


def _variant(value: Any) -> dict[str, bytes]:
    """Return the variant with a value of JSON."""
    _require_each_once(value)
    try:
        return variant_of(value)
    except ValueError as error:
        raise refuse(value, t.VariantType()) from error


def _require_each_once(value: Any) -> None:
    if isinstance(value, dict):
        _require_once(value, value)
        for inner in value.values():
            _require_each_once(inner)
    elif isinstance(value, list):
        for inner in value:
            _require_each_once(inner)


def _text_or(data_type: t.DataType, convert: Converter) -> Converter:
    """Return the converter that reads text like a field of CSV, and converts other values."""
    text = _text(data_type)
    return lambda value: text(value) if type(value) is str else convert(value)


def _typed(kind: type, data_type: t.DataType, convert: Converter) -> Converter:
    def checked(value: Any) -> Any:
        if type(value) is not kind:
            raise refuse(value, data_type)
        return convert(value)

    return checked


def _integer_json(value: Any, data_type: t.DataType) -> int:
    number = 0 if value is _MINUS_ZERO else value
    if type(number) is not int:
        number = _whole_number(number, data_type)
    return _integer(number, data_type, value)


def _whole_number(value: Any, data_type: t.DataType, shown: object = None) -> int:
    """Return a number with a fraction or an exponent as an integer, if it is exactly one."""
    if not _is_number(value):
        raise refuse(value, data_type)
    number = Decimal(value)
    whole = number.is_finite() and (number == 0 or number.adjusted() < _LONGEST)
    if not whole or number != int(number):
        raise out_of_range(value if shown is None else shown, data_type)
    return int(number)


def _integer(value: int, data_type: t.DataType, shown: object) -> int:
    bound = 1 << (_RANGES[type(data_type)] - 1)
    if not -bound <= value < bound:
        raise out_of_range(shown, data_type)
    return value


def _floating(value: Any, data_type: t.DataType) -> float:
    if not _is_number(value):
        raise refuse(value, data_type)
    try:
        number = float(value)
    except OverflowError as error:
        raise out_of_range(value, data_type) from error
    return _finite(number, data_type, value, infinite=isinstance(value, float) and isinf(value))


def _finite(number: float, data_type: t.DataType, shown: object, *, infinite: bool) -> float:
    single = isinstance(data_type, t.FloatType)
    held = pa.scalar(number, pa.float32()).as_py() if single else number
    if isinf(held) and not infinite:
        raise out_of_range(shown, data_type)
    return number


def _decimal(value: Any, data_type: t.DecimalType) -> Decimal:
    exact = value is _MINUS_ZERO or (
        isinstance(value, str) and _NUMBER.fullmatch(value) is not None
    )
    if not (exact or (isinstance(value, int | Decimal) and not isinstance(value, bool))):
        raise refuse(value, data_type)
    try:
        number = Decimal(0 if value is _MINUS_ZERO else value)
        held = number.quantize(Decimal(1).scaleb(-data_type.scale), context=_EXACT)
    except InvalidOperation as error:
        raise out_of_range(value, data_type) from error
    if held != number or (held != 0 and held.adjusted() >= data_type.precision - data_type.scale):
        raise out_of_range(value, data_type)
    return held


def _string(value: str, data_type: t.DataType) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise RejectedValueError(
            f"half of a surrogate pair is not a {type_name(data_type)}"
        ) from error
    return value


def _binary(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except ValueError as error:
        raise RejectedValueError(f"{_shown(value)} is not base64") from error


def _moment(value: str, data_type: t.DataType) -> int:
    text, later = _within_four_digits(value)
    try:
        if isinstance(data_type, t.DateType):
            return later + int(pa.scalar(text).cast(pa.date32()).value)
        with_zone = isinstance(data_type, t.TimestampType)
        found = later * _DAY + timestamp_micros(text, with_zone=with_zone)
    except pa.ArrowInvalid as error:
        raise refuse(value, data_type) from error
    if not -_MOST_MICROS <= found < _MOST_MICROS:
        raise out_of_range(value, data_type)
    return found


def _within_four_digits(text: str) -> tuple[str, int]:
    """Return a time with a signed year as one with a four-digit year, and the days between both.

    The calendar repeats after 400 years.
    """
    found = _SIGNED_YEAR.match(text)
    if found is None:
        return text, 0
    cycles, year = divmod(int(found[1]) - 2000, 400)
    return f"{year + 2000}{text[found.end() :]}", cycles * _CYCLE_DAYS


def _integer_text(text: str, data_type: t.DataType) -> int:
    plain = text.strip()
    if _WHOLE.fullmatch(plain) is not None:
        return _integer(int(plain), data_type, text)
    if _NUMBER.fullmatch(plain) is None:
        raise refuse(text, data_type)
    return _integer(_whole_number(_number(plain), data_type, text), data_type, text)


def _number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent out of range
        return Decimal("NaN")


def _floating_text(text: str, data_type: t.DataType) -> float:
    try:
        number = float(pa.scalar(text.strip()).cast(pa.float64()).as_py())
    except pa.ArrowInvalid as error:
        raise refuse(text, data_type) from error
    infinite = text.strip().lstrip("+-").lower() in _INFINITE
    return _finite(number, data_type, text, infinite=infinite)


def _boolean_text(text: str, data_type: t.DataType) -> bool:
    match text.lower():
        case "true":
            return True
        case "false":
            return False
    raise refuse(text, data_type)


def _array(data_type: t.ArrayType) -> Converter:
    item = _json(data_type.elementType)
    return _typed(list, data_type, lambda value: [None if x is None else item(x) for x in value])


def _map(data_type: t.MapType) -> Converter:
    key, item = _text(data_type.keyType), _json(data_type.valueType)

    def convert(value: Any) -> list[tuple[Any, Any]]:
        if not isinstance(value, dict):
            raise refuse(value, data_type)
        _require_once(value, value)
        return [(key(k), None if v is None else item(v)) for k, v in value.items()]

    return convert


def _struct(data_type: t.StructType) -> Converter:
    fields = [(f.name, _json(f.dataType)) for f in data_type.fields]

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise refuse(value, data_type)
        found = ((name, _of_struct(value, name), item) for name, item in fields)
        return {name: None if inner is None else item(inner) for name, inner, item in found}

    return convert


def _of_struct(value: dict[str, Any], name: str) -> Any:
    try:
        return field_of(value, name)
    except RejectedValueError as refused:
        raise RejectedValueError(f'"{name}" is given twice') from refused


def _require_once(value: dict[str, Any], names: Any) -> None:
    if isinstance(value, Twice):
        for name in names:
            if name in value.twice:
                raise RejectedValueError(f'"{name}" is given twice')
