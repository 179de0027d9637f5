"""A query rewritten for Spark, with a mapping of positions back to the original for errors.

Edits of SQL text: names replaced in place, all else as it was written.

``CREATE FUNCTION`` with an expression as its body: parsing, and expansion of calls.

A call is replaced by the body, with each argument, cast to the declared type, for its parameter.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from headrace.errors import Code, HeadraceError, Span
from headrace.planning.sql.column_types import take_type
from headrace.planning.sql.cursor import RESERVED_PREFIX, Cursor
from headrace.planning.sql.fragments import take_expression
from headrace.planning.sql.lexer import (
    NOT_NAMES,
    WORDS,
    StatementText,
    TokenKind,
    double_quoted,
    identifier_value,
    quote,
    tokens,
)
from headrace.planning.sql.parts import Statement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headrace.planning.sql.lexer import Token
    from headrace.planning.sql.parts import Fragment, Name


NAMES = frozenset({TokenKind.WORD, TokenKind.BACKQUOTED, TokenKind.DQUOTED})
"""The kinds of tokens that may be names."""


@dataclass(frozen=True, slots=True)
class Edit:
    """The text that replaces a range of another one."""

    start: int
    end: int
    text: str


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with edits, which do not overlap."""
    for each in sorted(edits, key=lambda edit: -edit.start):
        text = text[: each.start] + each.text + text[each.end :]
    return text


def as_name(name: str) -> str:
    """Return a name as it is written in SQL, between backticks where that is needed."""
    plain = name.replace("_", "a").isalnum() and name.isascii() and not name[:1].isdigit()
    return name if plain and name.upper() not in NOT_NAMES | frozenset(WORDS) else quote(name)


def dotted_as_name(name: str) -> str:
    """Return a dotted name as it is written in SQL."""
    return ".".join(map(as_name, name.split(".")))


def in_place_of(token: Token, parts: Iterable[str]) -> str:
    """Return a name of some parts as it is written where a token was a name.

    A name between double quotes stays one: it may say that others in the query are names.
    """
    written = double_quoted if token.kind is TokenKind.DQUOTED else as_name
    return ".".join(map(written, parts))


def is_name(token: Token, name: str) -> bool:
    """Whether a token may be a name, regardless of case."""
    return token.kind in NAMES and identifier_value(token).lower() == name.lower()


def names_column(expression: str, column: str) -> bool:
    """Whether an expression over the columns of one relation may name a column."""
    return any(is_name(each, column) for each in tokens(expression))


def with_column(expression: str, column: str, to: str) -> str:
    """Return an expression over the columns of one relation with another name of a column."""
    every = list(tokens(expression))
    return edited(
        expression,
        [
            Edit(token.start, token.end, as_name(to))
            for i, token in enumerate(every)
            if is_name(token, column)
            and not (i and every[i - 1].text == ".")
            and not (i + 1 < len(every) and every[i + 1].text == "(")
        ],
    )


