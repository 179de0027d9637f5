"""Data directories of versions before open, are what they were, and go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import headrace
from ledger.former import FORMATS, of_format
from length import choose, thorough

if TYPE_CHECKING:
    from pathlib import Path


def stored(db: headrace.Database, names: dict[str, Any]) -> dict[str, list[Any]]:
    return {
        name: sorted(map(list, db.sql(f"SELECT * FROM {name}").fetchall()), key=str)
        for name in names
    }


def verified(db: headrace.Database) -> set[str]:
    """A short run verifies two views: as a batch query, the recursion takes long."""
    checks = choose(("VERIFY per_sensor", "VERIFY placed"), ("VERIFY",))
    return {verdict for check in checks for *_, verdict in db.sql(check).fetchall()}


@pytest.mark.parametrize("number", choose(FORMATS[-1:], FORMATS))
def test_a_directory_of_a_former_format_reads_the_same_goes_on_and_is_compacted(
    tmp_path: Path, spark, number: int
) -> None:
    place, rows = of_format(number, tmp_path)
    packs = {path.name for path in (place / "runs").iterdir()}
    settings: Any = {"spark": spark, "continuous": False, "history_epochs": 3}
    with headrace.connect(place, **settings) as db:
        assert stored(db, rows) == rows
        if thorough():
            assert verified(db) == {"equal to batch"}
        before = db.last_epoch()
        ((_, wrong, *_), *_) = db.sql("SHOW ERRORS FOR numbers").fetchall()
        assert "broken" in str(wrong) or "sensor" in str(wrong)
        db.sql("INSERT INTO sensors VALUES ('s1', 'back'), ('s20', 'p1')")
        db.sql("INSERT INTO readings VALUES ('s20', '4'), ('s1', '5')")
        db.sql("INSERT INTO roads VALUES (7, 8)")
        db.sql("CORRECT STREAM readings VOID WHERE value = 'broken'")
        db.flush()
        db.sql("REFRESH MATERIALIZED VIEW late")
        assert len(db.sql("SELECT * FROM reached").fetchall()) == 13
        at = f"SELECT * FROM places AS OF EPOCH {before}"
        assert sorted(map(list, db.sql(at).fetchall()), key=str) == rows["places"]
        for i in range(9):
            db.sql(f"INSERT INTO readings VALUES ('s2', '{i}')")
            db.sql(f"INSERT INTO sensors VALUES ('t{i}', 'p2')")
            db.flush()
        db.parts.pump.compaction.run()
        db.sql("INSERT INTO readings VALUES ('s2', '10')")
        db.flush()
        db.parts.pump.compaction.run()
        known = db.parts.ledger.files.known().packs
        assert {path.name for path in (place / "runs").iterdir()} == known
        assert packs - known, "files of the version before are deleted when they are merged"
        assert verified(db) == {"equal to batch"}
        after = stored(db, rows)
    with headrace.connect(place, **settings) as db:
        assert stored(db, rows) == after
