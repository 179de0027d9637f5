"""Land several relations together: what a source gives them at one moment, all or nothing.

Each relation has a position of its own, which is stored with its rows; where a moment has
no part of a relation, its position stays. The ledger learns of all in one transaction, so no reader
sees a part of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from headrace.errors import Code, HeadraceError
from headrace.ledger import AppendRecord, LoadProgress
from headrace.log import Append

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from headrace.ledger import Ledger, SegmentFile
    from headrace.runtime.ports import Moment, Part
    from headrace.types import RelationId


class JointLog(Protocol):
    """Where several relations are landed."""

    def stage(self, rows: pa.Table) -> SegmentFile:
        """Write rows durably, without the ledger."""
        ...

    def land_together(self, staged: Sequence[AppendRecord], appends: Sequence[Append]) -> None:
        """Append what was staged and further changes, with positions, all or nothing."""
        ...


@dataclass(slots=True)
class JointIngest:
    """A source of several relations being landed; ``source`` identifies it.

    What is staged of a moment that is never whole is named by no ledger, and is deleted when the
    database is opened.
    """

    log: JointLog
    ledger: Ledger
    source: str
    position: dict[RelationId, Mapping[str, Any] | None]
    """Where each relation continues; None at its beginning."""
    _staged: list[AppendRecord] = field(default_factory=list)

    @classmethod
    def of(
        cls, log: JointLog, ledger: Ledger, source: str, relations: Iterable[RelationId]
    ) -> JointIngest:
        """Return the ingest of a source, which continues where the last moment ended."""
        known = {relation: ledger.loads.progress(relation, source) for relation in relations}
        return cls(
            log,
            ledger,
            source,
            {id_: None if load is None else load.progress for id_, load in known.items()},
        )

    def begin(self) -> None:
        """Forget what was staged: the source begins its moment again."""
        self._staged.clear()

    def take(self, moment: Moment) -> None:
        """Land a moment, or keep it aside if it is not whole.

        Relations that were dropped meanwhile are left out.
        """
        if not moment.whole:
            for relation, part in moment.parts:
                segment = self.log.stage(part.rows) if part.rows.num_rows else None
                self._staged.append(AppendRecord(relation, segment, None, (), part.rejects))
            return
        staged = list(self._staged)
        self._staged.clear()
        appends = [self._append(relation, part) for relation, part in moment.parts]
        while True:
            known = self.ledger.head.ends
            staged = [each for each in staged if each.relation in known]
            appends = [each for each in appends if each.relation in known]
            if not appends:
                break
            try:
                self.log.land_together(staged, appends)
            except HeadraceError as error:
                there = self.ledger.head.ends
                dropped = any(each.relation not in there for each in appends)
                if error.code is not Code.CONFLICT or not dropped:
                    raise
            else:
                break
        self.position |= {relation: part.position for relation, part in moment.parts}

    def _append(self, relation: RelationId, part: Part) -> Append:
        load = LoadProgress(self.source, dict(part.position), notes=part.notes)
        return Append(relation, part.rows, load, None, part.rejects)
