"""Which dirty entries a repair removes, which is next, and crashes while a slice is repaired."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import LongType

from headrace.execution.runtime.dirty import (
    EVENT,
    awaiting_refresh,
    followed_by,
    next_to_repair,
    removed_with,
    repairable,
)
from headrace.planning.catalog import Catalog, RefreshKind, RefreshPolicy, Table, View
from headrace.storage.ledger import Dirty, RepairPath, Slice
from headrace.types import Column, DirtyId, RelationId, Schema
from runtime.crashing import Crash, Faults
from runtime.pure import PureDatabase

if TYPE_CHECKING:
    from pathlib import Path

_COLUMNS = Schema((Column("k", LongType()),))


def view(id_: int, *reads: int) -> View:
    return View(RelationId(id_), f"v{id_}", _COLUMNS, "", tuple(map(RelationId, reads)))


CATALOG = Catalog.of(
    [
        Table(RelationId(1), "t", _COLUMNS, ("k",)),
        view(2, 1),
        view(3, 1),
        view(4, 2),
        view(5, 3, 4),
    ]
)
"""t <- 2 <- 4 <- 5, and t <- 3 <- 5."""


def entry(id_: int, of: int, repair: RepairPath, event: str = "", since: float = 1.0) -> Dirty:
    origin = {EVENT: event} if event else {}
    return Dirty(
        RelationId(of), "x", since, origin=origin, repair=repair, id=DirtyId(id_), slice=Slice("a")
    )


def test_what_is_above_a_repaired_slice_becomes_right_with_the_last_one_below_it() -> None:
    two, three = entry(1, 2, RepairPath.REPLAY, "e"), entry(2, 3, RepairPath.REBUILD, "e")
    four, five = entry(3, 4, RepairPath.DELTAS, "e"), entry(4, 5, RepairPath.DELTAS, "e")
    entries = [two, three, four, five]
    assert removed_with([two], entries, CATALOG) == (1, 3)
    assert removed_with([three], [three, five], CATALOG) == (2, 4)
    assert removed_with([two, three], entries, CATALOG) == (1, 2, 3, 4)


def test_entries_of_other_events_stay() -> None:
    mine, other = entry(1, 2, RepairPath.REPLAY, "e"), entry(2, 4, RepairPath.DELTAS, "f")
    alone = entry(3, 4, RepairPath.DELTAS)
    assert removed_with([mine], [mine, other, alone], CATALOG) == (1,)
    assert removed_with([entry(1, 2, RepairPath.REPLAY)], [alone], CATALOG) == (1,)


def test_a_view_that_lags_is_dirty_until_it_is_refreshed() -> None:
    lagging = replace(view(4, 2), refresh=RefreshPolicy(RefreshKind.MANUAL))
    catalog = CATALOG.with_(lagging)
    two, four, five = (
        entry(1, 2, RepairPath.REPLAY, "e"),
        entry(3, 4, RepairPath.DELTAS, "e"),
        entry(4, 5, RepairPath.DELTAS, "e"),
    )
    assert followed_by({lagging.id}, [two, four, five], catalog) == (), "what it read was wrong"
    assert removed_with([two], [two, four, five], catalog) == (1,)
    assert followed_by({lagging.id}, [four, five], catalog) == (3, 4)
    assert followed_by({RelationId(3)}, [four, five], catalog) == ()
    assert awaiting_refresh([two, four, five], catalog) == [], "that is not repaired yet"
    assert awaiting_refresh([four, five], catalog) == [(four, (lagging,)), (five, (lagging,))]
    assert awaiting_refresh([four, five], CATALOG) == []


def test_a_rebuild_makes_right_what_reads_the_inputs_again() -> None:
    entries = [entry(i, 2, repair) for i, repair in enumerate(RepairPath)]
    assert [e.repair for e in repairable(entries, RelationId(2))] == [
        RepairPath.REPLAY,
        RepairPath.REBUILD,
    ]
    assert repairable(entries, RelationId(3)) == ()


def test_the_oldest_is_repaired_first_and_inputs_before_what_reads_them() -> None:
    young_input, old_above = (
        entry(1, 2, RepairPath.REPLAY, since=9.0),
        entry(2, 5, RepairPath.REPLAY),
    )
    aside = entry(3, 3, RepairPath.REPLAY, since=5.0)
    entries = [old_above, aside, young_input]
    order, ids = [], {1, 2, 3}
    while (found := next_to_repair(entries, CATALOG, (), ids)) is not None:
        order.append(found.id)
        ids.discard(found.id)
    assert order == [3, 1, 2]


def test_views_that_stopped_are_gone_or_need_no_recomputation_are_left() -> None:
    entries = [
        entry(1, 2, RepairPath.REPLAY),
        entry(2, 99, RepairPath.REPLAY),
        entry(3, 3, RepairPath.DELTAS),
        entry(4, 3, RepairPath.RESUME),
    ]
    assert next_to_repair(entries, CATALOG, {RelationId(2)}, {1, 2, 3, 4}) is None
    assert next_to_repair(entries, CATALOG, (), {2, 3, 4}) is None


@pytest.mark.parametrize("stage", ["catch up", "take over", "before commit", "after commit", None])
def test_a_slice_is_dirty_until_the_epoch_that_repairs_it(
    tmp_path: Path, stage: str | None
) -> None:
    """Its entry goes in the transaction in which the rows change, wherever a repair crashes."""
    faults = Faults()
    db = PureDatabase(tmp_path, faults)
    table = db.create_table()
    counts = db.create_view("counts", table)
    above = db.create_view("above", counts)
    db.append(table, [(1, 0, 1), (2, 0, 1), (3, 1, 1)])
    db.loop.advance()
    origin = {EVENT: "e"}
    mine = Dirty(counts.id, "x", 1.0, slice=Slice("g = 0"), origin=origin, repair=RepairPath.REPLAY)
    over = Dirty(above.id, "x", 1.0, origin=origin, repair=RepairPath.DELTAS)
    marked = db.ledger.dirty.mark(mine, over)
    cleaned = removed_with(marked[:1], marked, db.loop.catalog)
    fill = db.begin_view("counts", table, counts)
    db.append(table, [(4, 1, 1)])
    db.loop.advance()
    assert len(db.ledger.head.dirty) == 2, "an epoch that goes on meanwhile removes nothing"
    faults.stage = stage
    if stage is None:
        db.finish_view(fill, counts, cleaned)
    else:
        with pytest.raises(Crash):
            db.finish_view(fill, counts, cleaned)
    db.close()
    again = PureDatabase(tmp_path)
    repaired = stage in {"after commit", None}
    assert again.ledger.head.dirty == (() if repaired else marked)
    assert again.rows(counts.id) == Counter({(1, 2): 1} if repaired else {(0, 2): 1, (1, 2): 1})
    assert again.rows(above.id) == Counter({(2, 1): 1} if repaired else {(2, 2): 1})
    again.close()
