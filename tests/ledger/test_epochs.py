"""Committing epochs: who may, what it changes, and what each invariant refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from headrace.errors import Code, HeadraceError
from headrace.storage.ledger import (
    LIVE,
    NO_EPOCH,
    Dirty,
    DirtyState,
    EpochCommit,
    Gap,
    Ledger,
    Mode,
    NewObject,
    Read,
    RepairedView,
    RepairPath,
    RunKind,
    Slice,
    invariants,
    schema,
)
from headrace.types import BuildId, DirtyId, Epoch, Offset, RelationId
from ledger.building import build, merge, relation, run, segment, step

if TYPE_CHECKING:
    from ledger.building import Clock


def test_an_epoch_changes_everything_at_once(ledger: Ledger, orders: NewObject) -> None:
    ledger.log.append(orders.relation, segment(10))
    one = run("1/0")
    epoch = ledger.commit(
        EpochCommit(
            Epoch(1),
            "attempt-7",
            reads=(Read(orders.relation, Offset(0), Offset(6)),),
            runs=(one,),
            counters={"rows": 6},
        )
    )
    assert epoch == 2
    assert (ledger.head.epoch, ledger.head.upper) == (2, 3)
    assert ledger.head.position(orders.relation) == 6
    assert ledger.head.positions == {orders.relation: 6}
    assert [found.file for found in ledger.spines.runs(one.arrangement)] == [one.file]
    newest, first = ledger.epochs.newest()
    assert (newest.epoch, newest.attempt, newest.counters) == (2, "attempt-7", {"rows": 6})
    assert newest.reads == (Read(orders.relation, Offset(0), Offset(6)),)
    assert first.reads == ()
    assert ledger.epochs.newest(limit=1) == (newest,)


def test_an_epoch_that_does_not_follow_the_last_is_a_conflict(
    ledger: Ledger, orders: NewObject
) -> None:
    del orders
    for previous in (0, 2):
        with pytest.raises(HeadraceError) as caught:
            ledger.commit(EpochCommit(Epoch(previous), "late"))
        assert caught.value.code is Code.CONFLICT
    assert ledger.head.epoch == 1


def test_a_stale_writer_can_change_nothing(
    address: str | Path, ledger: Ledger, orders: NewObject
) -> None:
    ledger._transactions.store.database.release()  # as if its session were lost
    with Ledger.open(address) as other:
        assert other.acquire() == 2
        assert ledger.overtaken is None, "it does not know yet"
        writes = [
            lambda: ledger.commit(EpochCommit(Epoch(1), "stale")),
            lambda: ledger.log.append(orders.relation, segment()),
            lambda: ledger.spines.compact([]),
            lambda: ledger.spines.advance_since({orders.arrangements[0].id: Epoch(1)}),
            lambda: ledger.files.forget(ledger.files.garbage()),
            ledger.ids.relation,
            lambda: ledger.settings.set("a", 1),
            lambda: ledger.dirty.mark(Dirty(orders.relation, "late", 1.0)),
            lambda: ledger.dirty.change(DirtyId(1), cost=1),
            lambda: ledger.dirty.clear(orders.relation),
        ]
        for write in writes:
            with pytest.raises(HeadraceError, match="took over the data directory") as caught:
                write()
            assert caught.value.code is Code.CONFLICT
            assert ledger.overtaken is caught.value
        other.commit(EpochCommit(Epoch(1), "fresh"))
        assert ledger.head.epoch == 2
        assert other.overtaken is None


def test_nothing_is_written_before_the_ledger_is_acquired(address: str | Path) -> None:
    with (
        Ledger.open(address) as ledger,
        pytest.raises(HeadraceError, match="before it was acquired"),
    ):
        ledger.commit(EpochCommit(Epoch(0), "early"))


def test_commit_times_never_decrease_and_name_epochs(ledger: Ledger, clock: Clock) -> None:
    for now in (2000.0, 1500.0, 3000.0):
        clock.now = now
        step(ledger)
    times = [epoch.committed_at for epoch in ledger.epochs.newest()]
    assert times == [3000.0, 2000.0, 2000.0]
    moments = (0.0, 1999.9, 2000.0, 2999.0, 3000.0)
    assert [ledger.epochs.at(at) for at in moments] == [0, 0, 2, 2, 3]


def test_epochs_that_nothing_names_are_forgotten_but_not_the_newest(
    ledger: Ledger, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.storage.ledger.commit._LEAST", 3)
    monkeypatch.setattr("headrace.storage.ledger.commit._AT_ONCE", 2)
    for number in range(9):
        clock.now = 2000.0 + number
        step(ledger)
    ledger.make_small(Epoch(5))
    assert [record.epoch for record in ledger.epochs.newest()] == [9, 8, 7, 6, 5, 4]
    ledger.make_small(Epoch(9))
    assert [record.epoch for record in ledger.epochs.newest()] == [9, 8, 7, 6]
    assert [ledger.epochs.at(2000.0 + at) for at in (2, 5, 8)] == [0, 6, 9]
    assert not ledger.violations()
    assert step(ledger) == 10


def counted(ledger: Ledger) -> tuple[int, int, int]:
    """How many rows what grows with epochs has."""
    with ledger._transactions.reading() as connection:
        epochs, reads, gaps = (
            connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
            for table in (schema.epochs, schema.reads, schema.gaps)
        )
    return epochs, reads, gaps


def test_epochs_are_forgotten_a_few_rows_at_a_time_with_what_they_read_and_their_gaps(
    ledger: Ledger, orders: NewObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.storage.ledger.commit._LEAST", 3)
    monkeypatch.setattr("headrace.storage.ledger.commit._AT_ONCE", 8)
    logs = [orders, *(relation(ledger, f"log{number}") for number in range(9))]
    ledger.commit(EpochCommit(Epoch(1), "a", created=tuple(logs[1:])))
    for each in logs:
        ledger.log.append(each.relation, segment(40))
    for number in range(40):
        read_now = logs if number == 6 else logs[:3]  # more at once than may be deleted at once
        reads = tuple(
            Read(e.relation, at, Offset(at + 1))
            for e in read_now
            for at in [ledger.head.position(e.relation)]
        )
        view, last = logs[number % 10].relation, ledger.head.epoch
        repaired = (RepairedView(view, "stopped", Epoch(last - 1)),)
        ledger.dirty.mark(Dirty(view, "stopped", 1.0, "x", Epoch(last - 1)))
        ledger.commit(EpochCommit(last, "b", reads=reads, repaired=repaired))
    assert counted(ledger) == (43, 40 * 3 + 7, 40)
    oldest, deleted = ledger.head.epoch, list[int]()
    gap = ledger.dirty.gaps(orders.relation)[-1]
    while True:
        before = counted(ledger)
        if not ledger.epochs.forget(oldest):
            break
        deleted.extend(b - a for b, a in zip(before, counted(ledger), strict=True))
    assert max(deleted) == 10, "an epoch is forgotten whole"
    assert sorted(deleted)[-2] <= 8
    assert counted(ledger) == (4, 4 * 3, 3)
    assert gap.until > oldest - 10
    assert not ledger.violations()
    assert step(ledger) == oldest + 1


def test_a_step_that_began_before_what_is_recorded_is_refused(
    ledger: Ledger, orders: NewObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.storage.ledger.commit._LEAST", 3)
    for _ in range(9):
        step(ledger)
    ledger.make_small(Epoch(6))
    assert ledger.epochs.newest()[-1].epoch == 5
    for began, refused in ((Epoch(3), True), (Epoch(4), False)):
        late = EpochCommit(ledger.head.epoch, "late", began=began, members=(orders.relation,))
        if refused:
            with pytest.raises(HeadraceError, match="has changed since epoch 3"):
                ledger.commit(late)
        else:
            assert ledger.commit(late) == late.epoch


def test_objects_live_from_their_epoch_until_they_are_dropped(
    ledger: Ledger, orders: NewObject
) -> None:
    view = relation(ledger, "totals", (orders.relation,))
    ledger.commit(EpochCommit(Epoch(1), "a", created=(view,)))
    (first, second) = ledger.relations.existing()
    assert (first.name, first.created_epoch, first.inputs) == ("orders", 1, ())
    assert (second.name, second.definition, second.inputs) == (
        "totals",
        {"sql": "totals"},
        (orders.relation,),
    )
    ledger.dirty.mark(Dirty(view.relation, "late", 5.0))
    ledger.commit(EpochCommit(Epoch(2), "b", dropped=(view.relation, orders.relation)))
    assert ledger.relations.existing() == ()
    assert ledger.head.dirty == ()
    assert [found.name for found in ledger.relations.existing(Epoch(2))] == ["orders", "totals"]
    assert [found.name for found in ledger.relations.existing(Epoch(1))] == ["orders"]
    assert ledger.spines.arrangements() == ()
    with pytest.raises(HeadraceError, match="dropped") as caught:
        ledger.log.append(orders.relation, segment())
    assert caught.value.code is Code.CONFLICT


def test_one_epoch_swaps_two_relations_of_one_name(ledger: Ledger, orders: NewObject) -> None:
    again = relation(ledger, "orders")
    fresh = run(again.arrangements[0].id)
    ledger.commit(
        EpochCommit(Epoch(1), "swap", runs=(fresh,), created=(again,), dropped=(orders.relation,))
    )
    assert [(o.name, o.relation) for o in ledger.relations.existing()] == [
        ("orders", again.relation)
    ]
    assert [r.file for r in ledger.spines.runs(again.arrangements[0].id)] == [fresh.file]


def test_relation_ids_are_never_reused(
    address: str | Path, ledger: Ledger, orders: NewObject
) -> None:
    ledger.commit(EpochCommit(Epoch(1), "a", dropped=(orders.relation,)))
    reserved = ledger.ids.relation()
    assert reserved > orders.relation
    ledger.close()
    with Ledger.open(address) as again:
        again.acquire()
        assert again.ids.relation() > reserved


def test_dirty_entries_keep_the_earliest_time_of_a_cause(ledger: Ledger, orders: NewObject) -> None:
    view = orders.relation
    ledger.dirty.mark(Dirty(view, "late rows", 20.0, "a", Epoch(4)))
    ledger.dirty.mark(Dirty(view, "late rows", 30.0, "b", Epoch(5)))
    ledger.dirty.mark(Dirty(view, "policy", 10.0))
    found = [(e.cause, e.since, e.detail, e.after) for e in ledger.head.dirty]
    assert found == [("policy", 10.0, "", NO_EPOCH), ("late rows", 20.0, "b", Epoch(4))]
    ledger.dirty.clear(view, "policy")
    assert [entry.cause for entry in ledger.head.dirty] == ["late rows"]
    ledger.dirty.clear(view)
    assert ledger.head.dirty == ()


def test_each_slice_is_an_entry_and_equal_ones_are_one(ledger: Ledger, orders: NewObject) -> None:
    view = orders.relation
    eu = Dirty(
        view,
        "invalidated",
        20.0,
        slice=Slice("region = 'EU'", 5),
        origin={"statement": "INVALIDATE VIEW v", "by": "ann"},
        repair=RepairPath.REPLAY,
        cost=7,
        whole=900,
    )
    us = replace(eu, slice=Slice("region = 'US'", 5))
    first, second = ledger.dirty.mark(eu, us)
    assert (first, second) == (replace(eu, id=first.id), replace(us, id=second.id))
    assert first.id != second.id
    (again,) = ledger.dirty.mark(replace(eu, since=30.0, origin=dict(eu.origin)))
    assert again == first, "the earlier time is kept"
    assert ledger.head.dirty == (first, second)


def test_what_is_reported_of_a_slice_while_it_is_repaired_is_another_entry(
    ledger: Ledger, orders: NewObject
) -> None:
    entry = Dirty(orders.relation, "late", 1.0, slice=Slice("a = 1"), repair=RepairPath.REPLAY)
    (first,) = ledger.dirty.mark(entry)
    assert first.id is not None
    ledger.dirty.change(first.id, state=DirtyState.REPAIRING, cost=3)
    (second,) = ledger.dirty.mark(entry)
    assert [(e.id, e.state, e.cost) for e in ledger.head.dirty] == [
        (first.id, DirtyState.REPAIRING, 3),
        (second.id, DirtyState.OPEN, None),
    ]
    last = ledger.head.epoch
    ledger.commit(EpochCommit(last, "repair", cleaned=(first.id,)))
    assert ledger.head.dirty == (second,), "the repair may have read before it"
    ledger.dirty.change(first.id, state=DirtyState.OPEN)
    assert ledger.head.dirty == (second,)


def test_an_epoch_cleans_and_dirties_at_once(
    address: str | Path, ledger: Ledger, orders: NewObject
) -> None:
    view = relation(ledger, "totals", (orders.relation,))
    (old,) = ledger.dirty.mark(Dirty(orders.relation, "late", 1.0, slice=Slice("a = 1")))
    assert old.id is not None
    new = Dirty(view.relation, "version", 2.0, slice=Slice("a = 2", -1), repair=RepairPath.REBUILD)
    ledger.commit(
        EpochCommit(Epoch(1), "a", created=(view,), cleaned=(old.id,), dirtied=(new,)),
    )
    (stored,) = ledger.head.dirty
    assert stored == replace(new, id=stored.id)
    assert stored.id not in {None, old.id}
    ledger.close()
    with Ledger.open(address, Mode.READ) as reader:
        assert reader.head.dirty == (stored,)


def test_dirty_entries_are_of_live_views(ledger: Ledger, orders: NewObject) -> None:
    entry = Dirty(orders.relation, "late", 1.0)
    change = EpochCommit(Epoch(1), "a", dropped=(orders.relation,), dirtied=(entry,))
    with pytest.raises(HeadraceError, match="dirty entries are of live views"):
        ledger.commit(change)
    assert ledger.head.dirty == ()


def test_settings_are_kept_and_the_ledgers_own_are_not_touched(ledger: Ledger) -> None:
    assert ledger.settings.get("retention") is None
    ledger.settings.set("retention", {"hours": 3})
    ledger.settings.set("retention", {"hours": 4})
    assert ledger.settings.get("retention") == {"hours": 4}
    with pytest.raises(ValueError, match="format"):
        ledger.settings.set("format", 9)


# Invariants: each has a commit that breaks it.


def broken(ledger: Ledger, change: EpochCommit, invariant: invariants.Invariant) -> None:
    """The commit fails with the invariant's name, and leaves no trace."""
    before = (
        ledger.head.epoch,
        ledger.relations.existing(),
        ledger.files.known(),
        ledger.head.positions,
    )
    with pytest.raises(HeadraceError) as caught:
        ledger.commit(change)
    assert caught.value.code is Code.INTERNAL
    assert invariant.__name__.replace("_", " ") in caught.value.primary
    after = (
        ledger.head.epoch,
        ledger.relations.existing(),
        ledger.files.known(),
        ledger.head.positions,
    )
    assert after == before


