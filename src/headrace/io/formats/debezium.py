"""Debezium's envelopes in JSON: ``{"op": "u", "before": {...}, "after": {...}, "source": {...}}``.

They come with or without the schemas of Kafka Connect's converter, as ``{"schema": ..., "payload":
{...}}``. Messages about something else (heartbeats, the bounds of transactions, logical decoding
messages) make no change. A message without a value follows a deletion, so that the topic can be
compacted: it deletes the row of its key again, in case the deletion was missed.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from headrace.io.formats.captured import BadMessage, CapturedChange, Origin
from headrace.io.formats.debezium_values import Semantic, converters_of
from headrace.io.formats.json_lines import object_of
from headrace.io.formats.values import RejectedValueError, field_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.io.formats.debezium_values import Encoding
    from headrace.io.formats.values import Converter
    from headrace.types import Column


_NEEDED: Final = {"c": "after", "r": "after", "u": "after", "d": "before"}
"""The image that each operation requires; a deletion may have it in the key of its message."""
_TIMES: Final = frozenset({"ts_ms", "ts_us", "ts_ns"})
ORIGINS: Final = {
    "value.ingestion-timestamp": Origin(("ts_ms",), 1_000),
    "value.source.timestamp": Origin(("source", "ts_ms"), 1_000),
    "value.source.database": Origin(("source", "db")),
    "value.source.schema": Origin(("source", "schema")),
    "value.source.table": Origin(("source", "table")),
}
"""The values of an event for METADATA columns, by Flink's names."""
_SCHEMAS_KEPT: Final = 64
_PAYLOAD: Final = b'"payload":'


