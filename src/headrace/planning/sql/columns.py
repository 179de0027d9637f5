"""The columns, keys and watermark of ``CREATE STREAM`` and ``CREATE TABLE``.

The clauses of ``CREATE STREAM`` that restrict which rows it admits.

``DEDUPLICATE ON (id) [WITHIN INTERVAL '7' DAY]`` and ``ALLOWED LATENESS INTERVAL '1' HOUR [ON LATE
REJECT | ON LATE ACCEPT]``, ``ON ERROR STOP | ON ERROR REJECT``, in any order. The last one is for
tables, too.

The parentheses after a view's name: names of its columns, and its declared key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError, unknown
from headrace.planning.sql.column_types import take_type
from headrace.planning.sql.fragments import take_expression
from headrace.planning.sql.lexer import Token, TokenKind, quote
from headrace.planning.sql.parts import ColumnDefinition, Fragment, ObjectKind, WatermarkClause

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.planning.sql.cursor import Cursor


EMBEDDED_METADATA: tuple[str, ...] = ("topic", "partition", "offset", "timestamp", "headers")
"""The keys of METADATA columns of relations in the embedded log."""
_FILE_METADATA = ("file.path", "file.name", "file.size", "file.modification-time")
_KINESIS_METADATA = ("shard-id", "sequence-number", "partition-key")
_CHANGE_METADATA = (
    "value.ingestion-timestamp",
    "value.event-timestamp",
    "value.database",
    "value.table",
    "value.source.timestamp",
    "value.source.database",
    "value.source.schema",
    "value.source.table",
)
METADATA: tuple[str, ...] = (
    *EMBEDDED_METADATA,
    *_FILE_METADATA,
    *_KINESIS_METADATA,
    *_CHANGE_METADATA,
)
"""The keys of METADATA columns of all connectors."""
_PARTITION = "partition."
"""The prefix of METADATA keys for the value of a directory ``name=value`` in a path."""
_UNSUPPORTED: dict[str, str] = {
    "CHECK": "Filter in a view; events that do not fit the columns' types are kept as rejects.",
    "REFERENCES": "Join the two relations in a view.",
    "FOREIGN": "Join the two relations in a view.",
    "UNIQUE": "Use PRIMARY KEY.",
    "HEADERS": "Declare a column of the payload instead.",
    "HEADER": "Declare a column of the payload instead.",
    "COLLATE": "Compare with lower(...) or collate(...) in a view.",
    "AUTOINCREMENT": "Give each row its own key.",
    "AUTO_INCREMENT": "Give each row its own key.",
    "IDENTITY": "Give each row its own key.",
}
"""Clauses of a column or table that are refused, each with an alternative."""
_AFTER_VALUE = (
    *("NOT", "PRIMARY", "KEY", "COMMENT", "DEFAULT", "GENERATED", "LATENESS", "METADATA"),
    *_UNSUPPORTED,
)
"""The words that can follow the expression of a DEFAULT, or of a LATENESS."""


@dataclass(slots=True)
class Columns:
    """Collects the definitions between the parentheses."""

    cursor: Cursor
    kind: ObjectKind
    definitions: dict[str, ColumnDefinition] = field(default_factory=dict)
    primary_key: tuple[str, ...] = ()
    message_key: tuple[str, ...] = ()
    watermark: WatermarkClause | None = None
    named: list[tuple[str, Span]] = field(default_factory=list)
    """Columns that a key or watermark names, looked up when all columns are known."""

    def take(self) -> None:
        """Take ``(column, ..., [PRIMARY KEY (...)], [WATERMARK FOR ...])``.

        Raises:
            HeadraceError: ``invalid`` if it is malformed, a column is declared twice, or a key
                names an unknown column; ``unsupported`` for other dialects' constraints.
        """
        first = self.cursor.token
        self.cursor.listed(self._entry, may_end_in_comma=True)
        if not self.definitions:
            raise HeadraceError(
                Code.INVALID, f"the {self.kind} has no columns", span=self.cursor.span(first)
            )
        for name, span in self.named:
            self._known(name, span)
        self.primary_key = tuple(self.definitions[n.lower()].name for n in self.primary_key)
        for name in self.primary_key:
            definition = self.definitions[name.lower()]
            if definition.computed is not None or definition.metadata is not None:
                raise HeadraceError(
                    Code.INVALID,
                    f'column "{name}" of the PRIMARY KEY is generated',
                    hint="Use columns of the row itself.",
                    span=definition.span,
                )
        if self.watermark is not None:
            self._known(self.watermark.column, self.watermark.span)

    def take_one(self) -> None:
        """Take ``column type``, without parentheses."""
        self._column()

    def _known(self, name: str, span: Span) -> None:
        if name.lower() in self.definitions:
            return
        known = [column.name for column in self.definitions.values()]
        raise unknown("column", name, known, span=span)

    def _entry(self) -> None:
        cursor = self.cursor
        if cursor.at("WATERMARK", "FOR"):
            self._watermark()
        elif cursor.at("CONSTRAINT") and cursor.peek(2).word in {"PRIMARY", *_UNSUPPORTED}:
            cursor.advance()
            cursor.identifier("a constraint's name")
            self._table_constraint()
        elif cursor.at("PRIMARY", "KEY") or self._at_constraint():
            self._table_constraint()
        else:
            self._column()

    def _at_constraint(self) -> bool:
        after = self.cursor.peek(1)
        return self.cursor.at_any("UNIQUE", "CHECK", "FOREIGN") and (
            after.text == "(" or after.word == "KEY"
        )

    def _table_constraint(self) -> None:
        cursor = self.cursor
        self._refuse_clause()
        first = cursor.token
        cursor.expect("PRIMARY", "KEY")
        self._set_primary_key(first)
        names: dict[str, str] = {}

        def one() -> None:
            name, token = cursor.identifier("a column's name")
            cursor.refuse_twice("column", name, names, token)
            names[name.lower()] = name
            self.named.append((name, cursor.span(token)))

        cursor.listed(one)
        self.primary_key = tuple(names.values())
        cursor.accept("NOT", "ENFORCED")

    def _set_primary_key(self, first: Token) -> None:
        if self.primary_key:
            raise HeadraceError(
                Code.INVALID,
                "PRIMARY KEY is given twice",
                hint="For a key of several columns, write PRIMARY KEY (a, b) after the columns.",
                span=self.cursor.span(first),
            )

    def _watermark(self) -> None:
        cursor = self.cursor
        first = cursor.token
        cursor.expect("WATERMARK", "FOR")
        column, token = cursor.identifier("a column's name")
        self.named.append((column, cursor.span(token)))
        cursor.expect("AS")
        self._set_watermark(column, take_expression(cursor, ",", ")"), first)

    def _lateness(self, column: str, first: Token) -> None:
        """Take the duration after Feldera's ``LATENESS``: how late a row may be."""
        length = take_expression(self.cursor, ",", ")", *_AFTER_VALUE)
        behind = Fragment(f"{quote(column)} - {length.text}", length.span)
        self._set_watermark(column, behind, first)

    def _set_watermark(self, column: str, expression: Fragment, first: Token) -> None:
        span = self.cursor.span(first)
        if self.watermark is not None:
            raise HeadraceError(
                Code.INVALID,
                "a second column has a WATERMARK or LATENESS",
                hint="Keep that of the column with the event time.",
                span=span,
            )
        self.watermark = WatermarkClause(column, expression, span)

    def _column(self) -> None:
        cursor = self.cursor
        first = cursor.token
        name, _ = cursor.identifier("a column's name")
        cursor.refuse_twice("column", name, list(self.definitions), first)
        if cursor.accept("AS"):
            self.definitions[name.lower()] = self._computed(name, first)
            return
        kind = take_type(cursor)
        not_null, comment, computed, metadata, default = False, None, None, None, None
        while not (cursor.at_end() or cursor.token.text in {",", ")"}):
            word = cursor.token
            if cursor.accept("NOT", "NULL"):
                not_null = True
            elif cursor.accept("NULL"):
                pass
            elif cursor.accept("PRIMARY", "KEY"):
                self._set_primary_key(word)
                self.primary_key = (name,)
                cursor.accept("NOT", "ENFORCED")
            elif cursor.accept("KEY"):
                self._set_message_key(name, word)
            elif cursor.accept("COMMENT"):
                comment = cursor.string("a comment between quotes")
            elif default is None and cursor.accept("DEFAULT"):
                default = take_expression(cursor, ",", ")", *_AFTER_VALUE)
            elif cursor.accept("LATENESS"):
                self._lateness(name, word)
            elif computed is None and cursor.accept("METADATA"):
                metadata = self._metadata(name, word)
            elif metadata is None and computed is None and cursor.at_any("GENERATED", "AS"):
                computed = self._generated()
            else:
                self._refuse_clause()
                raise cursor.expected(*self._after_type(), '","', '")"')
        self.definitions[name.lower()] = ColumnDefinition(
            name, kind, cursor.span(first), not_null, comment, computed, metadata, default
        )
        if default is not None and (computed is not None or metadata is not None):
            raise HeadraceError(
                Code.INVALID,
                f'column "{name}" is generated, so it cannot have a DEFAULT',
                span=default.span,
            )

    def _generated(self) -> Fragment:
        """Take ``[GENERATED ALWAYS] AS (expression) [STORED | VIRTUAL]``; both kinds are stored."""
        cursor, first = self.cursor, self.cursor.token
        if cursor.accept("GENERATED") and not cursor.accept("ALWAYS"):
            if not cursor.accept("BY", "DEFAULT"):
                raise cursor.expected("ALWAYS")
            self._refuse_identity(first)
            raise HeadraceError(
                Code.UNSUPPORTED,
                "GENERATED BY DEFAULT is not supported",
                hint="Write GENERATED ALWAYS AS (expression).",
                span=cursor.span(first),
            )
        cursor.expect("AS")
        self._refuse_identity(first)
        cursor.expect_symbol("(")
        expression = self._expression(")")
        cursor.expect_symbol(")")
        if not cursor.accept("STORED"):
            cursor.accept("VIRTUAL")
        return expression

    def _refuse_identity(self, first: Token) -> None:
        if self.cursor.at("IDENTITY") or self.cursor.at("AS", "IDENTITY"):
            self.cursor.accept("AS")
            span = self.cursor.span(first, self.cursor.token)
            hint = _UNSUPPORTED["IDENTITY"]
            raise HeadraceError(
                Code.UNSUPPORTED, "an IDENTITY column is not supported", hint=hint, span=span
            )

    def _computed(self, name: str, first: Token) -> ColumnDefinition:
        """Take the expression of ``name AS expression [COMMENT '...']``."""
        cursor = self.cursor
        expression = self._expression(",", ")", "COMMENT")
        comment = None
        if cursor.accept("COMMENT"):
            comment = cursor.string("a comment between quotes")
        nothing = Fragment("", expression.span)
        return ColumnDefinition(name, nothing, cursor.span(first), False, comment, expression)  # noqa: FBT003

    def _expression(self, *stops: str) -> Fragment:
        """Take the expression of a computed column."""
        expression = take_expression(self.cursor, *stops)
        if expression.text.replace(" ", "").upper() == "PROCTIME()":
            raise HeadraceError(
                Code.UNSUPPORTED,
                "PROCTIME() is not supported",
                hint="Rows have no time of processing here: compare a time column with now(), or"
                " store it in a column.",
                span=expression.span,
            )
        return expression

    def _metadata(self, name: str, word: Token) -> str:
        """Take ``[FROM 'key'] [VIRTUAL]`` after METADATA."""
        cursor, key, place = self.cursor, name.lower(), word
        if cursor.accept("FROM"):
            place = cursor.token
            key = cursor.string("the metadata key, between quotes").lower()
        if key not in METADATA and not key.startswith(_PARTITION):
            listed = f"There are: {', '.join(METADATA)}."
            raise unknown("metadata", key, METADATA, listed, cursor.span(place, place))
        cursor.accept("VIRTUAL")
        return key

    def _after_type(self) -> tuple[str, ...]:
        key = ("KEY",) if self.kind is ObjectKind.STREAM else ()
        return ("NOT NULL", "PRIMARY KEY", *key, "COMMENT", "METADATA", "GENERATED ALWAYS AS")

    def _set_message_key(self, name: str, token: Token) -> None:
        if self.kind is not ObjectKind.STREAM:
            raise HeadraceError(
                Code.INVALID,
                "KEY marks the message key of a stream, not a column of a table",
                hint="Use PRIMARY KEY in a table.",
                span=self.cursor.span(token),
            )
        self.message_key = (*self.message_key, name)

    def _refuse_clause(self) -> None:
        word = self.cursor.token.word
        if word in _UNSUPPORTED and self.cursor.token.kind is TokenKind.WORD:
            thing = "FOREIGN KEY" if word == "FOREIGN" else word
            raise self._unsupported(f"{thing} in a column list", _UNSUPPORTED[word])

    def _unsupported(self, thing: str, hint: str) -> HeadraceError:
        token = self.cursor.token
        return HeadraceError(
            Code.UNSUPPORTED,
            f"{thing} is not supported",
            hint=hint,
            span=self.cursor.span(token, token),
        )


