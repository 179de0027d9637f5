"""Column types of four dialects, translated to Spark's names.

The result is text for Spark's own type parser; nothing here knows Spark's classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError, meant
from headrace.planning.sql.lexer import TokenKind, quote
from headrace.planning.sql.parts import Fragment

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.planning.sql.cursor import Cursor


BARE_DECIMAL = "DECIMAL(38,9)"
"""DECIMAL without precision. Spark's default, DECIMAL(10,0), would round to whole numbers."""

ALIASES: dict[str, str] = {
    "BIGINT": "BIGINT", "LONG": "BIGINT", "INT8": "BIGINT", "INT64": "BIGINT",
    "INT": "INT", "INTEGER": "INT", "INT4": "INT", "INT32": "INT",
    "SMALLINT": "SMALLINT", "SHORT": "SMALLINT", "INT2": "SMALLINT", "INT16": "SMALLINT",
    "TINYINT": "TINYINT", "BYTE": "TINYINT",
    "BOOLEAN": "BOOLEAN", "BOOL": "BOOLEAN",
    "FLOAT": "FLOAT", "REAL": "FLOAT", "FLOAT4": "FLOAT", "FLOAT32": "FLOAT",
    "DOUBLE": "DOUBLE", "FLOAT8": "DOUBLE", "FLOAT64": "DOUBLE",
    "DECIMAL": "DECIMAL", "DEC": "DECIMAL", "NUMERIC": "DECIMAL", "NUMBER": "DECIMAL",
    "BIGNUMERIC": "DECIMAL", "BIGDECIMAL": "DECIMAL",
    "STRING": "STRING", "TEXT": "STRING", "CLOB": "STRING", "UUID": "STRING",
    "VARCHAR": "VARCHAR", "CHARACTER": "CHAR", "CHAR": "CHAR", "NVARCHAR": "VARCHAR",
    "BINARY": "BINARY", "BYTES": "BINARY", "BYTEA": "BINARY", "VARBINARY": "BINARY",
    "BLOB": "BINARY",
    "DATE": "DATE", "TIME": "TIME",
    "TIMESTAMP": "TIMESTAMP", "TIMESTAMPTZ": "TIMESTAMP", "TIMESTAMP_TZ": "TIMESTAMP",
    "TIMESTAMP_LTZ": "TIMESTAMP",
    "TIMESTAMP_NTZ": "TIMESTAMP_NTZ", "DATETIME": "TIMESTAMP_NTZ",
    "INTERVAL": "INTERVAL", "VARIANT": "VARIANT", "VOID": "VOID",
    "ARRAY": "ARRAY", "MAP": "MAP", "STRUCT": "STRUCT", "ROW": "STRUCT",
}  # fmt: skip
"""Spark's name of each known type name."""

_JSON = "Keep it as STRING, and use parse_json(x) in queries; or declare STRUCT<...>."
_REFUSED: dict[str, str] = {
    "JSON": _JSON,
    "JSONB": _JSON,
    "OBJECT": _JSON,
    "SERIAL": "Use BIGINT, and give each row its own value.",
    "BIGSERIAL": "Use BIGINT, and give each row its own value.",
    "MULTISET": "Use ARRAY<...>, or MAP<..., BIGINT> from a value to its count.",
    "ENUM": "Use STRING.",
    "MONEY": "Use DECIMAL(19,4).",
    "UNSIGNED": "Use the next wider signed type.",
    "UINT": "Use BIGINT.",
    "GEOMETRY": "Use BINARY or STRING.",
    "GEOGRAPHY": "Use BINARY or STRING.",
}

_LARGEST_PRECISION = 38
_MICROSECONDS = 6
_DEEPEST = 64
_UNITS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
_TIMESTAMPS = frozenset({"TIMESTAMP", "TIMESTAMP_NTZ"})


