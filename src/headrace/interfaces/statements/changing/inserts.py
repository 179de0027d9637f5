"""INSERT, and rows passed by a program.

Converts rows passed from Python (Arrow, data frames, dicts, tuples) to a relation's columns.

Evaluates the rows of an INSERT once, over the present contents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from headrace.errors import Code, HeadraceError, Span
from headrace.interfaces.statements.changing.updates import (
    Conflicts,
    WrittenRows,
    chosen,
    require_key,
    table_named,
    target_named,
    writable,
)
from headrace.io.formats.fitting import Fitted, fitted, not_fitting, require_fitting, scattered
from headrace.io.formats.literals import (
    NoLiteral,
    fitted_objects,
    is_default,
    literal,
    literal_converter,
)
from headrace.io.formats.values import RejectedValueError
from headrace.lifecycle.inputs.admission import takes_some
from headrace.lifecycle.inputs.log import Changed
from headrace.lifecycle.inputs.rows import require_present, weighted
from headrace.planning.catalog import Stream, Table
from headrace.planning.sql.fragments import ValueRow, place_of, value_rows
from headrace.planning.sql.lexer import TokenKind, tokens
from headrace.planning.sql.rewritten import Rewriting, Rewritten, unchanged
from headrace.types import to_arrow

if TYPE_CHECKING:
    from headrace.execution.runtime.published import Published
    from headrace.lifecycle.inputs.log import Log
    from headrace.lifecycle.states.evaluating import Snapshots
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalyst.analysed import Shape
    from headrace.planning.sql import Insert, OnConflict
    from headrace.planning.sql.lexer import Token
    from headrace.storage.ledger import ProducerPosition
    from headrace.types import Column


Rows: TypeAlias = Any
"""An Arrow table or batch, a data frame, or a sequence of dicts or tuples."""

Given: TypeAlias = dict[str, Any]
"""An Arrow array or a list of Python objects, by column name."""


def given_rows(
    rows: Rows,
    arriving: Sequence[Column],
    chosen: Callable[[tuple[str, ...]], Sequence[Column]],
    defaults: Sequence[str] = (),
) -> pa.Table:
    """Return rows as a table of their columns, converted exactly.

    ``arriving`` are the columns for tuples, in order; ``chosen`` returns columns by name;
    ``defaults`` are the columns with a default other than NULL.
    """
    given = _columns(rows, arriving, defaults)
    _require_once(given)
    columns = chosen(tuple(given)) if given else ()
    found = [
        fitted(values, column.type, first=True)
        if isinstance(values, pa.Array | pa.ChunkedArray)
        else fitted_objects(values, column.type)
        for column, values in zip(columns, given.values(), strict=True)
    ]
    require_fitting(columns, found, None)
    return _table(columns, found)


def _table(columns: Sequence[Column], found: Sequence[Fitted]) -> pa.Table:
    names = [column.name for column in columns]
    return pa.Table.from_arrays([each.values for each in found], names=names)


def _columns(rows: Rows, arriving: Sequence[Column], defaults: Sequence[str]) -> Given:
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return _arrow(rows)
    if hasattr(rows, "to_records") and hasattr(rows, "columns"):
        return _pandas(rows)
    if hasattr(rows, "__arrow_c_stream__"):
        return _arrow(pa.table(rows))
    if hasattr(rows, "toArrow"):
        return _arrow(rows.toArrow())
    return _objects(list(rows), arriving, defaults)


def _arrow(rows: pa.Table | pa.RecordBatch) -> Given:
    return _named(list(rows.schema.names), list(rows.columns))


def _pandas(rows: Any) -> Given:
    """Return the columns of a pandas frame; objects are converted one by one."""
    values = [
        [None if _is_missing(value) else value for value in series]
        if series.dtype == object
        else pa.array(series, from_pandas=True)
        for series in (rows.iloc[:, at] for at in range(len(rows.columns)))
    ]
    return _named([str(name) for name in rows.columns], values)


def _is_missing(value: Any) -> bool:
    """Return whether an object is pandas' object for a missing value."""
    if isinstance(value, float):
        return value != value  # noqa: PLR0124 (which is what tells NaN)
    return type(value).__name__ in {"NAType", "NaTType"}


def _named(names: list[str], values: list[Any]) -> Given:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise _given_twice(twice)
    return dict(zip(names, values, strict=True))


def _objects(rows: list[Any], arriving: Sequence[Column], defaults: Sequence[str]) -> Given:
    names = {column.name.lower(): column.name for column in arriving}
    given: dict[str, list[Any]] = {}
    for number, row in enumerate(rows):
        for name, value in _row(row, number, arriving):
            known = names.get(name.lower(), name)
            values = given.setdefault(known, [])
            if len(values) > number:
                raise _given_twice(name)
            if len(values) < number:
                _require_no_default(known, len(values), defaults)
                values += [None] * (number - len(values))
            values.append(value)
    for name, values in given.items():
        if len(values) < len(rows):
            _require_no_default(name, len(values), defaults)
    return {name: values + [None] * (len(rows) - len(values)) for name, values in given.items()}


