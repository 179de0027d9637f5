"""Generated columns: computed columns, and METADATA columns with the origin of a row.

Both are evaluated when the row is written, and stored with it, so they never change afterwards. A
computed value has to fit its column exactly, like a written one.

Completes written rows: all columns of their relation, NOT NULL checked, and a weight.

A column that an INSERT omits, or for which it writes DEFAULT, gets its default: an expression that
is stored as text and evaluated for each row when the row is written.

Completes changes that depend on the table's rows: unknown cells are filled in from these.

A source of a table's changes may not know all of a row. It says so in its :class:`Part`, and this
module completes the part from the rows that the table has, and from earlier rows of the part
itself:

- an *unchanged* cell has the value of the row before: the last row with the same key. An
  update that moves a row to another key is a deletion followed by an insertion of the same
  origin; the row before is then the deleted one;
- without a key, a deletion removes one row that equals it in all cells but the unchanged
  ones, which take the values of the removed row. If no row does, it is a reject, together with
  the insertion of the same update;
- where the table is *emptied*, every row that it has until then is deleted.

The result consists of whole rows, and is landed like any other part.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.algebra.zset import WEIGHT, row_codes
from headrace.errors import Code, HeadraceError
from headrace.io.formats.fitting import fitted, not_fitting, require_fitting
from headrace.io.formats.literals import NoLiteral, constant
from headrace.planning.catalog import ROWTIME
from headrace.planning.sql.lexer import quote
from headrace.storage.ledger import Reject
from headrace.types import Column, LongType, TimestampType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from headrace.algebra.zset.order import Bools, Ints
    from headrace.errors import Span
    from headrace.execution.engine.reading.queries import Queries
    from headrace.execution.runtime.ports import Part
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Stream, Table
    from headrace.types import Offset


_OFFSET = "offset"
"""The METADATA key of a row's offset, which is assigned by the append."""


def has_offsets(relation: Stream | Table) -> bool:
    """Whether a column of a relation holds the offset of its row."""
    return any(key == _OFFSET for _, key in relation.declaration.metadata)


def with_offsets(relation: Stream | Table, rows: pa.Table, first: Offset) -> pa.Table:
    """Return changes with their offsets, counted from ``first``; see :func:`has_offsets`."""
    names = [name for name, key in relation.declaration.metadata if key == _OFFSET]
    if not names:
        return rows
    offsets = pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64))
    return _with_values(relation, rows, dict.fromkeys(names, offsets))


def with_rowtime(relation: Stream | Table, rows: pa.Table, now: int) -> pa.Table:
    """Return rows with their time, if the stream's log stores it: the given one, or now.

    ``now`` is in microseconds since 1970, UTC.
    """
    if not relation.declaration.rowtime or ROWTIME in rows.schema.names:
        return rows
    time = pa.scalar(now, pa.timestamp("us", "UTC"))
    return rows.append_column(ROWTIME, pa.repeat(time, rows.num_rows))


def with_generated_columns(
    queries: Queries, relation: Stream | Table, rows: pa.Table, now: int
) -> pa.Table:
    """Return changes with the values of the generated columns, except offsets.

    Deleted rows, with a negative weight, keep their values. ``now`` is in microseconds since 1970,
    UTC.
    """
    origins = dict(_metadata_values(relation, rows.num_rows, now))
    return with_computed_columns(queries, relation, _with_values(relation, rows, origins))


def with_computed_columns(queries: Queries, relation: Stream | Table, rows: pa.Table) -> pa.Table:
    """Return changes with the values of the computed columns, computed for the inserted rows."""
    declaration = relation.declaration
    if not declaration.computed:
        return rows
    arriving = rows.select([n for n in relation.schema.names if n not in declaration.generated])
    comes = pc.greater(rows[WEIGHT], 0) if WEIGHT in rows.schema.names else None
    if comes is None or pc.all(comes).as_py():
        comes = None
    else:
        arriving = arriving.filter(comes)
        if not arriving.num_rows:
            return rows
    expressions = [f"({text}) AS {quote(name)}" for name, text in declaration.computed]
    found = queries.computed(arriving, expressions)
    columns = {column.name: column for column in relation.schema.columns}
    computed = [columns[name] for name, _ in declaration.computed]
    made = [fitted(found[column.name], column.type, first=True) for column in computed]
    require_fitting(computed, made, None)
    values = {
        c.name: each.values if comes is None else _spread(each.values, comes)
        for c, each in zip(computed, made, strict=True)
    }
    return _with_values(relation, rows, values)