def test_epochs_are_consecutive(address: str | Path, ledger: Ledger, orders: NewObject) -> None:
    del orders
    step(ledger)
    address = f"sqlite:///{address}" if isinstance(address, Path) else address
    engine = sa.create_engine(address)
    with engine.begin() as connection:
        connection.execute(schema.epochs.delete().where(schema.epochs.c.epoch == 1))
    engine.dispose()
    broken(ledger, EpochCommit(Epoch(2), "a"), invariants.epochs_are_consecutive)


@pytest.mark.parametrize(("first", "end"), [(1, 5), (0, 11), (-1, 3), (5, 3)])
def test_reads_continue_the_last(ledger: Ledger, orders: NewObject, first: int, end: int) -> None:
    ledger.log.append(orders.relation, segment(10))
    read = Read(orders.relation, Offset(first), Offset(end))
    broken(ledger, EpochCommit(Epoch(1), "a", reads=(read,)), invariants.reads_continue_the_last)


def test_a_relation_is_read_once_per_epoch(ledger: Ledger, orders: NewObject) -> None:
    ledger.log.append(orders.relation, segment(10))
    reads = (
        Read(orders.relation, Offset(0), Offset(2)),
        Read(orders.relation, Offset(2), Offset(3)),
    )
    broken(ledger, EpochCommit(Epoch(1), "a", reads=reads), invariants.reads_continue_the_last)


