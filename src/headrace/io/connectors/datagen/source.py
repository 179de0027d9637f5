"""Generated rows at a constant rate: the position of the source is the number of the next row.

A row is a function of the seed and its number, so a restart continues with the same rows. Its event
time is the time at which it was due: rows are evenly spaced from the start, or the restart, of the
source.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError, meant
from headrace.execution.runtime.ports import Part
from headrace.io.connectors.datagen.random_columns import (
    RowNumbers,
    generated_column,
    random_bits,
    random_shares,
)
from headrace.io.connectors.options import Given, moment, option, seconds, share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from headrace.types import Schema


_MOST_ROWS: Final = 65_536
_PART_SECONDS: Final = 0.1
_REPEATED_WITHIN: Final = 100
"""A duplicate follows its original at a distance of at most this many rows."""


@dataclass(frozen=True, slots=True)
class Options:
    """The rate and number of rows, and which shares of them are late or duplicates."""

    rate: int = option("rows-per-second", default=10_000)
    count: int | None = option("number-of-rows", default=None)
    seed: int = option("seed", default=0)
    start: int | None = option("start-time", default=None, convert=moment)
    late: float = option("lateness.share", default=0.0, convert=share)
    latest: float = option("lateness.max", default=0.0, convert=seconds)
    duplicates: float = option("duplicates.share", default=0.0, convert=share)
    fields: tuple[tuple[str, str], ...] = option(prefix="fields.", default=())

    def __post_init__(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            HeadraceError: ``invalid``.
        """
        if not 0 < self.rate <= 100_000_000:  # noqa: PLR2004 (100 rows a microsecond)
            raise HeadraceError(
                Code.INVALID,
                f"{self.rate} rows per second are not supported",
                hint="Set rows-per-second to a number from 1 to 100000000.",
            )
        if self.seed >= 1 << 64:
            raise HeadraceError(
                Code.INVALID, f"seed {self.seed} is too large", hint="Write one below 2 ** 64."
            )
        if (self.late > 0) != (self.latest > 0):
            raise HeadraceError(
                Code.INVALID,
                'options "lateness.share" and "lateness.max" need each other',
                hint="Give both, or neither: lateness.share = '0.01', lateness.max = '30 s'.",
            )


@dataclass(frozen=True, slots=True)
class _Clock:
    """The event times of rows: those from row ``rows[i]`` on are counted from ``times[i]``.

    Times are in microseconds since 1970. There is an entry for the start, and for each restart that
    later duplicates may refer to.
    """

    rows: tuple[int, ...]
    times: tuple[int, ...]
    rate: int

    def at(self, numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the times at which rows are due."""
        starts = np.array(self.rows, np.uint64)
        which = np.searchsorted(starts, numbers, side="right") - 1
        after = (numbers - starts[which]).astype(np.int64)
        return np.array(self.times, np.int64)[which] + after * 1_000_000 // self.rate

    def continued(self, row: int, now: int) -> _Clock:
        """Return the clock after a restart: ``row`` and those after it are counted from ``now``."""
        kept = [
            (first, at)
            for first, end, at in zip(self.rows, (*self.rows[1:], row), self.times, strict=True)
            if first < row and end > row - _REPEATED_WITHIN
        ]
        entries = [*kept, (row, now)]
        return _Clock(tuple(r for r, _ in entries), tuple(at for _, at in entries), self.rate)


class DatagenSource:
    """Generates rows of a schema at the rate of the options."""

    def __init__(self, options: Options, schema: Schema) -> None:
        self.options, self._schema = options, schema
        self._closed = threading.Event()
        names = {column.name.lower(): column.name for column in schema.columns}
        by_column: dict[str, list[Given]] = {name: [] for name in schema.names}
        for key, value in options.fields:
            name, _, each = key.removeprefix("fields.").rpartition(".")
            if name.lower() not in names:
                otherwise = "Write fields.<column>.<option>, as in fields.id.kind."
                raise HeadraceError(
                    Code.INVALID,
                    f'option "{key}" does not name a generated column',
                    hint=meant(name, names, otherwise),
                )
            by_column[names[name.lower()]].append(Given(each, value))
        self._made = {
            column.name: generated_column(column, by_column[column.name], options.seed)
            for column in schema.columns
        }
        ends = [each.rows for each in self._made.values() if each.rows is not None]
        self.count = min([*ends, *([] if options.count is None else [options.count])], default=None)
        """The total number of rows; None if they do not end."""

    @property
    def identity(self) -> str:
        """The seed, which determines the rows."""
        return f"datagen|{self.options.seed}"

    def close(self) -> None:
        """Make :meth:`parts` end soon."""
        self._closed.set()

    def parts(self, position: Mapping[str, Any] | None) -> Iterator[Part]:
        """Yield rows as they become due, until the total number is reached."""
        row = int((position or {}).get("row", 0))
        clock, begun = self._continued(position, row), (row, time.monotonic())
        while not self._closed.is_set() and (self.count is None or row < self.count):
            since = time.monotonic() - begun[1]
            due = begun[0] + 1 + int(since * self.options.rate)
            due = due if self.count is None else min(due, self.count)
            end = min(due, row + _MOST_ROWS)
            rows = self._rows(np.arange(row, end, dtype=np.uint64), clock)
            row = max(row, end)
            at = {"row": row, "clock": [list(clock.rows), list(clock.times)]}
            yield Part(rows, (), at, row, due)
            if end == due:
                self._closed.wait(_PART_SECONDS)

    def _continued(self, position: Mapping[str, Any] | None, row: int) -> _Clock:
        """Return the clock of rows from ``row`` on: from now, or from option ``start-time``."""
        rate = self.options.rate
        if self.options.start is not None:
            return _Clock((0,), (self.options.start,), rate)
        now = time.time_ns() // 1000
        if position is None:
            return _Clock((row,), (now,), rate)
        rows, times = position["clock"]
        return _Clock(tuple(rows), tuple(times), rate).continued(row, now)

    def _rows(self, numbers: NDArray[np.uint64], clock: _Clock) -> pa.Table:
        """Generate the rows of these numbers, with weights."""
        made = self._repeated(numbers)
        times = clock.at(made)
        if self.options.late:
            shares = random_shares(self.options.seed, " late", made)
            by = random_shares(self.options.seed, " later", made) * self.options.latest
            times = times - np.where(shares < self.options.late, by * 1_000_000, 0).astype(np.int64)
        rows = RowNumbers(made, times)
        columns = [self._made[name].make(rows) for name in self._schema.names]
        table = pa.table(columns, schema=self._schema.arrow)
        return table.append_column(WEIGHT, pa.array(np.ones(len(numbers), np.int64)))

    def _repeated(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Replace the numbers of duplicates by those of the rows that they repeat."""
        if not self.options.duplicates:
            return numbers
        seed, limit = self.options.seed, self.options.duplicates

        def repeats(places: NDArray[np.uint64]) -> NDArray[np.bool_]:
            return random_shares(seed, " duplicate", places) < limit

        back = random_bits(seed, " back", numbers) % np.uint64(_REPEATED_WITHIN) + np.uint64(1)
        earlier = np.where(back <= numbers, numbers - back, numbers)
        return np.where(repeats(numbers) & ~repeats(earlier), earlier, numbers)
