"""A position among the tokens of one statement, and errors that name the expected tokens.

Bounds of queries and expressions: how deeply nested and how long their texts may be.

Planning visits the tree of a text recursively, and takes milliseconds for each of its nodes. What
is beyond the bounds would keep a planner busy for a minute, or exhaust its stack, so it is refused
here, on tokens, before Spark parses it. The depth of the tree is estimated from above: operators
outside brackets associate to the left, except AND and OR, which Spark balances.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError, Span, meant, shortened
from headrace.planning.sql.lexer import (
    NOT_NAMES,
    StatementText,
    Token,
    TokenKind,
    identifier_value,
    string_value,
    tokens,
)
from headrace.planning.sql.parts import Name

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence


_IDENTIFIERS = frozenset({TokenKind.WORD, TokenKind.BACKQUOTED, TokenKind.DQUOTED})
_STRINGS = frozenset({TokenKind.STRING, TokenKind.DQUOTED})
_SHOWN = 40
RESERVED_PREFIX = "__"


class Cursor:
    """Reads a statement token by token.

    ``at`` looks at the next tokens, ``accept`` takes them if they match, ``expect`` takes them or
    raises. Words are given in upper case and must be adjacent.
    """

    def __init__(self, source: StatementText) -> None:
        self.source = source
        self.tokens = list(tokens(source.text, source.start, source.end, source.file))
        last = self.tokens[-1].end if self.tokens else source.start
        self.tokens.append(Token(TokenKind.END, "", last, last))
        self.index = 0

    @property
    def token(self) -> Token:
        """The next token; at the end of the statement, always the ``END`` token."""
        return self.tokens[self.index]

    @property
    def previous(self) -> Token:
        """The token read last."""
        return self.tokens[max(0, self.index - 1)]

    def peek(self, ahead: int) -> Token:
        """Return the token ``ahead`` positions after the next one."""
        return self.tokens[min(self.index + ahead, len(self.tokens) - 1)]

    def advance(self) -> Token:
        """Take the next token unconditionally."""
        token = self.token
        self.index = min(self.index + 1, len(self.tokens) - 1)
        return token

    def span(self, first: Token, last: Token | None = None) -> Span:
        """Return the span from one token to another, by default to the previous token."""
        end = (last or self.previous).end
        return Span(self.source.text, first.start, max(first.end, end), self.source.file)

    def at(self, *words: str) -> bool:
        """Return whether these words come next."""
        return all(self.peek(i).word == word for i, word in enumerate(words))

    def at_any(self, *words: str) -> bool:
        """Return whether one of these words comes next."""
        return self.token.word in words

    def at_symbol(self, symbol: str) -> bool:
        """Return whether this symbol comes next."""
        return self.token.kind is TokenKind.SYMBOL and self.token.text == symbol

    def at_end(self) -> bool:
        """Return whether the statement ends here."""
        return self.token.kind is TokenKind.END

    def accept(self, *words: str) -> bool:
        """Take these words if they come next, and return whether they do."""
        found = self.at(*words)
        if found:
            self.index += len(words)
        return found

    def accept_symbol(self, symbol: str) -> bool:
        """Take this symbol if it comes next, and return whether it does."""
        found = self.at_symbol(symbol)
        if found:
            self.index += 1
        return found

    def expect(self, *words: str) -> None:
        """Take these words, or raise at the first one that is missing."""
        for word in words:
            if not self.accept(word):
                raise self.expected(word)

    def expect_symbol(self, symbol: str, *others: str) -> None:
        """Take this symbol, or raise an error with all expected tokens."""
        if not self.accept_symbol(symbol):
            raise self.expected(f'"{symbol}"', *others)

    def expect_end(self, *others: str) -> None:
        """Raise an error with all expected tokens unless the statement ends here."""
        if not self.at_end():
            raise self.expected(*others, "the end of the statement")

    def expected(self, *what: str, hint: str | None = None) -> HeadraceError:
        """Return a syntax error with what was expected and what was found."""
        return HeadraceError(
            Code.INVALID,
            f"expected {one_of(what)}, found {_shown(self.token)}",
            hint=hint,
            span=self.span(self.token, self.token),
        )

    def expected_word(self, *words: str) -> HeadraceError:
        """Return a syntax error for an unexpected word, with the most similar expected one."""
        word = self.token.word
        return self.expected(*words, hint=meant(word, words, shown="{}") if word else None)

    def text(self, first: Token, last: Token) -> str:
        """Return the text from one token to another as written."""
        return self.source.text[first.start : last.end]

    # -- names and values -----------------------------------------------------

    def identifier(self, what: str) -> tuple[str, Token]:
        """Take one identifier, as written, with its token.

        Raises:
            HeadraceError: ``invalid`` if it is missing, empty or reserved.
        """
        token = self.token
        if token.kind not in _IDENTIFIERS:
            hint = None
            if token.kind is TokenKind.STRING:
                hint = "Single quotes make a string: put a name between backticks, or unquoted."
            raise self.expected(what, hint=hint)
        self.advance()
        name = identifier_value(token)
        if not name.strip():
            raise HeadraceError(Code.INVALID, "a name is empty", span=self.span(token))
        if name.startswith(RESERVED_PREFIX):
            raise HeadraceError(
                Code.INVALID,
                f'name "{name}" is reserved',
                hint=f"Names that begin with {RESERVED_PREFIX} are reserved: choose another.",
                span=self.span(token),
            )
        return name, token

    def name(self, what: str = "a name") -> Name:
        """Take the possibly qualified name of a relation; unquoted parts become lower case."""
        first = self.token
        parts: list[str] = []
        while True:
            if self.token.word in NOT_NAMES:
                word = self.token.text
                raise self.expected(what, hint=f'If "{word}" is the name, write it as `{word}`.')
            part, token = self.identifier(what)
            if "." in part:
                raise HeadraceError(
                    Code.INVALID,
                    f'name "{part}" contains a dot',
                    hint="Quote each part of a qualified name on its own: `a`.`b`.",
                    span=self.span(token),
                )
            parts.append(part.lower() if token.kind is TokenKind.WORD else part)
            if not self.accept_symbol("."):
                return Name(tuple(parts), self.span(first))

    def string(self, what: str) -> str:
        """Take a string between single or double quotes, and return its value."""
        if self.token.kind not in _STRINGS:
            raise self.expected(what)
        return string_value(self.advance())

    def number(self, what: str) -> int:
        """Take a whole number of at most 18 digits."""
        token = self.token
        if not (
            token.kind is TokenKind.NUMBER and token.text.isdecimal() and len(token.text) <= 18  # noqa: PLR2004
        ):
            raise self.expected(what)
        self.advance()
        return int(token.text)

    def listed(self, item: Callable[[], None], *, may_end_in_comma: bool = False) -> None:
        """Take ``(item, item, ...)``, calling ``item`` for each."""
        self.expect_symbol("(")
        item()
        while self.accept_symbol(","):
            if may_end_in_comma and self.at_symbol(")"):
                break
            item()
        self.expect_symbol(")", '","')

    def identifiers(self, what: str) -> tuple[str, ...]:
        """Take ``(name, name, ...)``: column names as written, each at most once."""
        names: dict[str, str] = {}

        def one() -> None:
            name, token = self.identifier(what)
            self.refuse_twice("column", name, names, token)
            names[name.lower()] = name

        self.listed(one)
        return tuple(names.values())

    def refuse_twice(self, what: str, name: str, known: Container[str], token: Token) -> None:
        """Raise if the name, in lower case, is among the known names."""
        if name.lower() in known:
            raise HeadraceError(
                Code.INVALID, f'{what} "{name}" is given twice', span=self.span(token)
            )


def one_of(what: Sequence[str]) -> str:
    """Return ``a``, ``a or b``, ``a, b or c``."""
    return " or ".join(filter(None, (", ".join(what[:-1]), what[-1])))


def _shown(token: Token) -> str:
    if token.kind is TokenKind.END:
        return "the end of the statement"
    if token.kind is TokenKind.STRING:
        return "a string"  # not shown, since it may be a secret
    text = shortened(token.text, _SHOWN)
    return text if token.kind is TokenKind.DQUOTED else f'"{text}"'


DEEPEST: Final = 150
"""How deeply brackets and CASE may be nested."""
HIGHEST: Final = 300
"""How high the tree of an expression or of joined and united queries may be."""
MOST_WORDS: Final = 10_000
"""How many names, keywords and operators a query may have; literals are not counted."""

_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
_CLOSED: Final = frozenset(_CLOSING.values())
_NOT_COUNTED: Final = frozenset({",", ".", *_CLOSING, *_CLOSED})
_LITERALS: Final = frozenset({"NULL", "TRUE", "FALSE", "DATE", "TIMESTAMP", "INTERVAL"})
_OPERATORS: Final = frozenset(
    {"NOT", "LIKE", "ILIKE", "RLIKE", "REGEXP", "IN", "IS", "BETWEEN", "DIV", "COLLATE"}
)
_OF_QUERIES: Final = frozenset({"UNION", "EXCEPT", "INTERSECT", "MINUS", "JOIN"})
_SEPARATING: Final = frozenset(
    {"AND", "OR", "WHEN", "THEN", "ELSE", "SELECT", "FROM", "WHERE", "HAVING", "ON", "BY", "AS"}
)
_DIVIDE: Final = "Divide it, and name its parts with CREATE VIEW."


@dataclass(slots=True)
class _Level:
    """The inside of a bracket or of CASE: the height of the trees that were found in it."""

    closing: str
    highest: int = 0
    """The height of the highest expression that has ended."""
    height: int = 0
    """The height of the expression that has not ended."""
    queries: int = 0
    """The operators between queries and relations."""

    @property
    def whole(self) -> int:
        return max(self.highest, self.height) + self.queries

    def separate(self) -> None:
        self.highest, self.height = max(self.highest, self.height), 0


def require_bounded(cursor: Cursor, body: Sequence[Token]) -> None:
    """Refuse the tokens of a query or an expression that is nested too deeply, or too long.

    Brackets are balanced. Rows of VALUES may be many.

    Raises:
        HeadraceError: ``unsupported``, at the place.
    """
    words, most = 0, len(body) if body and body[0].word == "VALUES" else MOST_WORDS
    level, outer = _Level(""), list[_Level]()
    for token in body:
        kind, text = token.kind, token.text
        if kind is TokenKind.SYMBOL:
            words += text not in _NOT_COUNTED
            if text in _CLOSING:
                level = _opened(cursor, token, _CLOSING[text], level, outer)
            elif text == "," or text in _CLOSED:
                while level.closing == "END":  # a column is called case
                    level = _closed(level, outer)
                level.separate()
                level = _closed(level, outer) if text in _CLOSED else level
            elif text != ".":
                level.height += 1
        elif kind is TokenKind.WORD:
            word = text.upper()
            words += word not in _LITERALS
            if word == "CASE":
                level = _opened(cursor, token, "END", level, outer)
            elif word == level.closing:
                level = _closed(level, outer)
            elif word in _SEPARATING:
                level.separate()
            elif word in _OPERATORS:
                level.height += 1
            elif word in _OF_QUERIES:
                level.queries += 1
        elif kind is TokenKind.BACKQUOTED:
            words += 1
        if words > most:
            raise _refused(
                cursor, token, f"more than {MOST_WORDS:,} words and operators in a query"
                " are not supported", "Values are not counted: compare a column with many of them"
                " by IN, or put them into a table. Divide what computes much into several views.",
            )  # fmt: skip
        if level.height + level.queries > HIGHEST or level.whole > HIGHEST:
            raise _refused(
                cursor,
                token,
                f"more than {HIGHEST} operators in a row are not supported",
                f"Put parts of them in brackets, in halves. {_DIVIDE}",
            )


def _opened(
    cursor: Cursor, token: Token, closing: str, level: _Level, outer: list[_Level]
) -> _Level:
    outer.append(level)
    if len(outer) > DEEPEST:
        raise _refused(
            cursor,
            token,
            "the query is nested too deeply",
            f"Brackets and CASE may be nested {DEEPEST} deep. {_DIVIDE}",
        )
    return _Level(closing)


def _closed(level: _Level, outer: list[_Level]) -> _Level:
    around = outer.pop()
    around.height = max(around.height, level.whole + 1)
    return around


def _refused(cursor: Cursor, token: Token, primary: str, hint: str) -> HeadraceError:
    return HeadraceError(Code.UNSUPPORTED, primary, hint=hint, span=cursor.span(token, token))
