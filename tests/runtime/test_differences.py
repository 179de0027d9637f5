"""What reader processes are sent makes the state that was published, of the one before."""

from __future__ import annotations

import pickle
from dataclasses import replace
from types import MappingProxyType

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.spine import RunFile
from headrace.algebra.zset import WEIGHT, Layout
from headrace.execution.runtime.published import NOTHING, Published, applied, difference
from headrace.planning.catalog import Catalog, Table
from headrace.storage.ledger import RunKind, RunRecord, Slice
from headrace.types import ArrangementId, Epoch, Offset, RelationId, Schema, rows_of

TABLES = [Table(RelationId(id_), f"t{id_}", Schema(())) for id_ in range(1, 4)]
LAYOUT = Layout((), pa.schema([("x", pa.int64())]), pa.schema([(WEIGHT, pa.int64())]))
OPERATOR = ArrangementId("9/state")


def run(name: int, arrangement: ArrangementId) -> RunRecord:
    return RunRecord(
        RunFile(f"r{name}", 0, 1, 2, "c", 0, 0), arrangement, RunKind.DELTA, Epoch(1), None
    )


@st.composite
def histories(draw: st.DrawFn) -> list[Published]:
    """States one after another: runs are added, merged and dropped, and tables come and go."""
    states, state, names = [], NOTHING, iter(range(10_000))
    for epoch in range(1, draw(st.integers(1, 6)) + 1):
        there = draw(st.lists(st.sampled_from(TABLES), unique=True))
        catalog, layouts = state.catalog, state.layouts
        if {r.id for r in there} != {r.id for r in catalog}:
            catalog = Catalog.of(there)
            layouts = {rows_of(r.id): LAYOUT for r in there}
        spines = {OPERATOR: (run(next(names), OPERATOR),)}
        for id_ in layouts:
            former = state.spines.get(id_, ())
            kept = tuple(r for r in former if draw(st.booleans()))
            added = tuple(run(next(names), id_) for _ in range(draw(st.integers(0, 2))))
            at = draw(st.integers(0, len(kept)))
            spines[id_] = kept[:at] + added + kept[at:]
        ids = st.frozensets(st.sampled_from([r.id for r in TABLES]))
        state = Published(
            Epoch(epoch),
            draw(st.floats(0, 1e9)),
            draw(st.integers(0, 1000)),
            catalog,
            layouts,
            MappingProxyType(spines),
            {r.id: Offset(draw(st.integers(0, 9))) for r in there},
            draw(ids),
            draw(ids),
            dirty={id_: (Slice("a = 1"),) for id_ in draw(ids)},
        )
        states.append(state)
    return states


def shown(state: Published) -> Published:
    """What a reader process has of a state: not what operators keep."""
    spines = {id_: state.spines.get(id_, ()) for id_ in state.layouts}
    return replace(state, spines=spines)


def parts(state: Published) -> tuple[object, ...]:
    return tuple(getattr(state, name) for name in Published.__slots__ if name[0] != "_")


@given(histories(), st.data())
def test_differences_applied_one_after_another_make_each_state(
    states: list[Published], data: st.DataObject
):
    sent, held = NOTHING, NOTHING
    for state in states:
        if data.draw(st.booleans()):  # a slow reader gets the newest only
            continue
        change = pickle.loads(pickle.dumps(difference(sent, state)))  # noqa: S301
        sent, held = state, applied(held, change)
        assert parts(held) == parts(shown(state))


def test_an_epoch_is_sent_as_what_it_adds():
    id_ = rows_of(TABLES[0].id)
    runs = tuple(run(name, id_) for name in range(1000))
    before = replace(NOTHING, layouts={id_: LAYOUT}, spines={id_: runs})
    after = replace(before, epoch=Epoch(1), spines={id_: (*runs, run(1000, id_))})
    change = difference(before, after)
    assert change.spines == {id_: ((0, 1000), run(1000, id_))}
    assert (change.relations, change.layouts, change.stopped) == (None, None, None)
    assert len(pickle.dumps(change)) < 2000