def test_runs_are_new(ledger: Ledger, orders: NewObject) -> None:
    del orders
    step(ledger, run("1/0", "same"))
    for runs in (
        (run("1/0", "same"),),
        (run("1/0", "same", position=64),),
        (run("1/0", "twin"), run("1/0", "twin")),
        (run("1/0", "twin"), run("1/0", "twin", position=9)),
    ):
        broken(ledger, EpochCommit(Epoch(2), "a", runs=runs), invariants.runs_are_new)


def test_runs_belong_to_live_arrangements(ledger: Ledger, orders: NewObject) -> None:
    rule = invariants.runs_belong_to_live_arrangements
    broken(ledger, EpochCommit(Epoch(1), "a", runs=(run("9/0"),)), rule)
    change = EpochCommit(Epoch(1), "a", runs=(run("1/0"),), dropped=(orders.relation,))
    broken(ledger, change, rule)


def test_removed_runs_were_visible(ledger: Ledger, orders: NewObject) -> None:
    other = relation(ledger, "other")
    ledger.commit(EpochCommit(Epoch(1), "a", created=(other,)))
    mine, foreign = run("1/0"), run(other.arrangements[0].id)
    step(ledger, mine, foreign)
    own = orders.arrangements[0].id
    for inputs in (("none",), (foreign.file.pack,), (mine.file.pack, mine.file.pack)):
        change = EpochCommit(Epoch(3), "a", merges=(merge(own, inputs, None),))
        broken(ledger, change, invariants.removed_runs_were_visible)