_ENDS = ("DEDUPLICATE", "ALLOWED", "WITH", "FROM", "ON")


@dataclass(frozen=True, slots=True)
class Taken:
    """Which rows a stream admits; without clauses, all.

    ``unique`` are the columns of an event's id, which is remembered ``within`` a duration.
    ``lateness`` is the duration by which rows may be late; ``rejects``: later rows are rejected.
    ``stops``: its source stops at a row that does not fit, instead of rejecting it.
    """

    unique: tuple[str, ...] = ()
    within: Fragment | None = None
    lateness: Fragment | None = None
    rejects: bool = False
    stops: bool = False
    span: Span | None = None


EVERY_ROW: Final = Taken()


def take_taken(cursor: Cursor) -> Taken:
    """Take the clauses, if present.

    Raises:
        HeadraceError: ``invalid`` if one is malformed, or repeated.
    """
    first, begin = cursor.token, cursor.index
    unique: tuple[str, ...] = ()
    within: Fragment | None = None
    lateness: Fragment | None = None
    rejects = stops = False
    while (
        cursor.at("DEDUPLICATE", "ON")
        or cursor.at("ALLOWED", "LATENESS")
        or cursor.at("ON", "ERROR")
    ):
        word = cursor.token
        if cursor.accept("ON", "ERROR"):
            stops = cursor.accept("STOP")
            if not stops and not cursor.accept("REJECT"):
                raise cursor.expected("STOP", "REJECT")
        elif cursor.accept("DEDUPLICATE", "ON"):
            _once(cursor, "DEDUPLICATE", unique or None, word)
            unique = (
                cursor.identifiers("a column's name")
                if cursor.at_symbol("(")
                else (cursor.identifier("a column's name")[0],)
            )
            if cursor.accept("WITHIN"):
                within = take_expression(cursor, *_ENDS)
        else:
            cursor.expect("ALLOWED", "LATENESS")
            _once(cursor, "ALLOWED LATENESS", lateness, word)
            lateness = take_expression(cursor, *_ENDS)
            if cursor.accept("ON", "LATE"):
                rejects = cursor.accept("REJECT")
                if not rejects and not cursor.accept("ACCEPT"):
                    raise cursor.expected("REJECT", "ACCEPT")
    if cursor.index == begin:
        return EVERY_ROW
    return Taken(unique, within, lateness, rejects, stops, cursor.span(first, cursor.previous))


