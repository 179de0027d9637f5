"""``FROM orders o JOIN policy FOR SYSTEM_TIME AS OF o.ts AS p``: versions of a table at a time.

Spark has no versioned tables, so the clause is rewritten on tokens to plain Spark SQL: a version
of a key is valid from its own date up to the next version's. The result is a subquery with only
the table's own columns, so that ``*`` and ``p.*`` return no others; it is LATERAL if the time
depends on another relation. A time that is NULL or before the first version finds no row.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from headrace.catalog import Table, View
from headrace.dialects.time_expression import is_constant, refuse_clock, take_time
from headrace.errors import Code, HeadraceError, unknown
from headrace.sql.cursor import RESERVED_PREFIX, Cursor
from headrace.sql.keywords import NOT_NAMES, quote
from headrace.sql.lexer import StatementText, Token, TokenKind, identifier_value
from headrace.sql.rewritten import Rewriting, Rewritten, unchanged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.catalog import Relation
    from headrace.errors import Span

_IDENTIFIERS = frozenset({TokenKind.WORD, TokenKind.BACKQUOTED})
_FROM = f"{RESERVED_PREFIX}effective_from"
_UNTIL = f"{RESERVED_PREFIX}effective_until"
_CLAUSE = "FOR SYSTEM_TIME AS OF"
_NOT_ALIASES = NOT_NAMES | frozenset(
    """
    ANTI CLUSTER DISTRIBUTE LATERAL MINUS NATURAL PIVOT QUALIFY SEMI SORT TABLESAMPLE UNPIVOT WINDOW
    """.split()  # noqa: SIM905 - one word per line would be a screen of its own
)
_RANGES = frozenset({"ALL", "BETWEEN", "CONTAINED", "FROM"})
_TO_THE_RIGHT = "Use JOIN or LEFT JOIN, with the versioned table on the right."
_JOINS = {
    "RIGHT": _TO_THE_RIGHT,
    "FULL": _TO_THE_RIGHT,
    "SEMI": f"Use WHERE EXISTS (SELECT 1 FROM ... {_CLAUSE} ... WHERE ...).",
    "ANTI": f"Use WHERE NOT EXISTS (SELECT 1 FROM ... {_CLAUSE} ... WHERE ...).",
    "NATURAL": "Use ON, and name the columns that must be equal.",
}
"""Joins whose right side cannot refer to rows of the left side, each with an alternative."""


def with_versions(query: Span, relations: Mapping[str, Relation]) -> Rewritten:
    """Return the query for Spark; ``relations`` are by their dotted names.

    Raises:
        HeadraceError: ``invalid`` or ``unsupported``, at the place in the query, if the clause is
            malformed, its relation is not a versioned table, or the join is of another kind.
    """
    if "system_time" not in query.source.lower():
        return unchanged(query)
    cursor = Cursor(StatementText(query.text, query.start, query.end, query.file))
    rewriting = Rewriting(query)
    while not cursor.at_end():
        if cursor.at("FOR", "SYSTEM_TIME", "AS", "OF"):
            _Clause(cursor, relations).rewrite(rewriting)
        elif cursor.at("FOR", "SYSTEM_TIME") and cursor.peek(2).word in _RANGES:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f"FOR SYSTEM_TIME {cursor.peek(2).word} is not supported",
                hint="Read the table itself: it has all versions, each with its date.",
                span=cursor.span(cursor.token, cursor.peek(2)),
            )
        else:
            cursor.advance()
    return rewriting.done()


class _Clause:
    """One occurrence of the clause; the cursor is at FOR."""

    def __init__(self, cursor: Cursor, relations: Mapping[str, Relation]) -> None:
        self.cursor = cursor
        self.relations = relations
        self.before = cursor.tokens[: cursor.index]
        self.name = name_before(cursor, _CLAUSE)

    def rewrite(self, rewriting: Rewriting) -> None:
        """Parse the clause, and write its translation."""
        cursor, before = self.cursor, self.before[: -len(self.name)]
        introduction = before[-1] if before else None
        table = self._table()
        cursor.expect("FOR", "SYSTEM_TIME", "AS", "OF")
        time = take_time(cursor)
        refuse_clock(cursor, time)
        joined = introduction is not None and (
            introduction.word == "JOIN" or introduction.text == ","
        )
        lateral = joined and not is_constant(time)
        named = has_alias(cursor)
        if lateral:
            self._refuse_join(before)
            self._refuse_using(has_alias=named)
        span = cursor.span(self.name[0], time[-1])
        rewriting.replace(
            span, _text(table, cursor.span(self.name[0], self.name[-1]), time, lateral=lateral)
        )
        if not named:
            rewriting.add(f" AS {quote(identifier_value(self.name[-1]))}")

    def _table(self) -> Table:
        """Return the versioned table that the clause follows."""
        name = ".".join(identifier_value(t) for t in self.name if t.text != ".").lower()
        span = self.cursor.span(self.name[0], self.name[-1])
        if name in common_tables(self.cursor.tokens):
            raise HeadraceError(
                Code.INVALID,
                f'common table expression "{name}" has no versions',
                hint=f"Use {_CLAUSE} inside it, at the versioned table that it reads.",
                span=span,
            )
        relation = table_named(name, self.relations, span)
        if isinstance(relation, Table) and relation.effective_from is not None:
            return relation
        stored = isinstance(relation, Table | View)
        raise HeadraceError(
            Code.INVALID,
            f'{relation.kind} "{name}" has no versions',
            detail=f"{_CLAUSE} finds the version of a key at a time, in a versioned table.",
            hint="Declare a table with PRIMARY KEY and WITH (effective_from = 'column')"
            + (f"; or SELECT FROM AS_OF(TABLE pairs, {name})." if stored else "."),
            span=span,
        )

    def _refuse_join(self, before: Sequence[Token]) -> None:
        if before[-1].word != "JOIN":
            return
        for token in reversed(before[-4:-1]):
            if token.word in _JOINS:
                raise HeadraceError(
                    Code.UNSUPPORTED,
                    f"{token.word} JOIN with {_CLAUSE} a column is not supported",
                    hint=_JOINS[token.word],
                    span=self.cursor.span(token, before[-1]),
                )
            if token.word not in {"LEFT", "OUTER"}:
                return

    def _refuse_using(self, *, has_alias: bool) -> None:
        """Raise if USING follows: a lateral subquery has no common columns."""
        ahead = 0
        if has_alias:
            ahead = 2 if self.cursor.at("AS") else 1
        alias = self.cursor.peek(ahead - 1).text if ahead else self.name[-1].text
        using = self.cursor.peek(ahead)
        if using.word != "USING":
            return
        column = self.cursor.peek(ahead + 2).text
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"USING with {_CLAUSE} a column is not supported",
            hint=f"Use ON, with both columns: ON ... = {alias}.{column}.",
            span=self.cursor.span(using, using),
        )


_BEFORE_NAME = frozenset({"FROM", "JOIN"})


def name_before(cursor: Cursor, clause: str) -> list[Token]:
    """Return the tokens of the relation's name before a clause at the cursor.

    Raises:
        HeadraceError: ``invalid`` if something else precedes it, such as an alias.
    """
    tokens = cursor.tokens[: cursor.index]
    if not tokens or tokens[-1].kind not in _IDENTIFIERS or tokens[-1].word in NOT_NAMES:
        raise HeadraceError(
            Code.INVALID,
            f"{clause} must follow the name of a table",
            hint=f"Write FROM name {clause} time AS alias.",
            span=cursor.span(cursor.token, cursor.peek(clause.count(" "))),
        )
    first = len(tokens) - 1
    while first >= 2 and tokens[first - 1].text == ".":  # noqa: PLR2004
        first -= 2
    before = tokens[first - 1] if first else None
    if before is not None and (before.kind in _IDENTIFIERS and before.word not in _BEFORE_NAME):
        raise HeadraceError(
            Code.INVALID,
            f"the alias {tokens[-1].text} is before {clause}",
            hint=f"Write it after the time: name {clause} time AS {tokens[-1].text}.",
            span=cursor.span(tokens[-1], tokens[-1]),
        )
    return tokens[first:]


def table_named(name: str, relations: Mapping[str, Relation], span: Span) -> Relation:
    """Return the relation of a dotted lower-case name; raise ``invalid`` if it does not exist."""
    relation = relations.get(name)
    if relation is None:
        what, otherwise = "stream, table or view", "SHOW TABLES lists what exists."
        raise unknown(what, name, relations, otherwise, span)
    return relation


def has_alias(cursor: Cursor) -> bool:
    """Whether an alias follows."""
    token = cursor.token
    if token.word == "AS":
        return True
    return token.kind in _IDENTIFIERS and token.word not in _NOT_ALIASES


def common_tables(tokens: Sequence[Token]) -> set[str]:
    """Return the lower-case names that WITH defines, ``name [(columns)] AS (``."""
    found = set()
    for i, (here, following) in enumerate(pairwise(tokens)):
        if here.word != "AS" or following.text != "(" or not i:
            continue
        at = i - 1
        if tokens[at].text == ")":
            while at and tokens[at].text != "(":
                at -= 1
            at -= 1
        if at >= 0 and tokens[at].kind in _IDENTIFIERS:
            found.add(identifier_value(tokens[at]).lower())
    return found


def _text(
    table: Table, name: Span, time: Sequence[Token], *, lateral: bool
) -> list[str | tuple[int, int]]:
    """Return the subquery: text, and ranges of the query to copy."""
    effective = quote(table.effective_from or "")
    inner, outer = [], []
    for i, column in enumerate(table.schema.names):
        if column == table.effective_from:
            outer.append(f"{_FROM} AS {quote(column)}")
            continue
        inner.append(f"{quote(column)} AS `{RESERVED_PREFIX}{i}`")
        outer.append(f"`{RESERVED_PREFIX}{i}` AS {quote(column)}")
    key = ", ".join(quote(column) for column in table.versioned_key)
    until = f"lead({effective}) OVER (PARTITION BY {key} ORDER BY {effective})"
    intervals = f"SELECT {', '.join([*inner, f'{effective} AS {_FROM}', f'{until} AS {_UNTIL}'])}"
    copied = (time[0].start, time[-1].end)
    return [
        f"{'LATERAL ' if lateral else ''}(SELECT {', '.join(outer)} FROM ({intervals} FROM ",
        (name.start, name.end),
        f") AS {quote(table.name)} WHERE (",
        copied,
        f") >= {_FROM} AND ({_UNTIL} IS NULL OR (",
        copied,
        f") < {_UNTIL}))",
    ]
