"""Damaged files are reported with their name and what to do; they are never read as if right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.algebra.spine import forget_runs
from headrace.errors import Code, HeadraceError
from headrace.storage.log import forget_segments

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.algebra.spine import RunFile

KINDS = ["truncated", "changed", "missing"]
ONE_OF_KINDS = [
    pytest.param(kind, marks=[] if kind == "changed" else [pytest.mark.long]) for kind in KINDS
]
"""Of the three, the damage that only a checksum finds; a long run has all."""


PAGE = 4096
"""The size of SQLite's pages: the first byte of each is used, others may not be."""


def damage(path: Path, kind: str, unit: int = 1, run: RunFile | None = None) -> None:
    """Damage the middle of a file, or of a run in it."""
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // unit * unit if run is None else run.position + run.bytes // 2
    match kind:
        case "truncated":
            path.write_bytes(data[:middle])
        case "changed":
            data[middle] ^= 0xFF
            path.write_bytes(data)
        case "missing":
            path.unlink()


@pytest.fixture
def stored(tmp_path, spark):
    with headrace.connect(tmp_path / "d", spark=spark, continuous=False) as db:
        db.sql("CREATE TABLE items (id INT PRIMARY KEY, name STRING)")
        db.sql(
            "CREATE MATERIALIZED VIEW names AS SELECT name, count(*) AS n FROM items GROUP BY name"
        )
        db.insert("items", [(i, f"name {i % 3}") for i in range(50)])
        db.flush()
    forget_runs()
    return tmp_path / "d"


def runs_of(db, arrangement):
    return [run.file for run in db.parts.ledger.spines.runs(arrangement)]


def verdicts(db):
    return {name: verdict for name, _, _, verdict in db.sql("VERIFY")}


@pytest.mark.long
@pytest.mark.parametrize("kind", ONE_OF_KINDS)
def test_a_damaged_run_of_a_table_is_named_and_rebuilt_from_its_log(stored, spark, kind):
    with headrace.connect(stored, spark=spark, continuous=False) as db:
        db.sql("UPDATE items SET name = 'other' WHERE id < 5; DELETE FROM items WHERE id = 7")
        db.flush()
        before = sorted(db.sql("SELECT * FROM items").fetchall())
        (file, *_) = runs_of(db, "1/rows")
        damage(stored / "runs" / file.pack, kind, run=file)
        forget_runs()
        with pytest.raises(HeadraceError) as found:
            db.sql("SELECT * FROM items")
        assert found.value.code is Code.CORRUPT
        assert f'run file "{file.name}" of table "items"' in found.value.primary
        assert found.value.hint == "REPAIR items rebuilds the rows of the file."
        db.insert("items", [(1, "new")])
        with pytest.raises(HeadraceError, match='of table "items"') as failed:
            db.flush()
        assert failed.value.code is Code.CORRUPT
        told = verdicts(db)
        assert told.keys() == {"items", "names"}
        assert all(file.name in verdict and "REPAIR items" in verdict for verdict in told.values())
        ((name, wrong, done),) = db.sql("REPAIR items").fetchall()
        assert name == "items"
        assert file.name in wrong
        assert done.startswith("rebuilt from 56 changes of its log in epoch")
        kept = stored / "quarantine" / file.name
        assert kept.exists() == (kind != "missing")
        assert (f"quarantine/{file.name}" in done) == kept.exists()
        changed = [(i, "new" if i == 1 else name) for i, name in before]
        assert sorted(db.sql("SELECT * FROM items").fetchall()) == changed
        assert verdicts(db) == {"names": "equal to batch"}
        assert db.sql("REPAIR").message == "nothing is damaged or dirty, and no view has stopped"


@pytest.mark.long
def test_damaged_runs_of_views_are_rebuilt_from_what_they_are_over(stored, spark):
    with headrace.connect(stored, spark=spark, continuous=False) as db:
        db.sql(
            "CREATE MATERIALIZED VIEW most AS SELECT max(n) AS n FROM names;"
            "CREATE MATERIALIZED VIEW soon AS SELECT id FROM items WHERE"
            " timestamp_seconds(id * 86400L * 1000) < now()"
        )
        before = sorted(db.sql("SELECT * FROM names").fetchall())
        lost = [r.id for r in db.parts.ledger.spines.arrangements() if r.owner != 1]
        assert len(lost) > 3
        for arrangement in lost:
            for file in runs_of(db, arrangement):
                damage(stored / "runs" / file.pack, "changed", run=file)
        forget_runs()
        assert {verdict.partition(":")[0] for verdict in verdicts(db).values()} == {"damaged"}
        done = db.sql("REPAIR").fetchall()
        assert {name for name, *_ in done} == {"names", "most", "soon"}
        assert all(text.startswith("rebuilt from its inputs") for *_, text in done)
        assert sorted(db.sql("SELECT * FROM names").fetchall()) == before
        db.sql("INSERT INTO items VALUES (50, 'name 1'); DELETE FROM items WHERE id = 0")
        assert set(verdicts(db).values()) == {"equal to batch"}
    with headrace.connect(stored, spark=spark, continuous=False) as db:
        assert set(verdicts(db).values()) == {"equal to batch"}


