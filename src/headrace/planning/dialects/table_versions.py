"""``FROM orders o JOIN policy FOR SYSTEM_TIME AS OF o.ts AS p``: versions of a table at a time.

Spark has no versioned tables, so the clause is rewritten on tokens to plain Spark SQL: a version
of a key is valid from its own date up to the next version's. The result is a subquery with only
the table's own columns, so that ``*`` and ``p.*`` return no others; it is LATERAL if the time
depends on another relation. A time that is NULL or before the first version finds no row.

``FROM orders VERSION AS OF 17``: one table of a query as of an epoch or a time; its changes.

Spark, Delta and Flink write ``[FOR] VERSION AS OF n``, ``[FOR] TIMESTAMP AS OF time`` and ``FOR
SYSTEM_TIME AS OF time``; ``AS OF EPOCH n`` and ``AS OF TIMESTAMP '...'`` are Headrace's own. Each
is replaced by a generated name that stands for the rows of that table at that epoch, so one query
can compare two epochs of a table. A version is an epoch.

``FROM orders FOR CHANGES BETWEEN EPOCH 3 AND 17`` is replaced in the same way, by a name that
stands for the rows that were inserted and deleted after epoch 3, up to epoch 17. ``FOR CHANGES FROM
EPOCH 3 [TO EPOCH 17]`` is the same, and ``TIMESTAMP '...'`` can be written for an epoch.

``FROM AS_OF(TABLE pairs, ...)`` is a relation, too: see
:mod:`headrace.planning.dialects.asof_joins`.

``FOR SYSTEM_TIME AS OF`` after a versioned table chooses versions by their dates instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError, Span, unknown
from headrace.planning.catalog import PlainView, Sink, Stream, Table, View
from headrace.planning.dialects.asof_joins import at_pairs, joined, take_pairs
from headrace.planning.dialects.intervals import is_constant, refuse_clock, take_time
from headrace.planning.sql.as_of import AsOfEpoch, AsOfTimestamp, ChangesBetween
from headrace.planning.sql.cursor import RESERVED_PREFIX, Cursor
from headrace.planning.sql.lexer import (
    NOT_NAMES,
    StatementText,
    Token,
    TokenKind,
    identifier_value,
    quote,
    string_value,
)
from headrace.planning.sql.rewritten import Rewriting, Rewritten, unchanged
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.planning.catalog import Relation
    from headrace.planning.sql.as_of import AsOf, PairsAsOf


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


_TABLE_EPOCHS_CLAUSE = re.compile(r"\bas\s+of\b|\bchanges\b|\bas_of\s*\(", re.IGNORECASE)
_VERSIONS = ("VERSION", "SYSTEM_VERSION")
_TIMES = ("TIMESTAMP", "SYSTEM_TIME")
_STRINGS = frozenset({TokenKind.STRING, TokenKind.DQUOTED})
_AS_OF = "AS OF"
_CHANGES = "FOR CHANGES"
_TYPED = 2
"""Tokens of ``TIMESTAMP '...'``."""


@dataclass(frozen=True, slots=True)
class AtEpoch:
    """A table or view as of an epoch or time, or its changes; ``name`` replaces it in the text."""

    name: str
    relation: Table | View
    read: AsOf | ChangesBetween


@dataclass(frozen=True, slots=True)
class AtTimes:
    """Rows with the values of views, each as of its own time; ``name`` replaces it in the text."""

    name: str
    read: PairsAsOf


@dataclass(frozen=True, slots=True)
class WithEpochs:
    """A query in which names stand for tables at epochs."""

    query: Rewritten
    tables: tuple[AtEpoch | AtTimes, ...] = ()
    as_now: Span = field(default=Span.whole(""))
    """The query without the clauses."""


def with_epochs(query: Span, relations: Mapping[str, Relation], prefix: str = "") -> WithEpochs:
    """Return a query with a generated name, with ``prefix``, for each table with such a clause.

    ``relations`` are by their dotted names.

    Raises:
        HeadraceError: ``invalid`` or ``unsupported``, at the place in the query, if a clause is
            malformed, or its relation is not stored by epoch.
    """
    if _TABLE_EPOCHS_CLAUSE.search(query.source) is None:
        return WithEpochs(unchanged(query), (), query)
    cursor = Cursor(StatementText(query.text, query.start, query.end, query.file))
    rewriting, without = Rewriting(query), Rewriting(query)
    found: list[AtEpoch | AtTimes] = []
    while not cursor.at_end():
        if at_pairs(cursor):
            pairs = take_pairs(cursor)
            name = f"{prefix}{len(found)}"
            found.append(AtTimes(name, pairs))
            alias = "" if has_alias(cursor) else " AS as_of"
            rewriting.replace(pairs.span, [quote(name), alias])
            rows = with_epochs(pairs.pairs, relations).as_now.source
            without.replace(pairs.span, [*joined(pairs, rows, relations), alias])
            continue
        words, kind = _clause(cursor, relations)
        if kind is None:
            for _ in range(max(words, 1)):
                cursor.advance()
            continue
        tokens = name_before(cursor, " ".join(cursor.peek(i).text for i in range(words)))
        relation = _stored(cursor, tokens, relations, kind)
        read = _changes(cursor) if kind == _CHANGES else _taken(cursor, words, cursor.token)
        table = AtEpoch(f"{prefix}{len(found)}", relation, read)
        found.append(table)
        alias = "" if has_alias(cursor) else f" AS {quote(identifier_value(tokens[-1]))}"
        place = cursor.span(tokens[0], cursor.previous)
        rewriting.replace(place, [quote(table.name), alias])
        without.replace(place, [(tokens[0].start, tokens[-1].end)])
    return WithEpochs(rewriting.done(), tuple(found), without.done().span)


def refuse_epochs(query: Span, relations: Mapping[str, Relation]) -> None:
    """Raise ``unsupported`` at the first table read as of an epoch or a time, or for changes."""
    found = with_epochs(query, relations, "").tables
    first = found[0] if found else None
    if isinstance(first, AtTimes):
        raise HeadraceError(
            Code.UNSUPPORTED,
            "AS_OF is not supported here",
            detail="Only a SELECT reads views as of the times of rows; a view follows its inputs.",
            hint="In a view, use ASOF JOIN, or FOR SYSTEM_TIME AS OF with a versioned table.",
            span=first.read.span,
        )
    if first is not None and isinstance(first.read, ChangesBetween):
        relation = first.relation
        raise HeadraceError(
            Code.UNSUPPORTED,
            f'{relation.kind} "{relation.name}" FOR CHANGES is not supported here',
            detail="Only a SELECT reads changes by epoch; a view follows its inputs.",
            hint="Use it in a SELECT; or read the relation itself, or SUBSCRIBE to its changes.",
            span=first.read.span,
        )
    if first is not None:
        raise HeadraceError(
            Code.UNSUPPORTED,
            f'{first.relation.kind} "{first.relation.name}" AS OF an epoch or a time is not'
            " supported here",
            detail="Only a SELECT reads a table as it was; a view follows its inputs.",
            hint="Use it in a SELECT; or leave it out, and read the result AS OF an epoch.",
            span=first.read.span,
        )


def _clause(cursor: Cursor, relations: Mapping[str, Relation]) -> tuple[int, str | None]:
    """Return the number of words of the clause that begins here, up to OF; 0 if there is none.

    The second value says which clause it is; None if it chooses versions, not an epoch or time of
    reading.
    """
    if cursor.at("FOR", "CHANGES") and cursor.peek(2).word in ("BETWEEN", "FROM"):
        return 2, _CHANGES
    first = 1 if cursor.at("FOR") else 0
    kind, rest = cursor.peek(first), [cursor.peek(first + i).word for i in (1, 2)]
    if kind.word in (*_VERSIONS, *_TIMES) and rest == ["AS", "OF"]:
        time = [cursor.peek(first + i) for i in (3, 4)]
        constant = time[0].kind in _STRINGS or time[1].kind in _STRINGS
        plain = constant and _has_epochs(cursor, relations)
        return first + 3, _AS_OF if kind.word != "SYSTEM_TIME" or plain else None
    of = cursor.at("AS", "OF") and cursor.peek(2).word in ("EPOCH", "TIMESTAMP")
    value = cursor.peek(4 if cursor.peek(3).text == "-" else 3)
    return (2, _AS_OF) if of and value.kind in (TokenKind.NUMBER, *_STRINGS) else (0, None)


def _has_epochs(cursor: Cursor, relations: Mapping[str, Relation]) -> bool:
    """Whether a view, or an unversioned table, precedes the clause."""
    try:
        tokens = name_before(cursor, "FOR SYSTEM_TIME AS OF")
    except HeadraceError:
        return False
    relation = relations.get(".".join(identifier_value(t) for t in tokens if t.text != ".").lower())
    return isinstance(relation, View) or (
        isinstance(relation, Table) and relation.effective_from is None
    )


def _stored(
    cursor: Cursor, tokens: list[Token], relations: Mapping[str, Relation], clause: str
) -> Table | View:
    """Return the table or view of a name."""
    span = cursor.span(tokens[0], tokens[-1])
    name = ".".join(identifier_value(t) for t in tokens if t.text != ".").lower()
    if name in common_tables(cursor.tokens):
        raise HeadraceError(
            Code.INVALID,
            f'common table expression "{name}" has no epochs',
            hint=f"Use {clause} inside it, at the tables and views that it reads.",
            span=span,
        )
    relation = table_named(name, relations, span)
    match relation:
        case Table() | View():
            return relation
        case Stream():
            hint = "Tables and views can be read as they were."
            if clause == _CHANGES:
                hint = "A stream only has insertions: read its rows, by their time."
        case PlainView() | Sink():
            hint = f"Use {clause} at the tables and views that it reads."
    raise HeadraceError(
        Code.UNSUPPORTED,
        f'{clause} on {relation.kind} "{name}" is not supported',
        hint=hint,
        span=span,
    )


def _taken(cursor: Cursor, words: int, clause: Token) -> AsOf:
    """Parse the clause; return its epoch or time."""
    kind = cursor.peek(words - 3).word if words > 2 else cursor.peek(words).word  # noqa: PLR2004
    for _ in range(words if words > 2 else words + 1):  # noqa: PLR2004
        cursor.advance()
    if kind in _TIMES:
        return AsOfTimestamp(_time(cursor), cursor.span(clause, cursor.previous))
    return _epoch(cursor, clause)


def _changes(cursor: Cursor) -> ChangesBetween:
    """Parse ``FOR CHANGES ...``; return the range of epochs."""
    clause = cursor.token
    cursor.expect("FOR", "CHANGES")
    between = cursor.accept("BETWEEN")
    if not between:
        cursor.expect("FROM")
    after, upto = _end(cursor), None
    if between:
        cursor.expect("AND")
    if between or cursor.accept("TO"):
        upto = _end(cursor, after)
    return ChangesBetween(after, upto, cursor.span(clause, cursor.previous))


def _end(cursor: Cursor, first: AsOf | None = None) -> AsOf:
    """Parse an end of a range; the second one needs no word if it is of the kind of the first."""
    clause = cursor.token
    at_value = cursor.token.kind in (TokenKind.NUMBER, *_STRINGS) or cursor.token.text == "-"
    if cursor.accept("EPOCH") or (at_value and isinstance(first, AsOfEpoch)):
        return _epoch(cursor, clause)
    if cursor.accept("TIMESTAMP") or (at_value and isinstance(first, AsOfTimestamp)):
        if cursor.token.kind not in _STRINGS:
            raise cursor.expected("a timestamp between quotes")
        return AsOfTimestamp(string_value(cursor.advance()), cursor.span(clause, cursor.previous))
    raise cursor.expected("EPOCH", "TIMESTAMP")


def _epoch(cursor: Cursor, clause: Token) -> AsOfEpoch:
    """Take the number of an epoch."""
    first = token = cursor.advance()
    sign = "-" if first.text == "-" else ""
    if sign:
        token = cursor.advance()
    text = sign + (string_value(token) if token.kind in _STRINGS else token.text)
    if not text.isdecimal() or int(text) >= 2**63:
        raise HeadraceError(
            Code.INVALID,
            f'"{sign}{token.text}" is not an epoch',
            hint="An epoch is a whole number: SHOW EPOCHS lists those that can be read.",
            span=cursor.span(first, token),
        )
    return AsOfEpoch(Epoch(int(text)), cursor.span(clause, cursor.previous))


def _time(cursor: Cursor) -> str:
    """Take a time that is a literal, and return its text."""
    time = take_time(cursor)
    typed = len(time) == _TYPED and time[0].word in ("TIMESTAMP", "DATE")
    if time[-1].kind in _STRINGS and (len(time) == 1 or typed):
        return string_value(time[-1])
    raise HeadraceError(
        Code.UNSUPPORTED,
        "the time at which a table is read is not a literal",
        hint="Write it as '2026-01-31 12:00:00', in UTC, or name an epoch: VERSION AS OF 17.",
        span=cursor.span(time[0], time[-1]),
    )
