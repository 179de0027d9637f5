"""Evaluates the rows of an INSERT once, over the present contents."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.errors import Code, HeadraceError, Span
from headrace.formats.fitted import Fitted, not_fitting, require_fitting, scattered
from headrace.formats.fitting import fitted
from headrace.formats.literals import NoLiteral, is_default, literal, literal_converter
from headrace.formats.values import RejectedValueError
from headrace.sql.lexer import TokenKind, tokens
from headrace.sql.rewritten import Rewriting, Rewritten, unchanged
from headrace.sql.values import ValueRow, place_of, value_rows
from headrace.types import to_arrow

_REPEATABLE = frozenset(
    ["NOW", "CURRENT_TIMESTAMP", "CURRENT_DATE", "ARRAY", "MAP", "STRUCT", "NAMED_STRUCT", "CAST"]
)
"""Deterministic functions: a repeated expression with only these is evaluated once."""

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.catalyst.analysed import Shape
    from headrace.parts.reader import Reader
    from headrace.parts.snapshots import Snapshots
    from headrace.runtime.published import Published
    from headrace.sql.lexer import Token
    from headrace.types import Column


@dataclass(frozen=True, slots=True)
class QueryRows:
    """Evaluates the queries of INSERT statements, each over all earlier writes."""

    reader: Reader
    snapshots: Snapshots

    def evaluated(
        self, query: Span, columns: tuple[Column, ...], defaults: Mapping[str, str]
    ) -> pa.Table:
        """Return a query's rows converted exactly to the columns' types, or raise an error.

        The query may use clock and random functions; their values are written. Literals of
        ``VALUES`` are parsed one by one, and Spark evaluates the other expressions independently:
        no row decides the type of another row's value.
        """
        rows = value_rows(query)
        if rows is None:
            return self._selected(query, columns)
        for number, row in enumerate(rows, 1):
            if len(row) != len(columns):
                what = f"row {number} has {_values(len(row))}"
                raise _miscounted(columns, what, place_of(query, [row[0][0], row[-1][-1]]))
        found: list[Fitted] = []
        expressions: list[_Expression] = []
        literals: list[tuple[list[int], Fitted]] = []
        for at, column in enumerate(columns):
            default = defaults.get(column.name, "NULL")
            places, read = _literals(query, rows, at, column, default, expressions)
            literals.append((places, read))
        evaluated = self._values(query, expressions)
        for at, column in enumerate(columns):
            places, read = literals[at]
            if len(places) == len(rows):
                found.append(read)
                continue
            by_type: dict[Any, list[tuple[int, Any]]] = {}
            for each, value in zip(expressions, evaluated, strict=True):
                if each.column == at:
                    by_type.setdefault(value.type, []).append((each.row, value))
            groups = [literals[at]]
            for pairs in by_type.values():
                values = pa.concat_arrays([value for _, value in pairs])
                groups.append(([row for row, _ in pairs], fitted(values, column.type)))
            found.append(scattered(len(rows), groups, column.type))
        require_fitting(columns, found, query)
        names = [column.name for column in columns]
        return pa.Table.from_arrays([each.values for each in found], names=names)

    def _values(self, query: Span, expressions: Sequence[_Expression]) -> list[pa.Array]:
        """Return the value of each expression, in an array of its own type."""
        if not expressions:
            return []
        rewriting = Rewriting(query)
        parts: list[str | tuple[int, int]] = []
        columns: list[int] = []
        known: dict[str, int] = {}
        count = 0
        for each in expressions:
            place = (each.tokens[0].start, each.tokens[-1].end)
            text = query.text[slice(*place)] if each.text is None else each.text
            if text in known:
                columns.append(known[text])
                continue
            if each.text is None and is_repeatable(each.tokens):
                known[text] = count
            parts += [", (" if count else "SELECT (", place if each.text is None else each.text]
            parts.append(f") AS `c{count}`")
            columns.append(count)
            count += 1
        rewriting.replace(query, parts)
        rows = self._run(query, rewriting.done(), count)
        if rows.num_rows != 1:
            raise HeadraceError(
                Code.INVALID,
                f"a value of VALUES makes {rows.num_rows} rows",
                hint="Use INSERT ... SELECT where one row becomes several.",
                span=query,
            )
        values = [column.combine_chunks() for column in rows.columns]
        return [values[column] for column in columns]

    def _selected(self, query: Span, columns: tuple[Column, ...]) -> pa.Table:
        rows = self._run(query, unchanged(query), None, columns)
        found = [
            fitted(values, column.type, first=True)
            for values, column in zip(rows.columns, columns, strict=True)
        ]
        require_fitting(columns, found, query)
        names = [column.name for column in columns]
        return pa.Table.from_arrays([each.values for each in found], names=names)

    def _run(
        self,
        query: Span,
        read: Rewritten,
        count: int | None,
        columns: tuple[Column, ...] = (),
    ) -> pa.Table:
        """Run a query with Spark; its columns are by position, with the types of the query."""

        def text(shape: Shape) -> str:
            aliases = ", ".join(f"`c{i}`" for i in range(len(shape.schema.columns)))
            return read.text if count else f"SELECT * FROM ({read.text}\n) AS `__given`({aliases})"

        def state(shape: Shape) -> Published:
            given = len(shape.schema.columns)
            if count is None and given != len(columns):
                raise _miscounted(columns, f"the query has {given}", query)
            return self.reader.settled(shape.reads)

        try:
            with read.mapping_errors():
                return self.snapshots.rows(read.span, state, text)[0]
        except HeadraceError as error:
            raise error.at(query) from error


class _Expression:
    """A value of ``VALUES`` that Spark evaluates."""

    __slots__ = ("column", "row", "text", "tokens")

    def __init__(self, row: int, column: int, tokens: list[Token], text: str | None = None) -> None:
        self.row = row
        self.column = column
        self.tokens = tokens
        self.text = text
        """The text of the expression if it differs from that of the tokens."""


def _literals(
    query: Span,
    rows: list[ValueRow],
    at: int,
    column: Column,
    default: str,
    rest: list[_Expression],
) -> tuple[list[int], Fitted]:
    """Return the literals of a column with their row numbers; add other values to ``rest``."""
    convert = literal_converter(column)
    values: list[Any] = []
    places: list[int] = []
    for number, row in enumerate(rows):
        text = default if is_default(row[at]) else None
        try:
            value = literal(row[at] if text is None else list(tokens(text)))
        except NoLiteral:
            rest.append(_Expression(number, at, row[at], text))
            continue
        if value is not None:
            try:
                value = convert(value)
            except RejectedValueError as reason:
                place = f'column "{column.name}" in row {number + 1}'
                raise not_fitting(place, reason, place_of(query, row[at])) from reason
        values.append(value)
        places.append(number)
    return places, Fitted(pa.array(values, to_arrow(column.type)), {})


def is_repeatable(found: Sequence[Token]) -> bool:
    """Return whether an expression plainly has the same value each time it is evaluated."""
    return all(
        following.text != "(" or token.kind is TokenKind.SYMBOL or token.word in _REPEATABLE
        for token, following in pairwise(found)
    )


def _values(count: int) -> str:
    return f"{count} value" if count == 1 else f"{count} values"


def _miscounted(columns: tuple[Column, ...], what: str, span: Span) -> HeadraceError:
    return HeadraceError(
        Code.INVALID,
        f"{len(columns)} columns are to be filled, but {what}",
        detail=f"Columns: {', '.join(column.name for column in columns)}.",
        span=span,
    )
