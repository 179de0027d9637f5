"""Changes of MySQL in the JSON formats of Maxwell and Canal, interpreted as in Flink.

Maxwell writes one row per message, ``{"type": "update", "data": {...}, "old": {...}}``. Canal
writes several, ``{"type": "UPDATE", "data": [{...}], "old": [{...}]}``, with all values as text.
``old`` has the former values of the changed columns. Other messages, about tables and the bounds of
bootstraps, make no change, except for Canal's TRUNCATE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types as t

from headrace.formats.captured import BadMessage, CapturedChange, Origin
from headrace.formats.json_lines import object_of
from headrace.formats.values import RejectedValueError, from_json, refuse

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.formats.values import Converter
    from headrace.types import Column

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
    """Reads Maxwell's messages; a :class:`headrace.formats.captured.Capture`."""

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
    """Reads Canal's messages; a :class:`headrace.formats.captured.Capture`.

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
