"""How many rows a program can take in this process: whether all that it does is vectorised here.

The deltas of relations in a step that runs in this process: each is read once for all views.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.algebra.operators import OFFSET, Fold, NearRows, TouchedGroups
from headrace.algebra.zset import WEIGHT
from headrace.execution.engine.jobs.worker import GuardTask, LeafTask
from headrace.execution.engine.narrow.evaluated import of_catalyst, with_schema
from headrace.execution.engine.narrow.nodes import (
    DoubtfulNode,
    Exploded,
    Filtered,
    JobNode,
    Projected,
    Task,
    nodes_of,
)
from headrace.execution.engine.narrow.reading import operators_of
from headrace.execution.runtime.ports import MoreRowsError, Reach
from headrace.execution.runtime.spent import Activity, Spending
from headrace.execution.runtime.step import RowsShare
from headrace.planning.catalog import Table, logged

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.execution.engine.jobs.worker import LogReader
    from headrace.execution.engine.lowering.assembly import ShareScan
    from headrace.execution.engine.narrow.nodes import DeltaLeaf, RowsNode
    from headrace.execution.runtime.step import Step
    from headrace.planning.catalog import Relation
    from headrace.types import RelationId


def reach_of(node: RowsNode) -> Reach:
    """Return how much of a fill a program does in this process.

    A job, an expression that Catalyst evaluates and a function that is called for each row take
    few rows. Groups that are recomputed would be so in every part.
    """
    found = Reach.MANY
    for each in nodes_of(node):
        match each:
            case JobNode():
                return Reach.FEW
            case Task():
                for task in operators_of(each.mapped.task):
                    if isinstance(task, GuardTask) or isinstance(task.operator, Fold):
                        return Reach.FEW
                    if isinstance(task.operator, TouchedGroups | NearRows):
                        found = Reach.WHOLE
            case Projected(evaluated=columns) | Filtered(condition=columns) if (
                columns is not None and columns.crosses
            ):
                return Reach.FEW
            case Exploded() if any(c.crosses for c in of_catalyst(each.exploding.array)):
                return Reach.FEW
            case DoubtfulNode() if any(columns.crosses for columns in each.evaluated):
                return Reach.FEW
            case _:
                pass
    return found


@dataclass(slots=True)
class Deltas:
    """The deltas of a step by relation: those of its shares, and those computed so far.

    ``scans`` are the columns that leaves read of each relation, by their stored names. A share of
    more than ``most`` rows ends the step.
    """

    step: Step
    log: LogReader
    relations: Mapping[RelationId, Relation]
    scans: Mapping[RelationId, ShareScan]
    most: int
    _computed: dict[RelationId, pa.Table] = field(default_factory=dict)
    _shares: dict[RelationId, pa.Table | None] = field(default_factory=dict)

    def add(self, relation: RelationId, rows: pa.Table) -> None:
        """Add the delta that a view or table has in this step."""
        of = self.relations.get(relation)
        self._computed[relation] = of.schema.in_log(rows) if isinstance(of, Table) else rows

    def has_rows(self, relations: Iterable[RelationId]) -> bool:
        """Whether one of some relations has changes."""
        return any(self._of(id_) is not None for id_ in relations)

    def read(self, leaf: DeltaLeaf) -> pa.Table:
        """Return the columns of a leaf.

        Raises:
            MoreRowsError: the share has more than ``most`` rows.
        """
        rows = self._of(leaf.relation)
        if rows is None:
            return leaf.schema.empty_table()
        names = (*leaf.columns, WEIGHT, OFFSET) if leaf.offsets else (*leaf.columns, WEIGHT)
        return with_schema([rows.column(name) for name in names], leaf.schema)

    def _of(self, relation: RelationId) -> pa.Table | None:
        """Return the rows of a delta, or None if it has none."""
        rows = self._computed.get(relation)
        if rows is None:
            if relation not in self._shares:
                with Spending(Activity.READING):
                    self._shares[relation] = self._share(relation)
            rows = self._shares[relation]
        return rows if rows is not None and rows.num_rows else None

    def _share(self, relation: RelationId) -> pa.Table | None:
        share, scan = self.step.shares.get(relation), self.scans[relation]
        if share is None or not share.rows:
            return None
        if isinstance(share, RowsShare) and relation not in self.relations:
            columns = share.layout.schema  # it is state of operators
        else:
            columns = logged(self.relations[relation]).stored
        wanted = pa.schema([columns.field(name) for name in scan.columns])
        task = LeafTask(relation, wanted, scan.offsets, 1, self.log)
        found, count = [], 0
        for batch in task(iter([_PARTITION])):
            count += batch.num_rows
            if count > self.most:
                raise MoreRowsError
            found.append(batch)
        if not found:
            return None
        names = [*scan.columns, WEIGHT, *([OFFSET] if scan.offsets else [])]
        return pa.Table.from_batches(found).rename_columns(names).combine_chunks()


_PARTITION = pa.record_batch({"id": np.zeros(1, np.int64)})
"""The only row that a leaf takes: the number of the partition."""
