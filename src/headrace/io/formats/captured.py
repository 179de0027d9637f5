"""Captured changes: the effect of a source's inserts, updates, deletes and truncates on its copy.

With a primary key, the last change of a key wins, whatever the row was before, so a change that is
delivered again does no harm; an update that moves a row deletes its former key. Without one, an
update or deletion removes a row that equals its image before, and is rejected if there is none. A
column ``op`` has the operation that last wrote the row, and is ignored when rows are compared. All
formats have this meaning; they differ only in how they write a :class:`Change`.

Changes of MySQL in the JSON formats of Maxwell and Canal, interpreted as in Flink.

Maxwell writes one row per message, ``{"type": "update", "data": {...}, "old": {...}}``. Canal
writes several, ``{"type": "UPDATE", "data": [{...}], "old": [{...}]}``, with all values as text.
``old`` has the former values of the changed columns. Other messages, about tables and the bounds of
bootstraps, make no change, except for Canal's TRUNCATE.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import types as t

from headrace.io.formats.blocks import together
from headrace.io.formats.json_lines import object_of
from headrace.io.formats.messages import payload
from headrace.io.formats.upserts import DecodedChanges
from headrace.io.formats.values import RejectedValueError, field_of, from_json, refuse, writable
from headrace.storage.ledger import Reject
from headrace.types import Schema

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.io.formats.values import Converter
    from headrace.types import Column


OP: Final = "op"
"""The column that has the operation, in any case."""


_LAST_MICROSECOND: Final = 253_402_300_799_999_999
"""The end of the year 9999."""


class _Kept:
    """The value of an unchanged cell that the source did not send."""

    def __repr__(self) -> str:
        return "KEPT"


KEPT: Final = _Kept()
"""The value that a converter returns for an unchanged cell."""


class BadMessage(Exception):  # noqa: N818 - a verdict on a message
    """A message that is not a valid change, with the reason and the column concerned."""

    def __init__(self, reason: str, column: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.column = column


@dataclass(frozen=True, slots=True)
class CapturedChange:
    """One change: ``op`` is c (created), r (read), u (updated), d (deleted) or t (truncated).

    ``before`` and ``after`` are rows by field, None where the source sent none; ``converters``
    convert their values to those of columns. A deletion may lack all but the key. ``message`` is
    the message that contained the change.
    """

    op: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    converters: Mapping[str, Converter]
    message: dict[str, Any] | None = None


class Origin(NamedTuple):
    """The path in a message to a value about the change's origin, such as its time.

    A time is a number of units of ``micros`` microseconds; anything else is text.
    """

    path: tuple[str, ...]
    micros: int | None = None

    def of(self, message: dict[str, Any] | None) -> Any:
        """Return the value, NULL if the message has no value of that kind."""
        found: Any = message
        for name in self.path:
            found = found.get(name) if isinstance(found, dict) else None
        if self.micros is None:
            return writable(found) if isinstance(found, str) else None
        if type(found) is not int or abs(found) * self.micros > _LAST_MICROSECOND:
            return None
        return found * self.micros


class Capture(Protocol):
    """A format of captured changes."""

    def changes(self, key: bytes | None, value: bytes | None) -> Iterable[CapturedChange]:
        """Return the changes of a message; empty if it is about something else.

        Raises:
            BadMessage, RejectedValueError: if it is malformed.
        """
        ...

    def transaction(self, value: bytes) -> str | None:
        """Return the source transaction that may continue after a message; None if unknown."""
        ...


@dataclass(frozen=True, slots=True)
class CapturedMessages:
    """Decodes messages of captured changes; a :class:`headrace.io.formats.upserts.ChangeDecoder`.

    Rows have the columns of ``schema``, ``key`` is the primary key or empty; ``origins`` are
    columns that come from the message instead of its images.
    """

    schema: Schema
    key: tuple[str, ...]
    capture: Capture
    origins: Mapping[str, Origin] = field(default_factory=dict)
    reads_keys: ClassVar[bool] = True
    reads_lines: ClassVar[bool] = False

    def changes(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None]
    ) -> DecodedChanges:
        """Return the changes of messages; a message is accepted or rejected as a whole."""
        images = _Images(self.schema, self.key, self.origins)
        made = _Made(len(self.schema.columns))
        rejects: list[Reject] = []
        for at, (key, value) in enumerate(zip(keys, values, strict=True)):
            try:
                steps = [
                    step
                    for change in self.capture.changes(key, value)
                    for step in images.steps(change)
                ]
            except BadMessage as bad:
                reason = writable(bad.reason)
                rejects.append(Reject("", at, bad.column, reason, payload(value)))
            except RejectedValueError as refused:
                reason = writable(str(refused))
                rejects.append(Reject("", at, None, reason, payload(value)))
            else:
                for step in steps:
                    made.add(at, step)
        return made.changes(self.schema, tuple(rejects))

    def transaction(self, value: bytes) -> str | None:
        """Return the source transaction that may continue after a message; None if unknown."""
        return self.capture.transaction(value)


def image_schema(schema: Schema, origins: Iterable[str] = ()) -> Schema:
    """Return the columns of a change's images: the schema without ``origins``."""
    others = set(origins)
    columns = (c for c in schema.columns if c.name not in others)
    return Schema(tuple(c for c in columns if c.name.lower() != OP))


