"""Converts the values of Debezium's events to those of columns.

The meaning of a JSON value depends on the source's type, which the schema of the event gives:
``1767225600123`` may be a time in milliseconds, ``"BAg="`` a decimal number. Without a schema,
options give the connector's configuration (``decimal.handling.mode`` and the like); without these,
a value is accepted only if it can be read in one way: nothing is guessed.

A time without a unit is in microseconds if it is beyond the year 9999 in milliseconds, and in
nanoseconds if it is beyond it in microseconds. A smaller one is rejected, except in a column whose
declared precision implies the unit.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types as t

from headrace.io.formats.captured import KEPT
from headrace.io.formats.values import (
    RejectedValueError,
    field_of,
    from_json,
    is_number_text,
    out_of_range,
    refuse,
    type_name,
)
from headrace.types import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headrace.io.formats.values import Converter


PLACEHOLDER: Final = "__debezium_unavailable_value"


class Decimals(StrEnum):
    """Debezium's ``decimal.handling.mode``."""

    PRECISE = "precise"
    STRING = "string"
    DOUBLE = "double"


class Times(StrEnum):
    """Debezium's ``time.precision.mode``."""

    ADAPTIVE = "adaptive"
    ADAPTIVE_TIME_MICROSECONDS = "adaptive_time_microseconds"
    CONNECT = "connect"
    ISOSTRING = "isostring"
    MICROSECONDS = "microseconds"
    NANOSECONDS = "nanoseconds"


class Binaries(StrEnum):
    """Debezium's ``binary.handling.mode``."""

    BYTES = "bytes"
    BASE64 = "base64"
    BASE64_URL_SAFE = "base64-url-safe"
    HEX = "hex"


@dataclass(frozen=True, slots=True)
class Encoding:
    """The connector's configuration, as far as it is known, and declared precisions.

    ``precisions`` are the fractional digits of columns declared as ``TIMESTAMP(n)``, by name.
    """

    decimals: Decimals | None = None
    times: Times | None = None
    binaries: Binaries = Binaries.BYTES
    placeholder: str = PLACEHOLDER
    precisions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Semantic:
    """The type of a value in its source: Kafka Connect's type, and its semantic type name."""

    kind: str
    name: str = ""
    scale: int | None = None
    items: Semantic | None = None
    fields: Mapping[str, Semantic] = field(default_factory=dict)

    @classmethod
    def of(cls, schema: Any) -> Semantic | None:
        """Return the type described by a schema in JSON; None if there is no schema."""
        if not isinstance(schema, dict) or not isinstance(schema.get("type"), str):
            return None
        parameters, fields = schema.get("parameters"), schema.get("fields")
        scale = str(parameters.get("scale", "")) if isinstance(parameters, dict) else ""
        digits = scale.removeprefix("-")
        known = digits.isascii() and digits.isdigit() and len(digits) <= _SCALE_DIGITS
        inner = {
            str(each["field"]).casefold(): found
            for each in (fields if isinstance(fields, list) else ())
            if isinstance(each, dict) and "field" in each and (found := cls.of(each)) is not None
        }
        name = schema.get("name")
        return cls(
            schema["type"],
            name if isinstance(name, str) else "",
            int(scale) if known else None,
            cls.of(schema.get("items")),
            inner,
        )