def test_merges_stay_in_their_arrangement(ledger: Ledger, orders: NewObject) -> None:
    other = relation(ledger, "other")
    ledger.commit(EpochCommit(Epoch(1), "a", created=(other,)))
    merged = merge(orders.arrangements[0].id, (), run(other.arrangements[0].id))
    change = EpochCommit(Epoch(2), "a", merges=(merged,))
    broken(ledger, change, invariants.merges_stay_in_their_arrangement)


def test_dropped_relations_have_no_dependants(ledger: Ledger, orders: NewObject) -> None:
    view = relation(ledger, "view", (orders.relation,))
    rule = invariants.dropped_relations_have_no_dependants
    drop = (orders.relation,)
    broken(ledger, EpochCommit(Epoch(1), "a", created=(view,), dropped=drop), rule)
    ledger.commit(EpochCommit(Epoch(1), "a", created=(view,)))
    broken(ledger, EpochCommit(Epoch(2), "a", dropped=drop), rule)


def test_dropped_relations_are_live(ledger: Ledger, orders: NewObject) -> None:
    rule = invariants.dropped_relations_are_live
    twice = (orders.relation, orders.relation)
    broken(ledger, EpochCommit(Epoch(1), "a", dropped=twice), rule)
    broken(ledger, EpochCommit(Epoch(1), "a", dropped=(RelationId(9),)), rule)
    ledger.commit(EpochCommit(Epoch(1), "a", dropped=(orders.relation,)))
    broken(ledger, EpochCommit(Epoch(2), "a", dropped=(orders.relation,)), rule)


