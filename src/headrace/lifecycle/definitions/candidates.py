"""What a swap of a view and its candidate would change: rows by kind and column, with examples.

What served before a swap is dropped by itself when the time for which it is kept is over.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from headrace.algebra.spine import Spine, differences
from headrace.algebra.zset import WEIGHT, row_codes
from headrace.algebra.zset.zset import column, numbers, take
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.attempt import Attempt
from headrace.execution.runtime.delivery_position import SinkDifference
from headrace.execution.serving.changes import paired
from headrace.execution.serving.values import python_rows, text_column
from headrace.lifecycle.states.swapping import same_contents
from headrace.planning.catalog.naming import is_candidate
from headrace.types import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from headrace.algebra.zset import Layout
    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.published import Published
    from headrace.execution.runtime.pump import Pump
    from headrace.lifecycle.definitions.definer import Definer
    from headrace.planning.catalog import Catalog, View
    from headrace.types import RelationId


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


_SECOND: Final = 1_000_000
_RETRY_SECONDS: Final = 1.0
_LONGEST_WAIT_SECONDS: Final = 60.0
"""The longest wait for the end of a time: the system clock may be set meanwhile."""


@dataclass(slots=True)
class FormerBuilds:
    """Drops candidates that have served once they need not be kept any more.

    Their files are deleted as those of any dropped view are.
    """

    definer: Definer
    pump: Pump
    _closed: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def drop_due(self) -> int:
        """Drop those whose time is over, in one epoch; return how many there were."""
        first = self._due()
        if not first:
            return 0
        with self.definer.loop.exclusive(first):
            due = self._due()  # one of them may serve again meanwhile
            due = due if set(due) <= set(first) else []  # or become due: it is looked for again
            if due:
                self.definer.drop(due)
        if due:
            self.pump.compaction.run()
        return len(due)

    def start(self) -> None:
        """Drop them in the background, each when it is due."""
        self._thread = threading.Thread(target=self._run, name="headrace-former", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; what becomes due later is dropped when the database is opened again."""
        self._closed.set()
        self.definer.loop.published.wake()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        published = self.definer.loop.published
        while not self._closed.is_set():
            try:
                self.drop_due()
            except Exception as error:  # noqa: BLE001 - it is shown, and must not end the thread
                internal = HeadraceError(
                    Code.INTERNAL, "a former build of a view was not dropped", f"{error!r}."
                )
                self.pump.error = error if isinstance(error, HeadraceError) else internal
                self._closed.wait(_RETRY_SECONDS)
            else:
                known = self.definer.loop.catalog
                published.wait_for(self._changed_from(known), self._seconds_until_due(known))

    def _changed_from(self, known: Catalog) -> Callable[[], bool]:
        """Return a condition that is met once another time ends next than in a catalog."""
        loop, ends = self.definer.loop, _next_end(known)
        return lambda: (
            self._closed.is_set() or (loop.catalog is not known and _next_end(loop.catalog) != ends)
        )

    def _seconds_until_due(self, catalog: Catalog) -> float | None:
        ends = _next_end(catalog)
        if ends is None:
            return None
        return min(_LONGEST_WAIT_SECONDS, max(0.0, ends - self._now()))

    def _due(self) -> list[RelationId]:
        """Return those whose time is over, and the candidates that read them, inputs first."""
        catalog, now = self.definer.loop.catalog, self._now()
        found: dict[RelationId, None] = {}
        for view, until in _kept(catalog):
            above = catalog.dependants(view.id)
            if until <= now and all(map(is_candidate, above)):
                found |= dict.fromkeys((view.id, *(each.id for each in above)))
        return list(found)

    def _now(self) -> float:
        return self.definer.loop.now() / _SECOND


def _kept(catalog: Catalog) -> list[tuple[View, float]]:
    views = catalog.views_in_order()
    return [(view, view.kept_until) for view in views if view.kept_until is not None]


def _next_end(catalog: Catalog) -> float | None:
    """Return the time, in Unix seconds, at which the next one is due; None if none ever is."""
    return min((at for _, at in _kept(catalog)), default=None)
