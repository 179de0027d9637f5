"""A table whose stored rows are not what its log makes: corrected in one epoch, or not at all."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from headrace.algebra.spine import write_run
from headrace.algebra.zset import WEIGHT, ZSet
from headrace.execution.runtime.replay import TableRebuild
from headrace.storage.ledger import EpochCommit, NewRun, RunKind
from headrace.types import rows_of
from runtime.pure import TABLE, PureDatabase, hashed

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.planning.catalog import Table


class Crash(BaseException):
    """The process has ended here."""


def damage(db: PureDatabase, table: Table) -> None:
    """Have the table, and what reads it, show row 2 in group 0 instead of 1, and lack row 3."""
    rows = [(2, 1, -1), (2, 0, 1), (3, 1, -1)]
    given = pa.Table.from_pylist([{"k": k, "g": g, WEIGHT: w} for k, g, w in rows])
    loop, ledger = db.loop, db.ledger
    with loop.exclusive():
        delta = ZSet.of(TABLE, hashed(given, "k")).consolidated()
        file = write_run(db.directory / "runs", delta)
        above = loop.follow({table.id: (file,)}, ledger.epochs.clock())
        runs = (
            NewRun(file, rows_of(table.id), RunKind.DELTA),
            *above.new_runs(RunKind.DELTA),
        )
        ledger.commit(EpochCommit(ledger.head.epoch, "damage", runs=runs))


def correct(db: PureDatabase, table: Table) -> None:
    with db.loop.exclusive(), db.compaction.busy:
        TableRebuild(db.loop, table, TABLE, lambda _done, _total: None).correct()


@pytest.mark.parametrize("stage", [None, "correct", "before commit", "after commit"])
def test_a_table_and_what_reads_it_are_corrected_in_one_epoch(tmp_path: Path, stage: str | None):
    armed: list[str] = []

    def fault(reached: str) -> None:
        if reached in armed:
            armed.clear()
            raise Crash

    db = PureDatabase(tmp_path, fault)
    table = db.create_table()
    view = db.create_view("counts", table)
    above = db.create_view("above", view)
    db.append(table, [(1, 0, 1), (2, 1, 1), (3, 1, 1)])
    db.loop.advance()
    wrong = Counter({(1, 0): 1, (2, 0): 1})
    damage(db, table)
    assert (db.rows(table.id), db.rows(view.id)) == (wrong, Counter({(0, 2): 1}))
    before = db.ledger.head.epoch
    armed += [stage] if stage else []
    try:
        correct(db, table)
    except Crash:
        db.close()
        db = PureDatabase(tmp_path)
        done = stage == "after commit"
        assert db.ledger.head.epoch == before + done
        assert (db.rows(table.id) == wrong) is not done
        correct(db, table)
    assert db.rows(table.id) == Counter({(1, 0): 1, (2, 1): 1, (3, 1): 1})
    assert db.rows(view.id) == Counter({(0, 1): 1, (1, 2): 1})
    assert db.rows(above.id) == Counter({(1, 1): 1, (2, 1): 1})
    db.append(table, [(3, 1, -1), (2, 0, 1)])
    db.loop.advance()
    assert db.rows(view.id) == Counter({(0, 2): 1})
    assert db.rows(above.id) == Counter({(2, 1): 1})
    db.close()