class RewrittenRange(NamedTuple):
    """A range of the new text, and the range of the original that it copies or replaces.

    Both are ``[start, end)``. A copy has the length of its origin and maps character by character.
    """

    start: int
    end: int
    old_start: int
    old_end: int
    copied: bool


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A query before and after rewriting; without pieces, both are the same."""

    query: Span
    """The original text."""
    span: Span
    """The text for Spark: a separate text if the query was rewritten."""
    pieces: tuple[RewrittenRange, ...] = ()
    """The parts of the new text, in order and without gaps."""

    @property
    def text(self) -> str:
        """The text for Spark."""
        return self.span.source

    @contextmanager
    def mapping_errors(self) -> Iterator[None]:
        """Map the places of errors from the rewritten query to the original statement."""
        try:
            yield
        except HeadraceError as error:
            if not self.pieces or error.span is None or error.span.text != self.span.text:
                raise
            raise HeadraceError(
                error.code, error.primary, error.detail, error.hint, self.back(error.span)
            ) from error

    def back(self, span: Span) -> Span:
        """Return the place in the original of a place in the new text.

        Generated text maps to the whole clause that it replaces.
        """
        first = self._piece(span.start)
        last = self._piece(max(span.start, span.end - 1))
        start = first.old_start + (span.start - first.start if first.copied else 0)
        end = last.old_start + (span.end - last.start) if last.copied else last.old_end
        return Span(self.query.text, start, max(start, end), self.query.file, self.query.line)

    def _piece(self, at: int) -> RewrittenRange:
        return next((piece for piece in self.pieces if at < piece.end), self.pieces[-1])

    def after(self, first: Rewritten) -> Rewritten:
        """Return one rewriting that applies ``first`` and then this one."""
        if not first.pieces:
            return Rewritten(first.query, self.span, self.pieces)
        if not self.pieces:
            return first
        composed: list[RewrittenRange] = []
        for piece in self.pieces:
            if piece.copied:
                composed += first._copied(piece)
            else:
                place = first.back(Span(first.text, piece.old_start, piece.old_end))
                composed.append(
                    RewrittenRange(piece.start, piece.end, place.start, place.end, copied=False)
                )
        return Rewritten(first.query, self.span, tuple(composed))

    def _copied(self, copy: RewrittenRange) -> list[RewrittenRange]:
        """Return the pieces of a copied range of the new text."""
        found = []
        shift = copy.start - copy.old_start
        for piece in self.pieces:
            start, end = max(piece.start, copy.old_start), min(piece.end, copy.old_end)
            if start >= end:
                continue
            old_start, old_end = piece.old_start, piece.old_end
            if piece.copied:
                old_start += start - piece.start
                old_end = old_start + end - start
            found.append(
                RewrittenRange(start + shift, end + shift, old_start, old_end, piece.copied)
            )
        return found


def unchanged(query: Span) -> Rewritten:
    """Return a query that needs no rewriting."""
    return Rewritten(query, query)


@dataclass(slots=True)
class Rewriting:
    """Builds the new text of a query, from its beginning to its end."""

    query: Span
    _texts: list[str] = field(default_factory=list, init=False)
    _pieces: list[RewrittenRange] = field(default_factory=list, init=False)
    _length: int = field(default=0, init=False)
    _read: int = field(init=False)
    _replaced: Span = field(init=False)

    def __post_init__(self) -> None:
        """Start at the beginning of the query."""
        self._read = self.query.start
        self._replaced = self.query

    def replace(self, span: Span, parts: Sequence[str | tuple[int, int]]) -> None:
        """Copy the text up to a range, and write parts in place of the range.

        A part is text, or the start and the end of a range of the query to copy.
        """
        self._copy(self._read, span.start)
        self._read, self._replaced = span.end, span
        for part in parts:
            if isinstance(part, str):
                self.add(part)
            else:
                self._copy(*part)

    def add(self, text: str) -> None:
        """Add text to the last replacement."""
        self._append(text, self._replaced.start, self._replaced.end, copied=False)

    def copy(self, start: int, end: int) -> None:
        """Copy a range of the query. The text after it is not copied."""
        self._read = self.query.end
        self._copy(start, end)

    def put(self, text: str, start: int, end: int) -> None:
        """Write text in place of a range of the query. The text after it is not copied."""
        self._read = self.query.end
        self._append(text, start, end, copied=False)

    def done(self) -> Rewritten:
        """Copy the rest, and return the result."""
        if not self._texts:
            return unchanged(self.query)
        self._copy(self._read, self.query.end)
        if all(piece.copied for piece in self._pieces) and self._is_whole():
            return unchanged(self.query)
        text = "".join(self._texts)
        span = Span(text, 0, len(text), self.query.file)
        return Rewritten(self.query, span, tuple(self._pieces))

    def _is_whole(self) -> bool:
        return "".join(self._texts) == self.query.source

    def _copy(self, start: int, end: int) -> None:
        self._append(self.query.text[start:end], start, end, copied=True)

    def _append(self, text: str, start: int, end: int, *, copied: bool) -> None:
        if text:
            begin, self._length = self._length, self._length + len(text)
            self._texts.append(text)
            self._pieces.append(RewrittenRange(begin, self._length, start, end, copied))


_CALLED = "Register a Python function instead: db.register, or headrace.connect(functions=...)."
_QUERIES = frozenset({"SELECT", "FROM", "OVER"})
_ARROWS = frozenset({"->", "=>"})
_NAMES = frozenset({TokenKind.WORD, TokenKind.BACKQUOTED})


@dataclass(frozen=True, slots=True)
class CreateFunction(Statement):
    """``CREATE FUNCTION name (parameter type, ...) RETURNS type AS expression``.

    ``parameters`` are names with their types, which are in Spark's notation, as ``returns`` is.
    """

    name: Name
    parameters: tuple[tuple[str, str], ...]
    returns: str
    body: Fragment
    span: Span
    or_replace: bool = False
    if_not_exists: bool = False

    @property
    def signature(self) -> str:
        """The name, the parameters and the result, as text."""
        given = ", ".join(f"{name} {type_}" for name, type_ in self.parameters)
        return f"{self.name.dotted}({given}) RETURNS {self.returns}"


def take_function(cursor: Cursor, first: Token, *, or_replace: bool) -> CreateFunction:
    """Take ``[IF NOT EXISTS] name (parameters) RETURNS type {AS | RETURN} expression``.

    Raises:
        HeadraceError: ``invalid`` if it is malformed, ``unsupported`` for another kind of body.
    """
    if_not_exists = not or_replace and cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name("the function's name")
    if not cursor.at_symbol("("):
        raise _refused(cursor, "CREATE FUNCTION without parameters in parentheses", _CALLED)
    parameters = _parameters(cursor)
    cursor.expect("RETURNS")
    if cursor.at("TABLE"):
        raise _refused(cursor, "a function that returns a table", "CREATE VIEW of its query.")
    returns = take_type(cursor).text
    _properties(cursor)
    if not (cursor.accept("AS") or cursor.accept("RETURN")):
        raise cursor.expected("AS", "RETURN")
    quoted = cursor.token.kind is TokenKind.STRING and cursor.peek(1).kind is TokenKind.END
    if quoted or cursor.token.text == "$":
        raise _refused(cursor, "the body of a function in quotes", "Write RETURN x + 1.")
    body = take_expression(cursor)
    cursor.expect_end()
    function = CreateFunction(
        name, parameters, returns, body, cursor.span(first), or_replace, if_not_exists
    )
    _check_body(cursor, function)
    return function


@lru_cache(maxsize=1000)
def function_of(statement: str) -> CreateFunction:
    """Parse the statement text that the catalog stores for a function."""
    cursor = Cursor(StatementText(statement, 0, len(statement)))
    first = cursor.advance()
    or_replace = cursor.accept("OR", "REPLACE")
    cursor.expect("FUNCTION")
    return take_function(cursor, first, or_replace=or_replace)


def called_with(function: CreateFunction, arguments: Sequence[str]) -> str:
    """Return the expression for a call; there are as many arguments as parameters."""
    given = {
        name.lower(): f"CAST(({argument}) AS {type_})"
        for (name, type_), argument in zip(function.parameters, arguments, strict=True)
    }
    span = function.body.span
    text, at = "", span.start
    tokens = Cursor(StatementText(span.text, span.start, span.end)).tokens
    for i, token in enumerate(tokens[:-1]):
        value = given.get(identifier_value(token).lower()) if token.kind in _NAMES else None
        if value is None or _is_other(tokens, i):
            continue
        text += span.text[at : token.start] + value
        at = token.end
    return f"CAST(({text}{span.text[at : span.end]}) AS {function.returns})"


def uses(function: CreateFunction, parameter: int) -> int:
    """Return how many times a parameter occurs in the body."""
    name, span = function.parameters[parameter][0].lower(), function.body.span
    tokens = Cursor(StatementText(span.text, span.start, span.end)).tokens
    return sum(
        token.kind in _NAMES and identifier_value(token).lower() == name
        for i, token in enumerate(tokens)
        if not _is_other(tokens, i)
    )


def _is_other(tokens: Sequence[Token], at: int) -> bool:
    """Return whether a name denotes a field, an alias or a function, not a parameter."""
    before = tokens[at - 1] if at else None
    if before is not None and (before.text in {".", "::"} or before.word == "AS"):
        return True
    return at + 1 < len(tokens) and tokens[at + 1].text == "("


def _parameters(cursor: Cursor) -> tuple[tuple[str, str], ...]:
    cursor.expect_symbol("(")
    found: dict[str, tuple[str, str]] = {}
    while not cursor.at_symbol(")"):
        place = cursor.token
        name, _ = cursor.identifier("a parameter's name")
        if name.lower() in found or name.startswith(RESERVED_PREFIX):
            raise HeadraceError(
                Code.INVALID,
                f'parameter "{name}" is there twice, or its name is reserved',
                hint="Choose another name.",
                span=cursor.span(place, place),
            )
        found[name.lower()] = name, take_type(cursor).text
        if cursor.at("NOT", "NULL"):
            cursor.expect("NOT", "NULL")
        if cursor.at("DEFAULT") or cursor.at_symbol("="):
            raise _refused(cursor, "a default of a parameter", "Give the value in each call.")
        if not cursor.accept_symbol(","):
            break
    cursor.expect_symbol(")", '","')
    return tuple(found.values())


def _properties(cursor: Cursor) -> None:
    """Skip properties that every such function has; refuse another language."""
    while True:
        if cursor.accept("LANGUAGE"):
            if not cursor.accept("SQL"):
                raise _refused(cursor, f"LANGUAGE {cursor.token.text}", _CALLED)
        elif cursor.accept("COMMENT"):
            cursor.string("a comment between quotes")
        elif not (
            cursor.accept("DETERMINISTIC")
            or cursor.accept("IMMUTABLE")
            or cursor.accept("CONTAINS", "SQL")
            or cursor.accept("NOT", "NULL")
        ):
            return


def _check_body(cursor: Cursor, function: CreateFunction) -> None:
    """Refuse bodies whose text cannot stand in place of a call."""
    span, names = function.body.span, {name.lower() for name, _ in function.parameters}
    tokens = Cursor(StatementText(span.text, span.start, span.end)).tokens
    for i, token in enumerate(tokens[:-1]):
        if token.word in _QUERIES and not (token.word == "FROM" and _in_call(tokens, i)):
            raise HeadraceError(
                Code.UNSUPPORTED,
                f"{token.word} in the body of a function is not supported",
                hint="Use an expression of the parameters; join or group in the query.",
                span=cursor.span(token, token),
            )
        if token.word == function.name.parts[-1].upper() and tokens[i + 1].text == "(":
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'function "{function.name}" calls itself, which is not supported',
                hint="Use aggregate(list, start, (state, x) -> ...), or WITH RECURSIVE in a query.",
                span=cursor.span(token, token),
            )
        for parameter in _parameters_of_lambda(tokens, i) if token.text in _ARROWS else ():
            if identifier_value(parameter).lower() in names:
                raise HeadraceError(
                    Code.UNSUPPORTED,
                    f'a lambda function with the parameter "{parameter.text}" of its function is'
                    " not supported",
                    hint="Give one of them another name.",
                    span=cursor.span(parameter, parameter),
                )


def _parameters_of_lambda(tokens: Sequence[Token], arrow: int) -> list[Token]:
    """Return the names before an arrow: one, or those in parentheses."""
    if tokens[arrow - 1].text != ")":
        return [token for token in tokens[arrow - 1 : arrow] if token.kind in _NAMES]
    first = max((i for i in range(arrow) if tokens[i].text == "("), default=arrow)
    return [token for token in tokens[first:arrow] if token.kind in _NAMES]


def _in_call(tokens: Sequence[Token], at: int) -> bool:
    """Return whether FROM belongs to ``EXTRACT(YEAR FROM x)`` or ``IS DISTINCT FROM``."""
    depth = 0
    if tokens[at - 1].word == "DISTINCT":
        return True
    for i in range(at - 1, 0, -1):
        depth += (tokens[i].text == ")") - (tokens[i].text == "(")
        if depth < 0:
            return tokens[i - 1].word in {"EXTRACT", "TRIM", "SUBSTRING", "OVERLAY", "POSITION"}
    return False


def _refused(cursor: Cursor, what: str, hint: str) -> HeadraceError:
    return HeadraceError(
        Code.UNSUPPORTED,
        f"{what} is not supported",
        hint=hint,
        span=cursor.span(cursor.token, cursor.token),
    )