def test_relation_ids_are_reserved_and_new(ledger: Ledger, orders: NewObject) -> None:
    rule = invariants.relation_ids_are_reserved_and_new
    for number in (0, 99, orders.relation):
        made = NewObject(RelationId(number), "x", "view", {})
        broken(ledger, EpochCommit(Epoch(1), "a", created=(made,)), rule)


def test_inputs_of_created_relations_are_live(ledger: Ledger, orders: NewObject) -> None:
    ledger.commit(EpochCommit(Epoch(1), "a", dropped=(orders.relation,)))
    view = relation(ledger, "view", (orders.relation,))
    rule = invariants.inputs_of_created_relations_are_live
    broken(ledger, EpochCommit(Epoch(2), "a", created=(view,)), rule)


def test_live_names_are_unique(ledger: Ledger, orders: NewObject) -> None:
    rule = invariants.live_names_are_unique
    again = relation(ledger, orders.name)
    broken(ledger, EpochCommit(Epoch(1), "a", created=(again,)), rule)
    twins = (relation(ledger, "twin"), relation(ledger, "twin"))
    broken(ledger, EpochCommit(Epoch(1), "a", created=twins), rule)


def test_frontiers_exist(ledger: Ledger, orders: NewObject) -> None:
    ledger.log.append(orders.relation, segment(10))
    rule, unknown = invariants.frontiers_exist, ledger.ids.frontier()
    read = Read(orders.relation, Offset(0), Offset(2), unknown)
    broken(ledger, EpochCommit(Epoch(1), "a", reads=(read,)), rule)
    made = relation(ledger, "view")
    first = build(BuildId(made.relation), made, frontier=unknown)
    broken(ledger, EpochCommit(Epoch(1), "a", created=(made,), builds=(first,)), rule)
    broken(ledger, EpochCommit(Epoch(1), "a", caught_up=(LIVE,)), rule)
    twice = EpochCommit(Epoch(1), "a", reads=(read, read), caught_up=(unknown,))
    broken(ledger, twice, invariants.reads_continue_the_last)


def test_every_view_has_a_live_build(ledger: Ledger, orders: NewObject) -> None:
    rule, made = invariants.every_view_has_a_live_build, relation(ledger, "view")
    first = build(BuildId(made.relation), made, (orders.relation,))
    broken(ledger, EpochCommit(Epoch(1), "a", builds=(first,)), rule)
    idle = replace(first, serving=False)
    broken(ledger, EpochCommit(Epoch(1), "a", created=(made,), builds=(idle,)), rule)
    ledger.commit(EpochCommit(Epoch(1), "a", created=(made,), builds=(first,)))
    second = replace(first, id=ledger.ids.build(), arrangements=())
    third = replace(second, id=ledger.ids.build())
    for change in (
        EpochCommit(Epoch(2), "a", retired=(first.id,)),
        EpochCommit(Epoch(2), "a", builds=(first,)),
        EpochCommit(Epoch(2), "a", builds=(second, third)),
        EpochCommit(Epoch(2), "a", builds=(second,), retired=(second.id,)),
        EpochCommit(Epoch(2), "a", builds=(second,), dropped=(made.relation,)),
        EpochCommit(Epoch(2), "a", serve=(third.id,)),
    ):
        broken(ledger, change, rule)


