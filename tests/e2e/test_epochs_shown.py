"""SHOW EPOCHS and EXPLAIN: how wide an epoch was and why, where its time went, what fanned out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from py4j.clientserver import ClientServerConnection
from py4j.java_gateway import GatewayConnection

import headrace.execution.engine.engine

if TYPE_CHECKING:
    from headrace import Database


def newest(db: Database) -> dict[str, Any]:
    db.sql("REFRESH")
    found: dict[str, Any] = db.sql("SHOW EPOCHS").to_arrow().slice(0, 1).to_pylist()[0]
    return found


@pytest.mark.long
def test_each_width_over_the_same_history_says_why_and_what_it_did(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.sql("""
        CREATE TABLE sales (id INT PRIMARY KEY, item INT, amount INT);
        CREATE TABLE tags (item INT, tag STRING);
        INSERT INTO tags SELECT 7, concat('tag ', id) FROM range(20);
        CREATE MATERIALIZED VIEW sold AS
        SELECT t.tag, sum(s.amount) AS amount FROM sales s JOIN tags t ON s.item = t.item
        GROUP BY t.tag;
    """)
    db.sql("INSERT INTO sales VALUES (1, 7, 30), (2, 7, 5)")
    narrow = newest(db)
    monkeypatch.setattr(headrace.execution.engine.engine, "MOST_FLOWING", 39)
    db.sql("INSERT INTO sales VALUES (3, 7, 30), (4, 7, 5)")
    first = newest(db)
    db.sql("INSERT INTO sales VALUES (5, 7, 30), (6, 7, 5)")
    known = newest(db)
    db.parts.loop.widths.small_rows = 1
    db.sql("INSERT INTO sales VALUES (7, 7, 30), (8, 7, 5)")
    many = newest(db)
    epochs = (narrow, first, known, many)
    assert [each["width"] for each in epochs] == [
        "narrow",
        "wide: changes fan out",
        "wide: changes fan out",
        "wide: many changes",
    ]
    for each in epochs:
        assert each["changes"] == 2
        assert each["fans_out"] == "sold: join1 20 rows per change"
        assert (each["jobs"] > 0) == ("jobs" in each["spent"]) == (each is not narrow)
    assert {"operators", "writing"} <= set(narrow["spent"].replace(",", "").split())
    assert "operators" in first["spent"]  # it began as a narrow one
    assert "its tasks: " in first["spent"]
    for each in (known, many):
        alone, _, tasks = re.sub(r"\(its tasks: (.*?)\)(.*)", r"\2|\1", each["spent"]).partition(
            "|"
        )
        assert "operators" not in alone
        assert "operators" in tasks
    explained = "\n".join(line for (line,) in db.sql("EXPLAIN MAINTENANCE VIEW sold").fetchall())
    assert "so far, per change: rows in 1, rows out 20, stored rows read 20" in explained
    assert "; 8 changes in 4 epochs, " in explained
    assert db.sql("SELECT max(amount) FROM sold").fetchall() == [(140,)]
    assert db.sql("""
        SELECT count(*) FROM information_schema.epochs WHERE fans_out LIKE 'sold: %'
        AND abs(planning_ms + other_ms + coalesce(reading_ms, 0) + coalesce(expressions_ms, 0)
                + coalesce(crossings_ms, 0) + coalesce(operators_ms, 0) + coalesce(jobs_ms, 0)
                + coalesce(writing_ms, 0) - seconds * 1000) < 1 AND commit_ms > 0
    """).fetchall() == [(4,)]


def test_a_narrow_epoch_calls_the_jvm_only_for_what_explain_says(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.sql("""
        CREATE TABLE names (id INT PRIMARY KEY, name STRING, g INT);
        CREATE MATERIALIZED VIEW plain AS SELECT g, count(*) AS n FROM names GROUP BY g;
        INSERT INTO names VALUES (9, 'x', 9);
    """)
    db.flush()
    db.insert("names", [(9, "y", 9)])
    with monkeypatch.context() as without_jvm:
        for connection in (GatewayConnection, ClientServerConnection):
            without_jvm.setattr(connection, "send_command", None)
        db.flush()
    db.sql("""
        CREATE MATERIALIZED VIEW sounds AS SELECT id, soundex(name) AS s FROM names;
        CREATE MATERIALIZED VIEW ranked AS
        SELECT id, row_number() OVER (PARTITION BY g ORDER BY name, id) AS r FROM names;
        CREATE MATERIALIZED VIEW spread AS
        SELECT id, stddev(id) OVER (PARTITION BY g) AS s FROM names;
    """)
    found = {}
    for view in ("plain", "sounds", "ranked", "spread"):
        lines = [line for (line,) in db.sql(f"EXPLAIN MAINTENANCE VIEW {view}").fetchall()]
        found[view] = [line.strip() for line in lines if "in a narrow epoch: " in line]
    here = "in a narrow epoch: in this process"
    assert found == {
        "plain": [here, here],
        "sounds": [f"{here}, with a crossing to the JVM for SoundEx"],
        "ranked": [here, here],
        "spread": [here, f"{here}, with a Spark job for StddevSamp"],
    }
    assert "narrow" not in str(db.sql("EXPLAIN CIRCUIT VIEW plain").fetchall())
    db.sql("""
        CREATE MATERIALIZED VIEW middle AS
        SELECT g, percentile(id, 0.5) AS m, collect_list(array(name)) AS l FROM names GROUP BY g;
        CREATE MATERIALIZED VIEW above AS SELECT stddev(m) AS s FROM middle;
    """)
    db.sql("INSERT INTO names VALUES (1, 'a', 1), (5, 'b', 1), (2, 'c', 2), (2, 'd', 2)")
    epoch = newest(db)
    assert (epoch["width"], epoch["jobs"]) == ("narrow", 2)
    assert db.sql("SELECT id, round(s, 3) FROM spread ORDER BY id").fetchall() == [
        (1, 2.828),
        (2, None),
        (5, 2.828),
        (9, None),
    ]
    assert db.sql("SELECT g, m, l FROM middle ORDER BY g").fetchall() == [
        (1, 3.0, [["a"], ["b"]]),
        (2, 2.0, [["d"]]),
        (9, 9.0, [["y"]]),
    ]
    assert db.sql("SELECT round(s, 3) FROM above").fetchall() == [(3.786,)]