_SCALE_DIGITS: Final = 4
_LARGEST_SCALE: Final = 9999
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_DATES: Final = frozenset({"io.debezium.time.Date", "org.apache.kafka.connect.data.Date"})
_TIMESTAMPS: Final = {
    "io.debezium.time.Timestamp": 1_000,
    "org.apache.kafka.connect.data.Timestamp": 1_000,
    "io.debezium.time.MicroTimestamp": 1,
    "io.debezium.time.NanoTimestamp": -1_000,
}
"""The microseconds in a unit of a time, by its name; negative, the units in a microsecond."""
_OF_DAY: Final = {
    "io.debezium.time.Time": 1_000_000,
    "org.apache.kafka.connect.data.Time": 1_000_000,
    "io.debezium.time.MicroTime": 1_000,
    "io.debezium.time.NanoTime": 1,
}
"""The nanoseconds in a unit of a time of day."""
_UNITS: Final = {Times.CONNECT: 1_000, Times.MICROSECONDS: 1, Times.NANOSECONDS: -1_000}
_ADAPTIVE: Final = (Times.ADAPTIVE, Times.ADAPTIVE_TIME_MICROSECONDS)
_ISO: Final = frozenset({"io.debezium.time.IsoDate", "io.debezium.time.IsoTimestamp"})
_ISO_TIME: Final = "io.debezium.time.IsoTime"
_MILLISECONDS, _MICROSECONDS, _NANOSECONDS = 3, 6, 9
"""The largest number of digits for which adaptive precision uses each unit."""
_NANOSECONDS_OF_DAY: Final = 86_400_000_000_000
_MICROSECONDS_OF_DAY: Final = 86_400_000_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The days from 0001-01-01 to 9999-12-31, from 1970-01-01 on."""
_LAST_MILLISECOND: Final = 253_402_300_799_999
_LAST_MICROSECOND: Final = _LAST_MILLISECOND * 1_000 + 999


def converters_of(
    columns: Iterable[Column], row: Semantic | None, encoding: Encoding
) -> dict[str, Converter]:
    """Return the converter of each column, by name, for rows of a type."""
    known = {} if row is None else row.fields
    return {
        column.name: _kept_or(
            column, encoding, _converter(column, known.get(column.name.casefold()), encoding)
        )
        for column in columns
    }


def _kept_or(column: Column, encoding: Encoding, convert: Converter) -> Converter:
    """Return a converter that recognises the placeholder of an unchanged value."""
    text = encoding.placeholder
    letters = text.encode()
    match column.type:
        case t.BinaryType():
            shown = [text, base64.b64encode(letters).decode(), letters.hex()]
            shown.append(base64.urlsafe_b64encode(letters).decode())
            placeholders: list[Any] = shown
        case t.ArrayType():
            placeholders = [[text], list(letters)]
        case t.MapType():
            placeholders = [{text: text}]
        case _:
            placeholders = [text]
    return lambda value: KEPT if value in placeholders else convert(value)


def _converter(column: Column, semantic: Semantic | None, encoding: Encoding) -> Converter:
    """Return the converter of a column's values; ``semantic`` is their type, if known."""
    plain = from_json(column)
    match column.type:
        case t.ArrayType():
            inner = Column(column.name, column.type.elementType)
            item = _converter(inner, None if semantic is None else semantic.items, encoding)
            return _of_array(column.type, item)
        case t.StructType():
            return _of_struct(column.type, semantic, encoding)
        case t.NumericType():
            return _of_number(column.type, semantic, encoding, plain)
        case t.DateType():
            return _of_date(column.type, semantic, plain)
        case t.TimestampType() | t.TimestampNTZType():
            return _of_time(column, semantic, encoding, plain)
        case t.TimeType():
            return _of_day(column.type, semantic, plain)
        case t.BinaryType():
            return _of_binary(column.type, encoding.binaries)
        case t.BooleanType():
            return lambda value: bool(value) if value in (0, 1) else plain(value)
        case t.StringType():
            return _of_text(column.type, semantic, plain)
    return plain


# -- numbers --------------------------------------------------------------------------------