@dataclass(frozen=True, slots=True)
class _Step:
    """A row to insert or delete; ``values`` of None empty the table."""

    weight: int
    values: Sequence[Any] | None


_EMPTIED: Final = _Step(0, None)


class _Images:
    """Converts the images of changes to rows."""

    def __init__(self, schema: Schema, key: tuple[str, ...], origins: Mapping[str, Origin]) -> None:
        self._columns = image_schema(schema, origins).columns
        self._key = [at for at, column in enumerate(self._columns) if column.name in key]
        self._others = [
            (place, origins.get(name))
            for place, name in enumerate(schema.names)
            if name in origins or name.lower() == OP
        ]

    def steps(self, change: CapturedChange) -> list[_Step]:
        """Return the steps of a change.

        Raises:
            BadMessage: if it lacks what it needs, or a value does not fit its column.
        """
        if change.op == "t":
            return [_EMPTIED]
        return self._by_key(change) if self._key else self._by_value(change)

    def _by_key(self, change: CapturedChange) -> list[_Step]:
        if change.op == "d":
            return [self._step(change, -1, self._require_key(change))]
        after = self._values(change, change.after, "after")
        for at in self._key:
            if after[at] is KEPT:
                raise BadMessage("the value of a key column is not in it", self._columns[at].name)
        self._fill(change, after)
        former, _ = self._key_of(change)
        moved = former is not None and any(former[at] != after[at] for at in self._key)
        gone = [self._step(change, -1, former)] if former is not None and moved else []
        return [*gone, self._step(change, 1, after)]

    def _by_value(self, change: CapturedChange) -> list[_Step]:
        steps = []
        if change.op in ("u", "d"):
            before = self._whole(change, change.before, "before")
            steps.append(self._step(change, -1, before))
        if change.op != "d":
            after = self._values(change, change.after, "after")
            self._fill(change, after)
            self._require_whole(after)
            steps.append(self._step(change, 1, after))
        return steps

    def _step(self, change: CapturedChange, weight: int, values: list[Any]) -> _Step:
        """Return a row with the columns that are not in its image.

        For a deleted row these are not compared; by key, they do not matter.
        """
        if not self._others:
            return _Step(weight, values)
        row = list(values)
        for place, origin in self._others:
            if weight < 0:
                row.insert(place, None if self._key else KEPT)
            else:
                row.insert(place, change.op if origin is None else origin.of(change.message))
        return _Step(weight, row)

    def _key_of(self, change: CapturedChange) -> tuple[list[Any] | None, str]:
        """Return a row with the key before a change, and NULL in all other columns.

        None if the key is unknown; the second value names what is missing.
        """
        if change.before is None:
            return None, "before"
        found: list[Any] = [None] * len(self._columns)
        for at in self._key:
            value = self._value(change, change.before, at)
            if value is None or value is KEPT:
                return None, self._columns[at].name
            found[at] = value
        return found, ""

    def _require_key(self, change: CapturedChange) -> list[Any]:
        former, missing = self._key_of(change)
        if former is None:
            raise BadMessage("the key of the deleted row is not in it", missing)
        return former

    def _fill(self, change: CapturedChange, after: list[Any]) -> None:
        """Copy unchanged cells from the image before, where it has them."""
        if change.before is None:
            return
        for at, value in enumerate(after):
            column = self._columns[at].name
            if value is KEPT and field_of(change.before, column) is not None:
                after[at] = self._value(change, change.before, at)

    def _whole(self, change: CapturedChange, image: dict[str, Any] | None, name: str) -> list[Any]:
        found = self._values(change, image, name)
        self._require_whole(found)
        return found

    def _require_whole(self, values: list[Any]) -> None:
        for column, value in zip(self._columns, values, strict=True):
            if value is KEPT:
                raise BadMessage(
                    "its value was not sent, and the row has no key to look it up by", column.name
                )

    def _values(self, change: CapturedChange, image: dict[str, Any] | None, name: str) -> list[Any]:
        if image is None:
            raise BadMessage(f"no {name} in a change with op {change.op}", name)
        values: list[Any] = []
        wrong: list[tuple[str, str]] = []
        for at, column in enumerate(self._columns):
            try:
                value = self._value(change, image, at)
            except BadMessage as bad:
                wrong.append((column.name, bad.reason))
                continue
            if value is None and image is change.after and not column.nullable:
                wrong.append((column.name, "NULL in a NOT NULL column"))
            values.append(value)
        names = {found.casefold() for found in image}
        if names.isdisjoint(column.name.casefold() for column in self._columns):
            raise BadMessage("none of the columns is in it", name)
        if wrong:
            columns, reason = together(wrong)
            raise BadMessage(reason, columns)
        return values

    def _value(self, change: CapturedChange, image: dict[str, Any], at: int) -> Any:
        name = self._columns[at].name
        try:
            value = field_of(image, name)
            return None if value is None else change.converters[name](value)
        except RejectedValueError as refused:
            raise BadMessage(str(refused), name) from refused


