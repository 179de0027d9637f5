"""Planted defects, each with a history that finds it: what the simulation can see."""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from headrace.algebra.spine import ChecksummedFile, pack
from headrace.errors import HeadraceError
from headrace.execution.runtime import log_merging
from headrace.execution.runtime.beside import SetSteps
from headrace.execution.runtime.compaction import Compaction
from headrace.execution.runtime.connected import Parting
from headrace.execution.runtime.deliveries import Delivery
from headrace.execution.runtime.epoch import EpochLoop
from headrace.execution.runtime.log_merging import LogMerging
from headrace.execution.runtime.published import Publisher
from headrace.files import mounts
from headrace.storage.ledger import OffsetRange, commit
from headrace.storage.ledger.log import Logs
from headrace.storage.ledger.spines import Spines
from headrace.storage.ledger.transactions import Transactions
from headrace.storage.log import appender
from headrace.storage.log.large import LargeFile, plain_events
from headrace.storage.log.merging import Merged
from simulation.histories import History, Step
from simulation.points import (
    COMMIT,
    CRASHES,
    FAILS,
    GOES_AWAY,
    IS_LOST,
    IS_SLOW,
    LOSES_MACHINE,
    Trouble,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    import pytest

    from headrace.storage.ledger import Segment
    from headrace.storage.ledger.store import UnacknowledgedError
    from headrace.types import ArrangementId, Epoch


@dataclass(frozen=True, slots=True)
class Defect:
    """What is wrong, how it is planted, and a history that fails because of it."""

    name: str
    plant: Callable[[pytest.MonkeyPatch], None]
    history: History


def _history(storage: str, *steps: Step) -> History:
    return History(0, "small", storage, steps)


def _nothing(*_: object, **__: object) -> None:
    """Do nothing."""


def _patched(where: object, name: str, wrong: object) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda monkeypatch: monkeypatch.setattr(where, name, wrong)


def _without(module: Any, call: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Return what plants that a module does not make a call of the operating system."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        known = {name: getattr(os, name) for name in ("fsync", "fdatasync")}
        monkeypatch.setattr(module, "os", SimpleNamespace(**{**known, call: _nothing}))

    return plant


def _never_put(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "keep", _nothing)


def _directories_are_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    real = mounts.os.fsync

    def fsync(descriptor: int) -> None:
        if not os.path.isdir(f"/proc/self/fd/{descriptor}"):  # noqa: PTH112
            real(descriptor)

    known = {name: getattr(os, name) for name in ("open", "close", "O_RDONLY")}
    monkeypatch.setattr(mounts, "os", SimpleNamespace(fsync=fsync, **known))


def _without_fence(self: Transactions, *_: object) -> object:
    return self._fence


def _of_all(compaction: Compaction) -> int:
    """Sweep by what was named before this process took over: nothing."""
    for folder in ("runs", "log"):
        directory = compaction.loop.directory / folder
        mounts.delete(directory, list(mounts.files_in(directory)))
    return 0


def _of_none(_: Compaction) -> int:
    return 0


def _listed_afterwards(compaction: Compaction) -> int:
    """Ask which files are named, and list what there is afterwards."""
    known = compaction.loop.ledger.files.known()
    for folder, names in (("runs", known.packs), ("log", known.segments)):
        directory = compaction.loop.directory / folder
        mounts.delete(directory, [n for n in mounts.files_in(directory) if n not in names])
    return 0


def _forgotten_first(compaction: Compaction) -> None:
    """Forget the names of files, then delete the files."""
    files = compaction.loop.ledger.files
    garbage = files.garbage()
    if garbage:
        files.forget(garbage)
        mounts.delete(compaction.loop.runs, garbage.packs)


def _deleted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete the files that are garbage once ``since`` is committed, then commit it."""
    real, directories = Spines.advance_since, list[Any]()

    def noted(compaction: Compaction, arrangements: Any, **kinds: Any) -> None:
        directories[:] = [compaction.loop.runs]
        advance(compaction, arrangements, **kinds)

    def advance_since(spines: Spines, since: Mapping[ArrangementId, Epoch]) -> None:
        uses = defaultdict[str, list[bool]](list)
        with spines._transactions.reading() as connection:
            query = (
                "SELECT r.pack, r.arrangement, r.removed, a.since FROM runs r"
                " JOIN arrangements a ON a.id = r.arrangement"
            )
            for name, arrangement, removed, stands in connection.exec_driver_sql(query):
                uses[name].append(removed <= since.get(arrangement, stands))
        mounts.delete(directories[0], [name for name, dead in uses.items() if all(dead)])
        real(spines, since)

    advance = Compaction._advance_since
    monkeypatch.setattr(Compaction, "_advance_since", noted)
    monkeypatch.setattr(Spines, "advance_since", advance_since)


def _stored_first(
    delivery: Delivery, epoch: Epoch, parts: Iterable[Any], read: Iterable[Any] | None = None
) -> int:
    """Store the position of a sink, then write what comes before it."""
    delivery.position.store(epoch, (), written=epoch)
    delivery.loop.fault("sink")
    delivery.writer.write(epoch, read or parts)
    return 0


def _reads_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commit the position before the last change that an epoch has read."""
    real = EpochLoop._commit

    def commit(loop: EpochLoop, stage: Any, *rest: Any) -> Epoch:
        reads = tuple(replace(each, to_offset=each.to_offset - 1) for each in stage.reads)
        return real(loop, replace(stage, reads=reads), *rest)

    monkeypatch.setattr(EpochLoop, "_commit", commit)


def _reads_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have an epoch read a change less than the position that it commits."""
    real = EpochLoop.step

    def step(loop: EpochLoop, name: str, poll: Any, *rest: Any) -> Any:
        ranges = {id_: replace(r, end=r.end - 1) for id_, r in poll.ranges.items()}
        return real(loop, name, replace(poll, ranges=ranges), *rest)

    monkeypatch.setattr(EpochLoop, "step", step)


@contextmanager
def _none_held(publisher: Publisher) -> Iterator[Epoch]:
    """Say that nothing older than the last epoch is read."""
    yield publisher.current.epoch


def _none_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have epochs read what a step reads, and nobody ask whether that has changed."""
    monkeypatch.setattr(Parting, "busy", lambda _: frozenset())
    monkeypatch.setattr(Parting, "require_unchanged", _nothing)
    monkeypatch.setattr(commit, "_require_unchanged", _nothing)


def _changed_beside_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nothing wait for steps, and nobody ask whether what they read has changed."""
    monkeypatch.setattr(SetSteps, "_can_take", lambda sets, hold: sets.members_of(hold.among))
    monkeypatch.setattr(Parting, "require_unchanged", _nothing)
    monkeypatch.setattr(commit, "_require_unchanged", _nothing)


def _taken_for_failed(self: Transactions, _number: int, lost: UnacknowledgedError) -> None:
    self._unsure = None
    raise lost.failure


def _acknowledged_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer a write although its commit has failed."""
    real = Logs.append_all

    def append_all(logs: Logs, records: Any) -> Any:
        expected = [logs._transactions.head.log_end(each.relation) for each in records]
        try:
            return real(logs, records)
        except HeadraceError:
            rows = [each.file.rows for each in records]
            return [OffsetRange(e, e + n) for e, n in zip(expected, rows, strict=True)]

    monkeypatch.setattr(Logs, "append_all", append_all)


def _with(step: Step, point: str, effect: str, meanwhile: str = "") -> Step:
    return step._replace(troubles=(Trouble(point, 1, effect, meanwhile),))


_WRITE: Final = Step("write", {"given": [(1, 0, 1), (2, 1, 1)]})
_EPOCH: Final = Step("epoch", {})
_GO_ON: Final = Step("go_on", {"number": 5, "given": [(1, 0, 1), (2, 1, 1), (3, 2, 1)]})
_COMPACT: Final = Step("compact", {})
_BESIDE: Final = Step("begin_beside", {"wide": "t", "narrow": "u", "given": [(1, 0, 1)]})
_END: Final = Step("end_beside", {"index": 0})
_AGED: Final = (_GO_ON, _COMPACT, _GO_ON)


def _released(merging: LogMerging) -> None:
    for each in merging._replaced:
        merging.held.let_go(each.hold)
    merging._replaced = []


_MERGED: Final = (_WRITE, _EPOCH, Step("write", {"given": [(3, 2, 1)]}), _EPOCH)


def _merged_in_reverse(monkeypatch: pytest.MonkeyPatch) -> None:
    real = log_merging.merged

    def merged(directory: Path, segments: Sequence[Segment], pause: Any) -> Iterator[Merged]:
        for found in real(directory, list(reversed(segments)), pause):
            yield Merged(tuple(segments), found.file)

    monkeypatch.setattr(log_merging, "merged", merged)


def _without_corrections(file: LargeFile, _group: object) -> pa.Schema:
    return plain_events(file.schema)


DEFECTS: Final = (
    Defect(
        "a merged segment is named that is not synced",
        _patched(ChecksummedFile, "sync", _nothing),
        _history("disk", *_MERGED, _with(Step("compact", {}), "log exchanged", LOSES_MACHINE)),
    ),
    Defect(
        "files of merged segments are not held for readers",
        _patched(LogMerging, "release", _released),
        _history("disk", *_MERGED, Step("begin_to_read", {}), Step("compact", {})),
    ),
    Defect(
        "changes are merged in another order",
        _merged_in_reverse,
        _history("disk", *_MERGED, Step("compact", {})),
    ),
    Defect(
        "corrections that were merged are taken for events",
        _patched(LargeFile, "schema_of", _without_corrections),
        _history(
            "disk",
            Step("change_events", {"number": 3}),
            Step("change_events", {"number": 4}),
            Step("compact", {}),
        ),
    ),
    Defect(
        "a run is named that the store does not have",
        _never_put,
        _history("store", _WRITE, _EPOCH, Step("lose_the_machine", {})),
    ),
    Defect(
        "a segment is named that the store does not have",
        _patched(mounts, "keep", _nothing),
        _history("store", _WRITE, Step("lose_the_machine", {}), _EPOCH),
    ),
    Defect(
        "a run is named that is not synced",
        _without(pack, "fsync"),
        _history("disk", _WRITE, _with(_EPOCH, "publish", LOSES_MACHINE)),
    ),
    Defect(
        "a segment is named that is not synced",
        _without(appender, "fdatasync"),
        _history("disk", _with(_WRITE, "after commit", LOSES_MACHINE), _EPOCH),
    ),
    Defect(
        "files are named whose directory is not synced",
        _directories_are_not_synced,
        _history("disk", _with(_WRITE, "after commit", LOSES_MACHINE), _EPOCH),
    ),
    Defect(
        "no fence",
        _patched(Transactions, "_require_fence", _without_fence),
        _history(
            "store",
            Step("take_over", {}),
            Step("a_zombie_goes_on", {"given": [(1, 0, 1)], "index": 0, "what": "write"}),
        ),
    ),
    Defect(
        "no fence for a process that is overtaken while it writes",
        _patched(Transactions, "_require_fence", _without_fence),
        _history("store", _with(_WRITE, "put log", IS_SLOW, "another_takes_over")),
    ),
    Defect(
        "files that are named are swept",
        _patched(Compaction, "sweep_strays", _of_all),
        _history("store", _WRITE, Step("restart", {}), _EPOCH),
    ),
    Defect(
        "what a process leaves that has ended stays",
        _patched(Compaction, "sweep_strays", _of_none),
        _history("store", _with(_WRITE, COMMIT, CRASHES)),
    ),
    Defect(
        "files are listed after it was asked which are named",
        _patched(Compaction, "sweep_strays", _listed_afterwards),
        _history(
            "store",
            _with(Step("take_over", {}), "list", IS_SLOW, "another_takes_over_and_goes_on"),
        ),
    ),
    Defect(
        "names are forgotten before files are deleted",
        _patched(Compaction, "sweep", _forgotten_first),
        _history("store", *_AGED, _with(_COMPACT, "delete runs", GOES_AWAY)),
    ),
    Defect(
        "files are deleted before it is committed that they are not needed",
        _deleted_first,
        _history(
            "store",
            *_AGED,
            _COMPACT._replace(troubles=tuple(Trouble(COMMIT, count, CRASHES) for count in (3, 4))),
        ),
    ),
    Defect(
        "the position of a sink is stored before what it is given",
        _patched(Delivery, "_write", _stored_first),
        _history("store", _WRITE, _EPOCH, Step("deliver", {}, (Trouble("sink", 2, CRASHES),))),
    ),
    Defect(
        "an epoch reads more than the position that it commits",
        _reads_less,
        _history("disk", _WRITE, _EPOCH),
    ),
    Defect(
        "an epoch reads less than the position that it commits",
        _reads_more,
        _history("disk", _WRITE, _EPOCH),
    ),
    Defect(
        "epochs read what a step beside them reads",
        _none_busy,
        _history("disk", _BESIDE, _BESIDE, _END, _END),
    ),
    Defect(
        "a view is replaced while a step of it runs",
        _changed_beside_a_step,
        _history("disk", _BESIDE, Step("replace", {"given": [(3, 1, 1)]}), _END),
    ),
    Defect(
        "what a step beside epochs reads is deleted",
        _patched(Publisher, "oldest", _none_held),
        _history("disk", _GO_ON, _BESIDE, *(_GO_ON, _COMPACT) * 3, _END),
    ),
    Defect(
        "a lost acknowledgement is taken for a failure",
        _patched(Transactions, "_require_committed", _taken_for_failed),
        _history("disk", _with(_WRITE, COMMIT, IS_LOST)),
    ),
    Defect(
        "a lost acknowledgement is taken for a success",
        _patched(Transactions, "_require_committed", _nothing),
        _history("disk", _with(_WRITE, COMMIT, FAILS)),
    ),
    Defect(
        "a write is acknowledged although it has failed",
        _acknowledged_before,
        _history("store", _with(_WRITE, COMMIT, GOES_AWAY)),
    ),
)
