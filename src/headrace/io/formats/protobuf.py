"""Protobuf messages to rows, by the descriptors of the writer's file.

A column takes the field of its name, in any case; a column without a field is NULL, as is an absent
optional field. A field that cannot be absent has its default. Values follow the rule of
:mod:`headrace.io.formats.fitting`. An enum is its symbol, ``google.protobuf.Timestamp`` a time,
``google.type.Date`` a date, a wrapper its value or NULL, ``confluent.type.Decimal`` a decimal.

The library parses each message; their values are converted to columns together.

Protobuf schemas to descriptors: from a registry's serialised files, or compiled from text.

Messages that name their schema by its id in a schema registry: a zero byte, then four id bytes.

Each message is decoded with the schema that it was written with, so a topic may hold messages of
many versions. A message with an unknown id is a reject; a registry that does not answer delays the
source.
"""

from __future__ import annotations

import base64
import binascii
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import types as t

from headrace.errors import Code, HeadraceError
from headrace.io.formats.literals import fitted_objects
from headrace.io.formats.messages import Messages, messages_of, shown
from headrace.io.formats.values import RejectedValueError, place_of, type_name
from headrace.storage.ledger import Reject

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from headrace.types import Schema


_COMPILE_SECONDS: Final = 30
_FILE: Final = "__message__.proto"
"""The name given to a registered file; the files that it imports have names."""
_KNOWN: Final = {
    **{
        f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2"
        for name in ("any", "descriptor", "duration", "empty", "struct", "timestamp", "wrappers")
    },
    **{
        f"confluent/{name}.proto": "confluent_kafka.schema_registry.confluent."
        f"{name.replace('/', '.')}_pb2"
        for name in ("meta", "type/decimal")
    },
}
"""The files that schemas import without a reference, and the modules that define them."""


def described(registered: RegisteredSchema) -> Any:
    """Return the descriptor of a registered file.

    Raises:
        RejectedValueError: if it is not a Protobuf schema.
        HeadraceError: ``invalid`` if a required library is not installed.
    """
    libraries = _libraries()
    texts = {**dict(registered.references), _FILE: registered.text}
    files = [_serialized(libraries, name, text) for name, text in texts.items()]
    if None in files:
        files = _compiled(libraries, texts)
    pool = libraries.descriptor_pool.DescriptorPool()
    added: set[str] = set()
    try:
        for each in files:
            _add_known(pool, each.dependency, added)
            if each.name not in added:
                added.add(each.name)
                pool.Add(each)
        return pool.FindFileByName(_FILE)
    except (TypeError, KeyError) as error:
        raise RejectedValueError(f"its schema is not one of Protobuf: {error}") from error


def _serialized(libraries: Any, name: str, text: str) -> Any:
    """Return a file given in serialised form, in base64; None if it is text."""
    try:
        found = libraries.descriptor_pb2.FileDescriptorProto.FromString(
            base64.b64decode(text, validate=True)
        )
    except (binascii.Error, ValueError, libraries.message.DecodeError):
        return None
    found.name = name
    return found


def _add_known(pool: Any, names: Iterable[str], added: set[str]) -> None:
    for name in names:
        if name in _KNOWN and name not in added:
            added.add(name)
            file = import_module(_KNOWN[name]).DESCRIPTOR
            _add_known(pool, [each.name for each in file.dependencies], added)
            pool.AddSerializedFile(file.serialized_pb)


def _compiled(libraries: Any, texts: dict[str, str]) -> list[Any]:
    """Compile files given as text, with their imports; return them, dependencies first.

    The compiler runs in a child process, because it reports errors only on its output.
    """
    try:
        import grpc_tools  # noqa: PLC0415
    except ImportError as error:
        raise HeadraceError(
            Code.INVALID,
            "the compiler of Protobuf schemas is not installed",
            "The registry gives schemas as text.",
            'Install it: pip install "headrace[protobuf]".',
        ) from error
    with TemporaryDirectory() as folder:
        for name, text in texts.items():
            path = (Path(folder) / name).resolve()
            if not path.is_relative_to(Path(folder).resolve()):
                raise RejectedValueError(f'its schema imports "{name}"')
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        known = Path(grpc_tools.__file__).parent / "_proto"
        out = Path(folder) / "__descriptors__"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"-I{known}"]
        command += ["--include_imports", f"--descriptor_set_out={out}", _FILE]
        done = subprocess.run(  # noqa: S603 (a fixed command, with checked names)
            command, capture_output=True, text=True, check=False, timeout=_COMPILE_SECONDS
        )
        if done.returncode:
            said = done.stderr.replace(f"{folder}/", "").strip()
            raise RejectedValueError(f"its schema is not one of Protobuf: {said}")
        return list(libraries.descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file)


def _libraries() -> Any:
    """Return the library's package, with the modules that are used here.

    Raises:
        HeadraceError: ``invalid`` if it is not installed.
    """
    try:
        from google import protobuf  # noqa: PLC0415
        from google.protobuf import (  # noqa: F401, PLC0415
            descriptor_pb2,
            descriptor_pool,
            message,
            message_factory,
        )
    except ImportError as error:
        raise HeadraceError(
            Code.INVALID,
            "the library for Protobuf is not installed",
            f"{error}.",
            'Install it: pip install "headrace[protobuf]".',
        ) from error
    return protobuf


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
    known = _PROTOBUF_KNOWN.get(field.message_type.full_name)
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


