"""Damaged files are reported with their name and what to do; they are never read as if right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.errors import Code, HeadraceError
from headrace.spine import forget_runs

if TYPE_CHECKING:
    from pathlib import Path

KINDS = ["truncated", "changed", "missing"]


def damage(path: Path, kind: str) -> None:
    data = bytearray(path.read_bytes())
    match kind:
        case "truncated":
            path.write_bytes(data[: len(data) // 2])
        case "changed":
            data[len(data) // 2] ^= 0xFF
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_run_is_reported_and_not_read(stored, spark, kind):
    for run in (stored / "runs").iterdir():
        damage(run, kind)
    with headrace.connect(stored, spark=spark, continuous=False) as db:
        with pytest.raises(HeadraceError) as found:
            db.sql("SELECT * FROM names")
        assert found.value.code is Code.CORRUPT
        assert "run-" in str(found.value)
        assert found.value.hint
        db.insert("items", [(1, "new")])
        with pytest.raises(HeadraceError) as failed:
            db.flush()
        assert failed.value.code is Code.CORRUPT
        db.sql("SHOW TABLES")
        db.sql("DROP MATERIALIZED VIEW names")


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_segment_is_reported_and_not_read(stored, spark, kind):
    with headrace.connect(stored, spark=spark, continuous=False) as db:
        db.insert("items", [(99, "pending")])
        newest = max((stored / "log").iterdir(), key=lambda p: p.stat().st_mtime_ns)
        damage(newest, kind)
        if kind == "changed":
            pytest.skip("a segment's checksum is verified once per process that has not written it")
        with pytest.raises(HeadraceError) as found:
            db.flush()
        assert found.value.code is Code.CORRUPT
        assert newest.name in str(found.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_ledger_is_reported_and_not_replaced(stored, spark, kind):
    damage(stored / "ledger.db", kind)
    with pytest.raises(HeadraceError) as found:
        headrace.connect(stored, spark=spark, continuous=False)
    assert found.value.code is Code.CORRUPT
    assert "ledger.db" in str(found.value)
