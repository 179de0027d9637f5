"""Opening a database whose views were stored by another circuit than the one planned now."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import headrace
from headrace.errors import Code, HeadraceError
from headrace.planning.catalog import View
from headrace.planning.catalyst.select import Edition
from headrace.planning.circuit.digest import FORMAT

pytestmark = pytest.mark.spark


@pytest.mark.long
@pytest.mark.parametrize(
    ("stored", "code", "said"),
    [
        (f"{FORMAT}:0f3a9c1d0f3a9c1d0f3a9c1d0f3a9c1d", Code.CORRUPT, "stored in a different form"),
    ],
    ids=["another circuit"],
)
def test_a_view_of_another_digest_stops_alone_when_it_is_first_planned(
    tmp_path, spark, monkeypatch, stored, code, said
):
    settings = {"spark": spark, "continuous": False, "partitions": 2}
    with headrace.connect(tmp_path, **settings) as db:
        db.sql("CREATE TABLE t (k INT)")
        db.sql("CREATE MATERIALIZED VIEW whole AS SELECT k FROM t")
        with monkeypatch.context() as patch:
            patch.setattr(
                "headrace.interfaces.statements.defining.views.digest", lambda _circuit: stored
            )
            db.sql("CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n FROM t GROUP BY k")
        db.sql("CREATE MATERIALIZED VIEW over AS SELECT sum(n) AS n FROM v")
        db.sql("INSERT INTO t VALUES (1), (1)")
        db.flush()
    with headrace.connect(tmp_path, **settings) as db:
        assert db.sql("SELECT n FROM v WHERE k = 1").fetchall() == [(2,)]
        db.sql("VERIFY v; DESCRIBE EXTENDED v; SHOW CREATE VIEW v")
        with pytest.raises(HeadraceError, match=said) as refused:
            db.sql("EXPLAIN v")
        assert refused.value.code is code
        db.sql("INSERT INTO t VALUES (1)")
        assert len(db.sql("SELECT * FROM whole").fetchall()) == 3
        for name in ("v", "over"):
            with pytest.raises(HeadraceError, match=f'"{name}" stopped.*(?s:.)*{said}') as stopped:
                db.sql(f"SELECT * FROM {name}")
            assert "DROP the view and create it again" in stopped.value.hint
    with headrace.connect(tmp_path, **settings) as db:
        db.sql("DROP MATERIALIZED VIEW over")
        db.sql("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT k, count(*) AS n FROM t GROUP BY k")
        db.sql("INSERT INTO t VALUES (1)")
        assert db.sql("SELECT n FROM v WHERE k = 1").fetchall() == [(4,)]


def test_a_view_that_stopped_by_its_digest_runs_again_in_the_version_that_stored_it(
    tmp_path, spark, monkeypatch
):
    settings = {"spark": spark, "continuous": False, "partitions": 2}
    with headrace.connect(tmp_path, **settings) as db:
        db.sql("CREATE TABLE t (k INT)")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n FROM t GROUP BY k")
        db.sql("INSERT INTO t VALUES (1), (1)")
        db.flush()
    with monkeypatch.context() as patch:
        patch.setattr(
            "headrace.lifecycle.states.declarations.digest", lambda _circuit: f"{FORMAT}:other"
        )
        with headrace.connect(tmp_path, **settings) as db:
            db.parts.planning.run()
            assert "different form" in db.sql("SHOW DIRTY").to_arrow()["detail"].to_pylist()[0]
    with headrace.connect(tmp_path, **settings) as db:
        db.sql("INSERT INTO t VALUES (1)")
        assert db.sql("SELECT n FROM v WHERE k = 1").fetchall() == [(3,)]


@pytest.mark.long
def test_a_view_stored_before_its_key_was_inferred_or_recorded_is_opened_as_it_is(
    tmp_path, spark, monkeypatch
):
    settings = {"spark": spark, "continuous": False, "partitions": 2}
    to_json = View.to_json

    def of_before(view):
        return {name: value for name, value in to_json(view).items() if name != "single"}

    def known_before(query, _key_of, _preferred):
        return () if [a.name for a in query.attributes] == ["n"] else None

    with monkeypatch.context() as patch:
        patch.setattr(View, "to_json", of_before)
        patch.setattr("headrace.execution.engine.circuits.unique_columns", known_before)
        with headrace.connect(tmp_path, **settings) as db:
            db.sql("CREATE TABLE t (k INT PRIMARY KEY, x INT)")
            db.sql("CREATE MATERIALIZED VIEW cast_ AS SELECT CAST(k AS BIGINT) AS k, x FROM t")
            db.sql("CREATE MATERIALIZED VIEW one AS SELECT count(*) AS n FROM t")
            db.sql("CREATE MATERIALIZED VIEW over AS SELECT k, x FROM cast_ WHERE x > 0")
            db.sql("INSERT INTO t VALUES (1, 10), (2, 20)")
    with headrace.connect(tmp_path, **settings) as db:
        db.sql("INSERT INTO t VALUES (3, 30)")
        assert db.sql("SELECT count(*), sum(x) FROM over").fetchall() == [(3, 60)]
        assert db.sql("SELECT n FROM one").fetchall() == [(3,)]
        # What is over it needs it to be stored as it is.
        db.sql(
            "CREATE OR REPLACE MATERIALIZED VIEW cast_ AS"
            " SELECT CAST(k AS BIGINT) AS k, x + 1 AS x FROM t"
        )
        assert db.sql("SELECT sum(x) FROM over").fetchall() == [(63,)]
        db.sql("DROP MATERIALIZED VIEW over")
        db.sql(
            "CREATE OR REPLACE MATERIALIZED VIEW cast_ AS"
            " SELECT CAST(k AS BIGINT) AS k, x + 2 AS x FROM t"
        )
        assert db.parts.reader.catalog.resolve("cast_").key == ("k",)
        assert db.sql("SELECT x FROM cast_ WHERE k = 3").fetchall() == [(32,)]


@pytest.mark.long
def test_a_view_stored_by_an_earlier_edition_keeps_its_operators_until_it_is_replaced(
    tmp_path, spark, monkeypatch
):
    settings = {"spark": spark, "continuous": False, "partitions": 2}
    query = "SELECT id FROM s WHERE at > (SELECT max(at) FROM s) - INTERVAL '1' DAY"
    first = (
        "SELECT id FROM (SELECT *, row_number() OVER (PARTITION BY id % 2 ORDER BY at DESC) AS n"
        " FROM s) WHERE n <= 1"
    )

    sessions = "SELECT id % 2 AS k, count(*) AS n FROM s GROUP BY 1, session_window(at, '1 day')"
    middle = "SELECT id % 2 AS k, median(id) AS m FROM s GROUP BY 1"
    least = "SELECT id % 2 AS k, min(double(id)) AS m FROM s GROUP BY 1"
    later = {each.name: max(Edition) + 1 for each in Edition if each >= Edition.NEAR_ROWS}
    known = SimpleNamespace(**{each.name: each for each in Edition} | later)

    with monkeypatch.context() as patch:
        patch.setattr("headrace.planning.catalyst.subqueries.is_total", lambda *_: False)
        patch.setattr("headrace.planning.catalyst.read.first_without_numbers", lambda _node: None)
        patch.setattr("headrace.planning.catalyst.read.Edition", known)
        patch.setattr("headrace.planning.catalyst.functions.Edition", known)
        with headrace.connect(tmp_path, **settings) as db:
            db.sql("CREATE STREAM s (id INT, at TIMESTAMP)")
            db.sql(f"CREATE MATERIALIZED VIEW late AS {query}")
            db.sql(f"CREATE MATERIALIZED VIEW first AS {first}")
            db.sql(f"CREATE MATERIALIZED VIEW visits AS {sessions}")
            db.sql(f"CREATE MATERIALIZED VIEW middle AS {middle}")
            db.sql(f"CREATE MATERIALIZED VIEW least AS {least}")
            db.sql("INSERT INTO s VALUES (1, TIMESTAMP '2024-01-01 00:00:00')")
            catalog = db.parts.reader.catalog
            before, numbered, whole, halved, unsigned = (
                catalog.resolve(name).circuit
                for name in ("late", "first", "visits", "middle", "least")
            )
    with headrace.connect(tmp_path, **settings) as db:
        db.sql("INSERT INTO s VALUES (2, TIMESTAMP '2024-01-03 00:00:00')")
        assert db.sql("SELECT id FROM late").fetchall() == [(2,)]
        assert db.parts.reader.catalog.resolve("late").circuit == before
        db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW late AS {query}")
        assert db.parts.reader.catalog.resolve("late").circuit != before
        db.sql("INSERT INTO s VALUES (3, TIMESTAMP '2024-01-03 12:00:00')")
        assert sorted(db.sql("SELECT id FROM late").fetchall()) == [(2,), (3,)]
        assert sorted(db.sql("SELECT id FROM first").fetchall()) == [(2,), (3,)]
        assert db.parts.reader.catalog.resolve("first").circuit == numbered
        assert sorted(db.sql("SELECT k, n FROM visits").fetchall()) == [(0, 1), (1, 1), (1, 1)]
        assert db.parts.reader.catalog.resolve("visits").circuit == whole
        assert sorted(db.sql("SELECT k, m FROM middle").fetchall()) == [(0, 2.0), (1, 2.0)]
        assert db.parts.reader.catalog.resolve("middle").circuit == halved
        assert sorted(db.sql("SELECT k, m FROM least").fetchall()) == [(0, 2.0), (1, 1.0)]
        assert db.parts.reader.catalog.resolve("least").circuit == unsigned
        db.sql("REBUILD VIEW visits; REBUILD VIEW middle; REBUILD VIEW least")
        assert db.parts.reader.catalog.resolve("visits").circuit != whole
        assert db.parts.reader.catalog.resolve("middle").circuit != halved
        assert db.parts.reader.catalog.resolve("least").circuit != unsigned
        db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW first AS {first}")
        assert db.parts.reader.catalog.resolve("first").circuit != numbered
        db.sql("INSERT INTO s VALUES (5, TIMESTAMP '2024-01-03 18:00:00')")
        assert sorted(db.sql("SELECT id FROM first").fetchall()) == [(2,), (5,)]
        assert sorted(db.sql("SELECT k, n FROM visits").fetchall()) == [(0, 1), (1, 1), (1, 2)]
        assert sorted(db.sql("SELECT k, m FROM middle").fetchall()) == [(0, 2.0), (1, 3.0)]
        assert {verdict for *_, verdict in db.sql("VERIFY").fetchall()} == {"equal to batch"}
