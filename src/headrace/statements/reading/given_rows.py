"""Rows in memory that a query reads as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.types import Schema
from headrace.zset import WEIGHT, Layout, ZSet
from headrace.zset.row_hash import hashes_of
from headrace.zset.zset import column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.spine import PackWriter, RunFile


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