class _Made:
    """Collects the steps of messages as columns."""

    def __init__(self, columns: int) -> None:
        self._columns: list[list[Any]] = [[] for _ in range(columns)]
        self._weights: list[int] = []
        self._messages: list[int] = []
        self._emptied: list[int] = []

    def add(self, message: int, step: _Step) -> None:
        if step.values is None:
            self._emptied.append(len(self._weights))
            return
        for column, value in zip(self._columns, step.values, strict=True):
            column.append(value)
        self._weights.append(step.weight)
        self._messages.append(message)

    def changes(self, schema: Schema, rejects: tuple[Reject, ...]) -> DecodedChanges:
        arrays = []
        unchanged = {}
        for arrow, values in zip(schema.arrow, self._columns, strict=True):
            mask = np.fromiter((value is KEPT for value in values), bool, len(values))
            if mask.any():
                unchanged[arrow.name] = pa.array(mask)
                arrays.append(pa.array([None if v is KEPT else v for v in values], arrow.type))
            else:
                arrays.append(pa.array(values, arrow.type))
        return DecodedChanges(
            pa.table(arrays, schema=schema.arrow),
            np.array(self._weights, np.int64),
            np.array(self._messages, np.int64),
            rejects,
            unchanged,
            tuple(self._emptied),
        )


_MAXWELL: Final = {"insert": "c", "bootstrap-insert": "r", "update": "u", "delete": "d"}
_CANAL: Final = {"INSERT": "c", "UPDATE": "u", "DELETE": "d"}
_OTHER_MAXWELL: Final = frozenset(
    {
        "bootstrap-start",
        "bootstrap-complete",
        "database-alter",
        "database-create",
        "database-drop",
        "table-alter",
        "table-create",
        "table-drop",
    }
)
_OTHER_CANAL: Final = frozenset({"ALTER", "CINDEX", "CREATE", "DINDEX", "ERASE", "QUERY", "RENAME"})
"""The types of messages that do not change rows; ERASE is DROP TABLE."""
_PLACE: Final = {"value.database": Origin(("database",)), "value.table": Origin(("table",))}
MAXWELL_ORIGINS: Final = {**_PLACE, "value.ingestion-timestamp": Origin(("ts",), 1_000_000)}
CANAL_ORIGINS: Final = {
    **_PLACE,
    "value.ingestion-timestamp": Origin(("ts",), 1_000),
    "value.event-timestamp": Origin(("es",), 1_000),
}
"""The values of a message for METADATA columns, by Flink's names; Maxwell counts seconds."""
_TRUTH: Final = {"0": False, "1": True, "false": False, "true": True}