def test_a_table_whose_log_is_damaged_too_is_not_rebuilt_and_nothing_is_set_aside(stored, spark):
    with headrace.connect(stored, spark=spark, continuous=False) as db:
        for folder in ("log", "runs"):
            for path in (stored / folder).iterdir():
                damage(path, "truncated")
        forget_runs()
        done = db.sql("REPAIR").fetchall()
        assert [name for name, *_ in done] == ["items", "names"]
        assert all(text.startswith("not rebuilt") for *_, text in done)
        assert "segment" in done[0][2]
        assert not (stored / "quarantine").exists()
        db.sql("DROP MATERIALIZED VIEW names")


@pytest.mark.long
def test_a_view_that_stopped_is_read_as_of_before_and_repaired_with_those_over_it(db):
    db.sql("""
        CREATE TABLE t (k INT PRIMARY KEY, v STRING);
        CREATE MATERIALIZED VIEW a AS SELECT k, CAST(v AS INT) AS n FROM t;
        CREATE MATERIALIZED VIEW b AS SELECT sum(n) AS s FROM a;
        INSERT INTO t VALUES (1, '10')
    """)
    right = db.flush()
    db.sql("INSERT INTO t VALUES (2, 'x')")
    gap = db.flush()
    for view in ("a", "b"):
        with pytest.raises(HeadraceError, match="stopped") as stopped:
            db.sql(f"SELECT * FROM {view}")
        assert "REPAIR a" in stopped.value.hint
        assert f"AS OF EPOCH {right}" in stopped.value.hint
        with pytest.raises(HeadraceError, match="stopped"):
            db.sql(f"SELECT * FROM {view} AS OF EPOCH {gap}")
    assert db.sql(f"SELECT * FROM a AS OF EPOCH {right}").fetchall() == [(1, 10)]
    assert db.sql(f"SELECT s + 1 FROM b AS OF EPOCH {right}").fetchall() == [(11,)]
    tried = db.sql("REPAIR a").fetchall()
    assert [(name, done.partition(":")[0]) for name, _, done in tried] == [
        ("a", "still stopped"),
        ("b", "still stopped"),
    ]
    assert db.sql(f"SELECT * FROM b AS OF EPOCH {right}").fetchall() == [(10,)]
    db.sql("UPDATE t SET v = '5' WHERE k = 2")
    assert all("running" in done for *_, done in db.sql("REPAIR a"))
    assert db.sql("SELECT s FROM b").fetchall() == [(15,)]
    assert db.sql(f"SELECT s FROM b AS OF EPOCH {right}").fetchall() == [(10,)]
    with pytest.raises(HeadraceError, match=f"no rows of epoch {gap}"):
        db.sql(f"SELECT s FROM b AS OF EPOCH {gap}")
    db.sql("INSERT INTO t VALUES (3, '1')")
    assert db.sql("SELECT s FROM b").fetchall() == [(16,)]
    assert set(verdicts(db).values()) == {"equal to batch"}


@pytest.mark.parametrize("kind", ONE_OF_KINDS)
def test_a_damaged_segment_is_reported_and_not_read(stored, spark, kind):
    with headrace.connect(stored, spark=spark, continuous=False) as db:
        db.insert("items", [(99, "pending")])
        newest = max((stored / "log").iterdir(), key=lambda p: p.stat().st_mtime_ns)
        damage(newest, kind)
        forget_segments()
        with pytest.raises(HeadraceError) as found:
            db.flush()
        assert found.value.code is Code.CORRUPT
        assert newest.name in str(found.value)


@pytest.mark.parametrize("kind", ONE_OF_KINDS)
def test_a_damaged_ledger_is_reported_and_not_replaced(stored, spark, kind):
    damage(stored / "ledger.db", kind, unit=PAGE)
    with pytest.raises(HeadraceError) as found:
        headrace.connect(stored, spark=spark, continuous=False)
    assert found.value.code is Code.CORRUPT
    assert "ledger.db" in str(found.value)
