"""A view keeps its former states for as long as it says, whatever tables and others keep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.catalog import KeptHistory
from headrace.errors import HeadraceError
from headrace.types import Epoch, rows_of
from length import choose
from runtime.pure import PureDatabase

HOUR = 3600
KEPT = st.one_of(
    st.none(),
    st.integers(0, 9).map(lambda n: KeptHistory(epochs=n)),
    st.integers(1, 9).map(lambda n: KeptHistory(seconds=n * HOUR)),
)
STEP = st.one_of(st.none(), st.tuples(st.integers(0, 3), st.integers(0, 2)))


@settings(max_examples=choose(15, 300))
@given(
    steps=st.lists(STEP, min_size=3, max_size=14),
    kept=st.tuples(KEPT, KEPT),
)
def test_states_are_kept_as_long_as_each_view_says(steps, kept):
    now = [1_000_000.0]
    with TemporaryDirectory() as folder:
        db = PureDatabase(Path(folder), clock=lambda: now[0])
        default = db.loop.settings.history_epochs
        table = db.create_table()
        view = db.create_view("counts", table)
        above = db.create_view("above", view)
        for each, history in zip((view, above), kept, strict=True):
            changed = replace(db.loop.catalog.by_id[each.id], history=history)
            db.loop.published.publish(db.loop.catalog.with_(changed))
        relations = {table.id: None, view.id: kept[0], above.id: kept[1]}
        seen = {id_: {} for id_ in relations}
        committed = dict.fromkeys(range(db.ledger.head.epoch + 1), now[0])
        since = {id_: db.ledger.spines.since(rows_of(id_)) for id_ in relations}
        for step in steps:
            now[0] += HOUR
            if step is None:
                db.compaction.run()
                last = db.ledger.head.epoch
                for id_, history in relations.items():
                    if history is None or history.seconds is None:
                        epochs = default if history is None else history.epochs
                        wanted = last - epochs
                    else:
                        until = now[0] - history.seconds
                        wanted = max([e for e, at in committed.items() if at <= until], default=0)
                    since[id_] = max(since[id_], wanted)
                    assert db.ledger.spines.since(rows_of(id_)) == since[id_]
            else:
                db.append(table, [(*step, 1)])
                db.loop.advance()
                committed[db.ledger.head.epoch] = now[0]
                for id_ in relations:
                    seen[id_][db.ledger.head.epoch] = db.rows(id_)
            for id_, states in seen.items():
                for epoch, rows in states.items():
                    if epoch >= since[id_]:
                        assert db.rows(id_, Epoch(epoch)) == rows
                if since[id_]:
                    with pytest.raises(HeadraceError, match="can no longer be read"):
                        db.rows(id_, Epoch(since[id_] - 1))
        db.close()
