"""A part of a fill whose executor is lost is read again; what dead processes left is removed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from headrace.errors import Code, HeadraceError
from runtime.pure import PureDatabase

if TYPE_CHECKING:
    from pathlib import Path

ATTEMPTS = 3
LOST = HeadraceError(Code.UNAVAILABLE, "a Spark job failed: ExecutorLostFailure")


def losing(db: PureDatabase, failure: HeadraceError, *calls: int) -> list[str]:
    """Have some calls of the runner that fill fail; return the attempts of all, as they come."""
    run, attempts = db.runner.run_fill, list[str]()

    def run_fill(step: Any, *given: Any, **named: Any) -> Any:
        attempts.append(step.attempt)
        if len(attempts) in calls:
            raise failure
        return run(step, *given, **named)

    db.runner.run_fill = run_fill  # type: ignore[method-assign]
    return attempts


def test_a_lost_executor_costs_a_fill_one_part_and_not_the_view(tmp_path: Path) -> None:
    db = PureDatabase(tmp_path)
    table = db.create_table()
    db.append(table, [(k, k % 3, 1) for k in range(12)])
    while db.loop.pending():
        db.loop.advance()
    attempts = losing(db, LOST, 2, 5, 6)
    view = db.create_view("v", table)
    assert db.rows(view.id) == Counter({(g, 4): 1 for g in range(3)})
    assert len(set(attempts)) == len(attempts) > ATTEMPTS
    db.close()


@pytest.mark.parametrize(
    ("failure", "tried"), [(LOST, ATTEMPTS), (HeadraceError(Code.CORRUPT, "damaged"), 1)]
)
def test_a_part_that_fails_each_time_fails_the_fill(
    tmp_path: Path, failure: HeadraceError, tried: int
) -> None:
    db = PureDatabase(tmp_path)
    table = db.create_table()
    db.append(table, [(k, 0, 1) for k in range(3)])
    db.loop.advance()
    attempts = losing(db, failure, *range(100))
    with pytest.raises(HeadraceError) as failed:
        db.create_view("v", table)
    assert failed.value is failure
    assert len(attempts) == tried
    db.close()


def test_what_attempts_and_reads_of_a_dead_process_left_is_removed_at_opening(
    tmp_path: Path,
) -> None:
    PureDatabase(tmp_path).close()
    for name in ("read-0a", "0b.1"):
        (tmp_path / "attempts" / name).mkdir()
        (tmp_path / "attempts" / name / "step-1.json").write_text("{}")
    PureDatabase(tmp_path).close()
    assert list((tmp_path / "attempts").iterdir()) == []
