"""Naming one row with which a step fails: by trials over parts of what it reads."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from headrace.errors import Code, EvaluationError, HeadraceError
from headrace.execution.runtime.failing import found_fault
from headrace.execution.runtime.step import Step
from headrace.storage.ledger import OffsetRange, Segment
from headrace.storage.log import WEIGHT, LogShare, read_range, write_segment
from headrace.types import Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FAILURE = EvaluationError(Code.INVALID, "division by zero")
Rows = list[tuple[int, int]]


def named(
    directory: Path, logs: list[Rows], fails: Callable[[set[int]], bool]
) -> tuple[int | None, int]:
    """Return the value of the row that is named, and the number of trials.

    ``logs`` have pairs of a value and its weight; ``fails`` says of the present values whether the
    query fails.
    """
    (directory / "log").mkdir(exist_ok=True)
    shares = {}
    for number, rows in enumerate(logs):
        values, weights = zip(*rows, strict=True)
        table = pa.table({"x": pa.array(values), WEIGHT: pa.array(weights)})
        end = Offset(len(rows))
        file = write_segment(directory / "log", table)
        id_ = RelationId(number)
        segment = Segment(id_, OffsetRange(Offset(0), end), file, time.time())
        shares[id_] = LogShare((segment,), Offset(0), end)
    trials = 0

    def trial(step: Step) -> tuple[()]:
        nonlocal trials
        trials += 1
        present: set[int] = set()
        for share in step.shares.values():
            assert isinstance(share, LogShare)
            for batch in read_range(step.log_directory, share.segments, share.first, share.end):
                for x, weight in zip(*(column.to_pylist() for column in batch), strict=True):
                    (present.add if weight > 0 else present.discard)(x)
        if fails(present):
            raise FAILURE
        return ()

    step = Step("whole", directory, 1, shares, {})
    found = found_fault(step, trial, FAILURE, lambda row: str(row["x"][0]), 60)
    return None if found is None else int(found.row), trials


@pytest.mark.parametrize("at", [0, 500, 999])
def test_a_row_that_fails_alone_is_found_by_halving(tmp_path: Path, at: int):
    rows = [(n, 1) for n in range(1000)]
    found, trials = named(tmp_path, [rows, [(n + 5000, 1) for n in range(50)]], lambda p: at in p)
    assert found == at
    assert trials <= 13


def test_of_rows_that_fail_together_the_last_is_named(tmp_path: Path):
    logs = [[(n, 1) for n in range(64)], [(n, 1) for n in range(100, 164)]]
    found, _ = named(tmp_path, logs, lambda present: {7, 120} <= present)
    assert found == 120


def test_no_row_is_named_if_none_is_to_blame(tmp_path: Path):
    assert named(tmp_path, [[(1, 1), (2, 1)]], lambda _: True)[0] is None
    deleted = [[(1, 1), (2, 1), (1, -1)]]
    assert named(tmp_path, deleted, lambda p: p == {2})[0] is None, "a deletion is to blame"


def test_changes_with_deletions_are_tried_from_their_beginning_only(tmp_path: Path):
    seen: list[set[int]] = []

    def fails(present: set[int]) -> bool:
        seen.append(present)
        return 3 in present

    assert named(tmp_path, [[(1, 1), (1, -1), (2, 1), (3, 1), (4, 1)]], fails)[0] == 3
    assert all(present in ({1}, {2}, {2, 3}, set()) for present in seen)


def test_what_ends_or_fails_otherwise_names_no_row(tmp_path: Path):
    step = Step("whole", tmp_path, 1, {}, {})
    assert found_fault(step, lambda _: (), FAILURE, str, 60) is None
    other = HeadraceError(Code.INVALID, "a key is there twice")
    assert found_fault(step, lambda _: (), other, str, 60) is None
