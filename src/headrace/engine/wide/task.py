"""The task of a stage in Spark's Python workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.catalyst.vectors import DoubtError
from headrace.engine.jobs.reports import leave_spent, one_pack
from headrace.engine.jobs.worker import current_step
from headrace.engine.wide.nodes import StageNode, StageRun
from headrace.engine.wide.parcels import opened
from headrace.errors import Code, HeadraceError
from headrace.runtime.spent import Spent, measured

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from headrace.engine.wide.parcels import Sending

IN_DOUBT: Final = "a value is in doubt, so Spark evaluates the expressions"
"""The message of a stage that cannot tell Spark's value of an expression."""


@dataclass(frozen=True, slots=True)
class StageTask:
    """Run one partition of a stage: compute the rows of ``node``, and send them on.

    With ``reads``, the input are numbers of partitions, else parcels. ``repeated`` are the nodes
    that several others read. Without ``sending``, the rows are not needed: what the tasks within
    write is.
    """

    node: StageNode
    reads: bool
    repeated: frozenset[StageNode]
    sending: Sending | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield parcels. The runs that the stage writes are in one pack, durable at the end."""
        spent = Spent()
        with measured(spent), one_pack(current_step()):
            try:
                if not self.reads:
                    yield from self._sent(StageRun(opened(batches), None, self.repeated))
                else:
                    for batch in batches:
                        for index in batch.column(0).to_pylist():
                            yield from self._sent(StageRun(iter(()), index, self.repeated))
            except DoubtError as doubt:
                raise HeadraceError(Code.INTERNAL, IN_DOUBT) from doubt
        leave_spent(spent)

    def _sent(self, run: StageRun) -> Iterator[pa.RecordBatch]:
        rows = run.rows(self.node)
        if self.sending is not None:
            yield from self.sending.parcels(rows)
        else:
            for _ in rows:
                pass
