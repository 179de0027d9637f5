"""``CREATE FUNCTION`` with an expression as its body: parsing, and expansion of calls.

A call is replaced by the body, with each argument, cast to the declared type, for its parameter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.sql.column_types import take_type
from headrace.sql.cursor import RESERVED_PREFIX, Cursor
from headrace.sql.fragments import take_expression
from headrace.sql.lexer import StatementText, TokenKind, identifier_value
from headrace.sql.parts import Statement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.errors import Span
    from headrace.sql.lexer import Token
    from headrace.sql.parts import Fragment, Name

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
