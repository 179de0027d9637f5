"""Texts that are compared by their bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.catalyst.exact import is_plain_text, plain_pattern
from headrace.catalyst.scala import items, node_name
from headrace.catalyst.vectors.reader import (
    UnprovedError,
    int_argument,
    known_type,
    require,
    text_argument,
)
from headrace.catalyst.vectors.vector import DoubtError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.catalyst.vectors.reader import ExpressionReader, Known
    from headrace.catalyst.vectors.vector import Value, Vector

SEARCHES: Final[Mapping[str, Callable[[pa.Array, str], pa.Array]]] = {
    "Contains": pc.match_substring,
    "EndsWith": pc.ends_with,
    "Like": pc.match_like,
    "StartsWith": pc.starts_with,
}
"""Conditions on a text and a constant."""


def searched(value: Value, name: str, pattern: str) -> Value:
    """Return whether texts meet a condition."""
    return SEARCHES[name](value, pattern)


def in_case(value: Value, name: str) -> Value:
    """Return texts in upper or lower case; letters beyond ASCII are a doubt."""
    if not pc.all(pc.string_is_ascii(value)).as_py() and len(value) > value.null_count:
        raise DoubtError
    return pc.ascii_upper(value) if name == "Upper" else pc.ascii_lower(value)


def sliced(value: Value, position: int, length: int) -> Value:
    """Return a part of texts by characters, as SQL's ``substring`` with constants.

    ``position`` counts from 1; 0 is the first character too. It is not negative.
    """
    start = max(position - 1, 0)
    return pc.utf8_slice_codeunits(value, start, start + max(length, 0))


def joined(*values: Value) -> Value:
    """Return texts one after the other."""
    return pc.binary_join_element_wise(*values, "", null_handling="emit_null")


def replaced(value: Value, search: str, replacement: str) -> Value:
    """Return texts with each occurrence of a text, which is not empty, replaced."""
    return pc.replace_substring(value, search, replacement)


def trimmed(value: Value, name: str) -> Value:
    """Return texts without spaces at their ends."""
    functions = {
        "StringTrim": pc.utf8_trim,
        "StringTrimLeft": pc.utf8_ltrim,
        "StringTrimRight": pc.utf8_rtrim,
    }
    return functions[name](value, characters=" ")


def length(value: Value) -> Value:
    """Return the number of characters of texts, as INT."""
    return pc.utf8_length(value)


def of_booleans(value: Value, type_: pa.DataType) -> Value:
    """Return ``true`` and ``false``."""
    return pc.if_else(value, pa.scalar("true", type_), pa.scalar("false", type_))


def _of_text(reader: ExpressionReader, handle: Any) -> Vector:
    """Return an argument of type STRING."""
    of = known_type(handle)
    require(handle, when=is_plain_text(of), of=of)
    return reader.vector(handle)


def _search(reader: ExpressionReader, handle: Any) -> Vector:
    kind = node_name(handle)
    value = _of_text(reader, handle.left())
    pattern = plain_pattern(handle) if kind == "Like" else text_argument(handle, handle.right())
    if pattern is None:
        raise UnprovedError(kind)
    return reader.call(searched, pa.bool_(), value, name=kind, pattern=pattern)


def _case_of(reader: ExpressionReader, handle: Any) -> Vector:
    value = _of_text(reader, handle.child())
    return reader.call(in_case, pa.string(), value, name=node_name(handle))


def _substring(reader: ExpressionReader, handle: Any) -> Vector:
    value, position, length = items(handle.children())
    begin, count = int_argument(handle, position), int_argument(handle, length)
    require(handle, when=begin >= 0 and begin + max(count, 0) < 1 << 31)
    given = _of_text(reader, value)
    return reader.call(sliced, pa.string(), given, position=begin, length=count)


def _concat(reader: ExpressionReader, handle: Any) -> Vector:
    values = [_of_text(reader, each) for each in items(handle.children())]
    return reader.call(joined, pa.string(), *values)


def _replace(reader: ExpressionReader, handle: Any) -> Vector:
    value, search, replacement = items(handle.children())
    given, found = _of_text(reader, value), text_argument(handle, search)
    require(handle, when=bool(found))
    other = text_argument(handle, replacement)
    return reader.call(replaced, pa.string(), given, search=found, replacement=other)


def _trim(reader: ExpressionReader, handle: Any) -> Vector:
    (value,) = items(handle.children())[:1]
    require(handle, when=len(items(handle.children())) == 1)
    return reader.call(trimmed, pa.string(), _of_text(reader, value), name=node_name(handle))


def _length(reader: ExpressionReader, handle: Any) -> Vector:
    return reader.call(length, pa.int32(), _of_text(reader, handle.child()))


KNOWN: Final[Mapping[str, Known]] = {
    "Concat": _concat,
    "Contains": _search,
    "EndsWith": _search,
    "Length": _length,
    "Like": _search,
    "Lower": _case_of,
    "StartsWith": _search,
    "StringReplace": _replace,
    "StringTrim": _trim,
    "StringTrimLeft": _trim,
    "StringTrimRight": _trim,
    "Substring": _substring,
    "Upper": _case_of,
}