_PROTOBUF_KNOWN: Final[dict[str, Taker]] = {
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


HEADER: Final = 5
"""The bytes before a value: the magic byte and the id."""
_NO_ID: Final = -1
_SHORT: Final = b"\xff" * HEADER
"""Replaces the header of a value that is too short to have one."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of a registry: its text, and the schemas that it imports, by name.

    ``kind`` is AVRO, PROTOBUF or JSON. References are ordered, dependencies first.
    """

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


class SchemaRegistry(Protocol):
    """Looks up schemas."""

    def schema(self, id_: int) -> RegisteredSchema | None:
        """Return the schema with an id; None if it does not exist.

        Raises:
            HeadraceError: ``unavailable`` if the registry does not answer.
        """
        ...

    def latest(self, subject: str) -> RegisteredSchema | None:
        """Return the newest schema of a subject; None if it has none.

        Raises:
            HeadraceError: ``unavailable`` if the registry does not answer.
        """
        ...


class Payloads(Protocol):
    """Decodes values that were written with one schema, after their header."""

    def decode(self, values: Sequence[bytes], start: int) -> Messages:
        """Return the rows of values; each payload begins at the byte ``start``."""
        ...


class RegisteredMessages:
    """Decodes messages, each with its own schema.

    ``compiled`` returns the decoder of a schema, or raises :class:`RejectedValueError`.
    """

    def __init__(
        self,
        schema: Schema,
        registry: SchemaRegistry,
        kind: str,
        compiled: Callable[[RegisteredSchema], Payloads],
    ) -> None:
        self._schema = schema
        self._registry = registry
        self._kind = kind
        self._compiled = compiled
        self._decoders: dict[int, Payloads | RejectedValueError] = {}

    def decode(self, values: Sequence[bytes]) -> Messages:
        """Return the rows of values; one that does not fit its schema or columns is a reject.

        Raises:
            HeadraceError: ``unavailable`` if a schema is needed, and the registry does not answer.
        """
        ids = _ids(values)
        found = np.unique(ids)
        if len(found) == 1:
            return self._of_id(int(found[0]), values)
        parts = []
        for id_ in found.tolist():
            places = np.flatnonzero(ids == id_)
            part = self._of_id(id_, [values[place] for place in places.tolist()])
            parts.append((places, part))
        return _merged(parts, self._schema)

    def _of_id(self, id_: int, values: Sequence[bytes]) -> Messages:
        """Return the rows of values with the same schema id."""
        decoder = self._decoder(id_)
        if not isinstance(decoder, RejectedValueError):
            return decoder.decode(values, HEADER)
        rejects = tuple(
            Reject("", at, None, str(decoder), shown(value)) for at, value in enumerate(values)
        )
        return Messages(self._schema.arrow.empty_table(), np.zeros(0, np.int64), rejects)

    def _decoder(self, id_: int) -> Payloads | RejectedValueError:
        if id_ == _NO_ID:
            return RejectedValueError("it does not begin with the id of a schema")
        if id_ not in self._decoders:
            registered = self._registry.schema(id_)
            if registered is None:  # not kept: it may be registered later
                return RejectedValueError(f"the registry has no schema {id_}")
            self._decoders[id_] = self._made(id_, registered)
        return self._decoders[id_]

    def _made(self, id_: int, registered: RegisteredSchema) -> Payloads | RejectedValueError:
        if registered.kind != self._kind:
            return RejectedValueError(
                f"schema {id_} is of kind {registered.kind}, not {self._kind}"
            )
        try:
            return self._compiled(registered)
        except RejectedValueError as refused:
            return RejectedValueError(f"schema {id_}: {refused}")


def _ids(values: Sequence[bytes]) -> NDArray[np.int64]:
    """Return the schema id of each value, -1 if it has none."""
    heads = b"".join([v[:HEADER] if len(v) >= HEADER else _SHORT for v in values])
    table = np.frombuffer(heads, np.uint8).reshape(-1, HEADER)
    ids = np.ascontiguousarray(table[:, 1:]).view(">u4")[:, 0].astype(np.int64)
    return np.where(table[:, 0] == 0, ids, _NO_ID)


def _merged(parts: Sequence[tuple[NDArray[np.int64], Messages]], schema: Schema) -> Messages:
    """Merge messages that were decoded in groups; each group has the indexes of its messages."""
    tables = [schema.arrow.empty_table(), *(part.rows for _, part in parts)]
    kept = np.concatenate([np.zeros(0, np.int64), *(p[part.kept] for p, part in parts)])
    order = np.argsort(kept)
    rejects = [
        Reject("", int(places[each.line]), each.column, each.reason, each.raw)
        for places, part in parts
        for each in part.rejects
    ]
    return Messages(
        pa.concat_tables(tables).take(pa.array(order)),
        kept[order],
        tuple(sorted(rejects, key=lambda each: each.line)),
    )
