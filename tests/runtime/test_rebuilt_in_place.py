"""Views are rebuilt as of the last epoch, from above downwards, before rows that wait are read."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from runtime.pure import PureDatabase

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("waiting", [False, True], ids=["nothing waits", "rows wait"])
def test_views_that_are_rebuilt_from_above_downwards_equal_their_queries(
    tmp_path: Path, *, waiting: bool
) -> None:
    db = PureDatabase(tmp_path)
    table = db.create_table()
    below = db.create_view("below", table)
    above = db.create_view("above", below)
    db.append(table, [(key, key % 3, 1) for key in range(7)])
    db.loop.advance()
    counted = db.rows(below.id)
    assert counted == Counter({(0, 3): 1, (1, 2): 1, (2, 2): 1})
    if waiting:
        db.append(table, [(7, 1, 1), (8, 5, 1)])
    shown = db.rows(above.id)
    with db.loop.exclusive():
        above = db.take_over(db.begin_view("above", below, above), above)
        assert db.rows(above.id) == shown
        assert db.rows(below.id) == counted
        below = db.take_over(db.begin_view("below", table, below), below)
    # The other query leaves out the rows of group 0.
    assert db.rows(below.id) == counted - Counter([(0, 3)])
    assert db.rows(above.id) == Counter({(2, 2): 1})
    assert (db.loop.advance() is not None) is waiting
    expected = [(1, 3), (2, 2), (5, 1)] if waiting else [(1, 2), (2, 2)]
    assert db.rows(below.id) == Counter(expected)
    assert db.rows(above.id) == Counter(Counter(n for _, n in expected).items())
    db.close()