def _row(row: Any, number: int, arriving: Sequence[Column]) -> list[tuple[str, Any]]:
    if isinstance(row, Mapping):
        return [(str(name), value) for name, value in row.items()]
    if isinstance(row, str | bytes) or not isinstance(row, Sequence):
        raise HeadraceError(
            Code.INVALID,
            f"row {number + 1} is of type {type(row).__name__}",
            hint="Give each row as a dict by column, or as a tuple of all columns in order.",
        )
    if len(row) != len(arriving):
        names = ", ".join(column.name for column in arriving)
        raise HeadraceError(
            Code.INVALID,
            f"row {number + 1} has {len(row)} values for {len(arriving)} columns",
            detail=f"Columns: {names}.",
        )
    return [(column.name, value) for column, value in zip(arriving, row, strict=True)]


def _require_no_default(name: str, row: int, defaults: Sequence[str]) -> None:
    """Raise if some rows lack a column that has a default, and others have it."""
    if name in defaults:
        raise HeadraceError(
            Code.INVALID,
            f'column "{name}", which has a DEFAULT, is left out in row {row + 1} only',
            hint="Give it in all rows, or in none.",
        )


def _require_once(given: Given) -> None:
    seen: set[str] = set()
    for name in given:
        if name.lower() in seen:
            raise _given_twice(name)
        seen.add(name.lower())


def _given_twice(name: str) -> HeadraceError:
    return HeadraceError(Code.INVALID, f'column "{name}" is given twice')


_REPEATABLE = frozenset(
    ["NOW", "CURRENT_TIMESTAMP", "CURRENT_DATE", "ARRAY", "MAP", "STRUCT", "NAMED_STRUCT", "CAST"]
)
"""Deterministic functions: a repeated expression with only these is evaluated once."""


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


@dataclass(frozen=True, slots=True)
class Inserts:
    """Appends rows to streams and tables; durable when a method returns."""

    reader: Reader
    snapshots: Snapshots
    log: Log

    def insert(self, statement: Insert) -> WrittenRows:
        """Append the rows of a query; a row replaces the existing row of its primary key."""
        relation = target_named(self.reader.catalog, statement.target)
        columns, clause = chosen(relation, statement.columns, statement.span), statement.on_conflict
        if clause is not None or statement.replace:
            require_key(relation, statement)
        if clause is None:
            rows = self._evaluated(relation, columns, statement.query.span)
            return self._append(relation, rows)
        table = table_named(self.reader.catalog, statement.target)
        for assignment in clause.assignments:
            chosen(table, (assignment.column,), assignment.span)
        rows = self._evaluated(table, columns, statement.query.span)
        return self._resolved(table, rows, clause)

    def append(
        self, name: str, rows: Rows, producer: ProducerPosition | None = None
    ) -> WrittenRows:
        """Append rows passed by a program, matched to columns by name."""
        relation = writable(self.reader.catalog, self.reader.catalog.resolve(name))
        span = Span.whole(name)
        given = given_rows(
            rows,
            chosen(relation, (), span),
            lambda names: chosen(relation, names, span),
            [name for name, _ in relation.declaration.defaults],
        )
        whole = self.log.with_defaults(relation, given)
        require_present(relation, whole, None)
        return self._append(relation, whole, producer)

    def _evaluated(
        self, relation: Stream | Table, columns: tuple[Column, ...], query: Span
    ) -> pa.Table:
        """Return the rows of a query for some columns, with the defaults of all others."""
        defaults = dict(relation.declaration.defaults)
        rows = QueryRows(self.reader, self.snapshots).evaluated(query, columns, defaults)
        rows = self.log.with_defaults(relation, rows)
        require_present(relation, rows, query)
        return rows

    def _append(
        self, relation: Stream | Table, rows: pa.Table, producer: ProducerPosition | None = None
    ) -> WrittenRows:
        changes = weighted(rows, 1) if isinstance(relation, Table) else rows
        appended = self.log.append(relation, changes, producer=producer)
        left_out = rows.num_rows - appended.rows if takes_some(relation) else 0
        return WrittenRows(relation.id, rows.num_rows - left_out, appended.end, left_out)

    def _resolved(self, table: Table, rows: pa.Table, clause: OnConflict) -> WrittenRows:
        """Append rows by a conflict clause; retry if the table's rows change meanwhile."""
        conflicts = Conflicts(self.snapshots.evaluator, table, clause)

        def changed() -> Changed:
            state = self.reader.settled([table.id])
            keys = rows.select(list(table.primary_key))
            there = self.reader.contents(state, table).with_keys(keys)
            written = conflicts.resolved(rows, there)
            require_present(table, written.updated, clause.span)
            new = pa.concat_tables([written.inserted, written.updated])
            return Changed(state, new.num_rows, (weighted(new, 1),))

        return WrittenRows(table.id, *self.log.change(table, changed))
