"""A view keeps its former states for as long as it says, whatever tables and others keep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import HeadraceError
from headrace.execution.runtime import compaction
from headrace.execution.runtime.pump import _SWEEP_EVERY, Pump
from headrace.planning.catalog import KeptHistory, RefreshKind, RefreshPolicy
from headrace.storage.ledger import EpochCommit, Read, commit, schema
from headrace.types import Epoch, Offset, rows_of
from length import choose
from runtime.pure import Outside, PureDatabase

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


def make(db, pump, count, table=None):
    """Make epochs without a rest; those of a table change its rows, others read a stream's log."""
    for number in range(count):
        if table is not None:
            db.append(table, [(db.ledger.head.epoch, number % 3, 1)])
            db.loop.advance()
        else:
            (stream,) = (each for each in db.loop.catalog if each.name == "s")
            at = db.ledger.head.position(stream.id)
            read = Read(stream.id, at, Offset(at + 1))
            db.ledger.commit(EpochCommit(db.ledger.head.epoch, "other", reads=(read,)))
            if number % 8 == 7 or number == count - 1:
                db.loop.published.publish()
        pump.made(db.ledger.head.epoch)


def sizes(db):
    with db.ledger._transactions.reading() as connection:
        count = sa.select(sa.func.count())
        return {
            name: connection.execute(count.select_from(table)).scalar_one()
            for name, table in schema.metadata.tables.items()
        }


def is_short(db, others):
    """Whether the tables with what is kept of epochs have few rows, and others at most so many."""
    most, found = commit._LEAST + compaction._FORGET_EVERY + 2 * _SWEEP_EVERY, sizes(db)
    grown = {name for name, count in found.items() if count > others}
    return grown <= {"epochs", "reads"} and max(found["epochs"], found["reads"]) <= most


def begun(folder):
    """Return a database with a table, a view, an idle view, and a log that no view reads."""
    db = PureDatabase(folder)
    stream = db.create_stream()
    db.append_events(stream, [(None, n, 1) for n in range(6_000)])
    table, idle = db.create_table(), db.create_table("idle")
    db.append(idle, [(1, 1, 1)])
    db.loop.advance()
    db.create_view("of_idle", idle)
    return db, Pump(db.loop, db.compaction), table, db.create_view("counts", table)


@pytest.fixture
def sooner(monkeypatch):
    """Have fewer epochs kept, so that some are forgotten sooner."""
    monkeypatch.setattr(commit, "_LEAST", 8)
    monkeypatch.setattr(compaction, "_FORGET_EVERY", 32)


@pytest.mark.long
def test_no_table_of_the_ledger_grows_with_5_000_epochs_although_there_is_no_rest(tmp_path):
    grown(tmp_path, 5_000)


@pytest.mark.usefixtures("sooner")
def test_no_table_of_the_ledger_grows_with_epochs_although_there_is_no_rest(tmp_path):
    grown(tmp_path, 400)


def grown(folder, count):
    """Check a database in which so many epochs were made, of which 40 have changed rows."""
    db, pump, table, view = begun(folder)
    for _ in range(4):
        make(db, pump, 10, table)
        make(db, pump, count // 4 - 10)
        assert is_short(db, 300)
    assert db.ledger.head.epoch > count
    assert db.rows(table.id).total() == 40
    assert db.rows(view.id) == {(0, 16): 1, (1, 12): 1, (2, 12): 1}
    assert not db.ledger.violations()
    db.close()


def history(db, pump, table, view):
    """A view that keeps its states."""
    kept = replace(db.loop.catalog.by_id[view.id], history=KeptHistory(epochs=220))
    db.loop.published.publish(db.loop.catalog.with_(kept))
    begun, seen = db.ledger.head.epoch, {}
    for _ in range(6):
        make(db, pump, 1, table)
        seen[db.ledger.head.epoch] = db.rows(view.id)

    def read():
        for epoch, rows in seen.items():
            state = db.loop.published.as_of(epoch, kept)
            assert state.committed_at == db.ledger.epochs.committed_at(epoch)
            assert db.rows(view.id, epoch) == rows
        db.loop.published.publish(db.loop.catalog.with_(replace(kept, history=None)))

    return begun + 1, read


def lagging(db, pump, table, view):
    """A view that is refreshed later."""
    late = db.create_view("late", table, RefreshPolicy(RefreshKind.MANUAL))
    begun = db.ledger.head.lagging[late.id].epoch

    def read():
        db.loop.published.at_frontier(late)
        make(db, pump, 3, table)
        db.refresh(late)
        assert db.rows(late.id) == db.rows(view.id)

    return begun, read


def behind(db, pump, table, view):
    """A sink that has not been given what has changed."""
    outside = Outside()
    delivery = db.delivery(db.create_sink(view), outside)
    delivery.advance()
    stands = db.ledger.head.epoch
    make(db, pump, 3, table)

    def read():
        while delivery.advance():
            pass
        assert outside.rows() == db.rows(view.id)

    return stands, read


def reader(db, pump, table, view):
    """A reader in the middle."""
    state = [db.loop.published.current]
    begun, rows = state[0].epoch, db.rows(view.id)
    make(db, pump, 3, table)

    def read():
        assert db.rows(view.id, begun) == rows
        again = db.loop.published.as_of(begun, table, view)
        assert again.committed_at == state.pop().committed_at

    return begun, read


@pytest.mark.usefixtures("sooner")
@pytest.mark.parametrize("names", [history, lagging, behind, reader])
def test_what_something_names_is_recorded_and_read_until_nothing_does(tmp_path, names):
    db, pump, table, view = begun(tmp_path)
    make(db, pump, 60)
    make(db, pump, 6, table)
    oldest, read = names(db, pump, table, view)
    make(db, pump, 200)
    assert 32 < db.ledger.epochs.newest(1_000)[-1].epoch <= oldest
    assert not is_short(db, 100)
    read()
    make(db, pump, 130)
    assert db.ledger.epochs.newest(1_000)[-1].epoch > oldest
    assert not db.ledger.violations()
    db.close()
