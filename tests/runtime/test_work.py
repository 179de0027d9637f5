"""The work of operators is added up by epoch; what made an epoch grow is found among it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.execution.runtime.spent import FanOut, OperatorWork, Work, work_in_epoch
from headrace.execution.runtime.step import Report
from runtime.pure import PureDatabase

if TYPE_CHECKING:
    from pathlib import Path


def report(operator: str, *rows: int, partition: int = 0) -> Report:
    return Report(operator, partition, {}, *rows, 0.25)


def test_partitions_of_one_epoch_are_one_and_epochs_add_up() -> None:
    work, changes = Work(), {"1/a": 7, "1/b": 0}
    both = [report("1/a", 10, 4, 2), report("1/a", 20, 5, 0, partition=1)]
    work.add(work_in_epoch(both, changes.__getitem__))
    work.add(work_in_epoch([report("1/a", 1, 1, 1), report("1/b", 1, 1, 1)], changes.__getitem__))
    assert work.of("1/a") == OperatorWork(2, 14, 31, 10, 3, 0.75)
    assert work.of("1/b") == OperatorWork(1, 0, 1, 1, 1, 0.25)
    assert work.of("2/a") is None


def test_an_epoch_says_how_wide_it_was_where_its_time_went_and_what_fanned_out(
    tmp_path: Path,
) -> None:
    db = PureDatabase(tmp_path)
    table, other = db.create_table(), db.create_table("other")
    view = db.create_view("v", table)
    db.append(table, [(i, i, 1) for i in range(3)])
    db.append(other, [(1, 1, 1)])
    db.loop.advance()
    db.append(table, [(i, i + 3, 1) for i in range(3)] * 2)
    db.loop.advance()
    wide, narrow, created = db.ledger.epochs.newest(3)
    assert "width" not in created.counters
    assert narrow.counters["width"] == "narrow"
    assert wide.counters["width"] == "wide: many changes"
    for record in (wide, narrow):
        parts = {name: ms for name, ms in record.counters.items() if name.endswith("_ms")}
        after = {"commit_ms", "publishing_ms"}
        assert {"planning_ms", "other_ms", *after} <= parts.keys()
        assert all(ms > 0 for ms in parts.values())
        whole = sum(ms for name, ms in parts.items() if name not in after)
        assert whole <= 1000 * record.counters["seconds"] + 0.01
    # The changes of the other table cannot reach the view.
    rows = wide.counters["fans_out"]
    assert rows == {"operator": f"{table.id}/rows", "relation": table.id, "rows": 6, "changes": 6}
    done = db.loop.work.of(f"{view.id}/rows")
    assert done is not None
    assert (done.epochs, done.changes) == (2, 9)
    db.close()


def test_what_fans_out_is_where_rows_become_many_and_not_what_follows(tmp_path: Path) -> None:
    db = PureDatabase(tmp_path)
    view = db.create_view("v", db.create_table())
    names = {name: f"{view.id}/{name}" for name in ("small", "join1", "aggregate2", "rows")}
    rows = {"small": (1, 30), "join1": (10, 1000), "aggregate2": (1000, 1800), "rows": (1800, 1800)}
    reports = [report(names[name], *counts, 0) for name, counts in rows.items()]
    work = work_in_epoch(reports, lambda _operator: 10)
    catalog = db.loop.catalog
    assert FanOut.of(work, catalog) == FanOut(names["join1"], view.id, 1000, 10)
    assert FanOut.of(work_in_epoch(reports, lambda _operator: 0), catalog) is None
    assert FanOut.of({}, catalog) is None
    db.close()
