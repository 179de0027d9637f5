"""Landing several relations together: all or nothing, each with its position."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.feeds import JointIngest
from headrace.execution.runtime.ports import Moment, Part
from headrace.storage.ledger import EpochCommit, Ledger, NewObject, Reject, prepare_directory
from headrace.storage.log import Append, Appender, SegmentWriter, read_range, write_segment
from headrace.types import Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from headrace.storage.ledger import AppendRecord, SegmentFile

A, B = RelationId(1), RelationId(2)


class Log:
    """Where the tests land, with a disk that may fail."""

    def __init__(self, directory: Path, ledger: Ledger) -> None:
        self.directory = directory / "log"
        self.appender = Appender(SegmentWriter(self.directory), ledger)
        self.fails = False

    def stage(self, rows: pa.Table) -> SegmentFile:
        return write_segment(self.directory, rows)

    def land_together(self, staged: Sequence[AppendRecord], appends: Sequence[Append]) -> None:
        if self.fails:
            raise HeadraceError(Code.UNAVAILABLE, "no space")
        self.appender.append_together(staged, appends)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    prepare_directory(tmp_path)
    with Ledger.open(tmp_path / "ledger.db") as opened:
        opened.acquire()
        for name in "ab":
            made = NewObject(opened.ids.relation(), name, "table", {})
            opened.commit(EpochCommit(opened.head.epoch, f"made {name}", created=(made,)))
        yield opened


def part(*values: int, at: int = 0, rejects: int = 0) -> Part:
    refused = tuple(Reject("f", n, None, "no", "") for n in range(rejects))
    return Part(pa.table({"v": pa.array(values, pa.int64())}), refused, {"at": at})


def found(ledger: Ledger, log: Log, relation: RelationId) -> list[int]:
    end = ledger.head.log_end(relation)
    segments = ledger.log.segments(relation, Offset(0), end)
    batches = read_range(log.directory, segments, Offset(0), end)
    return [value for batch in batches for value in batch["v"].to_pylist()]


def test_a_moment_is_landed_with_what_was_kept_aside_and_the_positions_of_its_relations(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path, ledger)
    ingest = JointIngest.of(log, ledger, "s", [A, B])
    assert ingest.position == {A: None, B: None}
    ingest.take(Moment(((A, part(1, 2, rejects=1)),), whole=False))
    ingest.take(Moment(((A, part(3)),), whole=False))
    assert (ledger.head.log_end(A), ledger.rejects.count(A)) == (0, 0)
    ingest.take(Moment(((A, part(4, at=7)), (B, part(5, at=7)))))
    assert (found(ledger, log, A), found(ledger, log, B)) == ([1, 2, 3, 4], [5])
    ingest.take(Moment(((B, part(6, at=9)),)))
    assert found(ledger, log, B) == [5, 6]
    assert JointIngest.of(log, ledger, "s", [A, B]).position == {A: {"at": 7}, B: {"at": 9}}
    assert ledger.rejects.count(A) == 1


def test_nothing_of_a_moment_is_landed_that_fails_and_it_begins_again(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path, ledger)
    ingest = JointIngest.of(log, ledger, "s", [A, B])
    ingest.take(Moment(((A, part(1)),), whole=False))
    log.fails = True
    with pytest.raises(HeadraceError, match="no space"):
        ingest.take(Moment(((A, part(2, at=7)), (B, part(3, at=7)))))
    assert ingest.position == {A: None, B: None}
    log.fails = False
    ingest.begin()
    ingest.take(Moment(((A, part(1)),), whole=False))
    ingest.begin()  # once more, before it was whole
    ingest.take(Moment(((A, part(1)),), whole=False))
    ingest.take(Moment(((A, part(2, at=7)), (B, part(3, at=7)))))
    assert (found(ledger, log, A), found(ledger, log, B)) == ([1, 2], [3])


def test_one_relation_that_cannot_be_appended_to_keeps_all_from_it(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path, ledger)
    JointIngest.of(log, ledger, "s", [B]).take(Moment(((B, part(1, at=1)),)))
    gone = EpochCommit(ledger.head.epoch, "gone", dropped=(B,))
    dropped = [False]

    class Dropping(Log):
        def land_together(self, staged: Sequence[AppendRecord], appends: Sequence[Append]) -> None:
            if not dropped[0]:  # after the ingest has looked
                dropped[0] = True
                ledger.commit(gone)
            super().land_together(staged, appends)

    log = Dropping(tmp_path, ledger)
    ingest = JointIngest.of(log, ledger, "s", [A, B])
    ingest.take(Moment(((A, part(2, at=7)), (B, part(3, at=7)))))
    assert found(ledger, log, A) == [2]
    assert ledger.head.ends == {A: 1}
    ingest.take(Moment(((B, part(4, at=8)),)))
    with pytest.raises(HeadraceError) as error:
        log.appender.append_together([], [Append(A, part(8).rows), Append(B, part(9).rows)])
    assert error.value.code is Code.CONFLICT
    assert found(ledger, log, A) == [2]
