"""Copies of ledgers: from SQLite into PostgreSQL and back, with every row, and ids that go on."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from headrace.errors import Code, HeadraceError
from headrace.storage.ledger import (
    AppendRecord,
    Ledger,
    PostgresAddress,
    Reject,
    is_restored,
    open_ledger,
    restore_ledger,
)
from headrace.storage.ledger.schema import metadata
from runtime.pure import PureDatabase

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.types import RelationId

PLACED = ("directory", "writer", "written", "store")


def rows(file: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return the rows of each table of a ledger in SQLite, but not where it is and who writes."""
    with closing(sqlite3.connect(file)) as ledger:
        found = {
            name: sorted(ledger.execute(f"SELECT * FROM {name}").fetchall(), key=repr)
            for name in metadata.tables
        }
    found["meta"] = [row for row in found["meta"] if row[0] not in PLACED]
    return found


def reject(ledger: Ledger, table: RelationId) -> None:
    ledger.log.append_all(
        [AppendRecord(table, None, rejects=(Reject("test", 0, None, "it is bad", "{}"),))]
    )


def test_a_ledger_goes_to_postgresql_and_back(tmp_path: Path, postgres_url: str) -> None:
    db = PureDatabase(tmp_path / "data")
    table = db.create_table()
    db.create_view("counts", table)
    db.append(table, [(key, key % 3, 1) for key in range(8)])
    db.loop.advance()
    reject(db.ledger, table.id)
    db.ledger.copy_to(tmp_path / "first")
    expected = rows(tmp_path / "first")
    assert expected == rows(tmp_path / "data/ledger.db")
    assert len([each for each in expected.values() if each]) >= 12
    db.close()

    address, directory = PostgresAddress.of(postgres_url), tmp_path / "restored"
    directory.mkdir()
    assert not is_restored(directory, address, "")
    restore_ledger(tmp_path / "first", directory, address)
    assert is_restored(directory, address, "")
    for other, store in ((tmp_path / "data", ""), (None, "s3://bucket/prefix")):
        with pytest.raises(HeadraceError, match="exists already") as error:
            is_restored(other, address, store)
        assert error.value.code is Code.CONFLICT
    with pytest.raises(HeadraceError, match="exists already"):
        restore_ledger(tmp_path / "first", tmp_path, address)
    with Ledger.open(address) as ledger:
        ledger.copy_to(tmp_path / "second")
        assert ledger.violations() == {}
    assert rows(tmp_path / "second") == expected

    with open_ledger(directory, address) as ledger:
        reject(ledger, table.id)  # its id follows the restored one
        assert len(ledger.rejects.newest(table.id, 10)) == 2
        # Another copy, in a schema of its own, may be open at the same time.
        beside, copied = tmp_path / "beside", PostgresAddress.of(postgres_url, "copied")
        beside.mkdir()
        restore_ledger(tmp_path / "second", beside, copied)
        with open_ledger(beside, copied) as copy:
            reject(copy, table.id)
            assert copy.settings.identity == ledger.settings.identity
        with pytest.raises(HeadraceError, match="is open for writing"):
            open_ledger(directory, address)
    with pytest.raises(HeadraceError, match="belongs to another"):
        open_ledger(tmp_path / "other", address)