def test_exchanged_builds_serve_each_others_views(ledger: Ledger, orders: NewObject) -> None:
    rule = invariants.exchanged_builds_serve_each_others_views
    views = relation(ledger, "view"), relation(ledger, "candidate")
    first, second = (build(BuildId(v.relation), v, (orders.relation,)) for v in views)
    ledger.commit(EpochCommit(Epoch(1), "a", created=views, builds=(first, second)))
    beside = replace(first, id=ledger.ids.build(), serving=False, arrangements=())
    ledger.commit(EpochCommit(Epoch(2), "a", builds=(beside,)))
    one, other = views[0].relation, views[1].relation
    for exchanged in (
        {first.id: other},
        {first.id: other, second.id: other},
        {first.id: one, second.id: orders.relation},
        {beside.id: other, second.id: one},
        {BuildId(99): other, second.id: one},
    ):
        broken(ledger, EpochCommit(Epoch(3), "a", exchanged=exchanged), rule)
    both = {first.id: other, second.id: one}
    third = replace(first, id=ledger.ids.build(), arrangements=())
    for change in (
        EpochCommit(Epoch(3), "a", exchanged=both, builds=(third,)),
        EpochCommit(Epoch(3), "a", exchanged=both, serve=(second.id,)),
        EpochCommit(Epoch(3), "a", exchanged=both, dropped=(other,)),
    ):
        broken(ledger, change, rule)


def test_every_invariant_has_a_test_of_its_name() -> None:
    for invariant in invariants.EVERY_EPOCH:
        assert f"test_{invariant.__name__}" in globals()
        assert invariant.__doc__


def test_a_view_and_its_input_are_created_and_dropped_together(ledger: Ledger) -> None:
    base = relation(ledger, "base")
    view = relation(ledger, "view", (base.relation,))
    ledger.commit(EpochCommit(Epoch(0), "a", created=(view, base)))
    ledger.commit(EpochCommit(Epoch(1), "b", dropped=(base.relation, view.relation)))
    assert ledger.relations.existing() == ()


def test_an_epoch_may_merge_and_add_at_once(ledger: Ledger, orders: NewObject) -> None:
    own = orders.arrangements[0].id
    old, merged, delta = run(own), run(own, kind=RunKind.MERGED), run(own)
    step(ledger, old)
    change = EpochCommit(
        Epoch(2), "a", runs=(delta,), merges=(merge(own, [old.file.pack], merged),)
    )
    ledger.commit(change)
    assert {r.file for r in ledger.spines.runs(own, Epoch(3))} == {merged.file, delta.file}
    assert {r.file for r in ledger.spines.runs(own, Epoch(2))} == {old.file}


def test_an_epoch_that_repairs_a_view_clears_it_and_keeps_the_gap(
    ledger: Ledger, orders: NewObject
) -> None:
    view, last = orders.relation, ledger.head.epoch
    ledger.dirty.mark(Dirty(view, "stopped", 1.0, "x", last))
    ledger.dirty.mark(Dirty(view, "other", 2.0))
    ledger.commit(EpochCommit(last, "a"))
    ledger.commit(EpochCommit(Epoch(last + 1), "b"))
    right = (RepairedView(view, "stopped", last),)
    epoch = ledger.commit(EpochCommit(Epoch(last + 2), "c", repaired=right))
    assert [entry.cause for entry in ledger.head.dirty] == ["other"]
    gap = Gap(last, epoch)
    found = [ledger.dirty.gap_at(view, Epoch(e)) for e in range(last, epoch + 1)]
    assert found == [None, gap, gap, None]
    assert ledger.dirty.gaps(view) == (gap,)
    # The next epoch repairs without a gap: no epoch lies between.
    ledger.commit(EpochCommit(epoch, "d", repaired=(RepairedView(view, "other", epoch),)))
    assert ledger.head.dirty == ()
    assert ledger.dirty.gap_at(view, epoch) is None
