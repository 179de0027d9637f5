"""Prunes the inputs of a replay: segments whose bounds exclude the slice are not read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.catalog import Stream
from headrace.log import EmbeddedLog, read_bounds
from headrace.runtime.fill_parts import OfSlice
from headrace.runtime.shares import log_share, within
from headrace.types import Offset

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from headrace.catalog import Relation
    from headrace.circuit import Sliced
    from headrace.ledger import Ledger
    from headrace.log import LogShare
    from headrace.types import BuildId, RelationId
    from headrace.zset import Restriction

_SAMPLES: Final = 16
_SAMPLED_ROWS: Final = 4096
"""An estimate reads the tested columns of up to this many rows at each of ``_SAMPLES`` places."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """Finds the parts of the inputs that may contain rows of a slice."""

    ledger: Ledger
    relations: Mapping[RelationId, Relation]
    sliced: Sliced

    def inputs(self, build: BuildId, expects: int) -> OfSlice:
        """Return the inputs of a fill of a build, which reads about ``expects`` rows."""
        return OfSlice(build, self.sliced.lookups, self.parts, expects)

    def parts(self, relation: RelationId, share: LogShare) -> Iterator[LogShare]:
        """Yield the parts of a log share that may contain rows of the slice, in order."""
        for first, end in self._ranges(relation, share.first, share.end):
            yield within(share, first, end)

    def estimated(self, relation: Relation, first: int, end: int, directory: Path) -> int:
        """Estimate from a sample how many rows of the offsets ``[first, end)`` have to be read."""
        restrictions = self._restrictions(relation.id)
        if not isinstance(relation, Stream) or not all(r.tests for r in restrictions):
            return end - first
        ranges = list(self._ranges(relation.id, Offset(first), Offset(end)))
        left = sum(stop - first for first, stop in ranges)
        tested, passed, schema = 0, 0, relation.schema.stored
        for at, stop in _samples(ranges, left):
            share = log_share(self.ledger, relation.id, at, stop)
            tested += share.rows
            for restriction in restrictions:
                read = EmbeddedLog().read(
                    directory / "log",
                    share,
                    pa.schema([schema.field(restriction.tests[0].column)]),
                    offsets=False,
                    restriction=restriction,
                )
                passed += sum(batch.num_rows for batch in read)
        return min(left, -(-left * passed // tested)) if tested else 0

    def _ranges(
        self, relation: RelationId, first: Offset, end: Offset
    ) -> Iterator[tuple[Offset, Offset]]:
        """Yield the offset ranges of segments that may contain rows of the slice."""
        restrictions = self._restrictions(relation)
        if not all(each.tests for each in restrictions):
            yield first, end
            return
        schema = self.relations[relation].schema.stored
        begun: Offset | None = None
        for segment, known in self.ledger.log.bounds(relation, end):
            if segment.end <= first:
                continue
            bounds = read_bounds(known, schema)
            wanted = any(each.may_hold(bounds) for each in restrictions)
            if wanted and begun is None:
                begun = Offset(max(first, segment.first))
            elif not wanted and begun is not None:
                yield begun, segment.first
                begun = None
        if begun is not None:
            yield begun, end

    def _restrictions(self, relation: RelationId) -> list[Restriction]:
        leaves = self.sliced.leaves.items()
        return [each for leaf, each in leaves if leaf.plan.relation == relation]


def _samples(ranges: list[tuple[Offset, Offset]], rows: int) -> Iterator[tuple[Offset, Offset]]:
    """Yield short ranges at equal distances within ``ranges``, which have ``rows`` rows in all."""
    size = min(_SAMPLED_ROWS, -(-rows // _SAMPLES))
    for number in range(_SAMPLES if rows else 0):
        at = number * rows // _SAMPLES
        for first, end in ranges:
            if at < end - first:
                yield Offset(first + at), Offset(min(end, first + at + size))
                break
            at -= end - first
