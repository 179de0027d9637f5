"""Tokens of SQL text with their places, and scripts split into statements.

The rules are those of Spark's lexer, so that a query ends exactly where Spark would end it:
backslash escapes in strings, nested bracketed comments, and comments that a backslash at the end
of the line continues. In addition, strings may have typographic quotes, as copied from documents
and web pages.

Words within statements: for completion, for quoting, and for refusing them as names.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from headrace.errors import Code, HeadraceError, Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


WORDS: tuple[str, ...] = tuple(
    """
    ADD ALL AND ANTI AS ASC AS_OF BECAUSE BEGINNING BETWEEN BRANCH BRANCHES BY CASCADE CASE CAST
    CHANGES CHECK
    COLUMN CONNECTION CROSS CUBE CURRENT_DATE CURRENT_TIMESTAMP DESC DESCRIPTOR DIRTY DISTINCT
    ELSE EMIT END ENFORCED EPOCH EPOCHS ERRORS EVIDENCE EXCEPT EXISTS EXTENDED FALSE FETCH
    FILL FILTER FOR FRESHNESS FULL GROUP HAVING HOP IF IN INNER INTERSECT INTERVAL INTO IS JOIN KEY
    LATERAL LEFT LIKE LIMIT MATERIALIZED NOT NULL OF ON OPTIONS OR ORDER OUTER OVER PARTITION
    PERCENT PRIMARY PROPERTIES RECONCILIATION REJECTS RENAME REPLACE RIGHT ROLLUP ROWS SAMPLE
    SEMI SINCE SINK STREAM STREAMS TABLES THEN TIMESTAMP TO TRUE TUMBLE UNION USING VIEW VIEWS VOID
    WATERMARK WHEN WHERE WINDOW WITHIN ZONE
    """.split()  # noqa: SIM905 - one word per line would be a screen of its own
)
"""Keywords that no statement begins with, in upper case and sorted."""

NOT_NAMES = frozenset(
    """
    AND AS BY CASE CREATE CROSS DELETE DISTINCT DROP ELSE END EXCEPT EXISTS FOR FROM FULL GROUP
    HAVING IF IN INNER INSERT INTERSECT INTO IS JOIN LEFT LIKE LIMIT NOT NULL OFFSET ON OR ORDER
    OUTER RIGHT SELECT SET TABLE THEN UNION UPDATE USING VALUES WHEN WHERE WITH
    """.split()  # noqa: SIM905 - as above
)
"""Words that are names only if quoted: unquoted, they show that a name is missing."""


def quote(identifier: str) -> str:
    """Return the identifier between backticks, escaped for Spark SQL."""
    return f"`{identifier.replace('`', '``')}`"


def double_quoted(identifier: str) -> str:
    """Return the identifier between double quotes, as in standard SQL, for other systems."""
    escaped = identifier.replace('"', '""')
    return f'"{escaped}"'


def quoted(value: str) -> str:
    """Return a text between single quotes, escaped for Spark SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def select_all(columns: Iterable[str], name: str) -> str:
    """Return the query of all rows of a relation, with its columns by their names."""
    return f"SELECT {', '.join(map(quote, columns))} FROM {quote_dotted(name)}"


def quote_dotted(name: str) -> str:
    """Return the name of a relation, its parts quoted."""
    return ".".join(map(quote, name.split(".")))


class TokenKind(Enum):
    """The kind of a token, decided by its form alone."""

    WORD = auto()
    """A keyword or an unquoted identifier: the parser decides by position."""
    BACKQUOTED = auto()
    """An identifier between backticks."""
    DQUOTED = auto()
    """A double-quoted token: a string in Spark, or an identifier where only that is possible."""
    STRING = auto()
    NUMBER = auto()
    SYMBOL = auto()
    """An operator, a punctuation mark, or any character unknown in SQL."""
    END = auto()
    """The end of the text, with no width."""


class Token(NamedTuple):
    """A token and its place ``[start, end)`` in the whole text.

    A tuple, not a dataclass, since a bulk INSERT has a million tokens.
    """

    kind: TokenKind
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """The word in upper case, as keywords are compared; empty for any other token."""
        return self.text.upper() if self.kind is TokenKind.WORD else ""


