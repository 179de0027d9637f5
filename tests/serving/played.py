"""Histories of a table and two views over it, drawn and played without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

if TYPE_CHECKING:
    from runtime.pure import PureDatabase

CHANGE = st.tuples(st.integers(0, 5), st.integers(0, 2), st.sampled_from([1, 1, -1]))
STEP = st.one_of(
    st.lists(CHANGE, min_size=1, max_size=6),
    st.just("compact"),
    st.sampled_from(["replace", "refill"]),
)
"""Changes that are an epoch, or what else is done."""


def played(db: PureDatabase, steps) -> list:
    """Play a history; return the table, a view of it, and one above that."""
    table = db.create_table()
    view = db.create_view("counts", table)
    above = db.create_view("above", view)
    for step in steps:
        match step:
            case "compact":
                db.compaction.run()
            case "replace":
                view = db.finish_view(db.begin_view(view.name, table, view), view)
            case "refill":
                db.finish_replay(db.begin_replay(view, [0, 1, 2]))
            case _:
                db.append(table, step)
                db.loop.advance()
    return [table, view, above]
