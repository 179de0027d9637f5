"""The values of several views for a list of keys, each as of its own time.

The views that a program asks for, in the forms that Python has for them.

Rows in memory that a query reads as a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import TimestampType

from headrace.algebra.zset import WEIGHT, Layout, ZSet
from headrace.algebra.zset.order import is_text, valid
from headrace.algebra.zset.row_hash import hashes_of
from headrace.algebra.zset.zset import column, one_piece
from headrace.errors import Code, HeadraceError, unknown
from headrace.execution.engine.known_by import given_leads
from headrace.execution.serving import AskedKeys, CommittedRows, DatedRows
from headrace.execution.serving.values import is_time, micros
from headrace.interfaces.statements.results import Freshness, Result
from headrace.io.formats.fitting import fitted, of_texts
from headrace.io.formats.values import cast_texts, from_text
from headrace.planning.catalog import Table, View, key_of, title
from headrace.planning.sql.fragments import asked_view
from headrace.storage.ledger import NO_EPOCH
from headrace.types import Column, Epoch, Schema, rows_of, to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.algebra.spine import PackWriter, RunFile
    from headrace.algebra.zset.order import Ints
    from headrace.execution.engine.engine import Engine
    from headrace.execution.runtime.published import Published
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.sql.as_of import AskedView
    from headrace.storage.ledger import Ledger
    from headrace.types import RelationId


Views: TypeAlias = "str | Sequence[str] | Mapping[str, Sequence[str] | Mapping[str, str] | None]"
"""Views, as in SQL, such as ``name`` or ``name(column, column AS new)``; or, by the name of each,
its columns, with their new names if it is a mapping, or None for all that are not its key."""


def asked_views(views: Views) -> tuple[AskedView, ...]:
    """Return the views that a program asks for.

    Raises:
        HeadraceError: INVALID for values of another form.
    """
    if isinstance(views, str):
        return (asked_view(views),)
    if isinstance(views, Mapping):
        return tuple(
            replace(asked_view(str(name)), columns=_columns(columns))
            for name, columns in views.items()
        )
    if isinstance(views, Sequence) and all(isinstance(each, str) for each in views):
        return tuple(map(asked_view, views))
    raise HeadraceError(
        Code.INVALID,
        "views are neither names nor a mapping",
        hint="Give names, as in ['a', 'b'], or their columns, as in {'a': ['x'], 'b': None}.",
    )


def _columns(columns: Any) -> tuple[tuple[str, str], ...] | None:
    if columns is None:
        return None
    if isinstance(columns, Mapping):
        return tuple((str(name), str(new)) for name, new in columns.items())
    names = [columns] if isinstance(columns, str) else columns
    return tuple((str(name), str(name)) for name in names)


@dataclass(frozen=True, slots=True)
class GivenRows:
    """Rows, the columns of the table that they are read as, and their layout in a run."""

    rows: pa.Table
    columns: Schema
    layout: Layout

    @classmethod
    def of(cls, rows: pa.Table, spread: Sequence[str]) -> Self:
        """Return rows of Spark's types; they are spread over partitions by some columns."""
        columns = Schema.of_spark(from_arrow_schema(rows.schema, prefer_timestamp_ntz=True))
        by = tuple(name for name in spread if not _has_maps(rows.schema.field(name).type))
        weights = pa.schema([pa.field(WEIGHT, pa.int64())])
        return cls(rows, columns, Layout(by, columns.arrow, weights))

    def write(self, pack: PackWriter) -> list[RunFile]:
        """Write the rows as a run, and return it; rows that are there twice count twice."""
        count, names = self.rows.num_rows, self.layout.columns.names
        if not count:
            return []
        hashes = hashes_of([column(self.rows, name) for name in self.layout.key], count)
        arrays = [self.rows[name].cast(self.layout.columns.field(name).type) for name in names]
        table = pa.Table.from_arrays(
            [pa.array(hashes), *arrays, pa.array(np.ones(count, np.int64))],
            schema=self.layout.schema,
        )
        return [pack.write(ZSet(self.layout, table).consolidated())]


def _has_maps(kind: pa.DataType) -> bool:
    """Return whether values of a type are, or contain, maps, which have no hash."""
    if pa.types.is_map(kind):
        return True
    inner = [kind.field(i).type for i in range(kind.num_fields)] if kind.num_fields else []
    return any(map(_has_maps, inner))


