"""Lowering inputs of operators that are restored from the state of other builds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import LongType

from headrace.catalyst.transplant import spark_schema
from headrace.engine.jobs.worker import LeafTask
from headrace.zset import HASH, WEIGHT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.circuit.reuse import KeptState
    from headrace.engine.lowering.assembly import Assembly
    from headrace.types import DataType, RelationId


@dataclass(frozen=True, slots=True)
class StateShare:
    """A share of the step with the rows of a kept arrangement. Its name is no relation's id."""

    name: RelationId
    kept: KeptState

    def read(self, assembly: Assembly, types: Mapping[str, DataType]) -> Any:
        """Return a plan of its hashes, columns and weights, with the names of the input."""
        transplant, long, columns = assembly.transplant, LongType(), self.kept.columns
        schema = self.kept.layout.schema
        read = pa.schema([schema.field(HASH), *(schema.field(name) for name in columns.values())])
        task = LeafTask(self.name, read, False, assembly.partitions, assembly.log)  # noqa: FBT003
        assembly.scans[self.name] += 1
        fields = [("c0", long), *((f"c{i + 1}", types[name]) for i, name in enumerate(columns))]
        below = transplant.mapped(
            transplant.range(assembly.partitions), task, spark_schema([*fields, (WEIGHT, long)])
        )
        given = transplant.output(below)
        names = zip((HASH, *columns, self.kept.weight), (*dict(fields), WEIGHT), strict=True)
        return transplant.project([transplant.alias(given[c], name) for name, c in names], below)


def restored_increments(
    assembly: Assembly, shares: tuple[StateShare, ...], fields: list[tuple[str, DataType]]
) -> Any:
    """Return increments with all ``fields`` that add up to the state of an aggregate.

    Those of the totals have no values of parts; those of a part count no rows, only its values.
    Fields before the weight are values, and NULL where a share lacks them; the others are sums.
    """
    transplant, types = assembly.transplant, dict(fields)
    names = list(types)
    sums = {*names[names.index(WEIGHT) :]}
    branches = []
    for share in shares:
        rows = share.read(assembly, types)
        given = transplant.output(rows)
        named = [transplant.alias(given[HASH], HASH)]
        for name, type_ in fields:
            none = transplant.zero(type_) if name in sums else transplant.literal(None, type_)
            named.append(transplant.alias(given.get(name, none), name))
        branches.append(transplant.project(named, rows))
    below = branches[0] if len(branches) == 1 else transplant.union(branches)
    return assembly.exchange(below)
