"""What an attempt has written is removed if it fails, and never once a commit may name it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from headrace.algebra.spine import Spine, write_run
from headrace.algebra.zset import WEIGHT, ZSet
from headrace.execution.runtime import connected
from headrace.execution.runtime.attempt import Attempt
from headrace.execution.runtime.step import Report
from headrace.storage.ledger import EpochCommit, RunKind
from headrace.types import ArrangementId, Epoch, rows_of
from runtime.pure import TABLE, PureDatabase, hashed

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.storage.ledger import Ledger

ROWS = ArrangementId("rows")


class Crash(BaseException):
    """The process has ended here."""


class Refusing:
    """A ledger that may or may not have committed when it fails."""

    def commit(self, _change: EpochCommit) -> Epoch:
        raise Crash


def report(directory: Path, *keys: int) -> Report:
    rows = [{"k": k, "g": 0, WEIGHT: 1} for k in keys]
    part = ZSet.of(TABLE, hashed(pa.Table.from_pylist(rows), "k")).consolidated()
    return Report("leaf", 0, {ROWS: write_run(directory, part)}, 1, 1, 0, 0.0)


def test_an_attempt_that_fails_removes_its_runs_and_one_that_was_committed_does_not(
    tmp_path: Path,
) -> None:
    attempt = Attempt(tmp_path)
    attempt.take([report(tmp_path, 1), report(tmp_path, 2)])
    assert len(list(tmp_path.iterdir())) == len(attempt.written(ROWS)) == 2
    with pytest.raises(Crash), attempt:
        raise Crash
    assert list(tmp_path.iterdir()) == []
    attempt.take([report(tmp_path, 1)])
    change = EpochCommit(Epoch(0), "a", runs=attempt.new_runs(RunKind.DELTA))
    with pytest.raises(Crash), attempt:
        attempt.commit(cast("Ledger", Refusing()), change)
    assert [path.name for path in tmp_path.iterdir()] == [run.file.pack for run in change.runs]


def test_runs_are_merged_and_replaced_without_leaving_files_behind(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path)
    attempt.take(report(tmp_path, key) for key in range(9))
    attempt.compact({ROWS: TABLE}, 1)
    files = attempt.written(ROWS)
    assert sorted(file.rows for file in files) in ([9], [1, 8])
    assert {path.name for path in tmp_path.iterdir()} == {file.pack for file in files}
    parts = Spine.open(tmp_path, TABLE, files).scan(100)
    assert sorted(k for part in parts for k in part.table["k"].to_pylist()) == list(range(9))
    attempt.put(ROWS, ())
    assert list(tmp_path.iterdir()) == []
    assert len(attempt.reports) == 9, "what they cost stays known"


def test_an_epoch_that_fails_after_one_of_its_steps_leaves_no_run_of_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connected, "_NARROW_EPOCHS", 0)
    stepped: list[str] = []

    def fault(stage: str) -> None:
        if stage == "stepped":
            stepped.append(stage)
            if len(stepped) == 2:
                raise Crash

    db = PureDatabase(tmp_path, fault)
    tables: list[Any] = [db.create_table(name) for name in ("a", "b")]
    for table in tables:
        db.append(table, [(i, 1, 1) for i in range(3)])  # few each, but not together
    with pytest.raises(Crash):
        db.loop.advance()
    assert list((tmp_path / "runs").iterdir()) == []
    db.loop.advance()
    known = {run.file.pack for table in tables for run in db.ledger.spines.runs(rows_of(table.id))}
    assert {path.name for path in (tmp_path / "runs").iterdir()} == known
    assert len(known) >= 2
