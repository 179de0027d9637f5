"""What a swap of a view and its candidate would change: rows by kind and column, with examples."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headrace.parts.swapping import same_contents
from headrace.runtime.attempt import Attempt
from headrace.runtime.sink_differences import SinkDifference
from headrace.serving.pairs import paired
from headrace.serving.python_values import python_rows
from headrace.serving.text_columns import text_column
from headrace.spine import Spine, differences
from headrace.types import rows_of
from headrace.zset import WEIGHT, row_codes
from headrace.zset.zset import column, numbers, take

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from headrace.catalog import View
    from headrace.runtime.epoch import EpochLoop
    from headrace.runtime.published import Published
    from headrace.zset import Layout

_PART_ROWS: Final = 100_000
_EXAMPLES: Final = 3
_MOST_DIGITS: Final = 38
"""The digits of Spark's widest DECIMAL; sums of two may have more, which 256 bits hold."""


@dataclass(slots=True)
class CandidateDifference:
    """Rows that a swap would add, remove and change. Examples are rows as dictionaries.

    Columns that are ``new``, or are ``dropped``, are not compared. The values of those ``retyped``,
    with both types by their names, are: see :class:`CommonType`.

    ``columns`` counts the changed rows by the column that differs; ``of_column`` has examples of
    them, each the row before and the row after. Without a key, no row is changed.
    """

    new: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    retyped: dict[str, tuple[pa.DataType, pa.DataType]] = field(default_factory=dict)
    added: int = 0
    gone: int = 0
    changed: int = 0
    columns: Counter[str] = field(default_factory=Counter)
    of_added: list[dict[str, object]] = field(default_factory=list)
    of_gone: list[dict[str, object]] = field(default_factory=list)
    of_column: dict[str, list[tuple[dict[str, object], dict[str, object]]]] = field(
        default_factory=dict
    )

    def count(self, changes: pa.Table, key: Sequence[str]) -> None:
        """Count changes, with their weights, which have all changes of their keys."""
        weights = np.abs(numbers(changes, WEIGHT))
        before, after = paired(changes, key)
        self.added += int(weights[after[before < 0]].sum())
        self.gone += int(weights[before[after < 0]].sum())
        rows = changes.drop_columns([WEIGHT])
        alone = (after[before < 0], self.of_added, 1), (before[after < 0], self.of_gone, 0)
        for places, examples, side in alone:
            examples.extend(self._shown(rows, places[: _EXAMPLES - len(examples)], side))
        both = (before >= 0) & (after >= 0)
        self.changed += int(both.sum())
        self._columns(rows, key, before[both], after[both])

    def _columns(
        self,
        rows: pa.Table,
        key: Sequence[str],
        before: NDArray[np.int64],
        after: NDArray[np.int64],
    ) -> None:
        for name in rows.column_names:
            if name in key or not len(before):
                continue
            codes = row_codes([column(rows, name)], rows.num_rows)
            differs = codes[before] != codes[after]
            self.columns[name] += int(differs.sum())
            examples = self.of_column.setdefault(name, [])
            more = _EXAMPLES - len(examples)
            olds = self._shown(rows, before[differs][:more], 0)
            news = self._shown(rows, after[differs][:more], 1)
            examples += zip(olds, news, strict=True)

    def _shown(
        self, rows: pa.Table, places: NDArray[np.int64], side: int
    ) -> list[dict[str, object]]:
        """Return rows as the side has them: 0 is before, 1 after."""
        found = take(rows, places)
        for name, types in self.retyped.items():
            at, values = found.column_names.index(name), column(found, name)
            if values.type != types[side] and not pa.types.is_string(values.type):
                found = found.set_column(at, name, values.cast(types[side], safe=False))
        return python_rows(found)