def _spread(values: pa.Array | pa.ChunkedArray, to: pa.ChunkedArray) -> pa.Array:
    """Return values at the rows where ``to`` is true, and NULL elsewhere."""
    places = pc.cumulative_sum(pc.cast(to, pa.int64()))
    return values.take(pc.if_else(to, pc.subtract(places, 1), None))


def _with_values(
    relation: Stream | Table, rows: pa.Table, values: Mapping[str, pa.Array]
) -> pa.Table:
    """Return changes with values of some columns for the rows that are inserted."""
    required = {column.name for column in relation.schema.columns if not column.nullable}
    comes = pc.greater(rows[WEIGHT], 0) if WEIGHT in rows.schema.names else None
    for name, value in values.items():
        place, field = rows.schema.get_field_index(name), rows.schema.field(name)
        new = value.cast(field.type)
        if comes is not None:
            new = pc.if_else(comes, new, rows[name])
        rows = rows.set_column(place, field, new)
        if name in required and new.null_count:
            raise HeadraceError(
                Code.INVALID,
                f'column "{name}" of {relation.kind} "{relation.name}" is NULL for some row',
                hint="It is NOT NULL and generated.",
            )
    return rows


def _metadata_values(relation: Stream | Table, count: int, now: int) -> list[tuple[str, pa.Array]]:
    types = {field.name: field.type for field in relation.schema.arrow}
    topic = relation.declaration.option("topic", "kafka_topic") or relation.name
    values = {
        "topic": lambda: pa.repeat(topic, count),
        "partition": lambda: pa.repeat(0, count),
        "timestamp": lambda: pa.repeat(pa.scalar(now, pa.timestamp("us", "UTC")), count),
    }
    return [
        (name, values[key]() if key in values else pa.nulls(count, types[name]))
        for name, key in relation.declaration.metadata
        if key != _OFFSET
    ]


_GIVEN: Final = "ROWTIME"
"""The column of an INSERT in which rows give their time."""
_CLOCK: Final = re.compile(r"(?i)\s*(?:now\s*\(\s*\)|current_timestamp(?:\s*\(\s*\))?)\s*")


def completed(queries: Queries, relation: Stream | Table, rows: pa.Table, now: int) -> pa.Table:
    """Return rows with all columns, in order; omitted columns have their default, or NULL.

    ``now`` is the time of writing, in microseconds since 1970, UTC: the default ``now()``.

    Raises:
        HeadraceError: ``invalid`` if a default fails, or its column cannot hold it.
    """
    if rows.schema.equals(relation.schema.arrow, check_metadata=True):
        return _with_time(relation, rows, rows, now)
    defaults = dict(relation.declaration.defaults)
    missing: list[tuple[Column, str]] = []
    arrays: dict[str, Any] = {}
    given = rows.schema.names
    for column, field in zip(relation.schema.columns, relation.schema.arrow, strict=True):
        if column.name in given:
            arrays[column.name] = rows[column.name].cast(field.type)
            continue
        arrays[column.name] = pa.nulls(rows.num_rows, field.type)
        if column.name in defaults and rows.num_rows:
            try:
                reads_clock = _reads_clock(column, defaults[column.name])
                value = now if reads_clock else constant(column, defaults[column.name])
            except NoLiteral:
                missing.append((column, defaults[column.name]))
            else:
                one = pa.array([value], field.type)[0]
                arrays[column.name] = pa.repeat(one, rows.num_rows)
    if missing:
        expressions = [f"({text}) AS {quote(column.name)}" for column, text in missing]
        each = pa.table({"__row": pa.repeat(0, rows.num_rows)})
        found = queries.computed(each, expressions)
        for column, _ in missing:
            made = fitted(found[column.name], column.type, first=True)
            for reason in made.refused.values():
                raise not_fitting(f'the default of column "{column.name}"', reason, None)
            arrays[column.name] = made.values
    whole = pa.Table.from_arrays(list(arrays.values()), schema=relation.schema.arrow)
    return _with_time(relation, whole, rows, now)


