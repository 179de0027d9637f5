"""Whatever has happened: a branch of each epoch that can be read has its rows, and goes on from them."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from branches.test_branching import Mill, rows_of
from headrace.errors import HeadraceError
from headrace.execution.runtime.published import WAITING
from headrace.planning.catalog import View
from headrace.types import rows_of as rows_id
from length import choose
from runtime.pure import PureDatabase

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.types import Epoch

STEPS = choose(14, 24)


class Story:
    """Random changes of a database, and the rows that its relations had at each epoch."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.mill = Mill(directory)
        self.rows: dict[Epoch, dict[str, Counter[tuple[int, ...]]]] = {}
        self.made = 0
        self.note()

    def note(self) -> None:
        """Keep the rows of the last epoch."""
        db = self.mill.db
        self.rows[self.mill.epoch] = {r.name: db.rows(r.id) for r in db.loop.catalog}

    def step(self) -> None:
        """Do one thing."""
        db, mill = self.mill.db, self.mill
        what = self.random.choice(
            ["write"] * 6 + ["create", "drop", "replace", "compact", "rest", "append"]
        )
        views = [r for r in db.loop.catalog if isinstance(r, View)]
        unread = [v for v in views if not db.loop.catalog.dependants(v.id)]
        if what in ("write", "append"):
            db.append(mill.table, [self.change() for _ in range(self.random.randint(1, 4))])
            while what == "write" and db.loop.advance() is not None:
                self.note()
        elif what == "create":
            self.made += 1
            over = self.random.choice([mill.table, *views])
            db.create_view(f"view{self.made}", over)
        elif what == "drop" and len(unread) > 1:
            db.drop(self.random.choice(unread))
        elif what == "replace":
            over_table = [v for v in unread if v.depends_on == (mill.table.id,)]
            if over_table:
                former = self.random.choice(over_table)
                db.finish_view(db.begin_view(former.name, mill.table, former=former), former)
        elif what == "rest":
            db.compaction.rest()
        else:
            db.compaction.run(tail=2)
        self.note()

    def change(self) -> tuple[int, int, int]:
        key, weight = self.random.randrange(12), self.random.choice([1, 1, 1, -1])
        return key, self.random.randrange(3), weight


def oldest(mill: Mill) -> Epoch:
    """The first epoch at which the table, which was there from the beginning, can be read."""
    return mill.db.ledger.spines.since(rows_id(mill.table.id))


def expected(db: PureDatabase, view: View) -> Counter[tuple[int, ...]]:
    """What a view has to have, from the rows of the table."""
    below = db.loop.catalog.by_id[view.depends_on[0]]
    if isinstance(below, View):
        groups = Counter(n for _, n in expected(db, below).elements())
    else:
        first = 1 if "g >= 1" in view.query else 0
        groups = Counter(g for _, g in db.rows(below.id).elements() if g >= first)
    return Counter((g, n) for g, n in groups.items())


@pytest.mark.parametrize("seed", range(choose(2, 40)))
def test_a_branch_of_any_epoch_has_its_rows_and_goes_on(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.storage.ledger.commit._LEAST", 1)
    story = Story(tmp_path / "data", seed)
    for _ in range(STEPS):
        story.step()
    mill, begun = story.mill, 0
    before = mill.files()
    now = {r.name: mill.db.rows(r.id) for r in mill.db.loop.catalog}
    for epoch in [*story.rows, None]:
        if epoch is not None and epoch < oldest(mill):
            with pytest.raises(HeadraceError, match="cannot begin"):
                mill.branches().create("b", epoch)
            continue
        made = mill.branches().create("b", epoch)
        place = mill.directory / "branches" / "b"
        with closing(sqlite3.connect(place / "ledger.db")) as ledger:
            assert ledger.execute("PRAGMA foreign_key_check").fetchall() == []
        branch = PureDatabase(place)
        assert not branch.ledger.violations()
        found = {r.name: branch.rows(r.id) for r in branch.loop.catalog}
        assert found == (now if epoch is None else story.rows[epoch])
        waiting = {e.view for e in branch.ledger.head.dirty if e.cause == WAITING}
        assert {branch.loop.catalog.by_id[id_].name for id_ in waiting} == {*made.refilled}
        branch.append(mill.table, [story.change() for _ in range(4)])
        while branch.loop.advance() is not None:
            pass
        branch.compaction.run()
        for relation in branch.loop.catalog:
            if isinstance(relation, View) and relation.id not in waiting:
                assert branch.rows(relation.id) == expected(branch, relation), relation.name
        assert not branch.ledger.violations()
        branch.close()
        mill.branches().drop("b")
        begun += 1
    assert begun >= 5
    assert mill.files() == before
    assert rows_of(mill.db) == [*now.values()]
    mill.db.close()
