"""Queries and expressions inside a statement: finds their ends, without parsing them.

Spark parses the text. Two clauses at the end of a query are Headrace's own and are removed: ``EMIT
CHANGES`` and ``AS OF EPOCH n | TIMESTAMP '...'``, in either order. ``EMIT FINAL`` decides which
rows the query returns, so it stays in the text.

Parses ``VALUES`` as rows of token ranges, so that each value is typed independently.

``name`` or ``name(column, column AS new, ...)``: a view, and the columns that are read of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from headrace.errors import Code, HeadraceError, Span
from headrace.planning.sql.as_of import AskedView, AsOf, AsOfEpoch, AsOfTimestamp
from headrace.planning.sql.cursor import Cursor, require_bounded
from headrace.planning.sql.lexer import StatementText, Token, TokenKind, string_value, tokens
from headrace.planning.sql.parts import Fragment, Query
from headrace.planning.sql.refusals import refuse_in_query
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Sequence


QUERY_WORDS = frozenset({"SELECT", "WITH", "VALUES", "FROM", "TABLE"})
"""The words that a query can begin with; it can also begin with a parenthesis."""

_CLOSING = {"(": ")", "[": "]", "{": "}"}
_AS_OF_LENGTH = 4
# Spark's own time travel of one relation: `t TIMESTAMP AS OF ...`, `FOR SYSTEM_TIME AS OF ...`.
_TRAVELS = frozenset({"VERSION", "TIMESTAMP", "SYSTEM_TIME", "SYSTEM_VERSION"})
# Words that, outside all brackets, show that the text is more than an expression.
_NOT_IN_EXPRESSIONS = frozenset(
    {"WHERE", "FROM", "HAVING", "UNION", "INTERSECT", "EXCEPT", "RETURNING", "SELECT"}
)
_CLAUSE_HINTS = {
    "FROM": "Use a subquery in parentheses to read from another relation.",
    "RETURNING": "RETURNING is not supported: read the rows with SELECT.",
    "LIMIT": "LIMIT is not supported here: choose the rows by their key with WHERE.",
}
_NOT_HERE = frozenset({",", ")", "]", "}"})
_NOT_BEFORE_BY = frozenset({"ORDER", "GROUP", "SORT", "CLUSTER", "DISTRIBUTE", "PARTITION"})
_LARGEST_EPOCH = 2**63 - 1


def at_query(cursor: Cursor) -> bool:
    """Return whether a query begins at the next token."""
    return cursor.token.word in QUERY_WORDS or cursor.at_symbol("(")


def take_query(cursor: Cursor, end: int | None = None) -> Query:
    """Take the rest of the statement as a query, or the tokens before index ``end``.

    Raises:
        HeadraceError: ``invalid`` if no query begins here, a bracket is unbalanced, or
            ``EMIT CHANGES`` is not at the end; ``unsupported`` for syntax of Hive alone.
    """
    if not at_query(cursor):
        raise cursor.expected("a query")
    first, start = cursor.token, cursor.index
    stop = len(cursor.tokens) - 1 if end is None else end
    body = cursor.tokens[start:stop]
    _check_brackets(cursor, body)
    require_bounded(cursor, body)
    refuse_in_query(cursor, body)
    emit_changes, as_of = False, None
    while True:
        if not emit_changes and _ends_in(body, "CHANGES"):
            emit_changes, body = True, body[:-2]
        elif as_of is None and (found := _as_of(cursor, body)) is not None:
            as_of, body = found, body[:-_AS_OF_LENGTH]
        else:
            break
    final = _ends_in(body, "FINAL") or _ends_in(body, "ON", "WINDOW", "CLOSE")
    if not body:  # pragma: no cover - a query word comes first, so there is a token
        raise cursor.expected("a query")
    _refuse_emit(cursor, body[:-2] if _ends_in(body, "FINAL") else body)
    cursor.index = stop
    follows = emit_changes or final
    return Query(cursor.text(first, body[-1]), cursor.span(first, body[-1]), follows, as_of)


def take_as_of(cursor: Cursor) -> AsOf | None:
    """Take ``AS OF EPOCH n`` or ``AS OF TIMESTAMP '...'`` if it comes next."""
    if not cursor.at("AS", "OF"):
        return None
    body = [cursor.peek(i) for i in range(_AS_OF_LENGTH)]
    found = _as_of(cursor, body)
    if found is None:
        cursor.expect("AS", "OF")
        if not (cursor.accept("EPOCH") or cursor.accept("TIMESTAMP")):
            raise cursor.expected("EPOCH", "TIMESTAMP")
        raise cursor.expected(
            "an epoch's number" if body[2].word == "EPOCH" else "a timestamp between quotes"
        )
    cursor.index += _AS_OF_LENGTH
    return found


def take_expression(cursor: Cursor, *stops: str) -> Fragment:
    """Take an expression up to one of ``stops``, each a word or a symbol, or to the end.

    Words and symbols inside brackets or ``CASE ... END`` do not end it.

    Raises:
        HeadraceError: ``invalid`` if there is no expression, a bracket or CASE is not closed,
            or a clause follows that cannot be part of an expression.
    """
    first, start = cursor.token, cursor.index
    cases: list[Token] = []
    while not cursor.at_end():
        token = cursor.token
        if token.text in _CLOSING and token.kind is TokenKind.SYMBOL:
            _skip_brackets(cursor)
            continue
        if token.word == "CASE":
            cases.append(token)
        elif token.word == "END" and cases:
            cases.pop()
        elif not cases and (token.word or token.text) in stops:
            break
        elif token.text in _NOT_HERE or _is_clause(cursor, start):
            hint = _CLAUSE_HINTS.get(token.word)
            following = [stop if stop.isalpha() else f'"{stop}"' for stop in stops]
            raise cursor.expected("an operator", *following, "the end of the statement", hint=hint)
        cursor.advance()
    if cases:
        raise HeadraceError(
            Code.INVALID,
            "CASE without END",
            hint="Write CASE WHEN ... THEN ... ELSE ... END; quote `case` if it is a column.",
            span=cursor.span(cases[-1], cases[-1]),
        )
    if cursor.index == start:
        raise cursor.expected("an expression")
    require_bounded(cursor, cursor.tokens[start : cursor.index])
    return Fragment(cursor.text(first, cursor.previous), cursor.span(first))


def _is_clause(cursor: Cursor, start: int) -> bool:
    """Return whether a query's clause begins here, after an expression that began at ``start``."""
    word = cursor.token.word
    if not word or cursor.index == start:
        return False
    before = cursor.previous
    if before.kind is TokenKind.SYMBOL and before.text not in _NOT_HERE:
        return False  # an operand is missing, so this word is a column
    if word == "FROM":
        return before.word != "DISTINCT"  # IS DISTINCT FROM
    if word in _NOT_BEFORE_BY:
        return cursor.peek(1).word == "BY"
    if word == "LIMIT":
        return cursor.peek(1).kind is TokenKind.NUMBER
    return word in _NOT_IN_EXPRESSIONS


