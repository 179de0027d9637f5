"""An epoch, a replacement and a refresh that end at each point are made whole, or not at all.

``tests/simulation`` has them end in any order, among fills, deliveries and compaction.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from headrace.planning.catalog import RefreshKind, RefreshPolicy
from runtime.crashing import EPOCH_STAGES, REFRESH_STAGES, Crash, Faults
from runtime.pure import PureDatabase

if TYPE_CHECKING:
    from pathlib import Path

MANUAL = RefreshPolicy(RefreshKind.MANUAL)


@pytest.mark.parametrize("stage", EPOCH_STAGES)
def test_an_epoch_that_crashes_is_made_whole_or_not_at_all(tmp_path: Path, stage: str) -> None:
    faults = Faults()
    db = PureDatabase(tmp_path, faults)
    table = db.create_table()
    view = db.create_view("counts", table)
    db.append(table, [(1, 0, 1), (2, 0, 1)])
    db.loop.advance()
    before, runs = db.ledger.head.epoch, db.ledger.files.known().packs
    db.append(table, [(1, 1, 1), (2, 0, -1), (3, 1, 1)])
    faults.stage = stage
    with pytest.raises(Crash):
        db.loop.advance()
    db.close()
    again = PureDatabase(tmp_path)
    committed = stage in ("after commit", "publish")
    assert again.ledger.head.epoch == before + committed
    on_disk = {path.name for path in (tmp_path / "runs").iterdir()}
    assert on_disk == again.ledger.files.known().packs
    assert (on_disk == runs) is not committed
    again.loop.advance()
    assert again.rows(view.id) == Counter([(1, 2)])
    assert again.changelog(view.id, before) == Counter({(0, 2): -1, (1, 2): 1})
    again.close()


@pytest.mark.parametrize("stage", ["take over", "before commit", "after commit"])
def test_a_query_that_is_replaced_is_replaced_whole_or_not_at_all(
    tmp_path: Path, stage: str
) -> None:
    faults = Faults()
    db = PureDatabase(tmp_path, faults)
    table = db.create_table()
    view = db.create_view("counts", table)
    above = db.create_view("above", view)
    db.append(table, [(1, 0, 1), (2, 0, 1), (3, 1, 1)])
    db.loop.advance()
    before = db.ledger.head.epoch
    fill = db.begin_view("counts", table, view)
    faults.stage = stage
    with pytest.raises(Crash):
        db.finish_view(fill, view)
    db.close()
    again = PureDatabase(tmp_path)
    committed = stage == "after commit"
    assert again.ledger.head.epoch == before + committed
    assert {path.name for path in (tmp_path / "runs").iterdir()} == again.ledger.files.known().packs
    assert len(again.ledger.head.builds) == 2
    old, new = Counter({(0, 2): 1, (1, 1): 1}), Counter({(1, 1): 1})
    assert again.rows(view.id) == (new if committed else old)
    assert again.rows(view.id, before) == old
    assert again.rows(above.id) == Counter({(1, 1): 1} if committed else {(1, 1): 1, (2, 1): 1})
    if committed:
        assert again.changelog(view.id, before) == Counter({(0, 2): -1})
        assert again.changelog(above.id, before) == Counter({(2, 1): -1})
    again.append(table, [(4, 1, 1)])
    again.loop.advance()
    assert again.rows(view.id) == Counter({(1, 2): 1} if committed else {(0, 2): 1, (1, 2): 1})
    again.close()


@pytest.mark.parametrize("stage", REFRESH_STAGES)
def test_a_refresh_that_crashes_is_made_whole_or_not_at_all(tmp_path: Path, stage: str) -> None:
    faults = Faults()
    db = PureDatabase(tmp_path, faults)
    table = db.create_table()
    late = db.create_view("late", table, MANUAL)
    later = db.create_view("later", late, MANUAL)
    above = db.create_view("above", late)
    db.append(table, [(1, 0, 1), (2, 0, 1)])
    db.loop.advance()
    before, stands = db.ledger.head.epoch, db.ledger.head.lagging
    faults.stage = stage
    with pytest.raises(Crash):
        db.refresh(late, later)
    db.close()
    again = PureDatabase(tmp_path)
    committed = stage == "after commit"
    assert again.ledger.head.epoch == before + committed
    assert (again.ledger.head.lagging == stands) is not committed
    assert {path.name for path in (tmp_path / "runs").iterdir()} == again.ledger.files.known().packs
    for view, rows in ((late, [(0, 2)]), (later, [(2, 1)]), (above, [(2, 1)])):
        assert again.rows(view.id) == Counter(rows if committed else [])
    again.refresh(late, later)
    assert again.rows(later.id) == again.rows(above.id) == Counter([(2, 1)])
    again.close()
