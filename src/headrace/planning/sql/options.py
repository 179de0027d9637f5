"""``WITH (key = value, ...)``, the options of four dialects, and ``SET key = value``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.planning.sql.lexer import TokenKind, string_value
from headrace.planning.sql.parts import Option

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.planning.sql.cursor import Cursor


_JOINERS = frozenset({".", "-"})
_LITERALS = frozenset({TokenKind.STRING, TokenKind.NUMBER})


def take_options(
    cursor: Cursor,
    *introductions: str,
    bare: bool = False,
    special: Callable[[Cursor], Option | None] = lambda _cursor: None,
) -> tuple[Option, ...]:
    """Take ``WITH (...)`` or, if allowed, ``OPTIONS (...)``; return () if absent.

    With ``bare``, the word may be missing. ``special`` takes options that are not assignments.
    """
    introduced = any(cursor.accept(word) for word in introductions or ("WITH", "OPTIONS"))
    if not (introduced or (bare and cursor.at_symbol("("))):
        return ()
    return listed_options(cursor, lambda: special(cursor) or take_assignment(cursor))


def listed_options(cursor: Cursor, take: Callable[[], Option]) -> tuple[Option, ...]:
    """Take options between parentheses, each by ``take``; raise if one is repeated."""
    options: dict[str, Option] = {}

    def one() -> None:
        option = take()
        if option.key in options:
            raise HeadraceError(
                Code.INVALID, f'option "{option.key}" is given twice', span=option.span
            )
        options[option.key] = option

    cursor.listed(one)
    return tuple(options.values())


def take_assignment(cursor: Cursor, *, to: bool = False) -> Option:
    """Take ``key = value``, or also ``key TO value``."""
    first = cursor.token
    key = _key(cursor)
    if not (to and cursor.accept("TO")):
        cursor.expect_symbol("=")
    if cursor.at("SECRET") and cursor.peek(1).kind in {TokenKind.WORD, TokenKind.BACKQUOTED}:
        cursor.advance()
        name = cursor.name("a secret's name").dotted
        return Option(key, name, cursor.span(first), secret=True)
    return Option(key, _value(cursor), cursor.span(first))


def take_key(cursor: Cursor) -> str:
    """Take the key of an option or property."""
    return _key(cursor)


def _key(cursor: Cursor) -> str:
    """Take a key: a quoted key as written, an unquoted (also dotted) one in lower case."""
    token = cursor.token
    if token.kind in {TokenKind.STRING, TokenKind.DQUOTED, TokenKind.BACKQUOTED}:
        key = token.text[1:-1] if token.kind is TokenKind.BACKQUOTED else string_value(token)
        if not key.strip():
            raise HeadraceError(Code.INVALID, "an option's key is empty", span=cursor.span(token))
        cursor.advance()
        return key
    return _joined_words(cursor, "an option's key").lower()


def _value(cursor: Cursor) -> str:
    """Take a value: a string, a number, a boolean, words or an interval, as text."""
    token = cursor.token
    if token.word == "INTERVAL" and cursor.peek(1).kind in {
        TokenKind.STRING,
        TokenKind.DQUOTED,
        TokenKind.NUMBER,
    }:
        cursor.advance()
        while not (cursor.at_end() or cursor.token.text in {",", ")"}):
            cursor.advance()
        return cursor.text(token, cursor.previous)
    if token.kind in {TokenKind.STRING, TokenKind.DQUOTED}:
        return string_value(cursor.advance())
    if token.kind is TokenKind.NUMBER:
        return cursor.advance().text
    sign = token.text
    if token.kind is TokenKind.SYMBOL and sign in "+-" and cursor.peek(1).kind is TokenKind.NUMBER:
        cursor.advance()
        return sign.replace("+", "") + cursor.advance().text
    word = _joined_words(cursor, "a string", "a number", "true", "false", "a word")
    return word.lower() if word.lower() in {"true", "false"} else word


def _joined_words(cursor: Cursor, *what: str) -> str:
    """Take words joined by dots and hyphens without space, such as ``debezium-json``."""
    if cursor.token.kind is not TokenKind.WORD:
        raise cursor.expected(*what)
    first = last = cursor.advance()
    while (
        cursor.token.text in _JOINERS
        and cursor.token.start == last.end
        and cursor.peek(1).kind is TokenKind.WORD
        and cursor.peek(1).start == cursor.token.end
    ):
        cursor.advance()
        last = cursor.advance()
    return cursor.text(first, last)


def take_keyed(cursor: Cursor) -> tuple[Option, ...]:
    """Take ``(SASL USERNAME 'u', PORT = 5432, ...)``: keys of several words, with or without ``=``.

    Keys are returned in lower case, with one blank between their words.
    """
    return listed_options(cursor, lambda: _take_keyed_option(cursor))


def _take_keyed_option(cursor: Cursor) -> Option:
    first = cursor.token
    words = [take_key(cursor)]
    while True:
        if cursor.accept_symbol("=") or cursor.token.kind in _LITERALS or cursor.at_symbol("("):
            break
        if cursor.at("SECRET") and cursor.peek(1).kind in {TokenKind.WORD, TokenKind.BACKQUOTED}:
            break
        if len(words) > 1 and (cursor.at_symbol(",") or cursor.at_symbol(")")):
            # The last word is the value, as in SSL MODE disable.
            return Option(" ".join(words[:-1]), words[-1], cursor.span(first))
        words.append(take_key(cursor))
    key = " ".join(words)
    if cursor.accept("SECRET"):
        name = cursor.name("a secret's name").dotted
        return Option(key, name, cursor.span(first), secret=True)
    value = _take_list(cursor) if cursor.at_symbol("(") else _take_keyed_value(cursor)
    return Option(key, value, cursor.span(first))


def _take_list(cursor: Cursor) -> str:
    """Take ``('a:9092', 'b:9092')`` as one value with commas."""
    values: list[str] = []
    cursor.listed(lambda: values.append(cursor.string("a string")))
    return ",".join(values)


def _take_keyed_value(cursor: Cursor) -> str:
    token = cursor.token
    if token.kind in {TokenKind.STRING, TokenKind.DQUOTED}:
        return string_value(cursor.advance())
    if token.kind in {TokenKind.NUMBER, TokenKind.WORD}:
        return cursor.advance().text
    raise cursor.expected("a string", "a number", "a word")
