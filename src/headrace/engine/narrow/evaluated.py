"""Expressions over the rows of a node: in this process where that is proved, else in the JVM.

Expressions without a vector (:mod:`headrace.catalyst.vectors`) are evaluated by Catalyst, in one
crossing to the JVM. If a vector is in doubt, Catalyst evaluates all of them, so that values and
errors are Spark's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from headrace.catalyst.evaluation import Evaluation
from headrace.catalyst.resolved import id_of, type_of
from headrace.catalyst.scala import references
from headrace.catalyst.vectors import DoubtError, InputRows, reader_over
from headrace.runtime.spent import Activity, Spending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.catalyst.evaluation import BoundExpressions
    from headrace.catalyst.scala import Scala
    from headrace.catalyst.vectors import Vector


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
class ComputedColumns:
    """Expressions over the columns of a node with some ``attributes``, and their result columns.

    ``vectors`` are aligned with the expressions; None where only Catalyst evaluates one. One thread
    at a time can evaluate them.
    """

    scala: Scala
    expressions: tuple[Any, ...]
    vectors: tuple[Vector | None, ...]
    attributes: tuple[Any, ...]
    schema: pa.Schema
    _crossings: dict[bool, _Crossing] = field(default_factory=dict)
    """Those without a vector, and after the first doubt all of them, as Catalyst evaluates them."""

    def over(self, rows: pa.Table) -> pa.Table:
        """Return the values for the rows of the node.

        Raises:
            Py4JError: an expression fails on a row.
        """
        if not rows.num_rows:
            return self.schema.empty_table()
        try:
            given = InputRows.of(rows)
            found = [None if each is None else each.column(given) for each in self.vectors]
        except DoubtError:
            found = self._crossing(every=True).over(rows)
        else:
            if None in self.vectors:
                crossed = iter(self._crossing(every=False).over(rows))
                found = [next(crossed) if each is None else each for each in found]
        return with_schema(found, self.schema)

    def crossing_classes(self) -> tuple[str, ...]:
        """Return what of the expressions only Catalyst evaluates: classes, without repetitions."""
        reader = reader_over({id_of(each): i for i, each in enumerate(self.attributes)})
        both = zip(self.expressions, self.vectors, strict=True)
        found = [reader.why_unproved(each) for each, vector in both if vector is None]
        return tuple(dict.fromkeys(found))

    def bind(self) -> None:
        """Prepare the crossing that each evaluation needs, if it needs one."""
        if None in self.vectors:
            self._crossing(every=False)

    def _crossing(self, *, every: bool) -> _Crossing:
        if every not in self._crossings:
            both = zip(self.expressions, self.vectors, strict=True)
            left = [each for each, vector in both if every or vector is None]
            self._crossings[every] = _Crossing.of(self.scala, left, self.attributes)
        return self._crossings[every]


def with_schema(columns: Sequence[Any], schema: pa.Schema) -> pa.Table:
    """Return columns as a table with a schema, to which they are aligned, with its types."""
    # Casting takes long even if there is nothing to cast.
    cast = (
        column if column.type == type_ else column.cast(type_)
        for column, type_ in zip(columns, schema.types, strict=True)
    )
    return pa.Table.from_arrays(list(cast), schema=schema)


def _numbered(rows: pa.Table) -> pa.Table:
    """Return the same number of rows with one column, for expressions that use no column."""
    return pa.table({"i0": pa.array(np.zeros(rows.num_rows, np.bool_))})
