"""Errors as API: a stable code, a message, and a hint."""

from __future__ import annotations

import errno
import re
import unicodedata
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_PART = 3
"""The least number of letters at which a part of a name counts as similar."""


class Code(StrEnum):
    """What the caller can do about an error."""

    INVALID = "invalid"
    """The request is wrong: change it."""
    UNSUPPORTED = "unsupported"
    """The request is valid but not supported: use another form."""
    FORBIDDEN = "forbidden"
    """The client lacks a role that is required: ask an owner for it."""
    CONFLICT = "conflict"
    """The request conflicts with another writer or object: resolve that, then retry."""
    UNAVAILABLE = "unavailable"
    """An external system is down or not ready: retry later."""
    CANCELLED = "cancelled"
    """The statement was cancelled, explicitly or by closing its session."""
    CORRUPT = "corrupt"
    """Stored data fails its checksum or is missing: restore or rebuild it."""
    INTERNAL = "internal"
    """A defect of Headrace: report it."""


BACKUPS = "docs/how-to/back-up.md says how a backup is made and restored."
"""The end of a hint for errors that only a backup can resolve."""


@dataclass(frozen=True, slots=True)
class Span:
    """A range ``[start, end)`` of characters in ``text``, which may come from a file.

    ``line`` is the line number in the file of the first line of ``text``, counted from 1.
    """

    text: str = field(repr=False)
    start: int
    end: int
    file: str | None = None
    line: int = 1

    @classmethod
    def whole(cls, text: str) -> Span:
        """Return the range of a whole text."""
        return cls(text, 0, len(text))

    @property
    def source(self) -> str:
        """The characters in the range."""
        return self.text[self.start : self.end]

    @property
    def position(self) -> tuple[int, int]:
        """Line and column, both counted from 1, of the start."""
        before = self.text[: self.start]
        return self.line + before.count("\n"), self.start - (before.rfind("\n") + 1) + 1

    def excerpt(self) -> Span:
        """Return the range in an excerpt of at most about 200 characters, with secrets masked.

        The excerpt begins at a line start if possible, so that columns stay the same. A range that
        does not fit is cut at its end. The time does not depend on the length of the
        text.
        """
        if len(self.text) <= _LONGEST_EXCERPT:
            return replace(self, text=masked(self.text))
        end = min(self.end, self.start + _LONGEST_EXCERPT // 2)
        spare = (_LONGEST_EXCERPT - (end - self.start)) // 2
        begin = max(0, self.start - spare)
        if begin > 0:
            begin = self.text.find("\n", begin - 1, self.start) + 1 or begin
        # The option name that makes a text secret may precede it by far.
        far = max(0, begin - _AROUND_SECRET)
        text = masked(self.text[far : end + spare + _AROUND_SECRET])[
            begin - far : end + spare - far
        ]
        line = self.line + self.text.count("\n", 0, begin)
        return Span(text, self.start - begin, end - begin, self.file, line)

    def __str__(self) -> str:
        """Return the line with carets under the range, as in a compiler's message.

        If the range has several lines, only the first is shown; if the line is long, only the part
        around the range.
        """
        number, column = self.position
        begin = self.start - (column - 1)
        newline = self.text.find("\n", begin)
        shown = masked(self.text[begin : newline if newline >= 0 else len(self.text)].rstrip("\r"))
        before, under = shown[: column - 1], shown[column - 1 : column - 1 + self.end - self.start]
        after = shown[len(before) + len(under) :]
        if len(shown) > _LONGEST_LINE:
            before = _CUT + before[-_AROUND:] if len(before) > _AROUND else before
            under = under[:_AROUND]
            after = after[:_AROUND] + _CUT if len(after) > _AROUND else after
        gutter = f"{number:>4} | "
        # Tabs are kept, so that the carets are under the right characters.
        blank = "".join("\t" if c == "\t" else " " * _width(c) for c in before)
        carets = "^" * max(1, sum(map(_width, under)))
        place = f"  --> {self.file}:{number}:{column}\n" if self.file else ""
        line = "".join(
            c if c == "\t" or c.isprintable() else _UNSHOWN for c in before + under + after
        )
        return f"{place}{gutter}{line}\n{' ' * len(gutter)}{blank}{carets}"


_LONGEST_LINE = 200
_AROUND = 60
_LONGEST_EXCERPT = 200
_AROUND_SECRET = 20_000
"""The distance from an excerpt at which secrets that extend into it are found, in characters."""
_CUT = "... "
_UNSHOWN = "\ufffd"
"""Replaces control characters, so that a message cannot control the terminal that shows it."""


_SECRET = re.compile(
    r"""(?ix)
    (?: password | passwd | secret | token | jaas | credential | private[._-]?key | api[._-]?key
      | authorization | cookie | (?: secret | access ) [ _.-] key )
    (?: [\w.\-]{0,80}+ ['"]? (?: \s*+ = \s*+ | \s++ ) | \s++ \w{1,80}+ \s++ as \s++ )
    (?: ' (?P<single> (?: [^'\\] | \\. | '' )*+ ) | \\?+ " (?P<double> (?: [^"\\] | \\. | "" )*+ ) )
    """
)


_SECRET_IN_URL = re.compile(
    r"""(?ix)
    :// (?: (?P<user> [^\s'"/?\#@:]*+ : [^\s'"/?\#]{0,300} ) @
      | [^\s'"/?\#@:\[]*+ : (?! \d{1,5}+ (?: [/?\#,\s'"] | $ ) ) (?P<unescaped> [^\s'"]{0,300} ) @ )
    | https?+ :// (?P<token> [^\s'"/?\#@:]++ ) @
    | [?&] (?: key | sig | auth | code
      | [\w.\-]*? (?: authorization | cookie | token | secret | passw | signature | credential
        | api[-_.]?key | access[-_.]?key ) [\w.\-]*+ )
      = (?P<parameter> [^\s'"&\#]++ )
    """
)


def masked(sql: str) -> str:
    """Return SQL text with the values of secret options replaced by asterisks, of equal length.

    A quoted value is considered secret if a name such as ``password`` precedes it, with or without
    ``=`` between, or ``SECRET name AS``. Secrets in URLs: see :func:`masked_urls`.
    """
    return masked_urls(_SECRET.sub(_mask, sql))


def masked_urls(text: str) -> str:
    """Return a text with the secrets in its URLs replaced by asterisks, of equal length.

    These are the user and password before the host, and parameters with names such as ``token``.
    """
    return _SECRET_IN_URL.sub(_mask, text) if "://" in text else text


def _mask(secret: re.Match[str]) -> str:
    start, end = secret.span(secret.lastgroup or 0)
    text, at = secret[0], secret.start()
    return text[: start - at] + "*" * (end - start) + text[end - at :]


def _printable(text: str) -> str:
    return "".join(c if c == "\t" or c.isprintable() else _UNSHOWN for c in text)


def _width(character: str) -> int:
    """Return the width of a character in a terminal, in columns."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


class HeadraceError(Exception):
    """The only exception of Headrace's API, with the place in the SQL and a hint.

    The primary message is lower case (except SQL keywords), without a full stop; ``detail`` and
    ``hint`` are sentences. Pickling preserves every field, since errors cross processes. Secrets in
    URLs that ``primary`` and ``detail`` quote are masked.
    """

    def __init__(
        self,
        code: Code,
        primary: str,
        detail: str | None = None,
        hint: str | None = None,
        span: Span | None = None,
    ) -> None:
        primary, detail = masked_urls(primary), None if detail is None else masked_urls(detail)
        super().__init__(code, primary, detail, hint, span)
        self.code = code
        self.primary = primary
        self.detail = detail
        self.hint = hint
        self.span = span

    def at(self, span: Span) -> HeadraceError:
        """Return the error with this place, or the error itself if it has a place already."""
        if self.span is not None:
            return self
        return HeadraceError(self.code, self.primary, self.detail, self.hint, span)

    def to_json(self) -> dict[str, Any]:
        """Return a value that ``json`` can write and :meth:`of_json` reads.

        The value has an excerpt of the text around the place, with secrets masked.
        """
        return {
            "code": str(self.code),
            "primary": self.primary,
            "detail": self.detail,
            "hint": self.hint,
            "span": None if self.span is None else asdict(self.span.excerpt()),
        }

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> HeadraceError:
        """Return the error that :meth:`to_json` wrote."""
        span = value["span"]
        return cls(
            Code(value["code"]),
            value["primary"],
            value["detail"],
            value["hint"],
            None if span is None else Span(**span),
        )

    def __str__(self) -> str:
        parts = [f"error[{self.code}]: {self.primary}"]
        if self.span is not None:
            parts.append(str(self.span))
        if self.detail is not None:
            parts.append(f"detail: {self.detail}")
        if self.hint is not None:
            parts.append(f"hint: {self.hint}")
        return "\n".join(parts)


@dataclass(frozen=True, slots=True)
class QueryPosition:
    """The start of an expression in a query, and its text; line and column count from 1."""

    line: int
    column: int
    fragment: str

    def within(self, query: Span) -> Span | None:
        """Return the span of the expression in a query that may have been rewritten since.

        None if the text is not at the position, and does not occur exactly once elsewhere.
        """
        lines = query.source.split("\n")
        at = sum(len(line) + 1 for line in lines[: self.line - 1]) + self.column - 1
        if not query.source.startswith(self.fragment, at):
            if query.source.count(self.fragment) != 1:
                return None
            at = query.source.index(self.fragment)
        start = query.start + at
        return replace(query, start=start, end=start + len(self.fragment))


class EvaluationError(HeadraceError):
    """A step failed on the data, or because of a defect.

    ``place`` is the position of the expression in the text given to Spark, if known.
    """

    place: QueryPosition | None = None

    def with_detail(self, sentence: str) -> EvaluationError:
        """Return the error with a sentence added to its detail."""
        detail = f"{self.detail.removesuffix('.')}. {sentence}" if self.detail else sentence
        found = EvaluationError(self.code, self.primary, detail, self.hint, self.span)
        found.place = self.place
        return found

    def at(self, span: Span) -> HeadraceError:
        """Return the error at the expression in this query, or at the query if that is unknown."""
        return super().at(self._within(span) or span)

    def within(self, query: Span) -> HeadraceError:
        """Return the error at the expression in this query; without a place if that is unknown."""
        return self if self._within(query) is None else self.at(query)

    def in_words(self, query: Span) -> HeadraceError:
        """Return the error with its place in the query written out, where no text can be shown."""
        found = self._within(query)
        if found is None:
            return self
        line, column = found.position
        text = shortened(" ".join(found.source.split()), _LONGEST_LINE)
        return self.with_detail(f"The place is {text} (line {line}, column {column} of the query).")

    def _within(self, query: Span) -> Span | None:
        return None if self.place is None else self.place.within(query)


def shortened(text: str, most: int) -> str:
    """Return a text of at most ``most`` characters; a longer one is cut and ends in ``...``."""
    return text if len(text) <= most else f"{text[:most]}{_CUT.rstrip()}"


def unexpected(error: Exception) -> HeadraceError:
    """Return the error for an exception other than ``HeadraceError`` in a statement."""
    if isinstance(error, HeadraceError):
        return error
    what = f"{type(error).__name__}: {error}".rstrip(".")
    if isinstance(error, OSError):
        return HeadraceError(
            Code.UNAVAILABLE,
            "a file or a connection failed",
            detail=f"{what}.",
            hint="Try again once the cause is gone.",
        )
    return HeadraceError(
        Code.INTERNAL,
        "the statement failed unexpectedly",
        detail=f"{what}.",
        hint="This is a defect of Headrace: please report it with the statement.",
    )


def not_written(what: str, error: OSError) -> HeadraceError:
    """Return the error that a file could not be written, with the system's reason."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error)
    return HeadraceError(
        Code.UNAVAILABLE,
        f"{what} could not be written",
        detail=f"{error.strerror or error}.",
        hint="Free some space, then try again." if full else "Try again once the cause is gone.",
    )


def nearest(word: str, known: Iterable[str], similarity: float = 0.6) -> str | None:
    """Return the known word most similar to ``word``, or None if none is similar.

    ``similarity`` is between 0 and 1. A prefix or suffix of at least three letters is similar.
    """
    from difflib import get_close_matches  # noqa: PLC0415  (only errors pay for it)

    folded = {name.lower(): name for name in known}
    wanted = word.lower()
    found = get_close_matches(wanted, list(folded), n=1, cutoff=similarity)
    if not found and len(wanted) >= _PART:
        found = [each for each in folded if each.startswith(wanted) or each.endswith(wanted)]
    return folded[min(found, key=len)] if found else None


@overload
def meant(word: str, known: Iterable[str], otherwise: str, shown: str = ...) -> str: ...


@overload
def meant(
    word: str, known: Iterable[str], otherwise: str | None = None, shown: str = ...
) -> str | None: ...


def meant(
    word: str, known: Iterable[str], otherwise: str | None = None, shown: str = '"{}"'
) -> str | None:
    """Return a hint with the known word most similar to ``word``, or ``otherwise`` without one.

    ``shown`` is how a known word is written.
    """
    near = nearest(word, known)
    return f"Did you mean {shown.format(near)}?" if near else otherwise


def unknown(
    kind: str,
    name: object,
    known: Iterable[str],
    otherwise: str | None = None,
    span: Span | None = None,
) -> HeadraceError:
    """Return the error that a name does not exist, suggesting the most similar existing name.

    Args:
        kind: the kind of object that was looked up, such as "table, stream or view".
        name: the name as it is shown.
        known: the existing names that the client may see.
        otherwise: the hint if none is similar: how to list the names, or to create one.
        span: the place of the name.
    """
    hint = meant(str(name), known, otherwise)
    return HeadraceError(Code.INVALID, f'{kind} "{name}" does not exist', hint=hint, span=span)
