"""Protobuf messages to rows, by the descriptors of the writer's file.

A column takes the field of its name, in any case; a column without a field is NULL, as is an absent
optional field. A field that cannot be absent has its default. Values follow the rule of
:mod:`headrace.formats.fitting`. An enum is its symbol, ``google.protobuf.Timestamp`` a time,
``google.type.Date`` a date, a wrapper its value or NULL, ``confluent.type.Decimal`` a decimal.

The library parses each message; their values are converted to columns together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql import types as t

from headrace.formats.fitting_objects import fitted_objects
from headrace.formats.messages import messages_of
from headrace.formats.protobuf_files import described
from headrace.formats.values import RejectedValueError, place_of, type_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.formats.messages import Messages
    from headrace.formats.registered import RegisteredSchema
    from headrace.types import Schema

Taker: TypeAlias = Callable[[Any], Any]
"""Reads a column's value from a parsed message, as a Python object; None is NULL."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_VARINT: Final = 10
_FIRST: Final = (0,)


class ProtobufMessages:
    """Decodes messages of one registered file, which may define many types.

    A value begins with the path of its type in the file: the number of indexes, then each index,
    the next one within the type before.

    Raises:
        RejectedValueError: if it is not a Protobuf schema.
        HeadraceError: ``invalid`` if a required library is not installed.
    """

    def __init__(self, registered: RegisteredSchema, schema: Schema) -> None:
        from google.protobuf import message, message_factory  # noqa: PLC0415

        self._file = described(registered)
        self._schema = schema
        self._class_of = message_factory.GetMessageClass
        self._damaged = message.DecodeError
        self._types: dict[tuple[int, ...], tuple[Any, dict[str, Taker]]] = {}

    def decode(self, values: Sequence[bytes], start: int) -> Messages:
        """Return the rows of values; each message begins at the byte ``start``."""
        problems: dict[int, dict[str | None, str]] = defaultdict(dict)
        found: dict[str, list[Any]] = {name: [None] * len(values) for name in self._schema.names}
        for row, value in enumerate(values):
            try:
                places, begin = _places(value, start)
                parse, takers = self._type(places)
                parsed = parse(value[begin:])
            except self._damaged:
                problems[row][None] = "it is not a message of its type"
                continue
            except RejectedValueError as refused:
                problems[row][None] = str(refused)
                continue
            for name, take in takers.items():
                try:
                    found[name][row] = take(parsed)
                except (RejectedValueError, OverflowError, ValueError) as error:
                    problems[row].setdefault(name, str(error))
        columns = {}
        for column in self._schema.columns:
            fitted = fitted_objects(found[column.name], column.type)
            columns[column.name] = fitted.values
            for row, reason in fitted.refused.items():
                problems[row].setdefault(column.name, str(reason))
        return messages_of(values, columns, problems, self._schema)

    def _type(self, places: tuple[int, ...]) -> tuple[Any, dict[str, Taker]]:
        """Return the parser of a message type, and the reader of each column's field."""
        if places not in self._types:
            types = list(self._file.message_types_by_name.values())
            described_type = None
            for place in places:
                if not 0 <= place < len(types):
                    raise RejectedValueError(f"its schema has no type {'.'.join(map(str, places))}")
                described_type = types[place]
                types = list(described_type.nested_types)
            takers = _fields(
                described_type, {column.name: column.type for column in self._schema.columns}
            )
            if not takers:
                raise RejectedValueError("none of the columns is in its schema")
            self._types[places] = (self._class_of(described_type).FromString, takers)
        return self._types[places]


def _places(value: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Return the path of a value's type, and the position where the message begins."""
    count, at = _zigzag(value, start)
    if count == 0:
        return _FIRST, at
    if not 0 < count <= len(value):
        raise RejectedValueError("the place of its type is damaged")
    places = []
    for _ in range(count):
        place, at = _zigzag(value, at)
        places.append(place)
    return tuple(places), at


def _zigzag(value: bytes, at: int) -> tuple[int, int]:
    found = 0
    for shift, octet in enumerate(value[at : at + _LONGEST_VARINT]):
        found |= (octet & 0x7F) << (7 * shift)
        if octet < 0x80:  # noqa: PLR2004
            return (found >> 1) ^ -(found & 1), at + shift + 1
    raise RejectedValueError("the place of its type is damaged")


def _fields(message: Any, wanted: dict[str, t.DataType]) -> dict[str, Taker]:
    """Return a reader for each of the wanted names that is a field of a type."""
    fields = list(message.fields)
    names = [field.name for field in fields]
    found = {}
    for name, data_type in wanted.items():
        place = place_of(name, names)
        if place is not None:
            found[name] = _field(fields[place], data_type)
    return found


def _field(field: Any, wanted: t.DataType) -> Taker:
    name = field.name
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _map(field, wanted)
    one = _value(field, wanted.elementType if isinstance(wanted, t.ArrayType) else wanted)
    if field.is_repeated:
        if not isinstance(wanted, t.ArrayType):
            return _unfit("a repeated field", wanted)
        return lambda message: [one(each) for each in getattr(message, name)]
    if field.has_presence:
        return lambda message: one(getattr(message, name)) if message.HasField(name) else None
    return lambda message: one(getattr(message, name))


def _map(field: Any, wanted: t.DataType) -> Taker:
    if not isinstance(wanted, t.MapType):
        return _unfit("a map", wanted)
    name, entry = field.name, field.message_type.fields_by_name
    key, item = _value(entry["key"], wanted.keyType), _value(entry["value"], wanted.valueType)
    return lambda message: {key(k): item(v) for k, v in getattr(message, name).items()}


def _value(field: Any, wanted: t.DataType) -> Taker:
    """Return a reader of a field's value, whether singular or repeated."""
    if field.enum_type is not None:
        symbols = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        return lambda number: _symbol(symbols, number)
    if field.message_type is None:
        return _same
    known = _KNOWN.get(field.message_type.full_name)
    if known is not None and not isinstance(wanted, t.StructType):
        return known
    if not isinstance(wanted, t.StructType):
        return _unfit(f"a message of type {field.message_type.full_name}", wanted)
    takers = _fields(field.message_type, {each.name: each.dataType for each in wanted.fields})
    return lambda message: {name: take(message) for name, take in takers.items()}


def _unfit(what: str, wanted: t.DataType) -> Taker:
    reason = f"{what} is not of type {type_name(wanted)}"

    def take(_message: Any) -> Any:
        raise RejectedValueError(reason)

    return take


def _same(value: Any) -> Any:
    return value


def _symbol(symbols: dict[int, str], number: int) -> str:
    if number not in symbols:
        raise RejectedValueError(f"its enum has no symbol {number}")
    return symbols[number]


def _time(message: Any) -> datetime:
    return _EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)


def _decimal(message: Any) -> Decimal:
    unscaled = int.from_bytes(message.value, "big", signed=True)
    return Decimal(f"{unscaled}E{-message.scale}")


_KNOWN: Final[dict[str, Taker]] = {
    "google.protobuf.Timestamp": _time,
    "google.type.Date": lambda message: date(message.year, message.month, message.day),
    "confluent.type.Decimal": _decimal,
    **{
        f"google.protobuf.{kind}Value": lambda message: message.value
        for kind in (
            *("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64"),
        )
    },
}
"""Well-known types, by name; in a STRUCT column, they are read field by field."""