def _once(cursor: Cursor, clause: str, before: object, word: Token) -> None:
    if before is not None:
        raise HeadraceError(
            Code.INVALID, f"{clause} is given twice", span=cursor.span(word, cursor.previous)
        )


@dataclass(frozen=True, slots=True)
class DeclaredKey:
    """``PRIMARY KEY (column, ...)`` of a view: columns as written, and the clause's place."""

    columns: tuple[str, ...]
    span: Span


@dataclass(slots=True)
class ViewColumns:
    """``(column, ..., [PRIMARY KEY (column, ...)])``; a column may have ``PRIMARY KEY`` itself.

    ``names`` is empty if only a key is declared. ``NOT ENFORCED``, which Flink requires, has no
    effect.
    """

    cursor: Cursor
    names: tuple[str, ...] = ()
    key: DeclaredKey | None = None

    def take(self) -> None:
        """Take the parentheses.

        Raises:
            HeadraceError: ``invalid`` if it is malformed, or a column or key is repeated.
        """
        self.cursor.listed(self._entry)

    def _entry(self) -> None:
        cursor = self.cursor
        if _at_key(cursor):
            first = cursor.token
            if cursor.accept("CONSTRAINT"):
                cursor.identifier("a constraint's name")
            cursor.expect("PRIMARY", "KEY")
            columns = cursor.identifiers("a column's name")
            self._set(DeclaredKey(columns, cursor.span(first)))
            return
        name, token = cursor.identifier("a column's name")
        cursor.refuse_twice("column", name, {each.lower() for each in self.names}, token)
        self.names = (*self.names, name)
        if cursor.accept("PRIMARY", "KEY"):
            self._set(DeclaredKey((name,), cursor.span(token)))

    def _set(self, key: DeclaredKey) -> None:
        if self.key is not None:
            raise HeadraceError(
                Code.INVALID,
                "PRIMARY KEY is given twice",
                hint="For a key of several columns, write PRIMARY KEY (a, b) after the columns.",
                span=key.span,
            )
        self.key = key
        self.cursor.accept("NOT", "ENFORCED")


def at_only_key(cursor: Cursor) -> bool:
    """Whether parentheses with only a key clause follow, and then a query."""
    if not _at_key(cursor, 1):
        return False
    ahead, depth = 1, 1
    while depth and cursor.peek(ahead).kind is not TokenKind.END:
        depth += {"(": 1, ")": -1}.get(cursor.peek(ahead).text, 0)
        if depth == 1 and cursor.peek(ahead).text == ",":
            return False
        ahead += 1
    return cursor.peek(ahead).word in ("AS", "USING", "WITH")


def _at_key(cursor: Cursor, ahead: int = 0) -> bool:
    words = [cursor.peek(ahead + i).word for i in range(3)]
    return words[:2] == ["PRIMARY", "KEY"] or (words[0] == "CONSTRAINT" and words[2] == "PRIMARY")
