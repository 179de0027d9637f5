"""Prunes the inputs of a replay: segments whose bounds exclude the slice are not read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.catalog import Stream
from headrace.log import EmbeddedLog, Pruning
from headrace.runtime.fill_parts import OfSlice
from headrace.runtime.shares import log_share
from headrace.types import Offset

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from headrace.catalog import Relation
    from headrace.circuit import Sliced
    from headrace.ledger import Ledger, Segment
    from headrace.log import LogShare
    from headrace.types import BuildId, RelationId
    from headrace.zset import Restriction

_SAMPLES: Final = 16
_SAMPLED_ROWS: Final = 4096
_SAMPLED_SEGMENTS: Final = 4
"""An estimate reads the tested columns of up to so many rows, of up to so many segments, at each of
``_SAMPLES`` places."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """Finds the parts of the inputs that may contain rows of a slice."""

    ledger: Ledger
    relations: Mapping[RelationId, Relation]
    sliced: Sliced

    def inputs(self, build: BuildId, expects: int) -> OfSlice:
        """Return the inputs of a fill of a build, which reads about ``expects`` rows."""
        return OfSlice(build, self.sliced.lookups, self.kept, expects)

    def kept(self, relation: RelationId, share: LogShare) -> LogShare:
        """Return the changes of a log share in those segments that may have rows of the slice."""
        restrictions = self._restrictions(relation)
        if not all(each.tests for each in restrictions):
            return share
        prunings = [Pruning.of(each) for each in restrictions]
        bounds = dict(self.ledger.log.bounds(relation, share.end))

        def may_hold(segment: Segment) -> bool:
            known = bounds.get(segment.range, {})
            return any(each.may_hold(known) for each in prunings)

        return share.among(tuple(filter(may_hold, share.segments)))

    def estimated(self, relation: Relation, first: int, end: int, directory: Path) -> int:
        """Estimate from a sample how many rows of the offsets ``[first, end)`` have to be read."""
        restrictions = self._restrictions(relation.id)
        if not isinstance(relation, Stream) or not all(r.tests for r in restrictions):
            return end - first
        whole = log_share(self.ledger, relation.id, Offset(first), Offset(end))
        kept = self.kept(relation.id, whole)
        left, tested, passed, schema = kept.rows, 0, 0, relation.schema.stored
        for share in _samples(kept):
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

    def _restrictions(self, relation: RelationId) -> list[Restriction]:
        leaves = self.sliced.leaves.items()
        return [each for leaf, each in leaves if leaf.plan.relation == relation]


def _samples(share: LogShare) -> Iterator[LogShare]:
    """Yield short parts of a share at equal distances, of few segments each."""
    rows = share.rows
    size = min(_SAMPLED_ROWS, -(-rows // _SAMPLES))
    for number in range(_SAMPLES if rows else 0):
        at = number * rows // _SAMPLES
        part = share.between(at, at + size)
        yield part.among(part.segments[:_SAMPLED_SEGMENTS])