def _of_number(
    data_type: t.NumericType, semantic: Semantic | None, encoding: Encoding, plain: Converter
) -> Converter:
    declared = data_type.scale if isinstance(data_type, t.DecimalType) else 0
    scaled = isinstance(data_type, t.DecimalType | t.IntegralType)

    def convert(value: Any) -> Any:
        if isinstance(value, dict):
            return plain(_with_scale(value, data_type))
        if not isinstance(value, str):
            return plain(value)
        if semantic is not None:
            if semantic.kind != "bytes":
                return plain(value)
            return plain(_scaled(value, declared if semantic.scale is None else semantic.scale))
        if encoding.decimals is Decimals.PRECISE:
            if not scaled:
                raise RejectedValueError(
                    f'"{value}" is the binary form of a number whose scale is not known'
                )
            return plain(_scaled(value, declared))
        if encoding.decimals is None and _is_base64(value):
            if is_number_text(value):
                raise RejectedValueError(
                    f'"{value}" may be a number, or the binary form of another: set'
                    " 'debezium.decimal-handling-mode'"
                )
            if scaled:
                return plain(_scaled(value, declared))
        return plain(value)

    return convert


def _with_scale(value: Mapping[str, Any], data_type: t.DataType) -> Decimal:
    """Return a number that is sent with its scale: ``{"scale": 2, "value": "BAg="}``."""
    scale, text = value.get("scale"), value.get("value")
    if type(scale) is not int or abs(scale) > _LARGEST_SCALE or not isinstance(text, str):
        raise refuse(value, data_type)
    return _scaled(text, scale)


def _scaled(text: str, scale: int) -> Decimal:
    """Return the number of an unscaled value: two's complement, big-endian, in base64."""
    raw = _base64(text)
    if not raw:
        raise RejectedValueError("no bytes are no number")
    unscaled = int.from_bytes(raw, "big", signed=True)
    digits = tuple(int(digit) for digit in str(abs(unscaled)))
    return Decimal((int(unscaled < 0), digits, -scale))


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RejectedValueError(f'"{text[:60]}" is not base64') from error


def _is_base64(text: str) -> bool:
    try:
        return bool(_base64(text))
    except RejectedValueError:
        return False


# -- times ----------------------------------------------------------------------------------


def _of_date(data_type: t.DateType, semantic: Semantic | None, plain: Converter) -> Converter:
    unit = None if semantic is None else _TIMESTAMPS.get(semantic.name)

    def convert(value: Any) -> Any:
        if type(value) is not int:
            iso = semantic is not None and semantic.name in _ISO
            return plain(value.removesuffix("Z") if iso and isinstance(value, str) else value)
        if unit is not None:
            days, rest = divmod(_micros(value, unit), _MICROSECONDS_OF_DAY)
            if rest:
                raise refuse(value, data_type)
        elif semantic is None or semantic.name in _DATES:
            days = value
        else:
            raise refuse(value, data_type)
        if not _FIRST_DAY <= days <= _LAST_DAY:
            raise out_of_range(value, data_type)
        return days

    return convert


def _of_time(
    column: Column, semantic: Semantic | None, encoding: Encoding, plain: Converter
) -> Converter:
    unit_of = _unit_by_option(column, encoding) if semantic is None else _unit_of(semantic, column)
    local = isinstance(column.type, t.TimestampNTZType)

    def convert(value: Any) -> Any:
        if type(value) is not int:
            iso = local and semantic is not None and semantic.name in _ISO
            return plain(value.removesuffix("Z") if iso and isinstance(value, str) else value)
        micros = _micros(value, unit_of(value))
        if not _FIRST_DAY <= micros // _MICROSECONDS_OF_DAY <= _LAST_DAY:
            raise out_of_range(value, column.type)
        return micros

    return convert


def _unit_of(semantic: Semantic, column: Column) -> Callable[[int], int]:
    unit = _MICROSECONDS_OF_DAY if semantic.name in _DATES else _TIMESTAMPS.get(semantic.name)

    def found(value: int) -> int:
        if unit is None:
            raise refuse(value, column.type)
        return unit

    return found