def _skip_brackets(cursor: Cursor) -> None:
    """Skip the bracketed tokens that begin here, including the closing bracket."""
    rest = cursor.tokens[cursor.index : -1]
    depth = 0
    for ahead, token in enumerate(rest):
        if token.kind is TokenKind.SYMBOL:
            depth += (token.text in _CLOSING) - (token.text in _CLOSING.values())
        if depth == 0:
            _check_brackets(cursor, rest[: ahead + 1])
            cursor.index += ahead + 1
            return
    _check_brackets(cursor, rest)


def _check_brackets(cursor: Cursor, body: list[Token]) -> None:
    """Raise at an unbalanced bracket."""
    opened: list[Token] = []
    for token in body:
        if token.kind is not TokenKind.SYMBOL:
            continue
        if token.text in _CLOSING:
            opened.append(token)
        elif token.text in _CLOSING.values():
            if not opened or _CLOSING[opened[-1].text] != token.text:
                raise HeadraceError(
                    Code.INVALID,
                    f'"{token.text}" closes nothing',
                    hint=(
                        f'The bracket open here is "{opened[-1].text}".'
                        if opened
                        else "No bracket is open here."
                    ),
                    span=cursor.span(token, token),
                )
            opened.pop()
    if opened:
        raise HeadraceError(
            Code.INVALID,
            f'"{opened[-1].text}" is not closed',
            hint=f'Close it with "{_CLOSING[opened[-1].text]}".',
            span=cursor.span(opened[-1], opened[-1]),
        )


def _ends_in(body: list[Token], *emitted: str) -> bool:
    """Return whether the tokens end in EMIT and these words, after at least one other token."""
    words = ["EMIT", *emitted]
    return len(body) > len(words) and [t.word for t in body[-len(words) :]] == words


