"""Builds of a view side by side, their frontiers, and the part of a log that is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.errors import Code, HeadraceError
from headrace.storage.ledger import (
    LIVE,
    EpochCommit,
    Frontier,
    Ledger,
    Mode,
    NewBuild,
    NewObject,
    Read,
    Retired,
)
from headrace.types import BuildId, Epoch, FrontierId, Offset, RelationId
from ledger.building import build, relation, run, segment, step, where


@pytest.fixture
def view(ledger: Ledger, orders: NewObject) -> NewObject:
    """A view of orders, with its first build, created by epoch 2."""
    made = relation(ledger, "totals", (orders.relation,))
    first = build(BuildId(made.relation), made, (orders.relation,))
    ledger.commit(EpochCommit(Epoch(1), "view", created=(made,), builds=(first,)))
    return made


def beside(
    ledger: Ledger, view: NewObject, *, serving: bool, frontier: FrontierId = LIVE
) -> NewBuild:
    """Return another build of a view, not committed yet."""
    inputs = tuple(o.relation for o in ledger.relations.existing() if o.name == "orders")
    return build(ledger.ids.build(), view, inputs, serving=serving, frontier=frontier)


def states(ledger: Ledger) -> dict[int, bool]:
    """Return the live builds, and whether each serves; as the database and the head have it."""
    found = ledger.head.builds
    with Ledger.open(where(ledger), Mode.READ) as reader:
        assert reader.head.builds == found
        assert reader.head.frontiers == ledger.head.frontiers
    return {id_: each.serving for id_, each in found.items()}


def test_two_builds_of_a_view_advance_side_by_side_and_one_serves(
    ledger: Ledger, view: NewObject
) -> None:
    green = beside(ledger, view, serving=False)
    ledger.commit(EpochCommit(Epoch(2), "green", builds=(green,)))
    assert states(ledger) == {view.relation: True, green.id: False}
    contents, (own,) = view.arrangements[0].id, green.arrangements
    blue_state = f"{view.relation}/state"
    step(ledger, run(contents), run(blue_state), run(own.id))
    assert {a.id: a.build for a in ledger.spines.arrangements() if a.owner == view.relation} == {
        contents: None,
        blue_state: view.relation,
        own.id: green.id,
    }
    # The swap: green serves, blue is given up, and what it kept is as old as the epoch before.
    delta = run(contents)
    change = EpochCommit(
        Epoch(4), "swap", runs=(delta,), serve=(green.id,), retired=(BuildId(view.relation),)
    )
    ledger.commit(change)
    assert states(ledger) == {green.id: True}
    assert ledger.head.serving(view.relation).id == green.id
    assert blue_state not in {a.id for a in ledger.spines.arrangements()}
    assert len(ledger.spines.runs(contents)) == 2
    assert len(ledger.spines.runs(contents, Epoch(4))) == 1
    assert [record.definition for record in ledger.relations.existing()][1] == green.definition
    assert [record.definition for record in ledger.relations.existing(Epoch(4))][1] == {
        "sql": "totals"
    }


def test_a_new_build_takes_over_in_the_epoch_that_creates_it(
    ledger: Ledger, orders: NewObject, view: NewObject
) -> None:
    other = relation(ledger, "other")
    ledger.commit(EpochCommit(Epoch(2), "other", created=(other,)))
    new = build(ledger.ids.build(), view, (other.relation,))
    old = BuildId(view.relation)
    ledger.commit(EpochCommit(Epoch(3), "replace", builds=(new,), retired=(old,)))
    assert states(ledger) == {new.id: True}
    inputs = {record.relation: record.inputs for record in ledger.relations.existing()}
    assert inputs[view.relation] == (other.relation,)
    ledger.commit(EpochCommit(Epoch(4), "drop", dropped=(orders.relation,)))
    with pytest.raises(HeadraceError, match="dependants"):
        ledger.commit(EpochCommit(Epoch(5), "drop", dropped=(other.relation,)))


def test_a_build_that_does_not_serve_keeps_its_inputs(ledger: Ledger, view: NewObject) -> None:
    other = relation(ledger, "other")
    green = build(ledger.ids.build(), view, (other.relation,), serving=False)
    ledger.commit(EpochCommit(Epoch(2), "a", created=(other,), builds=(green,)))
    with pytest.raises(HeadraceError, match="dependants"):
        ledger.commit(EpochCommit(Epoch(3), "drop", dropped=(other.relation,)))
    ledger.commit(EpochCommit(Epoch(3), "retire", retired=(green.id,)))
    ledger.commit(EpochCommit(Epoch(4), "drop", dropped=(other.relation,)))


def test_an_hourly_and_a_continuous_build_over_one_log_are_both_described(
    ledger: Ledger, orders: NewObject, view: NewObject
) -> None:
    stream, frontier = orders.relation, ledger.ids.frontier()
    hourly = beside(ledger, view, serving=False, frontier=frontier)
    begun = Read(stream, Offset(0), Offset(0), frontier)
    ledger.commit(
        EpochCommit(Epoch(2), "a", reads=(begun,), builds=(hourly,), caught_up=(frontier,))
    )

    def stands(id_: int) -> Frontier:
        found = ledger.head.frontier(ledger.head.builds[BuildId(id_)])
        return replace(found, at=0.0)

    for _ in range(3):
        ledger.log.append(stream, segment(10))
        end = ledger.head.log_end(stream)
        read = Read(stream, Offset(end - 10), end)
        ledger.commit(EpochCommit(ledger.head.epoch, "live", reads=(read,)))
    assert stands(view.relation) == Frontier(Epoch(6), {stream: Offset(30)})
    assert stands(hourly.id) == Frontier(Epoch(3), {})
    late = Read(stream, Offset(0), Offset(20), frontier)
    ledger.commit(EpochCommit(Epoch(6), "refresh", reads=(late,), caught_up=(frontier,)))
    assert stands(hourly.id) == Frontier(Epoch(7), {stream: Offset(20)})
    assert stands(view.relation) == Frontier(Epoch(7), {stream: Offset(30)})
    assert states(ledger) == {view.relation: True, hourly.id: False}
    newest = ledger.epochs.newest(1)[0]
    assert newest.reads == (late,)
    assert ledger.head.position(stream) == 30


def test_a_log_is_kept_for_every_build_that_has_not_read_it(
    ledger: Ledger, orders: NewObject, view: NewObject
) -> None:
    stream, frontier = RelationId(ledger.ids.relation()), ledger.ids.frontier()
    made = NewObject(stream, "clicks", "stream", {})
    lagging = build(ledger.ids.build(), view, (stream,), serving=False, frontier=frontier)
    live = build(ledger.ids.build(), view, (stream,), serving=False)
    files = [segment(10) for _ in range(3)]
    ledger.commit(
        EpochCommit(Epoch(2), "a", created=(made,), builds=(lagging, live), caught_up=(frontier,))
    )
    for file in files:
        ledger.log.append(stream, file)
    reads = (Read(stream, Offset(0), Offset(30)), Read(stream, Offset(0), Offset(10), frontier))
    ledger.commit(EpochCommit(Epoch(3), "b", reads=reads))
    with pytest.raises(HeadraceError, match="not read yet would be lost") as caught:
        ledger.log.retire(stream, Retired(Offset(11), {}, 0.0))
    assert caught.value.code is Code.CONFLICT
    ledger.log.retire(stream, Retired(Offset(10), {"k": [1, 3]}, 5.0))
    ledger.log.retire(stream, Retired(Offset(4), {}, 0.0))  # no start moves back
    assert ledger.log.retired(stream) == Retired(Offset(10), {"k": [1, 3]}, 5.0)
    assert ledger.files.garbage({stream: Offset(0)}).segments == set(), "it is still read"
    assert ledger.files.garbage().segments == {files[0].name}
    assert len(ledger.log.segments(stream, Offset(9), Offset(30))) == 3, "it was not deleted yet"
    ledger.files.forget(ledger.files.garbage())
    assert len(ledger.log.segments(stream, Offset(10), Offset(30))) == 2
    with pytest.raises(HeadraceError, match="before offset 10 are no longer kept"):
        ledger.log.segments(stream, Offset(9), Offset(30))
    assert ledger.files.known().segments == {files[1].name, files[2].name}
    ledger.commit(EpochCommit(Epoch(4), "c", retired=(lagging.id, live.id)))
    ledger.log.retire(stream, Retired(Offset(30), {}, 9.0))  # nobody reads it any more
    assert ledger.files.garbage().segments == {files[1].name, files[2].name}
    ledger.log.append(orders.relation, segment(5))
    with pytest.raises(HeadraceError, match="not read yet"):
        ledger.log.retire(orders.relation, Retired(Offset(5), {}, 0.0))


def test_the_files_of_dropped_relations_and_retired_builds_are_garbage_in_time(
    ledger: Ledger, view: NewObject
) -> None:
    green = beside(ledger, view, serving=True)
    ledger.commit(EpochCommit(Epoch(2), "a", builds=(green,)))
    contents, blue = run(view.arrangements[0].id), run(f"{view.relation}/state")
    step(ledger, contents, blue)
    retired = ledger.commit(EpochCommit(Epoch(4), "b", retired=(BuildId(view.relation),)))
    dropped = ledger.commit(EpochCommit(retired, "c", dropped=(view.relation,)))
    ledger.spines.release_dropped(Epoch(retired - 1), Epoch(retired - 1))
    assert not ledger.files.garbage()
    ledger.spines.release_dropped(Epoch(retired), retired)
    assert ledger.files.garbage().packs == {blue.file.pack}
    ledger.spines.release_dropped(dropped, dropped)
    assert ledger.files.garbage().packs == {blue.file.pack, contents.file.pack}


def test_a_build_goes_on_with_another_frontier_and_another_definition(
    ledger: Ledger, orders: NewObject, view: NewObject
) -> None:
    stream, frontier = orders.relation, ledger.ids.frontier()
    ledger.log.append(stream, segment(10))
    ledger.commit(EpochCommit(Epoch(2), "live", reads=(Read(stream, Offset(0), Offset(10)),)))
    mine, altered = BuildId(view.relation), {**view.definition, "refresh": "manual"}
    begun = Read(stream, Offset(0), Offset(10), frontier)
    ledger.commit(
        EpochCommit(
            Epoch(3),
            "alter",
            reads=(begun,),
            caught_up=(frontier,),
            regrouped={mine: frontier},
            redefined={view.relation: altered},
        )
    )
    (stands,) = ledger.head.lagging.values()
    assert (stands.epoch, stands.offsets) == (4, {stream: 10})
    assert stands.at == ledger.epochs.committed_at(Epoch(4))
    assert ledger.head.builds[mine].definition == altered
    assert [
        dict(o.definition) for o in ledger.relations.existing() if o.relation == view.relation
    ] == [altered]
    before = ledger.head
    ledger.acquire()  # the next head is read from the database
    assert (ledger.head.frontiers, ledger.head.builds) == (before.frontiers, before.builds)
    ledger.commit(EpochCommit(Epoch(4), "back", regrouped={mine: LIVE}))
    assert not ledger.head.lagging
    unknown = ledger.ids.frontier()
    with pytest.raises(HeadraceError, match="frontiers exist"):
        ledger.commit(EpochCommit(Epoch(5), "none", regrouped={mine: unknown}))


def test_two_views_exchange_their_builds_with_the_state_of_their_operators(
    ledger: Ledger, view: NewObject
) -> None:
    inputs = tuple(o.relation for o in ledger.relations.existing() if o.name == "orders")
    candidate = relation(ledger, "candidate", inputs)
    first = BuildId(view.relation)
    second = build(BuildId(candidate.relation), candidate, inputs)
    ledger.commit(EpochCommit(Epoch(2), "candidate", created=(candidate,), builds=(second,)))
    step(
        ledger, run(view.arrangements[0].id), run(f"{first}/state"), run(second.arrangements[0].id)
    )

    def owners() -> dict[str, tuple[int, int | None]]:
        found = {a.id: (a.owner, a.build) for a in ledger.head.arrangements.values()}
        assert found == {a.id: (a.owner, a.build) for a in ledger.spines.arrangements()}
        return found

    before = owners()
    exchanged = {first: candidate.relation, second.id: view.relation}
    redefined = {view.relation: {"is": "new"}, candidate.relation: {"is": "former"}}
    ledger.commit(EpochCommit(Epoch(4), "swap", exchanged=exchanged, redefined=redefined))
    assert states(ledger) == {first: True, second.id: True}
    assert {b.id: (b.view, b.definition) for b in ledger.head.builds.values()} == {
        first: (candidate.relation, {"is": "former"}),
        second.id: (view.relation, {"is": "new"}),
    }
    assert owners() == {
        id_: (owner if made_by is None else exchanged[BuildId(made_by)], made_by)
        for id_, (owner, made_by) in before.items()
    }
    defined = {o.relation: o.definition for o in ledger.relations.existing()}
    assert {id_: defined[id_] for id_ in redefined} == redefined
    ledger.commit(EpochCommit(Epoch(5), "drop", dropped=(candidate.relation,)))
    assert states(ledger) == {second.id: True}
    assert {a.build for a in ledger.head.arrangements.values()} == {None, second.id}
