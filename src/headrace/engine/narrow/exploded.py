"""Elements of arrays as rows, as ``explode`` and ``posexplode`` return them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.narrow.evaluated import with_schema
from headrace.engine.narrow.nodes import OverOneNode

if TYPE_CHECKING:
    from headrace.engine.narrow.evaluated import ColumnValues
    from headrace.engine.narrow.nodes import StepRun


@dataclass(frozen=True, slots=True, eq=False)
class Exploding:
    """How rows become one for each element of an ``array``.

    They have the columns ``kept``, by place, then the position of the element with ``positions``,
    then the element. With ``outer``, a row whose array is NULL or empty becomes one with NULL.
    """

    array: ColumnValues
    kept: tuple[int, ...]
    outer: bool
    positions: bool
    schema: pa.Schema

    def over(self, rows: pa.Table) -> pa.Table:
        """Return the rows of the elements of some rows, in order."""
        arrays = self.array.over(rows).column(0).combine_chunks()
        counts = pc.fill_null(pc.list_value_length(arrays), 0).to_numpy().astype(np.int64)
        elements = pc.list_flatten(arrays)
        alone = counts == 0
        made = np.maximum(counts, 1) if self.outer else counts
        parents = np.repeat(np.arange(len(counts)), made)
        starts = np.cumsum(made) - made
        within = np.arange(len(parents)) - starts[parents]
        taken = (np.cumsum(counts) - counts)[parents] + within
        absent = alone[parents]
        chosen = elements.take(pa.array(taken, mask=absent))
        columns = [rows.column(i).take(pa.array(parents)) for i in self.kept]
        if self.positions:
            columns.append(pa.array(within.astype(np.int32), mask=absent))
        columns.append(chosen)
        return with_schema(columns, self.schema).combine_chunks()


@dataclass(frozen=True, slots=True, eq=False)
class Exploded(OverOneNode):
    """The rows of another node, one for each element of an array."""

    exploding: Exploding

    def computed(self, run: StepRun) -> pa.Table:
        """Repeat the rows."""
        rows = self.child.rows(run)
        return self.exploding.over(rows) if rows.num_rows else self.exploding.schema.empty_table()
