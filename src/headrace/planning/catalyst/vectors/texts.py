"""Texts that are compared by their bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, BinaryType

from headrace.planning.catalyst.allowed import is_plain_text, plain_pattern
from headrace.planning.catalyst.scala import items, node_name
from headrace.planning.catalyst.vectors import lists
from headrace.planning.catalyst.vectors.reader import (
    UnprovedError,
    int_argument,
    is_constant,
    known_type,
    require,
    text_argument,
)
from headrace.planning.catalyst.vectors.vector import (
    Bytes,
    Choice,
    DoubtError,
    column_of,
    integers,
    made,
    present,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.planning.catalyst.vectors.reader import ExpressionReader, Known
    from headrace.planning.catalyst.vectors.vector import Value, Vector


_REMOVED: Final = 255
"""Stands for a byte that is removed: no text has it."""
_WIDEST: Final = 1000
"""The most characters or copies that a text is padded to, or repeated."""
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


def cut(value: Value, position: Value, length: Value) -> Value:
    """Return a part of texts by characters, as SQL's ``substring``.

    ``position`` counts from 1, or from -1 backwards; 0 is the first character too.
    """
    texts = column_of(value)
    given, places, most = Bytes.of(texts), integers(position), integers(length)
    characters = given.characters()
    first = np.where(places > 0, places - 1, np.where(places < 0, characters + places, 0))
    end = np.clip(first + most, 0, characters)
    first = np.clip(first, 0, end)
    starts, ends = given.byte_of(first), given.byte_of(end)
    shown = present(texts, position, length)
    found = given.part(starts, ends - starts)
    if shown is not None:
        found = Bytes(found.data, found.starts, np.where(shown, found.lengths, 0))
    return found.texts(shown, pa.string())


def cut_from_end(value: Value, position: int, length: int) -> Value:
    """Return a part of texts that begins at a character before their end."""
    end = position + length
    return pc.utf8_slice_codeunits(value, position, end if end < 0 else None)


def before(value: Value, separator: str, count: int) -> Value:
    """Return texts up to one of the separators, or from one on, counted from the end if < 0.

    The separator is one byte. A text with fewer separators is returned as it is.
    """
    given = Bytes.of(value)
    found = np.flatnonzero(given.data == ord(separator))
    first = np.searchsorted(found, given.starts)
    ends = given.starts + given.lengths
    many = np.searchsorted(found, ends) - first
    enough = many >= abs(count)
    place = first + (count - 1 if count > 0 else many + count)
    at = np.append(found, 0)[np.where(enough, place, len(found))]
    if count > 0:
        part = Bytes(given.data, given.starts, np.where(enough, at - given.starts, given.lengths))
    else:
        start = np.where(enough, at + 1, given.starts)
        part = Bytes(given.data, start, ends - start)
    return part.texts(present(value), pa.string())


def place_of(value: Value, searched: str) -> Value:
    """Return the first place of a text in texts, by characters from 1 on, or 0; as INT."""
    at = integers(pc.find_substring(value, searched))
    if not pc.all(pc.string_is_ascii(value)).as_py():
        given = Bytes.of(value)
        at = np.where(at < 0, at, given.part(np.zeros_like(at), np.maximum(at, 0)).characters())
    return made((at + 1).astype(np.int32), pa.int32(), present(value))


def joined_with(*values: Value) -> Value:
    """Return texts with a separator between them, which is last, without those that are NULL."""
    return pc.binary_join_element_wise(*values, null_handling="skip")


def padded(value: Value, name: str, width: int, pad: str) -> Value:
    """Return texts of a number of characters: longer ones are cut, and shorter ones padded."""
    missing = integers(pc.utf8_length(value))
    missing = np.clip(width - missing, 0, None)
    pads = pa.array([(pad * width)[:length] for length in range(width + 1)])
    added = pads.take(pa.array(missing))
    kept = pc.utf8_slice_codeunits(value, 0, width)
    both = (added, kept) if name == "StringLPad" else (kept, added)
    return pc.binary_join_element_wise(*both, "")


def repeated(value: Value, times: int) -> Value:
    """Return texts several times; less than once is empty."""
    return pc.binary_repeat(value, max(times, 0))


def translated(value: Value, codes: bytes) -> Value:
    """Return texts with each byte replaced by another, or 255 to remove it."""
    given = Bytes.of(value)
    data = np.frombuffer(codes, np.uint8)[given.data]
    kept = data != _REMOVED
    if not kept.all():
        places = np.append(0, np.cumsum(kept))
        starts, ends = places[given.starts], places[given.starts + given.lengths]
        return Bytes(data[kept], starts, ends - starts).texts(present(value), pa.string())
    return Bytes(data, given.starts, given.lengths).texts(present(value), pa.string())


def bytes_in(value: Value, unit: int) -> Value:
    """Return the number of bytes of texts or binary values, or a multiple of it, as INT."""
    return pc.multiply_checked(pc.binary_length(value), pa.scalar(unit, pa.int32()))


def joined(*values: Value) -> Value:
    """Return texts one after the other."""
    return pc.binary_join_element_wise(*values, "", null_handling="emit_null")


def replaced(value: Value, search: str, replacement: str) -> Value:
    """Return texts with each occurrence of a text, which is not empty, replaced."""
    return pc.replace_substring(value, search, replacement)


def trimmed(value: Value, name: str, characters: str) -> Value:
    """Return texts without some characters at their ends."""
    functions = {
        "StringTrim": pc.utf8_trim,
        "StringTrimLeft": pc.utf8_ltrim,
        "StringTrimRight": pc.utf8_rtrim,
    }
    return functions[name](value, characters=characters)


def length(value: Value) -> Value:
    """Return the number of characters of texts, as INT."""
    return pc.utf8_length(value)


def of_booleans(value: Value, type_: pa.DataType) -> Value:
    """Return ``true`` and ``false``."""
    return pc.if_else(value, pa.scalar("true", type_), pa.scalar("false", type_))


def plain_text(reader: ExpressionReader, handle: Any) -> Vector:
    """Return an argument of type STRING."""
    of = known_type(handle)
    require(handle, when=is_plain_text(of), of=of)
    return reader.vector(handle)


def _search(reader: ExpressionReader, handle: Any) -> Vector:
    kind = node_name(handle)
    value = plain_text(reader, handle.left())
    pattern = plain_pattern(handle) if kind == "Like" else text_argument(handle, handle.right())
    if pattern is None:
        raise UnprovedError(kind)
    return reader.call(searched, pa.bool_(), value, name=kind, pattern=pattern)


def _case_of(reader: ExpressionReader, handle: Any) -> Vector:
    value = plain_text(reader, handle.child())
    return reader.call(in_case, pa.string(), value, name=node_name(handle))


def _substring(reader: ExpressionReader, handle: Any) -> Vector:
    given, *where = items(handle.children())
    value = plain_text(reader, given)
    if all(map(is_constant, where)):
        begin, count = (int_argument(handle, each) for each in where)
        if begin >= 0 and begin + max(count, 0) < 1 << 31:
            return reader.call(sliced, pa.string(), value, position=begin, length=count)
        if begin < 0 <= count:
            return reader.call(cut_from_end, pa.string(), value, position=begin, length=count)
    return reader.call(cut, pa.string(), value, *map(reader.vector, where))


def _concat(reader: ExpressionReader, handle: Any) -> Vector:
    values = [plain_text(reader, each) for each in items(handle.children())]
    return reader.call(joined, pa.string(), *values)


def _replace(reader: ExpressionReader, handle: Any) -> Vector:
    value, search, replacement = items(handle.children())
    given, found = plain_text(reader, value), text_argument(handle, search)
    require(handle, when=bool(found))
    other = text_argument(handle, replacement)
    return reader.call(replaced, pa.string(), given, search=found, replacement=other)


def _trim(reader: ExpressionReader, handle: Any) -> Vector:
    given, *others = items(handle.children())
    characters = text_argument(handle, others[0]) if others else " "
    require(handle, when=len(others) < 2 and bool(characters))  # noqa: PLR2004
    value, name = plain_text(reader, given), node_name(handle)
    return reader.call(trimmed, pa.string(), value, name=name, characters=characters)


def _length(reader: ExpressionReader, handle: Any) -> Vector:
    of = known_type(handle.child())
    if isinstance(of, BinaryType):
        return reader.call(bytes_in, pa.int32(), reader.vector(handle.child()), unit=1)
    return reader.call(length, pa.int32(), plain_text(reader, handle.child()))


def _bytes_in(unit: int) -> Known:
    def read(reader: ExpressionReader, handle: Any) -> Vector:
        of = known_type(handle.child())
        require(handle, when=isinstance(of, BinaryType) or is_plain_text(of), of=of)
        return reader.call(bytes_in, pa.int32(), reader.vector(handle.child()), unit=unit)

    return read


def _before(reader: ExpressionReader, handle: Any) -> Vector:
    given, separator, count = items(handle.children())
    text, many = text_argument(handle, separator), int_argument(handle, count)
    require(handle, when=len(text.encode()) == 1 and 0 < abs(many) < 1 << 31)
    value = plain_text(reader, given)
    return reader.call(before, pa.string(), value, separator=text, count=many)


def _place_of(reader: ExpressionReader, handle: Any) -> Vector:
    given = items(handle.children())
    if node_name(handle) == "StringLocate":
        require(handle, when=int_argument(handle, given[2]) == 1)
        given = [given[1], given[0]]
    searched = text_argument(handle, given[1])
    require(handle, when=bool(searched))
    return reader.call(place_of, pa.int32(), plain_text(reader, given[0]), searched=searched)


def _joined_with(reader: ExpressionReader, handle: Any) -> Vector:
    separator, *given = items(handle.children())
    require(handle, when=bool(given))
    if len(given) == 1 and isinstance(known_type(given[0]), ArrayType):
        text, value = text_argument(handle, separator), reader.vector(given[0])
        found = reader.call(lists.joined, pa.string(), value, separator=text)
        absent = reader.call(pc.is_null, pa.bool_(), found)
        empty = reader.constant(pa.scalar(""))
        return reader.one(Choice(pa.string(), absent, empty, found), absent, empty, found)
    values = [plain_text(reader, each) for each in (*given, separator)]
    return reader.call(joined_with, pa.string(), *values)


def _padded(reader: ExpressionReader, handle: Any) -> Vector:
    given, width, pad = items(handle.children())
    many, text = int_argument(handle, width), text_argument(handle, pad)
    require(handle, when=0 <= many <= _WIDEST and bool(text))
    value, name = plain_text(reader, given), node_name(handle)
    return reader.call(padded, pa.string(), value, name=name, width=many, pad=text)


def _reversed(reader: ExpressionReader, handle: Any) -> Vector:
    if isinstance(known_type(handle), ArrayType):
        value = reader.vector(handle.child())
        return reader.call(lists.backwards, value.type, value)
    return reader.call(pc.utf8_reverse, pa.string(), plain_text(reader, handle.child()))


def _repeated(reader: ExpressionReader, handle: Any) -> Vector:
    given, times = items(handle.children())
    many = int_argument(handle, times)
    require(handle, when=many <= _WIDEST)
    return reader.call(repeated, pa.string(), plain_text(reader, given), times=many)


def _translated(reader: ExpressionReader, handle: Any) -> Vector:
    given, *both = items(handle.children())
    search, replacement = (text_argument(handle, each) for each in both)
    require(handle, when=search.isascii() and replacement.isascii() and "\0" not in replacement)
    codes = np.arange(256, dtype=np.uint8)
    for place, character in reversed(list(enumerate(search))):
        other = replacement[place : place + 1]
        codes[ord(character)] = ord(other) if other else _REMOVED
    return reader.call(translated, pa.string(), plain_text(reader, given), codes=codes.tobytes())


KNOWN: Final[Mapping[str, Known]] = {
    "BitLength": _bytes_in(8),
    "Concat": _concat,
    "ConcatWs": _joined_with,
    "Contains": _search,
    "EndsWith": _search,
    "Length": _length,
    "Like": _search,
    "Lower": _case_of,
    "OctetLength": _bytes_in(1),
    "Reverse": _reversed,
    "StartsWith": _search,
    "StringInstr": _place_of,
    "StringLPad": _padded,
    "StringLocate": _place_of,
    "StringRPad": _padded,
    "StringRepeat": _repeated,
    "StringReplace": _replace,
    "StringTranslate": _translated,
    "StringTrim": _trim,
    "StringTrimLeft": _trim,
    "StringTrimRight": _trim,
    "Substring": _substring,
    "SubstringIndex": _before,
    "Upper": _case_of,
}
