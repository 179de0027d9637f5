"""The doctor: what it finds of each kind of damage, beside a process that has the database open."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pytest
import xxhash

from headrace.lifecycle.copies.inspecting import Inspected, State, inspect
from headrace.lifecycle.copies.repository import DamagedFileError, checked_pieces
from headrace.storage.ledger import RESTORING, DirectoryLock, Dirty, Files, Ledger, Mode
from headrace.storage.ledger.soundness import ALWAYS
from headrace.tools.cli.command import main
from runtime.pure import PureDatabase

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def db(tmp_path: Path) -> Iterator[PureDatabase]:
    made = PureDatabase(tmp_path / "data")
    table = made.create_table()
    made.create_view("counts", table)
    made.append(table, [(key, key % 3, 1) for key in range(8)])
    made.loop.advance()
    yield made
    made.close()


def found(db: PureDatabase, state: State = State.WRONG, *, quick: bool = False) -> list[str]:
    inspected = Inspected(db.directory, None, lambda _url: pytest.fail("it is in a directory"))
    return [
        f"{each.check}: {each.found}"
        for each in inspect(inspected, quick=quick)
        if each.state is state
    ]


def change(ledger_file: Path, statement: str) -> None:
    with closing(sqlite3.connect(ledger_file)) as ledger:
        ledger.execute(statement)
        ledger.commit()


def test_a_sound_database_has_nothing_wrong_while_it_is_open(db: PureDatabase, capsys) -> None:
    with DirectoryLock(db.directory):
        assert found(db) == []
        assert any("process" in each for each in found(db, State.NOTE))
    assert any("no process has it open" in each for each in found(db, State.NOTE))
    assert main(["--data", str(db.directory), "doctor", "--format", "json"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    checks = [each["check"] for each in shown if each["state"] == "ok"]
    assert [check for check in checks if check != "disk"] == [
        "ledger", "invariants", "files", "views"
    ]  # fmt: skip


@pytest.mark.parametrize("folder", ["runs", "log"])
def test_damaged_short_and_missing_files_are_found(db: PureDatabase, folder: str) -> None:
    path = max((db.directory / folder).iterdir(), key=lambda each: each.stat().st_size)
    data = path.read_bytes()
    path.write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:])
    assert found(db, quick=True) == []
    (why,) = found(db)
    assert why.startswith(f"files: {folder}/{path.name}: Its bytes from ")
    path.write_bytes(data[:-1])
    for quick in (True, False):
        (why,) = found(db, quick=quick)
        assert why == (
            f"files: {folder}/{path.name}: it has {len(data) - 1:,} bytes instead of {len(data):,}"
        )
    path.unlink()
    (why,) = found(db, quick=True)
    assert why == f"files: {folder}/{path.name}: it is missing"
    path.write_bytes(data)
    assert found(db) == []


@pytest.mark.parametrize("folder", ["runs", "log"])
def test_a_flip_of_any_byte_of_a_file_is_found(db: PureDatabase, folder: str) -> None:
    table = next(r for r in db.loop.catalog if r.name != "counts")
    db.append(table, [(key, key % 3, 1) for key in range(8)])  # the second part of a pack
    path = max((db.directory / folder).iterdir(), key=lambda each: each.stat().st_size)
    (needed,) = (file for file in db.ledger.files.needed() if file.name == path.name)
    data = path.read_bytes()
    between = [each.position - 1 for each in needed.ranges if each.position]
    assert between, "ranges are aligned"
    for at in (*between, *range(0, len(data), 97), len(data) - 1):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(DamagedFileError):
            list(checked_pieces(path, needed.bytes, needed.ranges))
    path.write_bytes(data)
    assert found(db) == []


def test_a_flip_of_any_byte_of_a_file_of_ids_is_found(db: PureDatabase) -> None:
    place = db.directory / "seen"
    place.mkdir()
    ids = np.arange(60, dtype=np.uint64).reshape(3, 20)
    path = place / f"1-0-20-{xxhash.xxh3_64(ids.data).hexdigest()}.npy"
    np.save(path, ids)
    assert found(db) == []
    data = path.read_bytes()
    for at in (*range(0, 128, 3), *range(128, len(data), 53)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert found(db) == [f"files: seen/{path.name} is damaged"], at


def test_files_that_are_not_needed_may_be_missing_and_strays_are_noted(db: PureDatabase) -> None:
    (db.directory / "runs/stray.arrow").write_bytes(b"left")
    assert [each for each in found(db, State.NOTE) if "strays" in each] == [
        "strays: 1 files, 4 bytes, are not named by the ledger"
    ]
    with DirectoryLock(db.directory):
        assert not [each for each in found(db, State.NOTE) if "strays" in each]
    change(db.directory / "ledger.db", "UPDATE runs SET removed = added")
    garbage = db.ledger.files.garbage()
    assert garbage.packs
    assert garbage == Files(garbage.packs)
    for name in garbage.packs:
        (db.directory / "runs" / name).unlink()
    assert not [each for each in found(db) if "files" in each]


BREAKS = {
    "epochs have no gap": "DELETE FROM epochs WHERE epoch = 1",
    "logs are whole": "UPDATE logs SET log_end = log_end + 1",
    "positions are within logs": "UPDATE positions SET consumed = 1000",
    "runs do not overlap": "UPDATE runs SET bytes = bytes + 1000",
    "runs have an arrangement": "UPDATE runs SET arrangement = 'none'",
    "live views are served": "UPDATE builds SET retired_epoch = 1",
    "live names are unique": "UPDATE objects SET name = 'same'",
    "inputs of live relations are live": "UPDATE objects SET dropped_epoch = 3 WHERE name = 't'",
    "dirty entries are of live views": "UPDATE dirty SET view = 99",
    "ids were reserved": "UPDATE fence SET next_id = 1",
}


def test_each_invariant_of_the_ledger_is_found_broken(db: PureDatabase, tmp_path: Path) -> None:
    (view,) = (r for r in db.loop.catalog if r.name == "counts")
    db.ledger.dirty.mark(Dirty(view.id, "late", 1.0, "", db.ledger.head.epoch))
    assert db.ledger.violations() == {}
    for name, statement in BREAKS.items():
        copy = tmp_path / name
        db.ledger.copy_to(copy)
        change(copy, statement)
        with Ledger.open(copy, Mode.READ) as ledger:
            assert name in ledger.violations()
    change(db.directory / "ledger.db", BREAKS["ids were reserved"])
    assert [each for each in found(db) if "ids were reserved: " in each]


def test_every_invariant_has_a_case() -> None:
    assert list(BREAKS) == [each.__name__.replace("_", " ") for each in ALWAYS]


def test_stopped_views_and_what_cannot_be_opened_are_found(db: PureDatabase, capsys) -> None:
    (view,) = (r for r in db.loop.catalog if r.name == "counts")
    db.ledger.dirty.mark(
        Dirty(
            view.id,
            "stopped",
            1.0,
            "division by zero",
            db.ledger.head.epoch,
        )
    )
    assert found(db) == ['views: "counts" has stopped: division by zero']
    assert main(["--data", str(db.directory), "doctor", "--quick"]) == 1
    assert "REPAIR" in capsys.readouterr().out
    (db.directory / RESTORING).write_text("{}")
    (why,) = found(db)
    assert "is not restored completely" in why
    (db.directory / RESTORING).unlink()
    change(db.directory / "ledger.db", "UPDATE meta SET value = 5 WHERE key = 'format'")
    assert found(db) == []
    (why,) = (each for each in found(db, State.NOTE) if "ledger" in each)
    assert "has format 5, which is migrated first" in why
    (db.directory / "ledger.db").rename(db.directory.parent / "ledger.db")
    assert main(["--data", str(db.directory), "doctor"]) == 1
    assert "Restore the ledger from a backup" in " ".join(capsys.readouterr().out.split())
    (db.directory.parent / "ledger.db").rename(db.directory / "ledger.db")
    assert main(["--data", str(db.directory / "none"), "doctor"]) == 1
    assert main(["--url", "http://127.0.0.1:1", "doctor"]) == 2
