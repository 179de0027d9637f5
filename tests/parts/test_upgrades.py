"""Views are rebuilt when a database is opened: in which order, what waits, and what stops."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from headrace.errors import Code, HeadraceError
from headrace.execution.engine.circuits import Planned
from headrace.execution.runtime.unfit import resume_fitting
from headrace.lifecycle.definitions import waiting
from headrace.lifecycle.definitions.waiting import Upgrades
from headrace.planning.circuit.digest import FORMAT, VERSIONS
from runtime.pure import PureDatabase

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.planning.catalog import View


class Rebuilds:
    """In place of the definer: notes what is rebuilt, once it may go on."""

    def __init__(self, *failing: str) -> None:
        self.done: list[tuple[str, bool]] = []
        self.failing = failing
        self.reached, self.goes_on = threading.Event(), threading.Event()

    def new_build(self) -> int:
        return 99

    def replace_view(self, former: View, planned: Any, _progress: Any, **how: bool) -> None:
        self.reached.set()
        assert self.goes_on.wait(60)
        if former.name in self.failing:
            raise HeadraceError(Code.CONFLICT, "its events are gone")
        assert how == {"stays": True, "held": True}
        assert planned.view.replacement == 99
        self.done.append((former.name, threading.current_thread().name == "headrace-upgrades"))

    def replace_stopped(self, former: View, _planned: Any) -> None:
        self.done.append((f"{former.name}, stopped", True))


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PureDatabase]:
    made = PureDatabase(tmp_path)
    table = made.create_table()
    made.create_view("above", made.create_view("below", table))
    made.append(table, [(key, key % 3, 1) for key in range(7)])
    made.loop.advance()
    monkeypatch.setattr(waiting, "stamped", lambda view, _circuit: view)
    yield made
    made.close()


@contextmanager
def begun(db: PureDatabase, rebuilds: Rebuilds) -> Iterator[Upgrades]:
    circuit: Any = None
    engine: Any = SimpleNamespace(planned=lambda view: Planned(view, circuit, 0))
    made = Upgrades(engine, db.loop, rebuilds, SimpleNamespace(compaction=db.compaction))  # type: ignore[arg-type]
    made.begin()
    try:
        yield made
    finally:
        rebuilds.goes_on.set()
        made.close()


def stopped(db: PureDatabase) -> set[str]:
    return {db.loop.catalog.by_id[id_].name for id_ in db.loop.stopped()}


def test_nothing_is_done_if_all_versions_are_the_same(db: PureDatabase) -> None:
    rebuilds = Rebuilds()
    with begun(db, rebuilds) as made:
        made.wait()
    assert rebuilds.done == []


def test_views_are_rebuilt_from_above_downwards_before_the_next_epoch(
    db: PureDatabase, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(VERSIONS, "GroupAggregate", 2)
    rebuilds, below = Rebuilds(), db.loop.catalog.find("below")
    assert below is not None
    shown = db.rows(below.id)
    table = db.loop.catalog.find("t")
    db.append(table, [(8, 1, 1)])
    with begun(db, rebuilds) as made:
        assert rebuilds.reached.wait(60)
        assert db.loop.advance() is None
        assert db.rows(below.id) == shown
        assert not db.compaction.busy.acquire(blocking=False)
        rebuilds.goes_on.set()
        made.wait()
    assert rebuilds.done == [("above", True), ("below", True)]
    assert db.loop.advance() is not None
    assert db.rows(below.id) != shown
    said = "it may use GroupAggregate, which has version 2"
    assert [record.getMessage() for record in caplog.records] == [
        f"view above is rebuilt: {said}",
        f"view below is rebuilt: {said}",
    ]


def test_a_view_that_cannot_be_rebuilt_stops_with_what_reads_it(
    db: PureDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.planning.circuit.digest.spark_version", lambda: "9.0.0")
    rebuilds = Rebuilds("below")
    rebuilds.goes_on.set()
    with begun(db, rebuilds) as made:
        made.wait()
    assert rebuilds.done == [("above", True)]
    assert stopped(db) == {"above", "below"}
    (entry,) = db.ledger.head.dirty
    assert "its events are gone" in entry.detail
    resume_fitting(db.ledger)  # as when it is opened again
    assert not db.ledger.head.dirty


def test_a_stopped_view_gets_a_build_that_is_filled_when_it_is_repaired(
    db: PureDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    above = db.loop.catalog.find("above")
    rebuilds = Rebuilds("above", "below")
    rebuilds.goes_on.set()
    monkeypatch.setitem(VERSIONS, "GroupAggregate", 2)
    with begun(db, rebuilds) as made:
        made.wait()
    assert stopped(db) == {"above", "below"}
    assert above is not None
    with begun(db, rebuilds) as made:
        made.wait()
    assert rebuilds.done == [("above, stopped", True), ("below, stopped", True)]


def test_closing_stops_what_is_not_rebuilt_yet(
    db: PureDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VERSIONS, "GroupAggregate", 2)
    rebuilds = Rebuilds()
    with begun(db, rebuilds) as made:
        assert rebuilds.reached.wait(60)
        threading.Timer(0.1, rebuilds.goes_on.set).start()
        made.close()
    assert rebuilds.done == [("above", True)]
    assert stopped(db) == {"above", "below"}
    details = [entry.detail for entry in db.ledger.head.dirty]
    assert all("the database was closed" in detail for detail in details)


def test_a_digest_of_another_format_is_another_state(
    db: PureDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = db.loop.catalog
    for name, digest in (("below", f"0{FORMAT}:a"), ("above", f"{FORMAT}:a")):
        view: Any = catalog.find(name)
        catalog = catalog.with_(replace(view, circuit=digest))
    monkeypatch.setattr(type(db.loop), "catalog", property(lambda _loop: catalog))
    rebuilds = Rebuilds()
    rebuilds.goes_on.set()
    with begun(db, rebuilds) as made:
        made.wait()
    assert rebuilds.done == [("below", True)]
