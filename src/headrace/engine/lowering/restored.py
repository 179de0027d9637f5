"""Lowering inputs of operators that are restored from the state of other builds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import LongType

from headrace.catalyst.transplant import spark_schema
from headrace.engine.jobs.worker import LeafTask
from headrace.zset import HASH, WEIGHT, Layout

if TYPE_CHECKING:
    from headrace.circuit import Aggregate
    from headrace.engine.lowering.assembly import Assembly
    from headrace.types import DataType, RelationId

    Fields = list[tuple[str, DataType]]
    """Columns with their types."""


@dataclass(frozen=True, slots=True)
class StateShare:
    """A share of the step with the rows of an arrangement. Its name is the id of no relation."""

    name: RelationId
    layout: Layout

    def read(self, assembly: Assembly, fields: Fields) -> Any:
        """Return a plan of its hashes, columns and weights; ``fields`` are columns in any order."""
        wanted = dict(fields)
        schema = [field for field in self.layout.schema if field.name in wanted]
        read = pa.schema([self.layout.schema.field(HASH), *schema])
        task = LeafTask(self.name, read, False, assembly.partitions, assembly.log)  # noqa: FBT003
        assembly.scans[self.name] += 1
        transplant, long = assembly.transplant, LongType()
        given = [(f"c{i}", wanted.get(name, long)) for i, name in enumerate(read.names)]
        below = transplant.mapped(
            transplant.range(assembly.partitions), task, spark_schema([*given, (WEIGHT, long)])
        )
        columns = transplant.output(below)
        named = [transplant.alias(columns[f"c{i}"], name) for i, name in enumerate(read.names)]
        named.append(transplant.alias(columns[WEIGHT], WEIGHT))
        return transplant.project(named, below)


def restored_increments(
    assembly: Assembly, node: Aggregate, stored: tuple[StateShare, ...], fields: Fields
) -> Any:
    """Return the increments that add up to the state of an aggregate: its ``fields``.

    Those of the totals have no values of parts; those of a part count no rows, only its values.
    """
    (totals, *values), kept = stored, node.accumulators
    sums = [(name, type_) for name, type_ in fields if name != WEIGHT]
    branches = [_with_all(assembly, totals.read(assembly, sums), fields)]
    for share, i in zip(values, kept.restoring, strict=True):
        part = kept.parts[i]
        own = {*node.operator.layout.key, *part.arguments.names}
        rows = share.read(assembly, [(name, type_) for name, type_ in fields if name in own])
        branches.append(_with_all(assembly, rows, fields, part.weight))
    below = branches[0] if len(branches) == 1 else assembly.transplant.union(branches)
    return assembly.exchange(below)


def _with_all(assembly: Assembly, rows: Any, fields: Fields, weight: str = WEIGHT) -> Any:
    """Return rows with all fields, NULL or 0 in those that they lack, and a name for their weight.

    Fields before the weight are values; those from it on are sums.
    """
    transplant, names = assembly.transplant, [name for name, _ in fields]
    given, summed = transplant.output(rows), fields[names.index(WEIGHT) :]
    given[weight] = given.pop(WEIGHT)
    zeros = {name: transplant.zero(type_) for name, type_ in summed}
    values = {name: given.get(name) or zeros.get(name) for name in names}
    named = [transplant.alias(given[HASH], HASH)]
    for name, type_ in fields:
        value = values[name]
        filled = transplant.literal(None, type_) if value is None else value
        named.append(transplant.alias(filled, name))
    return transplant.project(named, rows)