@dataclass(frozen=True, slots=True)
class CommonType:
    """The type as which values of two types are compared, as those of a column that gets another.

    Of two numeric types, it holds the values of both exactly; of a floating one and another, it is
    DOUBLE, as in Spark. Of a date and a timestamp, it is the timestamp's. Other values are compared
    as their texts. If it is ``exact``, values that differ in one of the types differ in it.
    """

    type: pa.DataType
    exact: bool

    @classmethod
    def of(cls, first: pa.DataType, second: pa.DataType) -> CommonType:
        """Return the common type of two types."""
        if first == second:
            return cls(first, exact=True)
        types, kinds = (first, second), pa.types
        floating = [each for each in types if kinds.is_floating(each)]
        numeric = [
            each for each in types if kinds.is_integer(each) or kinds.is_decimal(each)
        ] + floating
        if len(numeric) == len(types):
            if floating:
                return cls(pa.float64(), exact=len(floating) == len(types))
            digits = [_digits(each) for each in types]
            scale = max(scale for _, scale in digits)
            precision = max(whole for whole, _ in digits) + scale
            holds = pa.decimal128 if precision <= _MOST_DIGITS else pa.decimal256
            return cls(holds(precision, scale), exact=precision <= _MOST_DIGITS)
        if kinds.is_date(first) and kinds.is_timestamp(second):
            return cls(second, exact=True)
        if kinds.is_timestamp(first) and kinds.is_date(second):
            return cls(first, exact=True)
        return cls(pa.string(), exact=False)

    def values(self, given: pa.Array) -> pa.Array:
        """Return values of one of the types."""
        if given.type == self.type:
            return given
        return text_column(given) if pa.types.is_string(self.type) else given.cast(self.type)


def _digits(type_: pa.DataType) -> tuple[int, int]:
    """Return how many digits an exact numeric type has before the point, and after it."""
    if pa.types.is_decimal(type_):
        return type_.precision - type_.scale, type_.scale
    return len(str(1 << (type_.bit_width - 1))), 0


def candidate_difference(loop: EpochLoop, view: View, candidate: View) -> CandidateDifference:
    """Compare the contents of a view and its candidate in one published state, in bounded memory.

    Both are maintained in every epoch. What is written meanwhile is removed.
    """
    state = loop.published.current
    if same_contents(state, view, candidate):
        return _of_alike(loop, state, view, candidate)
    layouts = state.layout(view), state.layout(candidate)
    before, after = ({field.name: field.type for field in each.columns} for each in layouts)
    common = {name: CommonType.of(before[name], after[name]) for name in after if name in before}
    found = CandidateDifference(
        tuple(name for name in after if name not in common),
        tuple(name for name in before if name not in common),
        {name: (before[name], after[name]) for name in common if before[name] != after[name]},
    )
    exact = {name for name, each in common.items() if each.exact}
    key = view.key if view.key == candidate.key and {*view.key} <= exact else ()
    columns = pa.schema([pa.field(name, each.type) for name, each in common.items()])
    own, others = (
        _rows(loop, state, each, layout, common)
        for each, layout in zip((view, candidate), layouts, strict=True)
    )
    with SinkDifference.of(loop.directory, columns, key, others, map(_repeated, own)) as difference:
        for part in difference.spine.scan(_PART_ROWS):
            found.count(part.table.select([*common, WEIGHT]), key)
    return found


def _of_alike(
    loop: EpochLoop, state: Published, view: View, candidate: View
) -> CandidateDifference:
    """Compare contents that are stored alike."""
    found, layout = CandidateDifference(), state.layout(view)
    own, others = ([run.file for run in state.runs(each)] for each in (view, candidate))
    attempt = Attempt(loop.runs)
    try:
        files = differences(attempt.directory, layout, own, others, loop.partitions)
        attempt.put(rows_of(view.id), files)
        for part in Spine.open(attempt.directory, layout, files).scan(_PART_ROWS):
            found.count(part.table.select([*layout.columns.names, WEIGHT]), view.key)
    finally:
        attempt.abandon()
    return found


def _rows(
    loop: EpochLoop,
    state: Published,
    view: View,
    layout: Layout,
    common: Mapping[str, CommonType],
) -> Iterator[pa.Table]:
    """Yield some columns of a view's rows, as values of their common types, with the weights."""
    spine = Spine.open(loop.runs, layout, [run.file for run in state.runs(view)])
    for part in spine.scan(_PART_ROWS):
        given = {name: each.values(column(part.table, name)) for name, each in common.items()}
        yield pa.table({**given, WEIGHT: column(part.table, WEIGHT)})


def _repeated(rows: pa.Table) -> pa.Table:
    """Return rows as often as their weights say, without these."""
    weights = numbers(rows, WEIGHT)
    return take(rows.drop_columns([WEIGHT]), np.repeat(np.arange(rows.num_rows), weights))
