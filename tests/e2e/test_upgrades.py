"""Versions that do not go on with the state of views rebuild them, before any epoch."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.fill import Fill
from headrace.planning.circuit.digest import FORMAT, VERSIONS
from headrace.tools.cli.command import main
from ledger.former import FORMATS, of_format
from length import choose

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.spark

DEFINED = """
CREATE TABLE t (k INT PRIMARY KEY, g INT, x INT); CREATE TABLE u (g INT PRIMARY KEY, name STRING);
CREATE MATERIALIZED VIEW totals AS SELECT g, sum(x) AS x, count(*) AS n FROM t GROUP BY g;
CREATE MATERIALIZED VIEW over AS SELECT n, count(*) AS groups FROM totals GROUP BY n;
CREATE MATERIALIZED VIEW named AS SELECT t.k, u.name FROM t JOIN u ON t.g = u.g;
CREATE MATERIALIZED VIEW hashed AS SELECT k, soundex(CAST(x AS STRING)) AS s FROM t;
INSERT INTO t VALUES (1, 1, 5), (2, 1, 6), (3, 2, 7); INSERT INTO u VALUES (1, 'one'), (2, 'two')
"""
NAMES = ("totals", "over", "named", "hashed")


@pytest.fixture
def stored(tmp_path: Path, spark: Any) -> Callable[[], headrace.Database]:
    """What opens a database that was defined, filled and closed."""
    settings: Any = {"spark": spark, "continuous": False, "partitions": 2}
    with headrace.connect(tmp_path, **settings) as db:
        db.sql(DEFINED)
        db.flush()
    return lambda: headrace.connect(tmp_path, **settings)


def builds(db: headrace.Database) -> dict[str, int]:
    return {name: db.parts.reader.catalog.resolve(name).build for name in NAMES}


def rows(db: headrace.Database) -> dict[str, list[Any]]:
    return {name: sorted(db.sql(f"SELECT * FROM {name}").fetchall()) for name in NAMES}


def verified(db: headrace.Database) -> set[str]:
    return {verdict for *_, verdict in db.sql("VERIFY").fetchall()}


@contextmanager
def held(patch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Hold the first rebuild where it is filled, until the block ends; yield what says so."""
    reached, goes_on, begin = threading.Event(), threading.Event(), Fill.begin

    def later(fill: Fill, *given: Any) -> None:
        reached.set()
        assert goes_on.wait(60)
        begin(fill, *given)

    patch.setattr(Fill, "begin", later)
    try:
        yield reached
    finally:
        goes_on.set()


def test_a_raised_version_rebuilds_the_views_that_use_it_while_they_are_read(
    stored: Callable[[], headrace.Database],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with stored() as db:
        before, shown, epoch = builds(db), rows(db), db.last_epoch()
    assert not caplog.records
    check = ["--data", str(tmp_path), "upgrade", "--check", "--format", "json"]
    assert main(check) == 0
    monkeypatch.setitem(VERSIONS, "GroupAggregate", 2)
    capsys.readouterr()
    assert main(check) == 1
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["what"] for each in listed] == ['view "over"', 'view "totals"']
    with held(monkeypatch) as reached:
        db = stored()
        assert reached.wait(60)
        assert rows(db) == shown
        assert (builds(db), db.last_epoch()) == (before, epoch)
    with db:
        db.parts.upgrades.wait()
        said = [record.getMessage() for record in caplog.records]
        why = "is rebuilt: GroupAggregate has version 2, and had 1"
        assert said == [f"view over {why}", f"view totals {why}"]
        after = builds(db)
        assert {name for name in NAMES if after[name] != before[name]} == {"over", "totals"}
        assert rows(db) == shown
        db.sql("INSERT INTO t VALUES (5, 2, 9)")
        assert (2, 16, 2) in rows(db)["totals"]
        assert verified(db) == {"equal to batch"}
    assert main(check) == 0
    with stored() as db:
        assert builds(db) == after


@pytest.mark.long
def test_another_spark_rebuilds_the_views_whose_expressions_it_evaluates(
    stored: Callable[[], headrace.Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    with stored() as db:
        before, shown = builds(db), rows(db)
    monkeypatch.setattr("headrace.planning.circuit.digest.spark_version", lambda: "4.3.1")
    with stored() as db:
        db.parts.upgrades.wait()
        after = builds(db)
        assert {name for name in NAMES if after[name] != before[name]} == {"hashed"}
        assert rows(db) == shown
        db.sql("INSERT INTO t VALUES (6, 1, 7)")
        assert verified(db) == {"equal to batch"}


def test_a_view_that_cannot_be_rebuilt_stops_and_runs_on_in_the_version_that_stored_it(
    stored: Callable[[], headrace.Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    with stored() as db:
        before = builds(db)

    def fails(*_: Any, **__: Any) -> Any:
        raise HeadraceError(Code.UNSUPPORTED, "there is no space")

    with monkeypatch.context() as patch:
        patch.setitem(VERSIONS, "InnerJoin", 2)
        patch.setattr("headrace.lifecycle.definitions.definer.take_over", fails)
        with stored() as db:
            db.parts.upgrades.wait()
            found = db.sql("SELECT table_name, detail FROM information_schema.dirty").fetchall()
            assert [name for name, _ in found] == ["named"]
            assert "there is no space" in found[0][1]
            assert len(db.sql("SELECT * FROM named").fetchall()) == 3, "as of the last epoch"
            assert len(db.sql("SELECT * FROM totals").fetchall()) == 2
    with stored() as db:
        db.sql("INSERT INTO t VALUES (7, 1, 1)")
        assert (7, "one") in rows(db)["named"]
        assert builds(db) == before


def test_a_state_of_another_form_is_filled_again_from_the_rows_of_its_inputs(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: Any = {"spark": spark, "continuous": False, "partitions": 2}
    with monkeypatch.context() as patch:
        patch.setattr(
            "headrace.interfaces.statements.defining.view_builds.digest",
            lambda _: f"0{FORMAT}:another",
        )
        with headrace.connect(tmp_path, **settings) as db:
            db.sql(DEFINED)
            db.flush()
            before = builds(db)
    with headrace.connect(tmp_path, **settings) as db:
        db.parts.upgrades.wait()
        assert not set(builds(db).items()) & set(before.items())
        db.sql("INSERT INTO t VALUES (5, 2, 9)")
        assert verified(db) == {"equal to batch"}


@pytest.mark.parametrize("number", choose(FORMATS[:1], FORMATS))
def test_builds_of_former_formats_are_of_the_first_versions(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    place, expected = of_format(number, tmp_path)
    monkeypatch.setitem(VERSIONS, "GroupAggregate", 2)
    with headrace.connect(place, spark=spark, continuous=False) as db:
        db.parts.upgrades.wait()
        views = db.parts.reader.catalog.views_in_order()
        assert all(view.fingerprint is not None for view in views)
        assert {view.id for view in views}.isdisjoint(db.parts.loop.stopped())
        db.sql("REFRESH")
        for name, rows_before in expected.items():
            found = db.sql(f"SELECT * FROM {name}").fetchall()
            assert sorted(map(list, found), key=str) == rows_before, name
        assert {v for *_, v in db.sql("VERIFY per_sensor").fetchall()} == {"equal to batch"}
