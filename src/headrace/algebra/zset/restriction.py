"""Conditions on single columns that Arrow evaluates: necessary for a condition of Spark, and cheap.

They select the rows of a file that are read in full: every row that meets Spark's condition meets
them, and a few others may. With known bounds of a file's values, they decide whether it is opened
at all.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.algebra.zset.order import Bools


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the greatest value of a column, without NULL; both None if all are NULL."""

    low: pa.Scalar | None
    high: pa.Scalar | None


_BOUNDS: Final[Mapping[str, Callable[[pa.Array, pa.Scalar], pa.BooleanArray]]] = {
    "low": pc.greater_equal,
    "high": pc.less_equal,
    "above": pc.greater,
    "below": pc.less,
}
"""How a value compares with each bound that a test may have."""


@dataclass(frozen=True, slots=True)
class Test:
    """A column equals one of some values, or lies within bounds; it is not NULL.

    If ``values`` is None, it is at least ``low``, at most ``high``, greater than ``above``, and
    less than ``below``; None is no bound.
    """

    __test__ = False

    column: str
    values: pa.Array | None = None
    low: pa.Scalar | None = None
    high: pa.Scalar | None = None
    above: pa.Scalar | None = None
    below: pa.Scalar | None = None

    @property
    def bounds(self) -> dict[str, pa.Scalar]:
        """The bounds of the test, by field name."""
        every = {name: getattr(self, name) for name in _BOUNDS}
        return {name: bound for name, bound in every.items() if bound is not None}

    @property
    def range(self) -> tuple[pa.Scalar | None, pa.Scalar | None]:
        """The least and the greatest value that may pass; None is no bound."""
        if self.values is None:
            low = self.above if self.low is None else self.low
            return low, self.below if self.high is None else self.high
        ends = pc.min_max(self.values)
        return (ends["min"], ends["max"]) if len(self.values) else (None, None)

    def of(self, column: str) -> Test:
        """Return the same test for a column with another name."""
        return replace(self, column=column)

    def mask(self, column: pa.Array) -> pa.BooleanArray:
        """Return which values pass; NULL for NULL, unless ``values`` contains it."""
        if self.values is not None:
            if column.type != self.values.type:  # stored before the column's type was widened
                column = column.cast(self.values.type)
            if len(self.values) == 1:
                return pc.equal(column, self.values[0])
            return pc.is_in(column, value_set=self.values)
        found = None
        for name, bound in self.bounds.items():
            passed = _BOUNDS[name](column, bound)
            found = passed if found is None else pc.and_(found, passed)
        return column.is_valid() if found is None else found

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value that :meth:`of_json` reads."""
        bounds = {name: pa.repeat(bound, 1) for name, bound in self.bounds.items()}
        given = bounds if self.values is None else {"values": self.values}
        return {"column": self.column, **{name: _encoded(each) for name, each in given.items()}}

    @classmethod
    def of_json(cls, value: Mapping[str, str]) -> Test:
        """Return the test that :meth:`to_json` wrote."""
        values = _decoded(value["values"]) if "values" in value else None
        bounds = {name: _decoded(value[name])[0] for name in _BOUNDS if name in value}
        return cls(value["column"], values, **bounds)

    def may_hold(self, bounds: Bounds) -> bool:
        """Whether a value within bounds could pass."""
        if bounds.low is None or bounds.high is None:
            return False
        if self.values is not None:
            within = pc.and_(
                pc.greater_equal(self.values, bounds.low), pc.less_equal(self.values, bounds.high)
            )
            return bool(pc.any(within).as_py())
        ends = {"low": bounds.high, "above": bounds.high, "high": bounds.low, "below": bounds.low}
        return all(_BOUNDS[n](ends[n], bound).as_py() for n, bound in self.bounds.items())


@dataclass(frozen=True, slots=True)
class Restriction:
    """Tests that must all pass; without tests, every row passes."""

    tests: tuple[Test, ...] = ()

    def rows(self, batch: pa.RecordBatch | pa.Table) -> Bools | None:
        """Return a mask of the rows that pass; None if all do. A missing column is NULL.

        Only the tested columns are read.
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
        """Whether a row could pass whose columns are within bounds, as far as these are known."""
        return all(test.may_hold(bounds[t]) for test in self.tests if (t := test.column) in bounds)

    def named(self, name_of: Callable[[str], str]) -> Restriction:
        """Return the same tests for columns with other names."""
        return Restriction(tuple(test.of(name_of(test.column)) for test in self.tests))

    def to_json(self) -> list[dict[str, Any]]:
        """Return a JSON value that :meth:`of_json` reads."""
        return [test.to_json() for test in self.tests]

    @classmethod
    def of_json(cls, value: list[dict[str, Any]]) -> Restriction:
        """Return the restriction that :meth:`to_json` wrote."""
        return cls(tuple(map(Test.of_json, value)))

    def gives(self, key: tuple[str, ...]) -> bool:
        """Whether the tests restrict each column of a non-empty key to some values."""
        given = {test.column for test in self.tests if test.values is not None}
        return bool(key) and given.issuperset(key)

    def of_key(self, key: tuple[str, ...], most: int) -> list[pa.Array] | None:
        """Return the distinct keys that rows may have, as an array for each column of the key.

        None if a column is not restricted to some values, or for more than ``most`` keys.
        """
        if not self.gives(key):
            return None
        values = {t.column: t.values.unique() for t in self.tests if t.values is not None}
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
