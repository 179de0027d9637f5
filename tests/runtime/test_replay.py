"""Replaying a slice: whatever was stored, it is the result of the query again, whole or not yet."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from headrace.planning.catalog import RefreshKind, RefreshPolicy
from headrace.storage.ledger import Dirty
from runtime.crashing import REPLAY_STAGES, Crash, Faults, counted
from runtime.pure import Outside, PureDatabase

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [(1, 0, 1), (2, 0, 1), (3, 1, 1), (4, 2, 1)]
MANUAL = RefreshPolicy(RefreshKind.MANUAL)


def test_a_slice_that_is_right_stays_as_it_is(tmp_path: Path) -> None:
    db = PureDatabase(tmp_path)
    table = db.create_table()
    view = db.create_view("counts", table)
    db.append(table, ROWS)
    db.loop.advance()
    fill = db.begin_replay(view, [0, 1])
    done = db.finish_replay(fill)
    assert (done.changed, done.state) == (0, 0)
    assert fill.taken == 3
    assert db.ledger.spines.delta_runs(f"{view.id}/rows", done.epoch - 1, done.epoch) == ()
    assert {path.name for path in (tmp_path / "runs").iterdir()} == db.ledger.files.known().packs
    db.close()


def test_damage_of_state_and_rows_is_repaired_and_what_is_above_follows(tmp_path: Path) -> None:
    db = PureDatabase(tmp_path)
    table = db.create_table()
    view = db.create_view("counts", table)
    above = db.create_view("above", view)
    outside = Outside()
    delivery = db.delivery(db.create_sink(view), outside)
    db.append(table, ROWS)
    db.loop.advance()
    right, over = db.rows(view.id), db.rows(above.id)
    db.damage(view, 0)
    db.damage(view, 3)
    before = db.ledger.head.epoch
    assert db.rows(view.id) == Counter([(0, 3), (1, 1), (2, 1), (3, 1)])
    (entry,) = db.ledger.dirty.mark(Dirty(view.id, "invalidated", 1.0))
    done = db.finish_replay(db.begin_replay(view, [0]), (entry.id,))
    assert (done.changed, done.state) == (2, 1)
    assert db.ledger.head.dirty == ()
    assert db.changelog(view.id, before) == Counter({(0, 3): -1, (0, 2): 1})
    db.finish_replay(db.begin_replay(view, [3]))
    assert (db.rows(view.id), db.rows(above.id)) == (right, over)
    db.append(table, [(1, 0, -1), (5, 3, 1)])
    db.loop.advance()
    assert db.rows(view.id) == Counter([(0, 1), (1, 1), (2, 1), (3, 1)])
    assert db.rows(above.id) == Counter([(1, 4)])
    delivery.advance()
    assert outside.rows() == db.rows(view.id)
    db.close()


@pytest.mark.parametrize("stage", REPLAY_STAGES)
def test_a_replay_that_crashes_is_made_whole_or_not_at_all(tmp_path: Path, stage: str) -> None:
    faults = Faults()
    db = PureDatabase(tmp_path, faults)
    table = db.create_table()
    view = db.create_view("counts", table)
    above = db.create_view("above", view)
    db.append(table, ROWS)
    db.loop.advance()
    db.damage(view, 0)
    (entry,) = db.ledger.dirty.mark(Dirty(view.id, "invalidated", 1.0))
    before = db.ledger.head.epoch
    wrong = db.rows(view.id)

    def replay() -> None:
        faults.stage = stage if stage == "fill" else None
        fill = db.begin_replay(view, [0, 1])
        db.append(table, [(6, 1, 1)])
        db.loop.advance()
        faults.stage = stage
        db.finish_replay(fill, (entry.id,))

    with pytest.raises(Crash):
        replay()
    db.close()
    again = PureDatabase(tmp_path)
    replaced = stage == "after commit"
    assert {path.name for path in (tmp_path / "runs").iterdir()} == again.ledger.files.known().packs
    assert again.ledger.head.dirty == (() if replaced else (entry,))
    assert again.rows(view.id, before) == wrong
    log = [0, 0, 1, 2, *([] if stage == "fill" else [1])]
    if not replaced:
        assert again.rows(view.id) != counted(log)
        again.finish_replay(again.begin_replay(view, [0]), (entry.id,))
        assert again.ledger.head.dirty == ()
    assert again.rows(view.id) == counted(log)
    assert again.rows(above.id) == counted(n for _, n in counted(log))
    again.close()


def test_a_view_that_lags_is_replayed_where_it_stands(tmp_path: Path) -> None:
    db = PureDatabase(tmp_path)
    table = db.create_table()
    late = db.create_view("late", table, MANUAL)
    above = db.create_view("above", late)
    db.append(table, ROWS)
    db.loop.advance()
    db.refresh(late)
    right, over = db.rows(late.id), db.rows(above.id)
    db.append(table, [(7, 0, 1)])
    db.loop.advance()
    db.damage(late, 0)
    assert db.rows(above.id) != over
    db.finish_replay(db.begin_replay(late, [0]))
    assert (db.rows(late.id), db.rows(above.id)) == (right, over)
    db.refresh(late)
    assert db.rows(late.id) == Counter([(0, 3), (1, 1), (2, 1)])
    db.close()