@dataclass(slots=True)
class _Types:
    """A recursive-descent parser of one column type."""

    cursor: Cursor
    depth: int = 0

    def type(self) -> str:
        """Take a type, and return it in Spark's notation."""
        cursor = self.cursor
        first = cursor.token
        self.depth += 1
        if self.depth > _DEEPEST:
            raise HeadraceError(
                Code.INVALID, "the type is nested too deeply", span=cursor.span(first, first)
            )
        word = self._word()
        match word:
            case "ARRAY":
                spark = f"ARRAY<{self._enclosed(self.type)}>"
            case "MAP":
                spark = f"MAP<{self._enclosed(self._pair)}>"
            case "STRUCT":
                spark = self._struct()
            case "DECIMAL":
                spark = self._decimal()
            case "INTERVAL":
                spark = self._interval()
            case _:
                spark = self._simple(word)
        while True:
            if cursor.at_symbol("[") and cursor.peek(1).text == "]":
                cursor.advance()
                cursor.advance()
            elif not cursor.accept("ARRAY"):
                break
            spark = f"ARRAY<{spark}>"
        self.depth -= 1
        return spark

    def _simple(self, word: str) -> str:
        if word in {"VARCHAR", "CHAR"}:
            return self._characters(word)
        if word in _TIMESTAMPS:
            return self._timestamp(word)
        if word == "TIME":
            return self._time_of_day()
        if word == "DOUBLE":
            self.cursor.accept("PRECISION")
        if self.cursor.at_symbol("("):
            raise HeadraceError(
                Code.INVALID,
                f"type {word} takes no length or precision",
                hint="Leave the parentheses out.",
                span=self.cursor.span(self.cursor.token, self.cursor.token),
            )
        return word

    def _word(self) -> str:
        cursor = self.cursor
        token = cursor.token
        if token.kind is not TokenKind.WORD:
            raise cursor.expected("a type")
        if token.word in _REFUSED:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f"type {token.word} is not supported",
                hint=_REFUSED[token.word],
                span=cursor.span(token, token),
            )
        if token.word not in ALIASES:
            raise HeadraceError(
                Code.INVALID,
                f'type "{token.text}" does not exist',
                hint=meant(token.word, ALIASES, shown="{}"),
                span=cursor.span(token, token),
            )
        cursor.advance()
        return ALIASES[token.word]

    def _enclosed(self, inside: Callable[[], str]) -> str:
        cursor = self.cursor
        cursor.expect_symbol("<")
        spark = inside()
        cursor.expect_symbol(">")
        return spark

    def _pair(self) -> str:
        key = self.type()
        self.cursor.expect_symbol(",")
        return f"{key}, {self.type()}"

    def _struct(self) -> str:
        cursor = self.cursor
        if cursor.accept_symbol("<>"):
            return "STRUCT<>"
        closing = ")" if cursor.at_symbol("(") else ">"
        if not cursor.accept_symbol("("):
            cursor.expect_symbol("<")
        fields = [self._field()]
        while cursor.accept_symbol(","):
            fields.append(self._field())
        cursor.expect_symbol(closing, '","')
        return f"STRUCT<{', '.join(fields)}>"

    def _field(self) -> str:
        cursor = self.cursor
        name, _ = cursor.identifier("a field's name")
        cursor.accept_symbol(":")
        spark = f"{quote(name)}: {self.type()}"
        if cursor.accept("NOT", "NULL"):
            spark += " NOT NULL"
        return spark

    def _digits(self, largest: int, what: str) -> int:
        """Take one whole number that is at most ``largest``."""
        cursor = self.cursor
        token = cursor.token
        if token.kind is not TokenKind.NUMBER or not token.text.isdecimal():
            raise cursor.expected("a whole number")
        if len(token.text) > len(str(largest)) or int(token.text) > largest:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f"{what} of {token.text[:20]} is not supported",
                hint=f"The largest is {largest}.",
                span=cursor.span(token, token),
            )
        cursor.advance()
        return int(token.text)

    def _decimal(self) -> str:
        cursor = self.cursor
        if not cursor.accept_symbol("("):
            return BARE_DECIMAL
        precision = self._digits(_LARGEST_PRECISION, "a precision")
        scale = 0
        if cursor.accept_symbol(","):
            scale = self._digits(precision, "a scale")
        cursor.expect_symbol(")")
        return f"DECIMAL({precision},{scale})"

    def _characters(self, word: str) -> str:
        cursor = self.cursor
        if cursor.accept("VARYING"):
            word = "VARCHAR"
        if not cursor.accept_symbol("("):
            return "STRING" if word == "VARCHAR" else "CHAR(1)"
        if cursor.accept("MAX"):
            cursor.expect_symbol(")")
            return "STRING"
        length = self._digits(2**31 - 1, "a length")
        cursor.expect_symbol(")")
        return f"{word}({length})"

    def _timestamp(self, word: str) -> str:
        """Take the precision and the time zone: Spark stores microseconds, in UTC or zoneless."""
        cursor = self.cursor
        if cursor.accept_symbol("("):
            self._digits(_MICROSECONDS, "a precision")
            cursor.expect_symbol(")")
        if word != "TIMESTAMP":
            return word
        if cursor.at("WITHOUT", "TIME"):
            cursor.expect("WITHOUT", "TIME", "ZONE")
            return "TIMESTAMP_NTZ"
        if cursor.at("WITH", "TIME") or cursor.at("WITH", "LOCAL"):
            cursor.expect("WITH")
            cursor.accept("LOCAL")
            cursor.expect("TIME", "ZONE")
        return word

    def _time_of_day(self) -> str:
        """Take the precision of a TIME; without one, it has microseconds."""
        cursor, precision = self.cursor, _MICROSECONDS
        if cursor.accept_symbol("("):
            precision = self._digits(_MICROSECONDS, "a precision")
            cursor.expect_symbol(")")
        if cursor.at("WITHOUT", "TIME"):
            cursor.expect("WITHOUT", "TIME", "ZONE")
        if cursor.at("WITH", "TIME"):
            raise HeadraceError(
                Code.UNSUPPORTED,
                "type TIME WITH TIME ZONE is not supported",
                hint="Use TIMESTAMP for a point in time, TIME for a time of day.",
                span=cursor.span(cursor.token, cursor.token),
            )
        return f"TIME({precision})"

    def _interval(self) -> str:
        cursor = self.cursor
        if cursor.token.word not in _UNITS:
            return "INTERVAL"
        spark = f"INTERVAL {cursor.advance().word}"
        if cursor.accept("TO"):
            if cursor.token.word not in _UNITS:
                raise cursor.expected(*_UNITS)
            spark += f" TO {cursor.advance().word}"
        return spark


def take_type(cursor: Cursor) -> Fragment:
    """Take a column's type: the text in Spark's notation, the span as written.

    Raises:
        HeadraceError: ``invalid`` if the type is malformed or unknown, ``unsupported`` if
            Spark has no type that represents its values.
    """
    first = cursor.token
    spark = _Types(cursor).type()
    return Fragment(spark, cursor.span(first))
