"""Reading the plainest ``VALUES``, the ones that need no evaluation, without asking Spark.

Only rows of NULL, booleans, integers, decimals and strings, each for a column of just that kind,
are read here; anything else is left to Spark, so no cast is decided in this module.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
)

from headrace.errors import HeadraceError
from headrace.sql.lexer import Kind, Token, string_value, tokens
from headrace.types import Column, to_arrow

_INTEGERS = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_WORDS = {"null": None, "true": True, "false": False}


def plain_values(text: str, columns: tuple[Column, ...]) -> pa.Table | None:
    """Return the rows of a ``VALUES`` clause, or None where Spark has to read it."""
    try:
        found = list(tokens(text))
    except HeadraceError:
        return None
    rows = _rows(found, columns)
    if rows is None:
        return None
    arrays = [
        pa.array([row[i] for row in rows], type=to_arrow(column.type))
        for i, column in enumerate(columns)
    ]
    return pa.Table.from_arrays(arrays, names=[column.name for column in columns])


def _rows(found: list[Token], columns: tuple[Column, ...]) -> list[list[Any]] | None:
    words = [token.text.lower() for token in found]
    if not words or words[0] != "values":
        return None
    rows: list[list[Any]] = []
    at = 1
    while True:
        row, at = _row(found, at, columns)
        if row is None:
            return None
        rows.append(row)
        if at == len(found):
            return rows
        if found[at].text != ",":
            return None
        at += 1


def _row(found: list[Token], at: int, columns: tuple[Column, ...]) -> tuple[list[Any] | None, int]:
    row: list[Any] = []
    for i, column in enumerate(columns):
        if at >= len(found) or found[at].text != ("," if i else "("):
            return None, at
        at += 1
        negative = at < len(found) and found[at].text == "-"
        at += negative
        if at >= len(found):
            return None, at
        plain, value = plain_value(found[at], column.type, negative=negative)
        if not plain:
            return None, at
        row.append(value)
        at += 1
    if at >= len(found) or found[at].text != ")":
        return None, at
    return row, at + 1


def plain_value(token: Token, type_: DataType, *, negative: bool) -> tuple[bool, Any]:
    """Return whether the token is plain for the type, and its value."""
    word = token.text.lower()
    if word == "null" and not negative:
        return True, None
    if isinstance(type_, BooleanType):
        return word in ("true", "false") and not negative, _WORDS.get(word)
    if type(type_) is StringType:
        plain = token.kind is Kind.STRING and not negative and "\\" not in token.text
        return plain, string_value(token) if plain else None
    if token.kind is not Kind.NUMBER:
        return False, None
    sign = "-" if negative else ""
    bits = _INTEGERS.get(type(type_))
    if bits is not None:
        if not word.isdigit():
            return False, None
        value = int(sign + word)
        return -(1 << (bits - 1)) <= value < 1 << (bits - 1), value
    if isinstance(type_, DecimalType):
        try:
            number = Decimal(sign + word)
        except InvalidOperation:
            return False, None
        _, digits, exponent = number.as_tuple()
        if not isinstance(exponent, int):
            return False, None
        whole = len(digits) + exponent
        return -exponent <= type_.scale and whole <= type_.precision - type_.scale, number
    return False, None