def _reads_clock(column: Column, default: str) -> bool:
    """Whether a default is the time of writing, as a whole."""
    return isinstance(column.type, TimestampType) and _CLOCK.fullmatch(default) is not None


def given_time(relation: Stream | Table) -> Column | None:
    """Return the column in which rows may give their own time, in milliseconds; None if none."""
    hidden = _GIVEN.lower() in relation.schema.by_lower_name
    if hidden or not relation.declaration.rowtime:
        return None
    return Column(_GIVEN, LongType())


def _with_time(relation: Stream | Table, whole: pa.Table, rows: pa.Table, now: int) -> pa.Table:
    """Return the rows with their given time as a column, if they have any."""
    if not relation.declaration.rowtime:
        return whole
    if ROWTIME in rows.schema.names:
        return whole.append_column(ROWTIME, rows[ROWTIME])
    if given_time(relation) is None or _GIVEN not in rows.schema.names:
        return whole
    millis = pc.fill_null(rows[_GIVEN], now // 1000)
    try:
        micros = pc.multiply_checked(millis, 1000)
    except pa.ArrowInvalid as error:
        raise HeadraceError(
            Code.INVALID,
            f"{_GIVEN} is out of range in some row",
            hint="Give it in milliseconds since 1970.",
        ) from error
    return whole.append_column(ROWTIME, micros.cast(pa.timestamp("us", "UTC")))


def require_present(relation: Stream | Table, rows: pa.Table, span: Span | None) -> None:
    """Refuse NULL in a NOT NULL column, unless the column is generated."""
    generated = relation.declaration.generated
    for column in relation.schema.columns:
        if column.nullable or column.name in generated:
            continue
        found = rows[column.name]
        if found.null_count == 0:
            continue
        row = found.is_null().to_pylist().index(True) + 1
        raise HeadraceError(
            Code.INVALID,
            f'column "{column.name}" of {relation.kind} "{relation.name}" is NULL in row {row}',
            hint="Give it a value: it is NOT NULL or part of the primary key.",
            span=span,
        )


def weighted(rows: pa.Table, weight: int) -> pa.Table:
    """Return rows as changes of one weight."""
    return rows.append_column(WEIGHT, pa.array(np.full(rows.num_rows, weight, np.int64)))


_ABSENT = "the table has no earlier row to take the unchanged value from"
_UNEQUAL = "no row equals the one before the change"


class Present(Protocol):
    """The rows of a table before the current part."""

    def parts(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield all rows in parts, with the given columns, each row as often as its weight."""
        ...

    def alike(self, rows: pa.Table) -> pa.Table:
        """Return the rows that equal one of ``rows`` in all columns of ``rows``."""
        ...

    def with_keys(self, keys: pa.Table) -> pa.Table:
        """Return the rows that have one of the primary keys."""
        ...


def depends_on_rows(part: Part, key: tuple[str, ...]) -> bool:
    """Return whether a part has to be completed from the table's rows."""
    if part.emptied or part.unchanged:
        return True
    return not key and part.rows.num_rows > 0 and pc.min(part.rows[WEIGHT]).as_py() < 0


def with_rows_before(part: Part, key: tuple[str, ...], present: Present) -> Part:
    """Return the part completed to whole rows, as the module describes.

    Only the last place where the table is emptied matters: rows before it are never visible,
    because one epoch reads the whole part.
    """
    first = part.emptied[-1] if part.emptied else 0
    rows = part.rows.slice(first).combine_chunks()
    cells = {
        name: np.asarray(mask.to_numpy(zero_copy_only=False))[first:]
        for name, mask in part.unchanged.items()
    }
    changes = _Changes(part, np.arange(first, part.rows.num_rows), rows, cells)
    there = _Nothing(rows.schema) if part.emptied else present
    kept, rejects = (
        _by_key(changes, key, there)
        if key and cells
        else (_Kept(rows, changes.places), [])
        if key
        else _by_value(changes, there)
    )
    gone = _deleted(rows.schema, key, present) if part.emptied else rows.slice(0, 0)
    return replace(
        part,
        rows=pa.concat_tables([gone, kept.rows]),
        rejects=(*part.rejects, *rejects),
        unchanged={},
        emptied=(),
        times=None,
        origin=_shifted(part, gone.num_rows, kept.places),
        origins=None,
    )


def rows_of(reader: Reader, table: Table) -> Present:
    """Return the rows of a table after all its writes have been read by epochs."""
    return reader.contents(reader.settled([table.id]), table)


@dataclass(frozen=True, slots=True)
class _Changes:
    """Changes of a part at the row indexes ``places``; ``cells`` masks the unchanged ones."""

    part: Part
    places: Ints
    rows: pa.Table
    cells: Mapping[str, Bools]

    @property
    def weights(self) -> Ints:
        return np.asarray(self.rows[WEIGHT].to_numpy())

    def origin(self, at: int) -> tuple[str, int]:
        return ("", 0) if self.part.origin is None else self.part.origin(int(self.places[at]))

    def moved(self, at: Ints) -> Ints:
        """Return the indexes among ``at`` that are the insertion half of an update."""
        weights = self.weights
        second = at[(at > 0) & (weights[at] > 0)]
        second = second[weights[second - 1] < 0]
        if self.part.origin is None:
            return second[:0]
        same = [self.origin(row) == self.origin(row - 1) for row in second.tolist()]
        return np.asarray(second[np.array(same, bool)])

    def rejected(self, at: int, column: str | None, reason: str) -> Reject:
        file, line = self.origin(at)
        payload = self.part.payload
        raw = "" if payload is None else payload(int(self.places[at]))
        return Reject(file, line, column, reason, raw)


@dataclass(frozen=True, slots=True)
class _Kept:
    """Whole rows, and the index in the part of each."""

    rows: pa.Table
    places: Ints


@dataclass(frozen=True, slots=True)
class _Nothing:
    """The rows of a table that has just been emptied."""

    schema: pa.Schema

    def parts(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        yield self.schema.empty_table().select(list(columns))

    def alike(self, rows: pa.Table) -> pa.Table:  # noqa: ARG002 - the table is empty
        return self.schema.empty_table()

    with_keys = alike


def _by_key(
    changes: _Changes, key: tuple[str, ...], present: Present
) -> tuple[_Kept, list[Reject]]:
    """Return the changes with unchanged cells filled in; rejects where no row exists before."""
    rows = changes.rows
    keeps = np.logical_or.reduce(list(changes.cells.values())) & (changes.weights > 0)
    keeping = np.flatnonzero(keeps)
    moved = changes.moved(keeping)
    asked = np.union1d(np.setdiff1d(keeping, moved), moved - 1)
    before = _columns(present.with_keys(_distinct(rows.select(list(key)).take(asked))), rows.schema)
    both = pa.concat_tables([before, rows]).combine_chunks()
    there = before.num_rows

    # The row before each row, in the order of the table's rows and then of the changes.
    codes = row_codes([_array(both[name]) for name in key], both.num_rows)
    order = np.argsort(codes, kind="stable")
    former = np.full(both.num_rows, -1)
    same = codes[order][1:] == codes[order][:-1]
    former[order[1:][same]] = order[:-1][same]
    former[there + moved] = former[there + moved - 1]
    gone = np.concatenate([np.zeros(there, bool), changes.weights < 0])
    former[(former >= 0) & gone[former]] = -1

    # A row is complete if it is whole, or if the row before it is complete.
    every = np.arange(both.num_rows)
    keeps_any = np.concatenate([np.zeros(there, bool), keeps])
    lost = _followed(np.where(keeps_any, former, every))[there:] < 0
    for name, mask in changes.cells.items():
        keeps_this = np.concatenate([np.zeros(there, bool), mask & keeps])
        source = _followed(np.where(keeps_this, former, every))[there:]
        values = both[name].take(pa.array(source.clip(0)))
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)
    if not lost.any():
        return _Kept(rows, changes.places), []
    rejects = []
    for at in np.flatnonzero(lost).tolist():
        names = [name for name, mask in changes.cells.items() if mask[at]]
        rejects.append(changes.rejected(at, ", ".join(names), _ABSENT))
    return _Kept(rows.filter(pa.array(~lost)), changes.places[~lost]), rejects


def _followed(source: Ints) -> Ints:
    """Follow links between rows to the row that has the value; -1 if there is none."""
    while True:
        further = np.where(source < 0, -1, source[source])
        if np.array_equal(further, source):
            return source
        source = further


def _by_value(changes: _Changes, present: Present) -> tuple[_Kept, list[Reject]]:
    """Return the changes whose deletions match existing rows; the others as rejects."""
    rows, weights = changes.rows, changes.weights
    compared = [name for name in rows.column_names if name not in {WEIGHT, *changes.cells}]
    deleting = np.flatnonzero(weights < 0)
    before = present.alike(_distinct(rows.select(compared).take(deleting)))
    both = pa.concat_tables([_columns(before, rows.schema), rows]).combine_chunks()
    there = before.num_rows
    codes = row_codes([_array(both[name]) for name in compared], both.num_rows).tolist()
    seconds = set(changes.moved(np.arange(len(weights))).tolist())

    present_rows: dict[int, list[int]] = {}
    for row in range(there):
        present_rows.setdefault(codes[row], []).append(row)
    kept: list[int] = []
    source: list[int] = []
    rejects: list[Reject] = []
    refused = -1
    for at, weight in enumerate(weights.tolist()):
        found = present_rows.setdefault(codes[there + at], [])
        if weight > 0:
            if refused == at - 1 and at in seconds:
                continue
            found.append(there + at)
            source.append(there + at)
        elif found:
            source.append(found.pop())
        else:
            rejects.append(changes.rejected(at, "before", _UNEQUAL))
            refused = at
            continue
        kept.append(at)
    places = np.array(kept, np.int64)
    rows = rows.take(pa.array(places))
    for name in changes.cells:
        values = both[name].take(pa.array(source, pa.int64()))
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)
    return _Kept(rows, changes.places[places]), rejects


def _deleted(schema: pa.Schema, key: tuple[str, ...], present: Present) -> pa.Table:
    """Return deletions of all rows of a table; by key, the other columns are NULL."""
    columns = [name for name in schema.names if name != WEIGHT and (not key or name in key)]
    none = schema.empty_table().select(columns)
    rows = pa.concat_tables(
        [none, *(_columns(part, none.schema) for part in present.parts(columns))]
    )
    return _columns(rows.append_column(WEIGHT, pa.repeat(-1, rows.num_rows)), schema)


def _columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the columns of a schema; missing ones are NULL."""
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _distinct(rows: pa.Table) -> pa.Table:
    codes = row_codes([_array(column) for column in rows.columns], rows.num_rows)
    return rows.take(pa.array(np.unique(codes, return_index=True)[1]))


def _array(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def _shifted(part: Part, gone: int, places: Ints) -> Callable[[int], tuple[str, int]] | None:
    """Return the origins of rows that now follow ``gone`` deletions, which have no origin."""
    origin = part.origin
    if origin is None:
        return None

    def found(row: int) -> tuple[str, int]:
        return ("", 0) if row < gone else origin(int(places[row - gone]))

    return found
