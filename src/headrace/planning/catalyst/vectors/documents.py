"""``get_json_object``: parts of JSON texts.

A column of texts is read once, whatever many parts of it are asked for. Spark reads more than the
standard allows, and says NULL for a text that it cannot read: what the standard does not allow is
a doubt.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import pyarrow as pa

from headrace.planning.catalyst.scala import items
from headrace.planning.catalyst.vectors.decimals import FIRST_PLAIN, LAST_PLAIN
from headrace.planning.catalyst.vectors.reader import require, text_argument
from headrace.planning.catalyst.vectors.texts import plain_text
from headrace.planning.catalyst.vectors.vector import DoubtError, InputRows, Vector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.planning.catalyst.vectors.reader import ExpressionReader, Known
    from headrace.planning.catalyst.vectors.vector import Value


_Path: TypeAlias = "tuple[str | int, ...]"
_PATH: Final = re.compile(r"\$((?:\.[A-Za-z_][A-Za-z0-9_]*|\[\d{1,6}\])+)")
_STEP: Final = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\[(\d+)\]")
_LONGEST: Final = 40_000
"""The most characters of a text that is read here: Spark limits the length of names and numbers."""
_MANY_DIGITS: Final = re.compile(r"[0-9]{300}")
_DEEPEST: Final = 300
_NEGATIVE_ZERO: Final = re.compile(r"-0(?![.0-9])")
_ESCAPED: Final = re.compile('[\x00-\x1f"\\\\\ud800-\udfff\U00010000-\U0010ffff]')
_BLANKS: Final = " \t\n\r"
_MARK: Final = "\ufeff"
"""What may stand before a document."""
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"} | {
    "\b": "\\b",
    "\f": "\\f",
}
_MISSING: Final = object()


def _refused(_text: str) -> Any:
    raise DoubtError


# Objects are tuples of names and values, so that equal names are seen; arrays are lists.
_DECODER: Final = json.JSONDecoder(object_pairs_hook=tuple, parse_constant=_refused)


@dataclass(frozen=True, slots=True, eq=False)
class Documents(Vector):
    """The parts of JSON texts at several ``paths``, which are added while expressions are read.

    ``over`` returns the parts as texts, a list for each path: no document is held longer than it
    takes to find its parts.
    """

    texts: Vector
    paths: list[_Path] = field(default_factory=list)

    def computed(self, rows: InputRows) -> Any:
        """Read each text, and find its parts."""
        absent = (None,) * len(self.paths)
        found = [
            absent if text is None else self._parts(text)
            for text in self.texts.column(rows).to_pylist()
        ]
        return list(zip(*found, strict=True)) if found else [()] * len(self.paths)

    def _parts(self, text: str) -> tuple[str | None, ...]:
        document = _read(text)
        return tuple([_text(_part(document, path)) for path in self.paths])


@dataclass(frozen=True, slots=True, eq=False)
class PartOfDocuments(Vector):
    """The parts of documents at one of their paths."""

    documents: Documents
    place: int

    def computed(self, rows: InputRows) -> Value:
        """Return the parts as a column."""
        found: Any = self.documents.over(rows)
        try:
            return pa.array(found[self.place], pa.string())
        except UnicodeEncodeError as error:  # half of a character
            raise DoubtError from error


def _read(text: str) -> Any:
    """Return what a text says, or None if it is neither an object nor an array."""
    if text.lstrip(_BLANKS)[:1] not in ("{", "[", _MARK):
        return None
    if len(text) > _LONGEST or text.count("[") + text.count("{") > _DEEPEST:
        raise DoubtError
    if _NEGATIVE_ZERO.search(text) or (len(text) > _DEEPEST and _MANY_DIGITS.search(text)):
        raise DoubtError
    try:
        return _DECODER.decode(text)
    except ValueError as error:
        raise DoubtError from error


def _part(document: Any, path: _Path) -> Any:
    """Return the part at a path, or a marker: the first with these names that is not NULL."""
    if not path:
        return document
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        if not isinstance(document, list) or step >= len(document):
            return _MISSING
        if document[step] is None:
            raise DoubtError
        return _part(document[step], rest)
    if isinstance(document, tuple):
        for name, value in document:
            if name == step and value is not None:
                found = _part(value, rest)
                if found is not _MISSING:
                    return found
    return _MISSING


def _text(value: Any) -> str | None:
    """Return a part as text: strings as they are, others as JSON without blanks."""
    if value is _MISSING or value is None:
        return None
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{_ESCAPED.sub(_escape, value)}"'
        case float():
            if value and not FIRST_PLAIN <= abs(value) < LAST_PLAIN:
                raise DoubtError
            return repr(value)
        case tuple():
            return "{" + ",".join(f"{_json(name)}:{_json(each)}" for name, each in value) + "}"
        case list():
            return "[" + ",".join(map(_json, value)) + "]"
        case _:
            return str(value)


def _escape(found: re.Match[str]) -> str:
    escaped = _ESCAPES.get(found.group())
    if escaped is None:
        raise DoubtError
    return escaped


def _part_of(reader: ExpressionReader, handle: Any) -> Vector:
    given, path = items(handle.children())
    text = text_argument(handle, path)
    require(handle, when=_PATH.fullmatch(text) is not None)
    steps = tuple(name or int(index) for name, index in _STEP.findall(text))
    value = plain_text(reader, given)
    documents = cast("Documents", reader.one(Documents(pa.string(), value), value))
    if steps not in documents.paths:
        documents.paths.append(steps)
    place = documents.paths.index(steps)
    return reader.one(PartOfDocuments(pa.string(), documents, place), documents, place)


KNOWN: Final[Mapping[str, Known]] = {
    "GetJsonObject": _part_of,
}
