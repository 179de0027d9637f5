"""Groups that Spark recomputes: window functions, percentiles, collections.

Algebra: not linear. ``f`` is recomputed, but only for the groups in which a row has changed::

    Δ f(a) = f(a + Δa) - f(a), over the groups of Δa

This operator keeps the rows, and emits the rows of the touched groups before and after the epoch;
Spark evaluates ``f`` on both versions, and the output delta is the difference of the results.

State: the input, by the key of its group.
Cost per epoch: O(|Δ| log n), plus all rows of the touched groups, twice.
NULL: the NULLs of a key are one group.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.operators.protocol import StatefulOperator, StepResult
from headrace.operators.row_kinds import PRESENT, VERSION, copies_of
from headrace.zset import HASH, WEIGHT, Layout, ZSet

if TYPE_CHECKING:
    from headrace.spine import Spine


@dataclass(frozen=True)
class TouchedGroups(StatefulOperator):
    """Emit the rows of the groups touched, before and after the epoch, each as often as its weight.

    ``layout``: the key is that of the group, the identity is the whole row. The output has
    ``__hash``, the columns of the layout, ``__version`` and ``__present``, and no weights. With
    ``always``, for a function without groups, each version also has a placeholder row, so that
    there is a result over no rows; only the version before the first step has none.
    """

    layout: Layout
    always: bool = False

    def __post_init__(self) -> None:
        if self.layout.summed.names != [WEIGHT]:
            raise HeadraceError(Code.INTERNAL, "the rows of a group have accumulators")
        if self.always and self.layout.key:
            raise HeadraceError(Code.INTERNAL, "a global aggregate has a key")

    @property
    def is_global(self) -> bool:
        """Whether there is a result over an empty input."""
        return self.always

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """The rows by group and, with ``always``, one row once the first step was taken."""
        return (self.layout, _PUBLISHED) if self.always else (self.layout,)

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the output."""
        return pa.schema(
            [
                self.layout.schema.field(HASH),
                *self.layout.columns,
                pa.field(VERSION, pa.int64()),
                pa.field(PRESENT, pa.bool_()),
            ]
        )

    def step(self, inputs: tuple[pa.Table, ...], before: tuple[Spine, ...]) -> StepResult:
        """Return both versions of the groups touched, and the consolidated input."""
        change = ZSet.of(self.layout, inputs[0]).consolidated()
        heads, group = change.keyed()
        touched = change.take(heads)
        probes, old = before[0].lookup(touched.hashes, touched.keys)
        _, new = old.plus(change).summed(np.concatenate([probes, group]))
        versions = [self._version(old, 0), self._version(new, 1)]
        if not self.always:
            return StepResult(pa.concat_tables(versions), (change,))
        _, published = before[1].lookup(np.zeros(1, np.int64), [])
        first = published.rows == 0
        if change.rows == 0 and not first:
            return StepResult(self.schema.empty_table(), (change, ZSet.empty(_PUBLISHED)))
        versions += [] if first else [self._placeholder(0)]
        versions.append(self._placeholder(1))
        row = {HASH: [0], WEIGHT: [1]} if first else {HASH: [], WEIGHT: []}
        publish = ZSet(_PUBLISHED, pa.table(row, schema=_PUBLISHED.schema))
        return StepResult(pa.concat_tables(versions), (change, publish))

    def _version(self, rows: ZSet, version: int) -> pa.Table:
        """Return the rows, each as often as its weight, marked with the version."""
        rows = rows.take(copies_of(rows))
        schema = self.schema
        columns = rows.table.select(schema.names[:-2]).columns
        columns.append(pa.array(np.full(rows.rows, version, np.int64)))
        columns.append(pa.array(np.ones(rows.rows, np.bool_)))
        return pa.Table.from_arrays(columns, schema=schema)

    def _placeholder(self, version: int) -> pa.Table:
        given = {HASH: [0], VERSION: [version], PRESENT: [False]}
        row = {field.name: given.get(field.name, [None]) for field in self.schema}
        return pa.table(row, schema=self.schema)


_PUBLISHED = Layout((), pa.schema([]), pa.schema([pa.field(WEIGHT, pa.int64())]))