def _unit_by_option(column: Column, encoding: Encoding) -> Callable[[int], int]:
    """Return the unit of a time by options, declared precision, or the number's magnitude."""
    if encoding.times in _UNITS:
        unit = _UNITS[encoding.times]
        return lambda _value: unit
    precision = encoding.precisions.get(column.name)
    if encoding.times in _ADAPTIVE and precision is not None:
        unit = _unit_of_precision(precision)
        return lambda _value: unit

    def found(value: int) -> int:
        if abs(value) > _LAST_MICROSECOND:
            return -1_000
        if abs(value) > _LAST_MILLISECOND:
            return 1
        if precision is not None and precision <= _MILLISECONDS and encoding.times is None:
            return 1_000
        raise RejectedValueError(
            f"{value} has no unit: set 'debezium.time-precision-mode', or declare the column as"
            f" {type_name(column.type)}(3) for milliseconds"
        )

    return found


def _unit_of_precision(digits: int) -> int:
    if digits <= _MILLISECONDS:
        return 1_000
    return 1 if digits <= _MICROSECONDS else -1_000


def _micros(value: int, unit: int) -> int:
    """Return a time in microseconds, truncating smaller digits, as for text."""
    return value * unit if unit > 0 else value // -unit


def _of_text(data_type: t.StringType, semantic: Semantic | None, plain: Converter) -> Converter:
    """Return the converter to text, also for times of day and numbers in other encodings."""
    name = "" if semantic is None else semantic.name

    def convert(value: Any) -> Any:
        if name in _OF_DAY and type(value) is int:
            return _time_of_day(value * _OF_DAY[name], data_type)
        if name == _DECIMAL and semantic is not None and isinstance(value, str):
            return str(_scaled(value, semantic.scale or 0))
        return plain(value)

    return convert


def _of_day(data_type: t.TimeType, semantic: Semantic | None, plain: Converter) -> Converter:
    """Return the converter of a time of day: a number whose unit is known, or a text.

    A number without a schema has no unit; a text with a time zone is rejected.
    """
    name = "" if semantic is None else semantic.name

    def convert(value: Any) -> Any:
        if type(value) is not int:
            iso = name == _ISO_TIME and isinstance(value, str)
            return plain(value.removesuffix("Z") if iso else value)
        if name not in _OF_DAY:
            raise RejectedValueError(f"{value} has no unit: it is known from messages with schemas")
        nanoseconds = value * _OF_DAY[name]
        if not 0 <= nanoseconds < _NANOSECONDS_OF_DAY:
            raise out_of_range(value, data_type)
        unit = 10 ** (_NANOSECONDS - data_type.precision)
        return nanoseconds // unit * unit

    return convert


def _time_of_day(nanoseconds: int, data_type: t.DataType) -> str:
    if not 0 <= nanoseconds <= _NANOSECONDS_OF_DAY:
        raise out_of_range(nanoseconds, data_type)
    seconds, below = divmod(nanoseconds, 1_000_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{below:09}".rstrip("0") if below else text


# -- bytes, and values of several parts ------------------------------------------------------


def _of_binary(data_type: t.BinaryType, mode: Binaries) -> Converter:
    def convert(value: Any) -> bytes:
        if not isinstance(value, str):
            raise refuse(value, data_type)
        if mode is not Binaries.HEX:
            urlsafe = mode is Binaries.BASE64_URL_SAFE
            return _base64(value.replace("-", "+").replace("_", "/") if urlsafe else value)
        try:
            return binascii.unhexlify(value)
        except (binascii.Error, ValueError) as error:
            raise RejectedValueError(f'"{value[:60]}" is not hexadecimal') from error

    return convert


def _of_array(data_type: t.ArrayType, item: Converter) -> Converter:
    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise refuse(value, data_type)
        return [None if each is None else item(each) for each in value]

    return convert


def _of_struct(data_type: t.StructType, semantic: Semantic | None, encoding: Encoding) -> Converter:
    known = {} if semantic is None else semantic.fields
    items = {
        f.name: _converter(Column(f.name, f.dataType), known.get(f.name.casefold()), encoding)
        for f in data_type.fields
    }

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise refuse(value, data_type)
        found = {name: field_of(value, name) for name in items}
        return {n: None if inner is None else items[n](inner) for n, inner in found.items()}

    return convert