class Debezium:
    """Decodes envelopes to changes; a :class:`headrace.io.formats.captured.Capture`.

    ``columns`` are those of the images; ``key`` names the primary key.
    """

    def __init__(self, columns: Sequence[Column], key: tuple[str, ...], encoding: Encoding) -> None:
        self._columns = columns
        self._key = key
        self._encoding = encoding
        self._plain = _Typed(None, columns, encoding)
        self._typed: dict[bytes, _Typed | None] = {}
        """The types by the text before a payload, which messages of one schema share."""

    def changes(self, key: bytes | None, value: bytes | None) -> Iterable[CapturedChange]:
        """Return the change of an envelope; empty for other messages."""
        if value is None or value.strip() == b"null":
            return self._tombstone(key)
        envelope, typed = self._message(value)
        if envelope is None:
            return self._tombstone(key)
        op = envelope.get("op")
        if op is None and _is_no_change(envelope):
            return ()
        match op:
            case "m":
                return ()
            case "t":
                return (CapturedChange("t", None, None, {}),)
            case "c" | "r" | "u" | "d":
                return (self._change(op, envelope, typed, key),)
        found = "no op" if op is None else f"op {op!r}"
        raise BadMessage(f"{found}: an envelope has op c, r, u, d, t or m", "op")

    def transaction(self, value: bytes) -> str | None:
        """Return the transaction of an event, present with `provide.transaction.metadata`."""
        if b'"transaction"' not in value:
            return None
        try:
            envelope, _ = self._message(value)
        except RejectedValueError:
            return None
        found = None if envelope is None else envelope.get("transaction")
        id_ = found.get("id") if isinstance(found, dict) else None
        return id_ if isinstance(id_, str) else None

    def _change(
        self, op: str, envelope: dict[str, Any], typed: _Typed, key: bytes | None
    ) -> CapturedChange:
        images = {}
        for name in ("before", "after"):
            image = envelope.get(name)
            if image is not None and not isinstance(image, dict):
                raise BadMessage(f"{name} is not an object", name)
            images[name] = image
        if op == "d" and key is not None and self._lacks_key(images["before"]):
            image, of_key = self._message(key)
            if not self._lacks_key(image):
                return CapturedChange("d", image, None, of_key.row)
        if images[_NEEDED[op]] is None:
            raise BadMessage(f"no {_NEEDED[op]} in an envelope with op {op}", _NEEDED[op])
        return CapturedChange(op, images["before"], images["after"], typed.images, envelope)

    def _tombstone(self, key: bytes | None) -> Iterable[CapturedChange]:
        """Return the deletion for a message without a value, if its key is the primary key."""
        if key is None or not self._key:
            return ()
        try:
            image, typed = self._message(key)
        except RejectedValueError:
            return ()
        names = {name.casefold() for name in image or ()}
        if image is None or names != {name.casefold() for name in self._key}:
            return ()
        return (CapturedChange("d", image, None, typed.row),)

    def _lacks_key(self, image: dict[str, Any] | None) -> bool:
        """Return whether an image lacks a column of the primary key."""
        missing = (field_of(image or {}, name) is None for name in self._key)
        return any(missing)

    def _message(self, text: bytes) -> tuple[dict[str, Any] | None, _Typed]:
        """Return the payload of a message, None if it has none, and its types.

        Most of a message with a schema is the schema, which repeats: it is parsed once.

        Raises:
            RejectedValueError: if the message is not a JSON object.
        """
        at = text.find(_PAYLOAD) if text.startswith(b'{"schema":') else -1
        if at >= 0:
            before, rest = text[: at + len(_PAYLOAD)], text[at + len(_PAYLOAD) :].rstrip()
            if before not in self._typed:
                self._remember(before)
            typed = self._typed[before]
            if typed is not None and rest.endswith(b"}"):
                try:
                    return _object_or_none(rest[:-1]), typed
                except RejectedValueError:
                    pass  # the error is raised for the whole message
        found = object_of(text)
        if "payload" not in found or not found.keys() <= {"schema", "payload"}:
            return found, self._plain
        payload = found["payload"]
        if payload is not None and not isinstance(payload, dict):
            raise RejectedValueError("its payload is not a JSON object")
        return payload, _Typed(found.get("schema"), self._columns, self._encoding)

    def _remember(self, before: bytes) -> None:
        """Parse the text before a payload, if it is only a schema."""
        try:
            found = json.loads(before + b"null}")
        except ValueError:
            found = None
        if len(self._typed) >= _SCHEMAS_KEPT:
            self._typed.clear()
        whole = isinstance(found, dict) and found.keys() == {"schema", "payload"}
        self._typed[before] = (
            _Typed(found["schema"], self._columns, self._encoding) if whole else None
        )


class _Typed:
    """The converters for messages of one schema, or of none."""

    def __init__(self, schema: Any, columns: Sequence[Column], encoding: Encoding) -> None:
        self._schema = schema
        self._columns = columns
        self._encoding = encoding

    @cached_property
    def images(self) -> Mapping[str, Converter]:
        """The converters of the rows before and after a change."""
        return self._of(_field(self._schema, "after") or _field(self._schema, "before"))

    @cached_property
    def row(self) -> Mapping[str, Converter]:
        """The converters of a message that is itself a row, such as a key."""
        return self._of(self._schema)

    def _of(self, schema: Any) -> Mapping[str, Converter]:
        return converters_of(self._columns, Semantic.of(schema), self._encoding)


def _field(schema: Any, name: str) -> Any:
    """Return the schema of a field of a struct; None if it is not known."""
    fields = schema.get("fields") if isinstance(schema, dict) else None
    found = fields if isinstance(fields, list) else ()
    return next(
        (each for each in found if isinstance(each, dict) and each.get("field") == name), None
    )


def _object_or_none(text: bytes) -> dict[str, Any] | None:
    return None if text.strip() == b"null" else object_of(text)


def _is_no_change(message: Mapping[str, Any]) -> bool:
    """Return whether a message is a heartbeat, or a bound of a transaction."""
    if "status" in message and "id" in message:
        return message["status"] in ("BEGIN", "END")
    return bool(message) and message.keys() <= _TIMES
