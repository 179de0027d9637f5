"""Plain queries: a SELECT whose meaning follows from the names and types of columns alone.

That is one relation or an equi-join, columns and aggregates of columns, and conditions that compare
columns with columns or literals. Anything else is None here, and read by Spark's parser.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from headrace.errors import HeadraceError
from headrace.planning.sql.cursor import RESERVED_PREFIX, Cursor
from headrace.planning.sql.lexer import (
    NOT_NAMES,
    WORDS,
    StatementText,
    Token,
    TokenKind,
    identifier_value,
)

if TYPE_CHECKING:
    from collections.abc import Callable


T = TypeVar("T")

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DEEPEST: Final = 32
"""The most conditions within each other; Spark reads deeper ones."""
_MOST_TOKENS: Final = 50_000
_NOT_COLUMNS: Final = NOT_NAMES | frozenset(
    """
    ALL ANTI ANY ARRAY CAST CURRENT_CATALOG CURRENT_DATABASE CURRENT_DATE CURRENT_SCHEMA
    CURRENT_TIME CURRENT_TIMESTAMP CURRENT_USER FALSE INTERVAL LATERAL LOCALTIME LOCALTIMESTAMP MAP
    NATURAL PIVOT REDUCE ROWOFFSET ROWPARTITION ROWTIME SEMI SESSION_USER SOME STRUCT TRANSFORM
    TRUE UNPIVOT USER WINDOWEND WINDOWSTART
    """.split()  # noqa: SIM905  (one word per line would be a screen of its own)
)
"""Words that an expression may begin with, so that they are columns only if quoted."""
_NOT_ALIASES: Final = _NOT_COLUMNS | frozenset(WORDS)
_COMPARISONS: Final = {
    "=": "EqualTo",
    "==": "EqualTo",
    "<": "LessThan",
    "<=": "LessThanOrEqual",
    ">": "GreaterThan",
    ">=": "GreaterThanOrEqual",
    "<>": "NotEqual",
    "!=": "NotEqual",
}
_FUNCTIONS: Final = frozenset({"AVG", "COUNT", "MAX", "MIN", "SUM"})
_TYPED: Final = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"})


@dataclass(frozen=True, slots=True)
class NamedColumn:
    """A column as written: its name, and the name of its relation, or an empty text."""

    name: str
    of: str = ""


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal: a token, perhaps after a minus or the word of its type."""

    token: Token
    negative: bool = False
    typed: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """An aggregate of a column, or of all rows."""

    function: str
    of: NamedColumn | None
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison; ``kind`` is Catalyst's, or NotEqual."""

    kind: str
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class Among:
    """A value is one of some constants."""

    value: Operand
    constants: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class Missing:
    """A value is NULL."""

    value: Operand


@dataclass(frozen=True, slots=True)
class Negated:
    """A condition is not true."""

    condition: Condition


@dataclass(frozen=True, slots=True)
class Combined:
    """Several conditions; ``kind`` is And or Or."""

    kind: str
    conditions: tuple[Condition, ...]


Operand: TypeAlias = "NamedColumn | Constant | Call"
Condition: TypeAlias = "NamedColumn | Compared | Among | Missing | Negated | Combined"


@dataclass(frozen=True, slots=True)
class Shown:
    """A value of the SELECT list, and its name by AS."""

    value: NamedColumn | Call
    name: str = ""


@dataclass(frozen=True, slots=True)
class PlainSource:
    """A relation of FROM, by its dotted name, and its alias.

    ``on`` is the condition of its join with those before it; ``left``: a LEFT JOIN.
    """

    relation: str
    alias: str = ""
    on: Condition | None = None
    left: bool = False


@dataclass(frozen=True, slots=True)
class OrderedBy:
    """A value or, as a number, a place of the SELECT list to order by."""

    value: NamedColumn | Call | int
    descending: bool
    nulls_last: bool


