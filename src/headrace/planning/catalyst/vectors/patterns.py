"""Java's regular expressions as those of RE2, for patterns that both understand alike.

What is left to Spark: look-around, back references, possessive quantifiers, word boundaries,
classes of Unicode, a repeated group that may be empty or that is captured, letters beyond ASCII.
RE2 then finds the same match as Java: the first one, with the same preferences.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.planning.catalyst.scala import items, node_name
from headrace.planning.catalyst.vectors.reader import (
    UnprovedError,
    int_argument,
    require,
    text_argument,
)
from headrace.planning.catalyst.vectors.texts import plain_text
from headrace.planning.catalyst.vectors.vector import DoubtError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.planning.catalyst.vectors.reader import ExpressionReader, Known
    from headrace.planning.catalyst.vectors.vector import Value, Vector


_TERMINATORS: Final = "\n\r\x85\u2028\u2029"
"""The characters that end a line in Java."""
_NO_TERMINATOR: Final = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_ENDS_LINE: Final = r"[\n\r\x{85}\x{2028}\x{2029}]\z"
_CLASSES: Final = {"d": "0-9", "s": r"\t\n\x0b\f\r ", "w": "a-zA-Z0-9_"}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_QUANTIFIER: Final = re.compile(r"[*+?]|\{(\d{1,3})(,(\d{0,3}))?\}")
_SPECIAL: Final = frozenset("\\[](){}^$.|*+?")
_OF_GROUP: Final = re.compile(r"\$(\d)(?!\d)")


class _Repeats(Enum):
    """How an atom may be repeated: not at all, by ``?`` alone, or in any way."""

    NEVER = auto()
    ONCE = auto()
    MANY = auto()


class UntranslatedError(Exception):
    """A pattern may have another meaning in RE2."""


@dataclass(frozen=True, slots=True)
class Translated:
    """A pattern for RE2.

    Attributes:
        text: the pattern; its only group is the one that was asked for.
        empty: whether it may match an empty text.
        groups: how many groups Java's pattern has.
        ends: whether it ends with ``$``, which also stands before the end of a last line.
        anchored: whether it has an anchor.
        literal: the text that alone is matched, if there is one.
    """

    text: str
    empty: bool
    groups: int
    ends: bool
    anchored: bool
    literal: str | None


@dataclass(slots=True)
class _Translation:
    """Reads a pattern of Java from left to right."""

    given: str
    group: int
    at: int = 0
    groups: int = 0
    anchored: bool = False
    ends: bool = False
    ignores_case: bool = False
    literal: list[str] | None = field(default_factory=list)

    def pattern(self) -> Translated:
        if self.given.startswith("(?i)"):
            self.at, self.ignores_case, self.literal = 4, True, None
        text, empty = self._alternatives(depth=0)
        if self.at < len(self.given):
            raise UntranslatedError
        if self.group == 0:
            text = f"(?P<found>{text})"
        literal = None if self.literal is None else "".join(self.literal)
        return Translated(text, empty, self.groups, self.ends, self.anchored, literal)

    def _next(self) -> str:
        return self.given[self.at : self.at + 1]

    def _taken(self) -> str:
        if self.at >= len(self.given):
            raise UntranslatedError
        self.at += 1
        return self.given[self.at - 1]

    def _alternatives(self, depth: int) -> tuple[str, bool]:
        found, empty = self._sequence(depth)
        while self._next() == "|":
            if self.ends:
                raise UntranslatedError
            self.at, self.literal = self.at + 1, None
            text, also = self._sequence(depth)
            found, empty = f"{found}|{text}", empty or also
        return found, empty

    def _sequence(self, depth: int) -> tuple[str, bool]:
        found, empty = "", True
        while self._next() not in ("", "|", ")"):
            if self.ends:
                raise UntranslatedError
            text, atom_empty, most = self._atom(depth)
            text, atom_empty = self._repeated(text, most, empty=atom_empty)
            found, empty = found + text, empty and atom_empty
        return found, empty

    def _repeated(self, text: str, most: _Repeats, *, empty: bool) -> tuple[str, bool]:
        quantifier = _QUANTIFIER.match(self.given, self.at)
        if quantifier is None:
            return text, empty
        if most is _Repeats.NEVER or (most is _Repeats.ONCE and quantifier.group() != "?"):
            raise UntranslatedError
        self.at, self.literal = quantifier.end(), None
        found = quantifier.group()
        if self._next() == "?":
            self.at, found = self.at + 1, f"{found}?"
        if self._next() in ("+", "*", "?", "{"):
            raise UntranslatedError
        return text + found, found[0] in "*?" or quantifier[1] in ("0", "00", "000")

    def _atom(self, depth: int) -> tuple[str, bool, _Repeats]:
        """Return an atom, whether it may be empty, and how it may be repeated."""
        taken = self._taken()
        match taken:
            case "(":
                return self._group(depth)
            case "[":
                self.literal = None
                return self._class(), False, _Repeats.MANY
            case ".":
                self.literal = None
                return _NO_TERMINATOR, False, _Repeats.MANY
            case "^":
                self.anchored, self.literal = True, None
                return r"\A", True, _Repeats.NEVER
            case "$":
                if depth:
                    raise UntranslatedError
                self.anchored, self.ends, self.literal = True, True, None
                return r"\z", True, _Repeats.NEVER
            case "\\":
                return self._escaped()
            case _ if taken in _SPECIAL:
                raise UntranslatedError
            case _:
                return self._character(taken), False, _Repeats.MANY

    def _group(self, depth: int) -> tuple[str, bool, _Repeats]:
        self.literal = None
        captures = self._next() != "?"
        if captures:
            self.groups += 1
            number = self.groups
        elif self.given[self.at : self.at + 2] == "?:":
            self.at, number = self.at + 2, -1
        else:
            raise UntranslatedError
        before = self.groups
        text, empty = self._alternatives(depth + 1)
        if self._taken() != ")":
            raise UntranslatedError
        start = "(?P<found>" if captures and number == self.group else "(?:"
        most = _Repeats.MANY if not captures and self.groups == before else _Repeats.ONCE
        return f"{start}{text})", empty, _Repeats.NEVER if empty else most

    def _escaped(self) -> tuple[str, bool, _Repeats]:
        taken = self._taken()
        if taken == "Q":
            end = self.given.find("\\E", self.at)
            quoted = self.given[self.at : end]
            if end <= self.at or "\\" in quoted:
                raise UntranslatedError
            self.at = end + 2
            return "".join(map(self._character, quoted)), False, _Repeats.NEVER
        if taken.lower() in _CLASSES:
            self.literal = None
            sign = "" if taken.islower() else "^"
            return f"[{sign}{_CLASSES[taken.lower()]}]", False, _Repeats.MANY
        return self._character(self._plain(taken)), False, _Repeats.MANY

    @staticmethod
    def _plain(escaped: str) -> str:
        """Return the character that an escaped one stands for."""
        if escaped in _CONTROLS:
            return _CONTROLS[escaped]
        if escaped.isalnum() or not escaped.isascii():
            raise UntranslatedError
        return escaped

    def _character(self, taken: str) -> str:
        if not taken.isascii():
            raise UntranslatedError
        if self.literal is not None:
            self.literal.append(taken)
        if self.ignores_case and taken.isalpha():
            return f"[{taken.lower()}{taken.upper()}]"
        return _escape(taken)

    def _class(self) -> str:
        sign = ""
        if self._next() == "^":
            self.at, sign = self.at + 1, "^"
        found = ""
        while (taken := self._taken()) != "]" or not found:
            if taken in "[]&^" or not taken.isascii():
                raise UntranslatedError
            if taken == "\\":
                taken = self._taken()
                if taken in _CLASSES:
                    found += _CLASSES[taken]
                    if self._next() == "-":
                        raise UntranslatedError
                    continue
                taken = self._plain(taken)
            elif taken == "-" and found and self._next() != "]":
                raise UntranslatedError
            found += self._range(taken)
        return f"[{sign}{found}]"

    def _range(self, first: str) -> str:
        last = first
        if self._next() == "-" and self.given[self.at + 1 : self.at + 2] not in ("", "]"):
            last = self.given[self.at + 1]
            if not (first.isalnum() and last.isalnum() and last.isascii() and first <= last):
                raise UntranslatedError
            self.at += 2
        text = f"{_escape(first)}-{_escape(last)}"
        if not self.ignores_case or not (first.isalpha() or last.isalpha()):
            return text
        if first.islower() == last.islower() and first.isalpha() and last.isalpha():
            return f"{text}{first.swapcase()}-{last.swapcase()}"
        raise UntranslatedError


def _escape(character: str) -> str:
    return character if character.isalnum() else f"\\x{ord(character):02x}"


def translated(text: str, group: int = -1) -> Translated:
    """Return a pattern of Java for RE2, in which one group of Java's is captured; 0 is all.

    Raises:
        UntranslatedError: the pattern may have another meaning.
    """
    found = _Translation(text, group).pattern()
    try:
        pc.match_substring_regex(pa.array([""]), found.text)
    except pa.ArrowInvalid:  # it repeats too often
        raise UntranslatedError from None
    return found


def matches(value: Value, pattern: str, *, ends: bool) -> Value:
    """Return whether texts have a match."""
    _require_one_line(value, ends=ends)
    return pc.match_substring_regex(value, pattern)


def replaced(value: Value, pattern: str, replacement: str, *, ends: bool) -> Value:
    """Return texts with each match replaced."""
    _require_one_line(value, ends=ends)
    return pc.replace_substring_regex(value, pattern, replacement)


def extracted(value: Value, pattern: str, *, ends: bool) -> Value:
    """Return what a group matched first in texts, or an empty text."""
    _require_one_line(value, ends=ends)
    (found,) = pc.extract_regex(value, pattern).flatten()
    absent = pc.and_(pc.is_valid(value), pc.is_null(found))
    return pc.if_else(absent, "", found) if pc.any(absent).as_py() else found


def split_at(value: Value, pattern: str, most: int | None) -> Value:
    """Return the parts of texts between matches, at most so many if that is given."""
    _require_one_line(value, ends=False)
    return pc.split_pattern_regex(value, pattern, max_splits=None if most is None else most - 1)


def split_at_text(value: Value, separator: str, most: int | None) -> Value:
    """Return the parts of texts between separators, at most so many if that is given."""
    return pc.split_pattern(value, separator, max_splits=None if most is None else most - 1)


def _require_one_line(value: Value, *, ends: bool) -> None:
    """Raise a doubt for a text that is not UTF-8, or one that ``ends`` with the end of a line."""
    value.validate(full=True)
    if ends and pc.any(pc.match_substring_regex(value, _ENDS_LINE)).as_py():
        raise DoubtError


def _pattern(handle: Any, argument: Any, group: int = -1) -> Translated:
    try:
        return translated(text_argument(handle, argument), group)
    except UntranslatedError:
        raise UnprovedError(node_name(handle)) from None


def _matches(reader: ExpressionReader, handle: Any) -> Vector:
    given, pattern = items(handle.children())
    found, value = _pattern(handle, pattern), plain_text(reader, given)
    return reader.call(matches, pa.bool_(), value, pattern=found.text, ends=found.ends)


def _replaced(reader: ExpressionReader, handle: Any) -> Vector:
    given, pattern, replacement, start = items(handle.children())
    found, text = _pattern(handle, pattern), text_argument(handle, replacement)
    require(handle, when=int_argument(handle, start) == 1 and not found.empty)
    used = _OF_GROUP.findall(text)
    require(handle, when="\\" not in text and text.count("$") == len(used) and used in ([], ["0"]))
    value, other = plain_text(reader, given), _OF_GROUP.sub(r"\\\1", text)
    return reader.call(
        replaced, pa.string(), value, pattern=found.text, replacement=other, ends=found.ends
    )


def _extracted(reader: ExpressionReader, handle: Any) -> Vector:
    given, pattern, group = items(handle.children())
    number = int_argument(handle, group)
    require(handle, when=number >= 0)
    found, value = _pattern(handle, pattern, number), plain_text(reader, given)
    require(handle, when=number <= found.groups)
    return reader.call(extracted, pa.string(), value, pattern=found.text, ends=found.ends)


def _split(reader: ExpressionReader, handle: Any) -> Vector:
    given, pattern, limit = items(handle.children())
    most, found = int_argument(handle, limit), _pattern(handle, pattern)
    require(handle, when=most != 1 and not found.empty and not found.anchored)
    value, many = plain_text(reader, given), most if most > 1 else None
    of = pa.list_(pa.string())
    if found.literal is not None:
        return reader.call(split_at_text, of, value, separator=found.literal, most=many)
    return reader.call(split_at, of, value, pattern=found.text, most=many)


def _split_at_text(reader: ExpressionReader, handle: Any) -> Vector:
    given, separator = items(handle.children())
    text = text_argument(handle, separator)
    require(handle, when=bool(text))
    value = plain_text(reader, given)
    return reader.call(split_at_text, pa.list_(pa.string()), value, separator=text, most=None)


KNOWN: Final[Mapping[str, Known]] = {
    "RLike": _matches,
    "RegExpExtract": _extracted,
    "RegExpReplace": _replaced,
    "StringSplit": _split,
    "StringSplitSQL": _split_at_text,
}
