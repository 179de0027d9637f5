"""Conditions on single columns that Arrow evaluates: cheap, and necessary for a condition of Spark.

They decide which rows of a file are looked at in full: every row that meets Spark's condition meets
them, and a few others may. Of a file whose values are known to lie within bounds, they decide
whether it is opened at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.zset.equality import Bools


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the greatest value of a column that are not NULL; both None if none is."""

    low: pa.Scalar | None
    high: pa.Scalar | None


@dataclass(frozen=True, slots=True)
class Test:
    """A column is one of some values, or between two, both included; it is not NULL.

    With ``values`` None, ``low`` and ``high`` bound it; None is no bound.
    """

    __test__ = False

    column: str
    values: pa.Array | None = None
    low: pa.Scalar | None = None
    high: pa.Scalar | None = None

    def of(self, column: str) -> Test:
        """Return the same test of a column of another name."""
        return Test(column, self.values, self.low, self.high)

    def mask(self, column: pa.Array) -> pa.BooleanArray:
        """Return which values pass; NULL where a value is NULL."""
        if self.values is not None:
            return pc.is_in(column, value_set=self.values)
        found = None
        for bound, compare in ((self.low, pc.greater_equal), (self.high, pc.less_equal)):
            if bound is not None:
                passed = compare(column, bound)
                found = passed if found is None else pc.and_(found, passed)
        return column.is_valid() if found is None else found

    def may_hold(self, bounds: Bounds) -> bool:
        """Whether a value within bounds may pass."""
        if bounds.low is None or bounds.high is None:
            return False
        if self.values is not None:
            within = pc.and_(
                pc.greater_equal(self.values, bounds.low), pc.less_equal(self.values, bounds.high)
            )
            return bool(pc.any(within).as_py())
        above = self.low is None or pc.greater_equal(bounds.high, self.low).as_py()
        below = self.high is None or pc.less_equal(bounds.low, self.high).as_py()
        return bool(above and below)


@dataclass(frozen=True, slots=True)
class Restriction:
    """Tests that all have to pass; without any, every row does."""

    tests: tuple[Test, ...] = ()

    def rows(self, batch: pa.RecordBatch | pa.Table) -> Bools | None:
        """Return which rows pass; None if all do. A column that is not there is NULL.

        Only the columns that are tested are read.
        """
        found: Bools | None = None
        for test in self.tests:
            if test.column not in batch.schema.names:
                return np.zeros(batch.num_rows, np.bool_)
            passed = test.mask(_whole(batch.column(test.column)))
            mask = pc.fill_null(passed, False).to_numpy(zero_copy_only=False)  # noqa: FBT003
            found = mask if found is None else found & mask
        return None if found is None or found.all() else found

    def may_hold(self, bounds: Mapping[str, Bounds]) -> bool:
        """Whether a row may pass whose columns, as far as they are known, are within bounds."""
        return all(test.may_hold(bounds[t]) for test in self.tests if (t := test.column) in bounds)

    def of_key(self, key: tuple[str, ...], most: int) -> list[pa.Array] | None:
        """Return the keys that rows may have, a column each; None if they are more than ``most``.

        That is possible if each column of the key is one of some values.
        """
        values = {t.column: t.values for t in self.tests if t.values is not None}
        if not key or not set(key) <= values.keys():
            return None
        sizes = [len(values[name]) for name in key]
        if np.prod(sizes, dtype=np.float64) > most:
            return None
        grid = np.meshgrid(*(np.arange(size) for size in sizes), indexing="ij")
        taken = zip(key, grid, strict=True)
        return [values[name].take(pa.array(index.ravel())) for name, index in taken]


EVERY_ROW: Final = Restriction()


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