@dataclass(frozen=True, slots=True)
class PlainQuery:
    """A plain query as written; ``shown`` is empty for ``*``."""

    shown: tuple[Shown, ...]
    sources: tuple[PlainSource, ...]
    distinct: bool = False
    where: Condition | None = None
    group: tuple[NamedColumn, ...] | None = None
    having: Condition | None = None
    order: tuple[OrderedBy, ...] = ()
    limit: int | None = None
    offset: int = 0

    @property
    def relations(self) -> frozenset[str]:
        """The dotted names of the relations that it reads, in lower case."""
        return frozenset(each.relation.lower() for each in self.sources)


@lru_cache(maxsize=64)
def plain_query(text: str) -> PlainQuery | None:
    """Parse a plain query; None for any other text.

    The result is cached: the check of roles reads the same text before the query runs.
    """
    try:
        cursor = Cursor(StatementText(text, 0, len(text)))
        return None if len(cursor.tokens) > _MOST_TOKENS else _Reader(cursor).query()
    except (HeadraceError, _OtherError):
        return None


class _OtherError(Exception):
    """The text is not that of a plain query."""


@dataclass(slots=True)
class _Reader:
    cursor: Cursor
    depth: int = 0

    def query(self) -> PlainQuery:
        cursor = self.cursor
        self.expect("SELECT")
        distinct = cursor.accept("DISTINCT")
        shown = () if cursor.accept_symbol("*") else self.several(self.shown)
        self.expect("FROM")
        sources = [self.source()]
        while (joined := self.join()) is not None:
            sources.append(joined)
        where = self.condition() if cursor.accept("WHERE") else None
        group = self.several(self.column) if cursor.accept("GROUP", "BY") else None
        having = self.condition() if cursor.accept("HAVING") else None
        order = self.several(self.ordered) if cursor.accept("ORDER", "BY") else ()
        limit = self.number() if cursor.accept("LIMIT") else None
        offset = self.number() if cursor.accept("OFFSET") else 0
        if not cursor.at_end():
            raise _OtherError
        return PlainQuery(
            shown, tuple(sources), distinct, where, group, having, order, limit, offset
        )

    def expect(self, *words: str) -> None:
        if not self.cursor.accept(*words):
            raise _OtherError

    def symbol(self, symbol: str) -> None:
        if not self.cursor.accept_symbol(symbol):
            raise _OtherError

    def several(self, one: Callable[[], T]) -> tuple[T, ...]:
        found = [one()]
        while self.cursor.accept_symbol(","):
            found.append(one())
        return tuple(found)

    def name(self, without: frozenset[str]) -> str | None:
        """Take a name, unless it is one of some words."""
        token = self.cursor.token
        if token.kind is TokenKind.BACKQUOTED:
            name = identifier_value(token)
        elif token.kind is TokenKind.WORD and token.word not in without:
            name = token.text
        else:
            return None
        if name.startswith(RESERVED_PREFIX) or _NAME.fullmatch(name) is None:
            raise _OtherError
        self.cursor.advance()
        return name

    def need_name(self, without: frozenset[str] = _NOT_COLUMNS) -> str:
        name = self.name(without)
        if name is None:
            raise _OtherError
        return name

    def column(self) -> NamedColumn:
        name = self.need_name()
        if self.cursor.at_symbol("("):
            raise _OtherError
        return (
            NamedColumn(self.need_name(), name)
            if self.cursor.accept_symbol(".")
            else NamedColumn(name)
        )

    def value(self) -> NamedColumn | Call:
        token = self.cursor.token
        ahead = self.cursor.peek(1)
        if token.word not in _FUNCTIONS or ahead.text != "(":
            return self.column()
        self.cursor.advance()
        self.symbol("(")
        distinct = self.cursor.accept("DISTINCT")
        every = token.word == "COUNT" and not distinct and self.cursor.accept_symbol("*")
        found = Call(token.word.lower(), None if every else self.column(), distinct)
        self.symbol(")")
        return found

    def shown(self) -> Shown:
        value = self.value()
        if self.cursor.accept("AS"):
            return Shown(value, self.need_name())
        return Shown(value, self.name(_NOT_ALIASES) or "")

    def source(self) -> PlainSource:
        parts = [self.need_name()]
        while self.cursor.accept_symbol("."):
            parts.append(self.need_name())
        alias = self.need_name() if self.cursor.accept("AS") else self.name(_NOT_ALIASES) or ""
        return PlainSource(".".join(parts), alias)

    def join(self) -> PlainSource | None:
        cursor = self.cursor
        left = cursor.accept("LEFT", "OUTER", "JOIN") or cursor.accept("LEFT", "JOIN")
        if not left and not (cursor.accept("INNER", "JOIN") or cursor.accept("JOIN")):
            return None
        found = self.source()
        self.expect("ON")
        return PlainSource(found.relation, found.alias, self.condition(), left)

    def ordered(self) -> OrderedBy:
        cursor = self.cursor
        place = cursor.token.kind is TokenKind.NUMBER
        value = self.number() if place else self.value()
        descending = cursor.accept("DESC")
        if not descending:
            cursor.accept("ASC")
        first = cursor.accept("NULLS", "FIRST")
        last = not first and cursor.accept("NULLS", "LAST")
        return OrderedBy(value, descending, last or (descending and not first))

    def number(self) -> int:
        token = self.cursor.advance()
        if token.kind is not TokenKind.NUMBER or not token.text.isdecimal():
            raise _OtherError
        number = int(token.text)
        if number >= 1 << 31:
            raise _OtherError
        return number

    # -- conditions ------------------------------------------------------------------------

    def condition(self) -> Condition:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise _OtherError
        found = self.combined("Or", "OR", lambda: self.combined("And", "AND", self.negated))
        self.depth -= 1
        return found

    def combined(self, kind: str, word: str, one: Callable[[], Condition]) -> Condition:
        found = [one()]
        while self.cursor.accept(word):
            found.append(one())
        return found[0] if len(found) == 1 else Combined(kind, tuple(found))

    def negated(self) -> Condition:
        negations = 0
        while self.cursor.accept("NOT"):
            negations += 1
        found = self.single()
        return Negated(found) if negations % 2 else found

    def single(self) -> Condition:
        if self.cursor.accept_symbol("("):
            inner = self.condition()
            self.symbol(")")
            return inner
        operand = self.operand()
        kind = _COMPARISONS.get(self.cursor.token.text)
        if kind is not None:
            self.cursor.advance()
            return Compared(kind, operand, self.operand())
        if self.cursor.accept("IS"):
            negated = self.cursor.accept("NOT")
            self.expect("NULL")
            return Negated(Missing(operand)) if negated else Missing(operand)
        negated = self.cursor.accept("NOT")
        found = self.ranged(operand)
        if found is None:
            if negated or not isinstance(operand, NamedColumn):
                raise _OtherError
            return operand
        return Negated(found) if negated else found

    def ranged(self, operand: Operand) -> Condition | None:
        """Return what is after BETWEEN or IN; None at another word."""
        if self.cursor.accept("BETWEEN"):
            low = self.operand()
            self.expect("AND")
            return Combined(
                "And",
                (
                    Compared("GreaterThanOrEqual", operand, low),
                    Compared("LessThanOrEqual", operand, self.operand()),
                ),
            )
        if self.cursor.accept("IN"):
            self.symbol("(")
            constants = self.several(self.constant)
            self.symbol(")")
            return Among(operand, constants)
        return None

    def operand(self) -> Operand:
        token = self.cursor.token
        typed = token.word in _TYPED and self.cursor.peek(1).kind is TokenKind.STRING
        if typed or token.kind in {TokenKind.NUMBER, TokenKind.STRING} or token.text == "-":
            return self.constant()
        if token.word in {"TRUE", "FALSE"}:
            return self.constant()
        return self.value()

    def constant(self) -> Constant:
        token = self.cursor.advance()
        if token.text == "-":
            token = self.cursor.advance()
            if token.kind is not TokenKind.NUMBER:
                raise _OtherError
            return Constant(token, negative=True)
        if token.word in _TYPED and self.cursor.token.kind is TokenKind.STRING:
            found = Constant(self.cursor.advance(), typed=token.word)
        elif token.kind in {TokenKind.NUMBER, TokenKind.STRING} or token.word in {"TRUE", "FALSE"}:
            found = Constant(token)
        else:
            raise _OtherError
        if self.cursor.token.kind is TokenKind.STRING:  # adjacent strings are one
            raise _OtherError
        return found
