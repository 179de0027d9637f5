"""Literals of SQL, parsed without Spark and converted to the type of their column.

Converts Python objects to values of a column, by the rule of :mod:`headrace.io.formats.fitting`.

Texts in a column of numbers, BOOLEAN, dates or times are read as in JSON
(:mod:`headrace.io.formats.values`): a program has them from there.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from headrace.errors import HeadraceError
from headrace.io.formats.fitting import Fitted, fitted, list_array, of_texts, offsets_of, scattered
from headrace.io.formats.values import (
    Converter,
    RejectedValueError,
    from_json,
    from_number,
    from_text,
    out_of_range,
    refuse,
    time_nanos,
    timestamp_micros,
)
from headrace.planning.sql.lexer import Token, TokenKind, string_value, tokens
from headrace.types import Column, to_arrow, variant_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_NATURAL: Final[dict[type[t.DataType], type]] = {
    t.ByteType: int,
    t.ShortType: int,
    t.IntegerType: int,
    t.LongType: int,
    t.DoubleType: float,
    t.StringType: str,
    t.BinaryType: bytes,
    t.BooleanType: bool,
}
"""By column type: the Python type that Arrow converts exactly, or fails to."""

_READ_FROM_TEXT: Final = (
    t.NumericType,
    t.BooleanType,
    t.DateType,
    t.TimestampType,
    t.TimestampNTZType,
    t.TimeType,
)
"""The types whose values are read from text; the others take a text as it is, or not at all."""


def fitted_objects(values: Sequence[Any], data_type: t.DataType) -> Fitted:
    """Convert Python objects to a type, independently: no value widens the type of another."""
    natural = _NATURAL.get(type(data_type))
    if natural is not None and {type(value) for value in values} <= {natural, type(None)}:
        try:
            return Fitted(pa.array(values, to_arrow(data_type)), {})
        except (pa.ArrowException, OverflowError, ValueError):
            pass  # to find the value that does not fit
    match data_type:
        case t.ArrayType():
            return _lists(values, data_type)
        case t.MapType():
            return _maps(values, data_type)
        case t.StructType():
            return _structs(values, data_type)
        case t.VariantType():
            return _variants(values, data_type)
    return scattered(len(values), _groups(values, data_type), data_type)


def _groups(values: Sequence[Any], data_type: t.DataType) -> Iterable[tuple[list[int], Fitted]]:
    """Return the positions and fitted values of the objects of each Python type."""
    if len(values) == 1 and values[0] is not None:
        yield [0], _of_one_type([values[0]], data_type)
        return
    places: dict[object, list[int]] = {}
    for place, value in enumerate(values):
        if value is not None:
            zoned = isinstance(value, datetime) and value.tzinfo is not None
            places.setdefault((type(value), zoned), []).append(place)
    for found in places.values():
        yield found, _of_one_type([values[place] for place in found], data_type)


def _of_one_type(values: list[Any], data_type: t.DataType) -> Fitted:
    if type(values[0]) is str and isinstance(data_type, _READ_FROM_TEXT):
        return _read(values, data_type)
    try:
        return fitted(pa.array(values), data_type)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        if len(values) == 1:
            return _of_one(values[0], data_type)
    each = [_of_one_type([value], data_type) for value in values]
    refused = {place: one.refused[0] for place, one in enumerate(each) if one.refused}
    return Fitted(pa.concat_arrays([one.values for one in each]), refused)


def _read(texts: list[str], data_type: t.DataType) -> Fitted:
    """Read texts as the field of a JSON object is read; see :mod:`headrace.io.formats.values`."""
    wanted = to_arrow(data_type)
    try:
        given = pa.array(texts, pa.string())
    except UnicodeEncodeError:  # half of a surrogate pair, which is no number and no time
        refused = {at: refuse(text, data_type) for at, text in enumerate(texts)}
        return Fitted(pa.nulls(len(texts), wanted), refused)
    return of_texts(given, wanted, None, lambda: from_json(Column("", data_type)))


def _of_one(value: Any, data_type: t.DataType) -> Fitted:
    """Convert a value without an Arrow type: an integer of more than 64 bits is a decimal."""
    nothing = pa.nulls(1, to_arrow(data_type))
    if not isinstance(value, int):
        return Fitted(nothing, {0: refuse(value, data_type)})
    try:
        return fitted(pa.array([Decimal(value)]), data_type)
    except pa.ArrowException:
        return Fitted(nothing, {0: out_of_range(value, data_type)})


def _variants(values: Sequence[Any], data_type: t.VariantType) -> Fitted:
    made: list[dict[str, bytes] | None] = []
    refused: dict[int, RejectedValueError] = {}
    for place, value in enumerate(values):
        made.append(None)
        if value is not None:
            try:
                made[place] = variant_of(value)
            except ValueError:
                refused[place] = refuse(value, data_type)
    return Fitted(pa.array(made, to_arrow(data_type)), refused)


def _lists(values: Sequence[Any], data_type: t.ArrayType) -> Fitted:
    rows = [_listed(value) for value in values]
    inner = fitted_objects([item for row in rows for item in row or ()], data_type.elementType)
    lengths = [len(row or ()) for row in rows]
    made = list_array(offsets_of(lengths), _missing(rows), [inner.values], to_arrow(data_type))
    return Fitted(made, _refused_rows(values, rows, data_type) | _owners(inner, lengths))


def _maps(values: Sequence[Any], data_type: t.MapType) -> Fitted:
    rows = [list(value.items()) if isinstance(value, dict) else _pairs(value) for value in values]
    pairs = [pair for row in rows for pair in row or ()]
    keys = fitted_objects([key for key, _ in pairs], data_type.keyType)
    items = fitted_objects([item for _, item in pairs], data_type.valueType)
    lengths = [len(row or ()) for row in rows]
    missing = {
        place: refuse(None, data_type.keyType)
        for place, (key, _) in enumerate(pairs)
        if key is None
    }
    bad = _owners(items, lengths) | _owners(keys, lengths)
    bad |= _owners(Fitted(keys.values, missing), lengths)
    refused = _refused_rows(values, rows, data_type) | bad
    if bad:  # a map has no NULL for a key that was refused
        return Fitted(pa.nulls(len(values), to_arrow(data_type)), refused)
    made = list_array(
        offsets_of(lengths), _missing(rows), [keys.values, items.values], to_arrow(data_type)
    )
    return Fitted(made, refused)


def _structs(values: Sequence[Any], data_type: t.StructType) -> Fitted:
    refused: dict[int, RejectedValueError] = {}
    rows: list[list[Any] | None] = []
    for place, value in enumerate(values):
        row = _fields(value, data_type.names)
        if row is None and value is not None:
            refused[place] = refuse(value, data_type)
        rows.append(row)
    parts = []
    for at, field in enumerate(data_type.fields):
        part = fitted_objects([row and row[at] for row in rows], field.dataType)
        refused = part.refused | refused
        parts.append(part.values)
    wanted = to_arrow(data_type)
    made = pa.StructArray.from_arrays(parts, fields=list(wanted), mask=_missing(rows))
    return Fitted(made, refused)


def _listed(value: Any) -> list[Any] | None:
    return list(value) if isinstance(value, list | tuple | np.ndarray) else None


def _pairs(value: Any) -> list[tuple[Any, Any]] | None:
    """Return the pairs of a map, in the form that Arrow returns."""
    rows = _listed(value)
    if rows is None or not all(isinstance(row, tuple) and len(row) == 2 for row in rows):  # noqa: PLR2004
        return None
    return rows


def _fields(value: Any, names: Sequence[str]) -> list[Any] | None:
    if isinstance(value, dict):
        given = {str(name).lower(): item for name, item in value.items()}
        if not set(given) <= {name.lower() for name in names}:
            return None
        return [given.get(name.lower()) for name in names]
    if isinstance(value, tuple) and len(value) == len(names):
        return list(value)
    return None


def _missing(rows: Sequence[Any]) -> pa.Array:
    return pa.array([row is None for row in rows], pa.bool_())


def _refused_rows(
    values: Sequence[Any], rows: Sequence[Any], data_type: t.DataType
) -> dict[int, RejectedValueError]:
    return {
        place: refuse(value, data_type)
        for place, (value, row) in enumerate(zip(values, rows, strict=True))
        if row is None and value is not None
    }


def _owners(inner: Fitted, lengths: Sequence[int]) -> dict[int, RejectedValueError]:
    """Return the reasons by the index of the row that contains each rejected element."""
    ends = np.cumsum(lengths)
    return {
        int(np.searchsorted(ends, place, side="right")): reason
        for place, reason in reversed(inner.refused.items())
    }


_INTEGERS = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_WORDS = {"null": None, "true": True, "false": False}
_SUFFIXED: Final = re.compile(
    r"(?P<digits>[0-9.]+(?:e[+-]?[0-9]+)?)(?P<suffix>bd|[lsydf])?", re.IGNORECASE
)
_BITS: Final = {"y": 8, "s": 16, "l": 64}
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?", re.ASCII)
_OF_DAY: Final = re.compile(r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?", re.ASCII)
_ZONES: Final = frozenset({"TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ"})
_BRACKETED: Final = 4
"""The number of tokens of a negative number in parentheses."""
_EPOCH: Final = date(1970, 1, 1).toordinal()
_MICROSECONDS_PER_DAY: Final = 86_400_000_000


class Date(NamedTuple):
    """The value of ``DATE '...'``: days since 1970."""

    days: int
    text: str


class Timestamp(NamedTuple):
    """The value of ``TIMESTAMP '...'``: microseconds since 1970, in UTC."""

    micros: int
    text: str


class TimeOfDay(NamedTuple):
    """The value of ``TIME '...'``, as written."""

    text: str


Literal: TypeAlias = bool | int | float | Decimal | str | Date | Timestamp | TimeOfDay | None


class NoLiteral(ValueError):  # noqa: N818 (nothing failed: Spark evaluates it)
    """The tokens are not a literal that is supported here."""


def literal(found: Sequence[Token]) -> Literal:
    """Return the value of a literal. Numbers keep all their digits, except binary ones.

    Raises:
        NoLiteral: for any other expression.
    """
    count = len(found)
    first = found[0]
    if count == 1:
        return _single(first)
    if count == 2:  # noqa: PLR2004
        second = found[1]
        if first.text in {"-", "+"} and second.kind is TokenKind.NUMBER:
            return _number(("-" if first.text == "-" else "") + second.text)
        if second.kind is TokenKind.STRING:
            return _typed(first.word, string_value(second))
    if first.text == "(" and 2 < count <= _BRACKETED and found[-1].text == ")":  # noqa: PLR2004
        return literal(found[1:-1])
    raise NoLiteral


def _single(token: Token) -> Literal:
    match token.kind:
        case TokenKind.NUMBER:
            return _number(token.text)
        case TokenKind.STRING | TokenKind.DQUOTED:
            return string_value(token)
        case TokenKind.WORD:
            word = token.text.lower()
            if word in _WORDS:
                return _WORDS[word]
    raise NoLiteral


def _number(text: str) -> int | float | Decimal:
    try:
        return int(text)
    except ValueError:
        pass
    sign, plain = (-1, text[1:]) if text[0] == "-" else (1, text)
    found = _SUFFIXED.fullmatch(plain)
    if found is None:
        raise NoLiteral
    digits, suffix = found["digits"], (found["suffix"] or "").lower()
    if suffix == "d":
        return sign * float(digits)
    if suffix == "f":
        raise NoLiteral
    try:
        number = sign * Decimal(digits) if suffix != "" else Decimal(text)
    except InvalidOperation as error:
        raise NoLiteral from error
    if suffix not in _BITS:
        return number
    bound = 1 << (_BITS[suffix] - 1)
    if number != int(number) or not -bound <= number < bound:
        raise NoLiteral  # Spark reports the error
    return int(number)


def _typed(word: str, text: str) -> Literal:
    """Return the value of a literal that begins with its type."""
    try:
        if word == "DATE" and _DAY.fullmatch(text):
            return Date(date.fromisoformat(text).toordinal() - _EPOCH, text)
        if word in _ZONES and _TIME.fullmatch(text):
            return Timestamp(timestamp_micros(text, with_zone=False), text)
        if word == "TIME" and _OF_DAY.fullmatch(text):
            return TimeOfDay(text)
    except ValueError as error:  # Arrow's errors are ValueErrors, too
        raise NoLiteral from error
    raise NoLiteral


def literal_converter(column: Column) -> Converter:
    """Return the conversion of a literal, other than NULL, to the column's type.

    It raises ``RejectedValueError`` if the value does not fit. A string literal is accepted for any
    scalar type, as in PostgreSQL, and is read like a field of CSV. Other literals keep their type.
    """
    type_ = column.type
    number = from_number(type_)

    def convert(value: Any) -> Any:
        match value:
            case bool():
                if not isinstance(type_, BooleanType):
                    raise refuse(value, type_)
                return value
            case int() | float() | Decimal():
                return number(value)
            case str():
                return value if isinstance(type_, StringType) else _literals_read(value, column)
        return _day_or_time(value, type_)

    return convert


def _literals_read(text: str, column: Column) -> Any:
    try:
        convert = from_text(column)
    except HeadraceError as error:
        raise refuse(text, column.type) from error
    return convert(text)


def _day_or_time(value: Date | Timestamp | TimeOfDay, type_: DataType) -> int:
    if isinstance(value, TimeOfDay):
        if isinstance(type_, TimeType):
            return time_nanos(value.text, type_)
        raise refuse(value.text, type_)
    match type_:
        case DateType():
            if isinstance(value, Date):
                return value.days
            days, rest = divmod(value.micros, _MICROSECONDS_PER_DAY)
            if rest:
                raise out_of_range(value.text, type_)
            return days
        case TimestampType() | TimestampNTZType():
            return (
                value.micros if isinstance(value, Timestamp) else value.days * _MICROSECONDS_PER_DAY
            )
    raise refuse(value.text, type_)


def plain_value(token: Token, type_: DataType, *, negative: bool) -> tuple[bool, Any]:
    """Return whether Spark compares a column with the token without a cast, and the value.

    False if Spark might cast either side; then the comparison is left to Spark.
    """
    word = token.text.lower()
    if word == "null" and not negative:
        return True, None
    if isinstance(type_, BooleanType):
        return word in ("true", "false") and not negative, _WORDS.get(word)
    if type(type_) is StringType:
        plain = token.kind is TokenKind.STRING and not negative and "\\" not in token.text
        return plain, string_value(token) if plain else None
    if token.kind is not TokenKind.NUMBER:
        return False, None
    sign = "-" if negative else ""
    bits = _INTEGERS.get(type(type_))
    if bits is not None:
        if not word.isdigit():
            return False, None
        value = int(sign + word)
        return -(1 << (bits - 1)) <= value < 1 << (bits - 1), value
    if isinstance(type_, DecimalType):
        try:
            number = Decimal(sign + word)
        except InvalidOperation:
            return False, None
        _, digits, exponent = number.as_tuple()
        if not isinstance(exponent, int):
            return False, None
        whole = len(digits) + exponent
        return -exponent <= type_.scale and whole <= type_.precision - type_.scale, number
    return False, None


def constant(column: Column, text: str) -> Any:
    """Return the value of a literal as a value of a column, for ``pa.array``.

    Raises:
        NoLiteral: for any other expression.
        RejectedValueError: if it does not fit the column.
    """
    value = literal(list(tokens(text)))
    return None if value is None else literal_converter(column)(value)


def is_default(found: Sequence[Token]) -> bool:
    """Return whether an expression is the word DEFAULT."""
    return len(found) == 1 and found[0].word == "DEFAULT"