def _as_of(cursor: Cursor, body: list[Token]) -> AsOf | None:
    """Return the AS OF at the end of the tokens; None if it is Spark's own for one relation."""
    if len(body) < _AS_OF_LENGTH or [t.word for t in body[-4:-2]] != ["AS", "OF"]:
        return None
    if len(body) > _AS_OF_LENGTH and body[-5].word in _TRAVELS:
        return None
    unit, value = body[-2:]
    span = cursor.span(body[-4], value)
    if unit.word == "EPOCH" and value.kind is TokenKind.NUMBER:
        if not value.text.isdecimal() or int(value.text) > _LARGEST_EPOCH:
            raise HeadraceError(
                Code.INVALID,
                f'"{value.text}" is not an epoch',
                hint="An epoch is a whole number: SHOW EPOCHS lists those that can be read.",
                span=cursor.span(value, value),
            )
        return AsOfEpoch(Epoch(int(value.text)), span)
    if unit.word == "TIMESTAMP" and value.kind in {TokenKind.STRING, TokenKind.DQUOTED}:
        return AsOfTimestamp(string_value(value), span)
    return None


def _refuse_emit(cursor: Cursor, body: list[Token]) -> None:
    """Raise if EMIT is not at the end."""
    depth = 0
    for here, following in zip(body, [*body[1:], cursor.tokens[-1]], strict=True):
        if here.kind is TokenKind.SYMBOL:
            depth += (here.text in "([{") - (here.text in ")]}")
        if depth or here.word != "EMIT":
            continue
        if following.word in {"CHANGES", "FINAL"}:
            raise HeadraceError(
                Code.INVALID,
                f"EMIT {following.word} must end the statement",
                hint=f"Move EMIT {following.word} after all other clauses.",
                span=cursor.span(here, following),
            )


_OPENING = frozenset("([{")
_VALUES_CLOSING = frozenset(")]}")


ValueRow: TypeAlias = list[list[Token]]
"""One row of ``VALUES``: the tokens of each of its values."""

_CLAUSES = frozenset(
    ["AS", "ORDER", "LIMIT", "OFFSET", "UNION", "EXCEPT", "MINUS", "INTERSECT", "SORT", "CLUSTER"]
)
"""Words that show that the query is not just a list of rows."""


def value_rows(query: Span) -> list[ValueRow] | None:
    """Return the rows of ``VALUES (a, b), (c, d)``; None if the query is anything else."""
    try:
        found = list(tokens(query.text, query.start, query.end, query.file))
    except HeadraceError:
        return None
    if not found or found[0].word != "VALUES":
        return None
    rows: list[ValueRow] = []
    at = 1
    while at < len(found):
        if found[at].text == "(":
            row, at = _bracketed(found, at + 1)
        else:
            row, at = _bare(found, at)
        if row is None or not all(row):
            return None
        rows.append(row)
        if at == len(found):
            return rows
        if found[at].text != ",":
            return None
        at += 1
    return None


def place_of(query: Span, found: Sequence[Token]) -> Span:
    """Return the span of some tokens of a query."""
    return Span(query.text, found[0].start, found[-1].end, query.file, query.line)


def _bracketed(found: list[Token], at: int) -> tuple[ValueRow | None, int]:
    """Return the values up to the closing bracket, and the index after it."""
    row: ValueRow = [[]]
    depth = 0
    for place in range(at, len(found)):
        token = found[place]
        text = token.text
        if depth == 0:
            if text == ",":
                row.append([])
                continue
            if text == ")":
                return row, place + 1
        if text in _OPENING:
            depth += 1
        elif text in _VALUES_CLOSING:
            depth -= 1
        row[-1].append(token)
    return None, len(found)


def _bare(found: list[Token], at: int) -> tuple[ValueRow | None, int]:
    """Return the single value of a row without brackets, up to a comma, and its end."""
    depth = 0
    end = at
    while end < len(found):
        token = found[end]
        if depth == 0 and token.text == ",":
            break
        if depth == 0 and token.word in _CLAUSES:
            return None, end
        depth += (token.text in _OPENING) - (token.text in _VALUES_CLOSING)
        end += 1
    return [found[at:end]], end


def asked_view(text: str) -> AskedView:
    """Return the view that a text names.

    Raises:
        HeadraceError: ``invalid``, at the place in the text.
    """
    cursor = Cursor(StatementText(text, 0, len(text)))
    found = take_asked_view(cursor)
    cursor.expect_end("(")
    return AskedView(found.name, found.columns)


def take_asked_view(cursor: Cursor) -> AskedView:
    """Take a view's name, and the columns after it between parentheses, if there are any."""
    name, columns = cursor.name("the name of a view"), dict[str, tuple[str, str]]()

    def one() -> None:
        column, token = cursor.identifier("a column")
        new = column
        if cursor.accept("AS"):
            new, token = cursor.identifier("a name")
        cursor.refuse_twice("column", new, columns, token)
        columns[new.lower()] = (column, new)

    if not cursor.at_symbol("("):
        return AskedView(name.dotted, None, name.span)
    cursor.listed(one)
    return AskedView(name.dotted, tuple(columns.values()), name.span)
