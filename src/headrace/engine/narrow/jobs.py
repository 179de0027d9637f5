"""The jobs that the parts of a narrow step need, as one: starting a job costs more than few rows.

Their plans become branches of a union, in which each has columns of its own.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.types import LongType

from headrace.catalyst.collect import collect_arrow
from headrace.catalyst.resolved import type_of
from headrace.catalyst.scala import items
from headrace.engine.narrow.evaluated import with_schema
from headrace.runtime.cancelling import check_cancelled
from headrace.runtime.spent import Activity, Spending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.engine.narrow.nodes import JobNode, StepRun


@dataclass(frozen=True, slots=True)
class DueJob:
    """A node whose rows need a job, in the run of a part; all jobs below it have run."""

    node: JobNode
    run: StepRun


def run_jobs(due: Sequence[DueJob]) -> None:
    """Compute the rows of some nodes, with one job for all of them; it counts for the first run.

    If that fails, each has a job of its own: what fails then is the node's own failure.

    Raises:
        MoreRowsError: a node has too many rows.
        PySparkException, Py4JError: an expression fails on a row.
    """
    check_cancelled()
    if len(due) > 1:
        due[0].run.jobs += 1
        with Spending(Activity.JOBS), suppress(PySparkException, Py4JError):
            _run_as_one(due)
        check_cancelled()
    for each in due:
        each.node.rows(each.run)


def _run_as_one(due: Sequence[DueJob]) -> None:
    found = _union(due[0].node, [each.node.filled(each.run) for each in due])
    which, first = found.column(0), 1
    for number, each in enumerate(due):
        schema = each.node.schema
        own = found.columns[first : first + len(schema)]
        first += len(schema)
        rows = pa.Table.from_arrays(own, names=schema.names).filter(pc.equal(which, number))
        each.run.put(each.node, with_schema(rows.columns, schema).combine_chunks())


def _union(node: JobNode, plans: Sequence[Any]) -> pa.Table:
    """Return the rows of some plans: the number of the plan, then the columns of all of them."""
    transplant = node.transplant
    outputs = [items(plan.output()) for plan in plans]
    branches = []
    for number, plan in enumerate(plans):
        named = [transplant.alias(transplant.literal(number, LongType()), "which")]
        named += [
            transplant.alias(
                column if other == number else transplant.literal(None, type_of(column)),
                f"x{other}_{place}",
            )
            for other, output in enumerate(outputs)
            for place, column in enumerate(output)
        ]
        branches.append(transplant.project(named, plan))
    whole = transplant.finished(transplant.union(branches))
    return collect_arrow(transplant.frame(whole))