class Maxwell:
    """Reads Maxwell's messages; a :class:`headrace.io.formats.captured.Capture`."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._converters = {column.name: _of_maxwell(column) for column in columns}

    def changes(
        self,
        key: bytes | None,  # noqa: ARG002 - the row is in the value
        value: bytes | None,
    ) -> Iterable[CapturedChange]:
        """Return the change of a message; empty for a message without a change."""
        if value is None:
            return ()
        message = object_of(value)
        type_ = _type_of(message)
        if type_ in _OTHER_MAXWELL:
            return ()
        op = _op(_MAXWELL, type_)
        data = _row(message.get("data"), "data")
        old = {} if message.get("old") is None else _row(message["old"], "old")
        return (_change(message, op, data, old, self._converters),)

    def transaction(self, value: bytes) -> str | None:
        """Return the transaction of a message, unless it is its last."""
        try:
            message = object_of(value)
        except RejectedValueError:
            return None
        if message.get("commit") is True or "xid" not in message:
            return None
        return str(message["xid"])


class Canal:
    """Reads Canal's messages; a :class:`headrace.io.formats.captured.Capture`.

    Only messages of databases and tables whose full names match the patterns are read.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        database: re.Pattern[str] | None = None,
        table: re.Pattern[str] | None = None,
    ) -> None:
        self._converters = {column.name: _of_canal(column) for column in columns}
        self._included = [
            (name, pattern)
            for name, pattern in (("database", database), ("table", table))
            if pattern is not None
        ]

    def changes(
        self,
        key: bytes | None,  # noqa: ARG002 - the rows are in the value
        value: bytes | None,
    ) -> Iterable[CapturedChange]:
        """Return the changes of a message; empty for a message without a change."""
        if value is None:
            return ()
        message = object_of(value)
        for name, pattern in self._included:
            if not pattern.fullmatch(str(message.get(name, ""))):
                return ()
        type_ = _type_of(message)
        if type_ == "TRUNCATE":
            return (CapturedChange("t", None, None, {}),)
        if type_ in _OTHER_CANAL:
            return ()
        op = _op(_CANAL, type_)
        rows, olds = _rows(message.get("data"), "data"), message.get("old")
        befores = [{} for _ in rows] if olds is None else _rows(olds, "old")
        if len(befores) != len(rows):
            raise BadMessage(f"{len(befores)} rows in old, {len(rows)} in data", "old")
        pairs = zip(rows, befores, strict=True)
        return [_change(message, op, row, before, self._converters) for row, before in pairs]

    def transaction(self, value: bytes) -> str | None:  # noqa: ARG002 - it has none
        """Return None: Canal does not mark transactions that span messages."""
        return None


def _change(
    message: dict[str, Any],
    op: str,
    data: dict[str, Any],
    old: dict[str, Any],
    converters: Mapping[str, Converter],
) -> CapturedChange:
    if op == "d":
        return CapturedChange(op, data, None, converters, message)
    return CapturedChange(op, {**data, **old} if op == "u" else None, data, converters, message)


def _type_of(message: Mapping[str, Any]) -> str:
    type_ = message.get("type")
    if not isinstance(type_, str):
        raise BadMessage("no type of change is in it", "type")
    return type_


def _op(ops: Mapping[str, str], type_: str) -> str:
    if type_ not in ops:
        raise BadMessage(f"type {type_!r}: a change has one of {', '.join(ops)}", "type")
    return ops[type_]


def _row(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadMessage(f"{name} is not an object", name)
    return value


def _rows(value: Any, name: str) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise BadMessage(f"{name} is not a list", name)
    return [{} if each is None else _row(each, name) for each in value]


def _of_maxwell(column: Column) -> Converter:
    """Return the converter of a Maxwell value; TINYINT(1) is a number."""
    plain = from_json(column)
    if isinstance(column.type, t.BooleanType):
        return lambda value: bool(value) if value in (0, 1) else plain(value)
    return plain


def _of_canal(column: Column) -> Converter:
    """Return the converter of a Canal value: text, in which each character of BINARY is a byte."""
    plain = from_json(column)
    match column.type:
        case t.BooleanType():

            def truth(value: Any) -> bool:
                found = _TRUTH.get(value) if isinstance(value, str) else None
                return plain(value) if found is None else found

            return truth
        case t.BinaryType():

            def raw(value: Any) -> bytes:
                if not isinstance(value, str):
                    raise refuse(value, column.type)
                try:
                    return value.encode("latin-1")
                except UnicodeEncodeError as error:
                    raise refuse(value, column.type) from error

            return raw
    return plain