@dataclass(frozen=True, slots=True)
class StatementText:
    """One statement of a script: the range ``[start, end)`` of the script's text.

    It spans the first token to the last, without the semicolon. ``terminated``: whether a semicolon
    follows, which shows the shell that a statement is complete.
    """

    text: str
    start: int
    end: int
    file: str | None = None
    terminated: bool = True

    @property
    def sql(self) -> str:
        """The statement as written."""
        return self.text[self.start : self.end]

    @property
    def span(self) -> Span:
        """The place of the whole statement."""
        return Span(self.text, self.start, self.end, self.file)


# Possessive quantifiers: an unterminated string fails at once instead of backtracking.
_TOKEN = re.compile(
    r"""
      (?P<space>   [\s\ufeff\u200b]++ | --(?:\\\r?\n|[^\r\n])*+ )
    | (?P<comment> /\* )
    | (?P<string>  [rR]'[^']*+' | '(?:[^'\\]++|\\.|'')*+' | [\u2018\u2019][^\u2019]*+\u2019 )
    | (?P<dquoted> [rR]"[^"]*+" | "(?:[^"\\]++|\\.|"")*+" | [\u201c\u201d][^\u201d]*+\u201d )
    | (?P<backquoted> `(?:[^`]++|``)*+` )
    | (?P<number>  (?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?
                   (?:[bB][dD]|[lLsSyYfFdD])?(?!\w) )
    | (?P<word>    \w++ )
    | (?P<unclosed> ['"`\u2018\u2019\u201c\u201d] )
    | (?P<symbol>  <=> | <> | <= | >= | != | == | \|\| | \|> | -> | => | :: | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_MOST_KEPT = 1 << 17
"""The longest text whose tokens are kept for a moment: they are 20 times as large."""
_COMMENT_EDGE = re.compile(r"/\*|\*/")

_KINDS = {
    "string": TokenKind.STRING,
    "dquoted": TokenKind.DQUOTED,
    "backquoted": TokenKind.BACKQUOTED,
    "number": TokenKind.NUMBER,
    "word": TokenKind.WORD,
    "symbol": TokenKind.SYMBOL,
}

_SINGLE = "\u2018\u2019"
_DOUBLE = "\u201c\u201d"
_TYPOGRAPHIC = "It opens with a typographic quote: close it with {}, or write {}."
_UNCLOSED = {
    "'": ("string", "Close it with '. Inside a string, write '' for a quote."),
    '"': ("quoted text", 'Close it with ". Inside, write "" for a double quote.'),
    "`": ("quoted identifier", "Close it with `. Inside, write `` for a backtick."),
    **dict.fromkeys(_SINGLE, ("string", _TYPOGRAPHIC.format(_SINGLE[1], "'...'"))),
    **dict.fromkeys(_DOUBLE, ("quoted text", _TYPOGRAPHIC.format(_DOUBLE[1], '"..."'))),
}


def tokens(
    text: str, start: int = 0, end: int | None = None, file: str | None = None
) -> Iterator[Token]:
    """Return the tokens of ``text[start:end]`` without comments and without an ``END`` token.

    Raises:
        HeadraceError: ``invalid`` if a string, quoted identifier or comment is not closed.
    """
    stop = len(text) if end is None else end
    if len(text) <= _MOST_KEPT:
        with suppress(HeadraceError):  # which may be after the end
            kept = _kept(text)
            if kept.has(start, stop):
                return iter(kept.within(start, stop))
    return _scanned(text, start, stop, file)


@dataclass(frozen=True, slots=True)
class _Tokens:
    """All tokens of a text, and where each begins and ends."""

    found: tuple[Token, ...]
    starts: list[int]
    ends: list[int]
    length: int

    def has(self, start: int, end: int) -> bool:
        """Whether a range of the text begins and ends where tokens do."""
        begins, stops = bisect_left(self.starts, start), bisect_right(self.ends, end)
        return (start == 0 or self.starts[begins : begins + 1] == [start]) and (
            end == self.length or self.ends[max(0, stops - 1) : stops] == [end]
        )

    def within(self, start: int, end: int) -> tuple[Token, ...]:
        """Return the tokens in a range."""
        return self.found[bisect_left(self.starts, start) : bisect_right(self.ends, end)]


@lru_cache(maxsize=8)
def _kept(text: str) -> _Tokens:
    """Return all tokens of a text: each is read several times, as a script, a statement, a query.

    Raises:
        HeadraceError: as :func:`tokens`.
    """
    found = tuple(_scanned(text, 0, len(text), None))
    return _Tokens(found, [t.start for t in found], [t.end for t in found], len(text))


def _scanned(text: str, start: int, stop: int, file: str | None) -> Iterator[Token]:
    at = start
    while at < stop:
        found = _TOKEN.match(text, at, stop)
        if found is None or found.lastgroup is None:  # pragma: no cover - the last rule takes all
            break
        group = found.lastgroup
        if group == "comment":
            at = _comment_end(text, at, stop, file)
            continue
        if group == "unclosed":
            what, hint = _UNCLOSED[found[0]]
            raise HeadraceError(
                Code.INVALID,
                f"unterminated {what}",
                hint=hint,
                span=Span(text, at, _line_end(text, at, stop), file),
            )
        if group != "space":
            yield Token(_KINDS[group], found[0], at, found.end())
        at = found.end()


def split(text: str, file: str | None = None) -> list[StatementText]:
    """Split a script at its semicolons, skipping parts that are empty or only comments.

    A semicolon inside parentheses also ends a statement, so that a forgotten parenthesis is
    reported in the statement that lacks it.

    Raises:
        HeadraceError: ``invalid`` if a string, quoted identifier or comment is not closed.
    """
    pieces: list[StatementText] = []
    first: Token | None = None
    last: Token | None = None
    for token in tokens(text, file=file):
        if token.text == ";":
            if first is not None and last is not None:
                pieces.append(StatementText(text, first.start, last.end, file))
            first = last = None
            continue
        first = first or token
        last = token
    if first is not None and last is not None:
        pieces.append(StatementText(text, first.start, last.end, file, terminated=False))
    return pieces


def string_value(token: Token) -> str:
    r"""Return the value of a ``STRING`` or ``DQUOTED`` token, its escapes resolved as Spark does.

    ``''`` is a quote, ``\n`` and the like, ``\101`` (octal) and ``\u00e9`` are characters, ``\%``
    and ``\_`` keep their backslash (they matter to LIKE), and ``r'...'`` has no escapes.
    """
    text = token.text
    if text[0] in "rR":
        return text[2:-1]
    body = text[1:-1]
    if text[0] in _SINGLE + _DOUBLE:
        return body
    value = _ESCAPE_IN[text[0]].sub(_unescaped, body)
    if any("\ud800" <= c <= "\udfff" for c in value):
        # Java's strings are UTF-16: two escapes may make one character.
        value = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


def identifier_value(token: Token) -> str:
    """Return the name that a ``WORD``, ``BACKQUOTED`` or ``DQUOTED`` token denotes."""
    if token.kind is TokenKind.BACKQUOTED:
        return token.text[1:-1].replace("``", "`")
    if token.kind is TokenKind.DQUOTED:
        return token.text[1:-1].replace('""', '"')
    return token.text


_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_ESCAPE = r"\\(?P<octal>[01][0-7]{2})|\\u(?P<u>[0-9a-fA-F]{4})|\\U(?P<U>[0-9a-fA-F]{8})|\\(?P<c>.)"
_ESCAPE_IN = {quote: re.compile(_ESCAPE + "|" + quote * 2, re.DOTALL) for quote in "'\""}
_LAST_CHARACTER = 0x10FFFF


def _unescaped(escape: re.Match[str]) -> str:
    if escape["octal"]:
        return chr(int(escape["octal"], 8))
    code = escape["u"] or escape["U"]
    if code:
        number = int(code, 16)
        return chr(number) if number <= _LAST_CHARACTER else "\ufffd"
    character = escape["c"]
    if character is None:  # a doubled quote
        return escape[0][0]
    if character in "%_":
        return escape[0]
    return _ESCAPES.get(character, character)


def _comment_end(text: str, start: int, stop: int, file: str | None) -> int:
    """Return where the bracketed comment that opens at ``start`` ends; comments nest."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start, stop):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    raise HeadraceError(
        Code.INVALID,
        "unterminated comment",
        hint="Close it with */. Comments nest: each /* needs its own */.",
        span=Span(text, start, _line_end(text, start, stop), file),
    )


def _line_end(text: str, start: int, stop: int) -> int:
    newline = text.find("\n", start, stop)
    return stop if newline < 0 else newline