_MICROS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class _Read:
    """How a view is read: by the columns ``key`` of the pairs, and by ``dated`` or by commit."""

    relation: Table | View
    key: tuple[Column, ...]
    dated: str | None
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The rows that ask, and the column of their times."""

    rows: pa.Table
    time: str
    micros: Ints
    known: Ints
    """The positions of the rows that have a time."""

    def keys(self, columns: Sequence[Column]) -> AskedKeys:
        """Return the values of key columns, converted to the types of a view.

        Raises:
            HeadraceError: INVALID if a value does not fit.
        """
        names = {name.lower(): name for name in self.rows.column_names}
        found = []
        for each in columns:
            given = one_piece(self.rows[names[each.name.lower()]])
            hint = f"The keys of the view are of type {each.sql}."
            found.append(_converted(given, each, hint))
        return AskedKeys.among([each.name for each in columns], found, self.rows.num_rows)


@dataclass(frozen=True, slots=True)
class PointInTime:
    """Reads views as of the times of pairs.

    A view whose key is in the pairs is read by the time of commit: each pair gets the row that the
    view had at the last epoch that was committed by then. A view whose key has one more column, of
    times, is read by these: each pair gets the last row that is not after its time, from the
    contents of now. Neither returns a row of a later time: views whose rows may have more than
    what happened until the time of their key are refused.
    """

    engine: Engine
    reader: Reader
    ledger: Ledger
    seen: Callable[[Iterable[RelationId]], Published]

    def read(self, rows: pa.Table, views: Sequence[AskedView], time: str | None = None) -> Result:
        """Return the rows, in their order, each with the values of the views at its time.

        ``rows`` have the columns of the keys and ``time``, which may be left out if only one of
        them is a time; other columns are returned as they are. Values are NULL where a view has no
        row of the key at the time, and if a part of the key or the time is NULL.

        Raises:
            HeadraceError: INVALID if a view does not have such a key, a column is missing or there
                twice, or a pair is of a time that can no longer be read; UNAVAILABLE if a view has
                stopped.
        """
        pairs = _pairs(rows, time)
        while True:
            catalog = self.reader.catalog
            reads = [self._read(catalog.resolve(each.name), each, pairs) for each in views]
            _require_distinct(pairs, reads)
            state = self.seen([each.relation.id for each in reads])
            if state.catalog is catalog:
                break
        columns = dict(zip(rows.column_names, rows.columns, strict=True))
        for each in reads:
            found = self._values(each, pairs, state)
            columns |= {new: found[name] for name, new in each.columns}
        ids = [each.relation.id for each in reads]
        fresh = Freshness.of(state, self.ledger.head.ends, ids, state.dirty.keys() & {*ids})
        return Result(pa.table(columns), state.epoch, freshness=fresh)

    def _read(self, relation: object, asked: AskedView, pairs: _Pairs) -> _Read:
        if not isinstance(relation, Table | View):
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'"{asked.name}" cannot be read as of the times of pairs',
                detail="Only tables and materialized views can.",
                hint="Make a plain view a MATERIALIZED VIEW; of a stream, make a view by key.",
            )
        key, columns = key_of(relation), {c.name: c for c in relation.schema.columns}
        if not key and not (isinstance(relation, View) and relation.single):
            raise HeadraceError(
                Code.INVALID,
                f"{title(relation)} has no key by which it could be read",
                hint="Declare it, CREATE MATERIALIZED VIEW name (PRIMARY KEY (...)) AS ..., or"
                " group by it.",
            )
        given = {name.lower() for name in pairs.rows.column_names if name != pairs.time}
        left = [name for name in key if name.lower() not in given]
        dated = left[0] if len(left) == 1 and is_time(to_arrow(columns[left[0]].type)) else None
        if left and dated is None:
            names = ", ".join(key)
            raise HeadraceError(
                Code.INVALID,
                f'the pairs lack column "{left[0]}" of the key of {title(relation)}',
                detail=f"Its key is ({names}). One column of it may be missing, if it is a time.",
                hint="Name the columns of the pairs as those of the key.",
            )
        if dated is not None:
            self._require_known(relation, dated)
        chosen = asked.columns
        if chosen is None:
            chosen = tuple((name, name) for name in columns if name not in key)
        if not chosen:
            raise HeadraceError(
                Code.INVALID,
                f"no column of {title(relation)} is asked for",
                hint="All its columns are its key. Name those that are to be returned.",
            )
        spelt = {name.lower(): name for name in columns}
        for name, _ in chosen:
            if name.lower() not in spelt:
                raise unknown(f"column of {title(relation)}", name, columns)
        return _Read(
            relation,
            tuple(columns[name] for name in key if name != dated),
            dated,
            tuple((spelt[name.lower()], new) for name, new in chosen),
        )

    def _require_known(self, relation: Table | View, dated: str) -> None:
        """Refuse a time at which rows are not known to be complete."""
        if isinstance(relation, View):
            leads, hint = self.engine.known_times.of(relation), _KNOWN_LATER.format(dated)
        else:
            leads, hint = given_leads(relation), _DECLARED
        if leads.get(dated, -1) >= 0:
            return
        raise HeadraceError(
            Code.INVALID,
            f'{title(relation)} cannot be read by column "{dated}" of its key',
            detail="A row could be answered for a time before all that it was made of: a window,"
            " a day or an hour is known at its end, and it is not known that this column is not"
            " before it.",
            hint=hint,
        )

    def _values(self, read: _Read, pairs: _Pairs, state: Published) -> pa.Table:
        """Return the values of one view, aligned with the pairs."""
        names = tuple(dict.fromkeys(name for name, _ in read.columns))
        if read.dated is not None:
            self.reader.require_running(read.relation, state)
            stored = self._dated_by(read, state)
            asked = pairs.keys(_arranged(read.key, state.layout(stored).key))
            contents = self.reader.contents(state, stored)
            return DatedRows(contents, asked, read.dated, names).at(pairs.micros, pairs.known)
        asked = pairs.keys(_arranged(read.key, state.layout(read.relation).key))
        epochs = np.full(pairs.rows.num_rows, NO_EPOCH, np.int64)
        asking = pairs.known[asked.of[pairs.known] >= 0]
        if not len(asking):
            rows = CommittedRows(self.reader.history(state, read.relation.id), asked, names)
            return rows.at(epochs)
        epochs[asking] = self._epochs(read.relation, pairs.micros[asking], state)
        first, last = Epoch(int(epochs[asking].min())), Epoch(int(epochs[asking].max()))
        self.reader.require_running(read.relation, state, last)
        held = self.reader.as_of(first, state, [read.relation])
        restarts = self._restarts(read.relation, epochs[asking])
        history = self.reader.history(held, read.relation.id)
        return CommittedRows(history, asked, names, restarts).at(epochs)

    def _dated_by(self, read: _Read, state: Published) -> Table | View:
        """Return what has the rows of a view: an index by the key of the pairs, if there is one."""
        key = {column.name for column in read.key}
        for index in self.reader.indexes(state, read.relation):
            layout = state.layout(index)
            whole = {*read.relation.schema.names} == {*layout.columns.names}
            if key == {*layout.key} and whole:
                return index
        return read.relation

    def _epochs(self, relation: Table | View, times: Ints, state: Published) -> Ints:
        """Return the last epoch committed by each time."""
        oldest = self.ledger.spines.oldest().get(rows_of(relation.id))
        if oldest is None:
            raise HeadraceError(Code.CONFLICT, f"{title(relation)} was dropped meanwhile")
        since, begin = oldest
        epochs, committed = self.ledger.epochs.commit_times(since, state.epoch)
        found = committed.searchsorted(times, "right") - 1
        early = times[found < 0]
        if len(early):
            raise HeadraceError(
                Code.INVALID,
                f"{title(relation)} cannot be read at the times of {len(early):,} of the pairs",
                detail=f"It can be read from {_shown(round(begin * _MICROS))} (epoch {since})"
                f" on; the earliest time is {_shown(int(early.min()))}. Times are UTC.",
                hint=_LONGER if isinstance(relation, View) else _NEWER,
            )
        return epochs[found]

    def _restarts(self, relation: Table | View, epochs: Ints) -> tuple[Epoch, ...]:
        """Return the epochs in which a view was filled again after it had stopped.

        Raises:
            HeadraceError: INVALID if some of the epochs are among those without its rows.
        """
        if not isinstance(relation, View):
            return ()
        gaps = sorted(self.ledger.dirty.gaps(relation.id), key=lambda gap: gap.until)
        for gap in gaps:
            within = int(((epochs > gap.after) & (epochs < gap.until)).sum())
            if within:
                raise HeadraceError(
                    Code.INVALID,
                    f"{title(relation)} had no rows at the times of {within:,} of the pairs",
                    detail=f"It stopped after epoch {gap.after}, and was filled again in epoch"
                    f" {gap.until}."
                    if gap.after != NO_EPOCH
                    else f"It was filled again in epoch {gap.until}, when a function changed.",
                    hint="Leave these pairs out. SHOW EPOCHS has the times of epochs.",
                )
        return tuple(gap.until for gap in gaps)


_LONGER: Final = (
    "Leave these pairs out. To keep states for longer from now on, ALTER MATERIALIZED VIEW name SET"
    " (history = '30 days'). A view whose key has a column of times has no such limit."
)
_DECLARED: Final = "Declare the table WITH (effective_from = 'column')."
_KNOWN_LATER: Final = (
    "Use the end of the window, or the time of the events itself, as the key. To read by the time"
    ' of commit, give the pairs a column "{}".'
)
_NEWER: Final = (
    "Leave these pairs out. The setting history_epochs is how many epochs of tables are kept."
)


def _arranged(columns: Sequence[Column], key: Sequence[str]) -> Sequence[Column]:
    """Return the columns of a key in the order by which rows are arranged, if that is by them."""
    by_name = {column.name: column for column in columns}
    return [by_name[name] for name in key] if by_name.keys() == {*key} else columns


def _pairs(rows: pa.Table, time: str | None) -> _Pairs:
    """Return pairs with their times.

    Raises:
        HeadraceError: INVALID if they have no such column, or more than one.
    """
    if time is None:
        times = [field.name for field in rows.schema if is_time(field.type)]
        if len(times) != 1:
            many = f"they have {', '.join(times)}" if times else "none of their columns is one"
            raise HeadraceError(
                Code.INVALID,
                "the time of the pairs is not known",
                detail=f"{many[0].upper()}{many[1:]}.",
                hint="Name its column: time = 'at'. Its type is a timestamp or a date.",
            )
        time = times[0]
    name = next((each for each in rows.column_names if each.lower() == time.lower()), None)
    if name is None:
        raise unknown("column of the pairs", time, rows.column_names)
    values = one_piece(rows[name])
    if not is_time(values.type):
        hint = "Times are timestamps or dates, in UTC if they have no zone."
        values = _converted(values, Column(name, TimestampType()), hint)
    try:
        instants = micros(values)
    except OverflowError as error:
        raise _beyond() from error
    return _Pairs(rows, name, instants, valid(values).nonzero()[0])


def _converted(values: pa.Array, column: Column, hint: str) -> pa.Array:
    """Return values converted to the type of a column; texts are read as in CSV.

    Raises:
        HeadraceError: INVALID for the first that does not fit.
    """
    wanted = to_arrow(column.type)
    if is_text(values.type) and not is_text(wanted):
        found = of_texts(
            values,
            wanted,
            lambda texts: cast_texts(texts, column.type, wanted),
            lambda: from_text(column),
        )
    else:
        found = fitted(values, column.type, first=True)
    if found.refused:
        row, why = next(iter(found.refused.items()))
        what = f'column "{column.name}" in row {row + 1} of the pairs: {why}'
        raise HeadraceError(Code.INVALID, what, hint=hint)
    whole = found.values
    return one_piece(whole) if isinstance(whole, pa.ChunkedArray) else whole


def _beyond() -> HeadraceError:
    return HeadraceError(Code.INVALID, "a time is beyond the range of a timestamp")


def _require_distinct(pairs: _Pairs, reads: Sequence[_Read]) -> None:
    """Raise if two columns of the result have the same name."""
    seen = {name.lower(): "the pairs" for name in pairs.rows.column_names}
    for read in reads:
        for name, new in read.columns:
            where = title(read.relation)
            if new.lower() in seen:
                raise HeadraceError(
                    Code.INVALID,
                    f'column "{new}" is in {seen[new.lower()]} and in {where}',
                    hint="Choose the columns of the view, or rename one:"
                    f" {{'{read.relation.name}': {{'{name}': 'other'}}}}; in SQL,"
                    f" {read.relation.name}({name} AS other).",
                )
            seen[new.lower()] = where


def _shown(instant: int) -> str:
    """Return a time in microseconds UTC as text."""
    try:
        return f"{datetime.fromtimestamp(instant / _MICROS, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return f"{instant} microseconds"
