"""Conditions on single columns that Arrow evaluates: cheap, and necessary for a condition of Spark.

They decide which rows of a file are looked at in full: every row that meets Spark's condition meets
them, and a few others may. Of a file whose values are known to lie within bounds, they decide
whether it is opened at all.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

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

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value that :meth:`of_json` reads."""
        given = {
            "values": self.values,
            "low": None if self.low is None else pa.array([self.low.as_py()], self.low.type),
            "high": None if self.high is None else pa.array([self.high.as_py()], self.high.type),
        }
        found = {name: _encoded(values) for name, values in given.items() if values is not None}
        return {"column": self.column, **found}

    @classmethod
    def of_json(cls, value: Mapping[str, str]) -> Test:
        """Return the test that :meth:`to_json` wrote."""
        found = {name: _decoded(value[name]) for name in ("values", "low", "high") if name in value}
        low, high = found.get("low"), found.get("high")
        return cls(
            value["column"],
            found.get("values"),
            None if low is None else low[0],
            None if high is None else high[0],
        )

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

    def to_json(self) -> list[dict[str, Any]]:
        """Return a JSON value that :meth:`of_json` reads."""
        return [test.to_json() for test in self.tests]

    @classmethod
    def of_json(cls, value: list[dict[str, Any]]) -> Restriction:
        """Return the restriction that :meth:`to_json` wrote."""
        return cls(tuple(map(Test.of_json, value)))

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


def _encoded(values: pa.Array) -> str:
    batch = pa.record_batch([values], ["values"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return base64.b64encode(sink.getvalue()).decode("ascii")


def _decoded(text: str) -> pa.Array:
    (values,) = pa.ipc.open_stream(base64.b64decode(text)).read_all().columns
    return _whole(values)


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
