"""Literals of SQL, parsed without Spark and converted to the type of their column."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

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
from headrace.formats.values import (
    Converter,
    from_number,
    from_text,
    out_of_range,
    refuse,
    time_nanos,
    timestamp_micros,
)
from headrace.sql.lexer import Token, TokenKind, string_value, tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.types import Column

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
                return value if isinstance(type_, StringType) else _read(value, column)
        return _day_or_time(value, type_)

    return convert


def _read(text: str, column: Column) -> Any:
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
