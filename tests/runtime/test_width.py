"""The width of steps: what runs together, and what becomes of a narrow step that fans out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace.execution.runtime.attempt import Width, Widths
from headrace.execution.runtime.ports import MoreRowsError
from headrace.execution.runtime.settings import RuntimeSettings
from headrace.execution.runtime.stages import Poll
from headrace.execution.runtime.step import Clock
from headrace.storage.ledger import OffsetRange
from headrace.types import Epoch, Offset
from runtime.pure import PureDatabase

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.planning.catalog import Table
    from headrace.types import RelationId


@pytest.fixture
def pure(tmp_path: Path) -> PureDatabase:
    return PureDatabase(tmp_path)


def widths_of(db: PureDatabase, epochs: int) -> list[str]:
    return [each.counters["width"] for each in reversed(db.ledger.epochs.newest(epochs))]


def test_a_narrow_step_that_fans_out_is_run_as_jobs(
    pure: PureDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pure.create_table()
    view = pure.create_view("v", table)
    run, tried = pure.runner.run_live, []

    def floods(step: Any, *given: Any) -> Any:
        tried.append(step.few)
        if step.few and step.rows >= 3:
            run(step, *given)
            raise MoreRowsError
        return run(step, *given)

    monkeypatch.setattr(pure.runner, "run_live", floods)
    for first, rows in enumerate((1, 3, 4, 2)):
        pure.append(table, [(10 * first + i, 1, 1) for i in range(rows)])
        pure.loop.advance()
    assert tried == [True, True, False, False, True], "the third is wide at once"
    fanned = Width.FANS_OUT.value
    assert widths_of(pure, 4) == ["narrow", fanned, fanned, "narrow"]
    assert pure.rows(view.id) == {(1, 10): 1}


def test_a_backlog_is_read_in_narrow_epochs_in_the_order_in_which_it_arrived(
    pure: PureDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pure.create_table("a"), pure.create_table("b")
    limit = RuntimeSettings(small_rows=4, epoch_rows=100)
    monkeypatch.setattr(pure.loop, "settings", limit)

    def append(*rows: tuple[Table, int]) -> None:
        for table, count in rows:
            at = pure.ledger.head.log_end(table.id)
            pure.append(table, [(at + i, 1, 1) for i in range(count)])

    def read() -> list[tuple[int, int]]:
        made = []
        while (epoch := pure.loop.advance()) is not None:
            (last,) = pure.ledger.epochs.newest(1)
            assert last.epoch == epoch
            by_table = {r.relation: r.to_offset - r.from_offset for r in last.reads}
            made.append((by_table.get(a.id, 0), by_table.get(b.id, 0)))
        return made

    append((a, 2), (b, 1), (a, 2), (a, 3), (b, 1), (a, 6), (b, 1), (b, 1))
    assert read() == [(2, 1), (2, 0), (3, 1), (6, 2)]
    append((a, 1), (a, 5), (b, 1))
    assert read() == [(1, 0), (5, 1)], "no narrow epoch reads the second statement"
    append(*([(a, 3)] * 11))
    assert read() == [(33, 0)], "more than eight narrow epochs"
    pure.runner.jobs_wait = True
    append(*([(a, 3)] * 11), (b, 7), (a, 1))
    assert read() == [(3, 0)] * 11 + [(1, 7)], "an executor is not waited for"
    append((a, 3), (b, 3))
    pure.loop.widths.fanned_out(frozenset([a.id]), 3)
    assert read() == [(3, 3)], "it is known to fan out"


def test_sets_of_few_changes_share_a_step_until_they_are_many(pure: PureDatabase) -> None:
    a, b, c, d = (pure.create_table(name).id for name in "abcd")
    none: frozenset[RelationId] = frozenset()

    def sets(changes: dict[RelationId, int]) -> list[frozenset[RelationId]]:
        ranges = {id_: OffsetRange(Offset(0), Offset(n)) for id_, n in changes.items()}
        polled = Poll(Epoch(0), ranges, Clock(0, 0), none)
        return pure.loop._changed_sets(polled, none)

    assert sets({}) == []
    assert sets({a: 2, c: 2}) == [{a, c}]
    assert sets({b: 5}) == [{b}]
    assert sets({a: 2, b: 5, c: 1}) == [{b}, {a, c}]
    assert sets({a: 2, b: 2, c: 1, d: 3}) == [{a, b}, {c, d}]


def test_a_wide_step_is_forgotten_after_a_while() -> None:
    widths, changed = Widths(small_rows=10), frozenset[Any]({1})
    assert widths.of(changed, 11, 0) is Width.MANY_CHANGES
    assert widths.of(changed, 1, 1 << 26) is Width.LARGE_CHANGES
    widths.fanned_out(changed, 5)
    assert widths.of(changed, 4, 0) is Width.NARROW
    assert widths.of(frozenset[Any]({2}), 9, 0) is Width.NARROW
    found = [widths.of(changed, 5, 0) for _ in range(70)]
    assert found.count(Width.FANS_OUT) == 64
    assert found[-1] is Width.NARROW
