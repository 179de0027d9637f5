"""Expressions over the rows of a node: in this process where that is proved, else in the JVM.

Expressions without a vector (:mod:`headrace.planning.catalyst.vectors`) are evaluated by Catalyst,
in one crossing to the JVM. If a vector is in doubt, Catalyst evaluates all of them, so that values
and errors are Spark's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from headrace.algebra.zset.zset import cast_to
from headrace.execution.engine.jobs.scope import needs_spark
from headrace.execution.runtime.spent import Activity, Spending
from headrace.planning.catalyst.evaluation import Evaluation
from headrace.planning.catalyst.resolved import id_of, type_of
from headrace.planning.catalyst.scala import references
from headrace.planning.catalyst.vectors import DoubtError, InputRows, reader_over

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.planning.catalyst.evaluation import BoundExpressions
    from headrace.planning.catalyst.scala import Scala
    from headrace.planning.catalyst.vectors import Vector


class UnplannedError(Exception):
    """A stored program needs what only planning its query yields."""


class ColumnValues(Protocol):
    """Expressions over the columns of a node."""

    def over(self, rows: pa.Table) -> pa.Table:
        """Return the values for some rows."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _Crossing:
    """Expressions that Catalyst evaluates, over those columns of a node that they refer to."""

    bound: BoundExpressions
    columns: tuple[int, ...]

    @classmethod
    def of(cls, scala: Scala, expressions: Sequence[Any], attributes: Sequence[Any]) -> _Crossing:
        """Return expressions over the columns with these attributes."""
        used = frozenset[int]().union(*map(references, expressions))
        columns = tuple(i for i, a in enumerate(attributes) if id_of(a) in used)
        fields = [StructField(f"e{i}", type_of(each)) for i, each in enumerate(expressions)]
        inputs = scala.seq(attributes[i] for i in columns)
        return cls(Evaluation(scala, expressions, inputs, StructType(fields)).bound(), columns)

    def over(self, rows: pa.Table) -> list[pa.ChunkedArray]:
        """Return the values for the rows of the node."""
        given = rows.select(list(self.columns)) if self.columns else _numbered(rows)
        names = [f"i{i}" for i in range(given.num_columns)]
        with Spending(Activity.CROSSINGS):
            found: list[pa.ChunkedArray] = self.bound.over(given.rename_columns(names)).columns
        return found


@dataclass(frozen=True, slots=True, eq=False)
class InCatalyst:
    """The expressions of a node over columns with some ``attributes``, as Catalyst has them.

    ``crossed`` says which of them only Catalyst evaluates. One thread at a time can evaluate them.
    """

    scala: Scala
    expressions: tuple[Any, ...]
    attributes: tuple[Any, ...]
    crossed: tuple[bool, ...]
    _crossings: dict[bool, _Crossing] = field(default_factory=dict)

    def over(self, rows: pa.Table, *, every: bool) -> list[pa.ChunkedArray]:
        """Return the values of those that are crossed, or of all, for the rows of the node.

        Raises:
            Py4JError: an expression fails on a row.
        """
        return self.crossing(every=every).over(rows)

    def crossing(self, *, every: bool) -> _Crossing:
        """Return those that are crossed, or all, in the form that Catalyst evaluates."""
        needs_spark()
        if every not in self._crossings:
            both = zip(self.expressions, self.crossed, strict=True)
            left = [each for each, crossed in both if every or crossed]
            self._crossings[every] = _Crossing.of(self.scala, left, self.attributes)
        return self._crossings[every]

    def classes(self) -> tuple[str, ...]:
        """Return what of those that are crossed is unknown here: classes, without repetitions."""
        reader = reader_over({id_of(each): i for i, each in enumerate(self.attributes)})
        both = zip(self.expressions, self.crossed, strict=True)
        return tuple(dict.fromkeys(reader.why_unproved(each) for each, crossed in both if crossed))


class Unplanned:
    """Stands for the expressions of a stored program in Catalyst, which are not stored."""

    def over(self, _rows: pa.Table, *, every: bool) -> list[pa.ChunkedArray]:  # noqa: ARG002
        """Raise, since the program has to be planned."""
        raise UnplannedError

    def classes(self) -> tuple[str, ...]:
        """Return nothing: no expression of a stored program is evaluated by Catalyst alone."""
        return ()


@dataclass(frozen=True, slots=True, eq=False)
class ComputedColumns:
    """Expressions over the columns of a node, and their result columns.

    ``vectors`` are aligned with the expressions; None where only Catalyst evaluates one.
    """

    vectors: tuple[Vector | None, ...]
    schema: pa.Schema
    catalyst: InCatalyst | Unplanned

    @property
    def crosses(self) -> bool:
        """Whether Catalyst is needed to evaluate them, even if nothing is in doubt."""
        return None in self.vectors

    def over(self, rows: pa.Table) -> pa.Table:
        """Return :meth:`columns` as a table."""
        return pa.Table.from_arrays(self.columns(rows), schema=self.schema)

    def columns(self, rows: pa.Table) -> list[pa.Array | pa.ChunkedArray]:
        """Return the values for the rows of the node.

        Raises:
            Py4JError: an expression fails on a row.
            UnplannedError: a value is in doubt, and the program has no expressions of Catalyst.
        """
        if not rows.num_rows:
            return list(self.schema.empty_table().columns)
        given = InputRows.of(rows)
        try:
            found = [None if each is None else each.column(given) for each in self.vectors]
        except DoubtError:
            return cast_to(self.catalyst.over(rows, every=True), self.schema.types)
        if not self.crosses:
            return found
        crossed = iter(self.catalyst.over(rows, every=False))
        values = [next(crossed) if each is None else each for each in found]
        return cast_to(values, self.schema.types)


def of_catalyst(*columns: ColumnValues | None) -> tuple[ComputedColumns, ...]:
    """Return those of some expressions that Catalyst can evaluate too."""
    return tuple(each for each in columns if isinstance(each, ComputedColumns))


def with_schema(columns: Sequence[Any], schema: pa.Schema) -> pa.Table:
    """Return columns as a table with a schema, to which they are aligned, with its types."""
    return pa.Table.from_arrays(cast_to(columns, schema.types), schema=schema)


def _numbered(rows: pa.Table) -> pa.Table:
    """Return the same number of rows with one column, for expressions that use no column."""
    return pa.table({"i0": pa.array(np.zeros(rows.num_rows, np.bool_))})
