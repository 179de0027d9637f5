"""A ledger of an earlier format is migrated when it is opened, in one transaction."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from headrace.errors import Code, HeadraceError
from headrace.ledger import EpochCommit, Ledger, Mode, migrations, schema
from headrace.ledger.migrations import Migration
from headrace.types import Epoch
from ledger.building import postgres, relation

if TYPE_CHECKING:
    from pathlib import Path

OLD = schema.FORMAT - 2
"""The format of the ledgers here: they lack the table of gaps, and call rejects "refused"."""


def add_gaps(connection: sa.Connection) -> None:
    connection.execute(
        sa.text(
            "CREATE TABLE gaps (view BIGINT, until BIGINT, after BIGINT, PRIMARY KEY (view, until))"
        )
    )


def rename_refused(connection: sa.Connection) -> None:
    connection.execute(sa.text("ALTER TABLE refused RENAME TO rejects"))


def fail(_connection: sa.Connection) -> None:
    raise HeadraceError(Code.UNAVAILABLE, "the disk failed")


STEPS = (Migration(OLD, OLD + 1, add_gaps), Migration(OLD + 1, OLD + 2, rename_refused))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A ledger of the old format, with one relation."""
    file = tmp_path / "ledger.db"
    with Ledger.open(file) as ledger:
        ledger.acquire()
        ledger.commit(EpochCommit(Epoch(0), "first", created=(relation(ledger, "orders"),)))
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DROP TABLE gaps")
        connection.execute("ALTER TABLE rejects RENAME TO refused")
        connection.execute(f"UPDATE meta SET value = '{OLD}' WHERE key = 'format'")
    return file


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "STEPS", STEPS)


def stored(file: Path) -> tuple[int, set[str]]:
    """Return the format and the tables of a ledger file."""
    with closing(sqlite3.connect(file)) as connection:
        (version,) = connection.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return int(version), {name for (name,) in tables} & {"gaps", "rejects", "refused"}


@pytest.mark.usefixtures("steps")
def test_opening_runs_all_steps_and_keeps_a_copy_of_the_ledger_as_it_was(
    old: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), Ledger.open(old) as ledger:
        (orders,) = ledger.relations.existing()
        assert (orders.name, ledger.rejects.newest(orders.relation)) == ("orders", ())
        assert ledger.acquire() == 3
        assert ledger.commit(EpochCommit(Epoch(1), "second")) == 2
    assert stored(old) == (schema.FORMAT, {"gaps", "rejects"})
    assert stored(old.with_name(f"ledger.db.format-{OLD}")) == (OLD, {"refused"})
    said = [record.getMessage() for record in caplog.records]
    assert [line.rpartition(": ")[2] for line in said] == ["step 1 of 2", "step 2 of 2"]
    assert f"from format {OLD} to {OLD + 1}" in said[0]
    caplog.clear()
    with Ledger.open(old) as ledger:
        assert ledger.head.epoch == 2
    assert not caplog.records, "it is migrated once"


@pytest.mark.usefixtures("steps")
def test_a_writer_that_has_the_old_ledger_open_loses_the_fence(old: Path) -> None:
    with Ledger.open(old) as first:
        first.acquire()
        with closing(sqlite3.connect(old)) as connection, connection:
            connection.execute("DROP TABLE gaps")
            connection.execute(f"UPDATE meta SET value = '{OLD}' WHERE key = 'format'")
            connection.execute("ALTER TABLE rejects RENAME TO refused")
        with Ledger.open(old), pytest.raises(HeadraceError, match="another process") as lost:
            first.settings.set("a", 1)
        assert lost.value.code is Code.CONFLICT


def test_a_step_that_fails_changes_nothing_and_the_next_opening_migrates(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "STEPS", (STEPS[0], Migration(OLD + 1, OLD + 2, fail)))
    with pytest.raises(HeadraceError, match="the disk failed"):
        Ledger.open(old)
    assert stored(old) == (OLD, {"refused"})
    monkeypatch.setattr(migrations, "STEPS", STEPS)
    Ledger.open(old).close()
    assert stored(old) == (schema.FORMAT, {"gaps", "rejects"})


@pytest.mark.usefixtures("steps")
def test_nothing_is_migrated_where_the_copy_cannot_be_written(old: Path) -> None:
    old.with_name(f"ledger.db.format-{OLD}").mkdir()
    with pytest.raises(HeadraceError, match=r"copy .* could not be written") as caught:
        Ledger.open(old)
    assert caught.value.code is Code.UNAVAILABLE
    assert stored(old) == (OLD, {"refused"})
    assert sorted(path.name for path in old.parent.iterdir() if path.is_file()) == ["ledger.db"]


@pytest.mark.usefixtures("steps")
def test_a_reader_does_not_migrate(old: Path) -> None:
    with pytest.raises(HeadraceError, match=f"has format {OLD}") as caught:
        Ledger.open(old, Mode.READ)
    assert caught.value.hint == "Open it for writing once: that migrates it."
    assert stored(old) == (OLD, {"refused"})


@pytest.mark.usefixtures("steps")
def test_a_format_to_which_no_steps_lead_is_refused(old: Path) -> None:
    for version, how in ((OLD - 1, "older"), (schema.FORMAT + 1, "newer")):
        with closing(sqlite3.connect(old)) as connection, connection:
            connection.execute(f"UPDATE meta SET value = '{version}' WHERE key = 'format'")
        with pytest.raises(HeadraceError, match=f"has format {version}, {how} than") as caught:
            Ledger.open(old)
        assert caught.value.code is Code.UNSUPPORTED
        assert caught.value.detail == f"This version reads formats {OLD} to {schema.FORMAT}."
        assert stored(old) == (version, {"refused"})


@pytest.mark.usefixtures("steps")
def test_a_ledger_in_postgresql_is_migrated_in_one_transaction_without_a_copy() -> None:
    address = postgres()
    with Ledger.open(address) as ledger:
        ledger.acquire()
    engine = sa.create_engine(address)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE gaps"))
        connection.execute(sa.text("ALTER TABLE rejects RENAME TO refused"))
        changed = schema.meta.update().where(schema.meta.c.key == schema.FORMAT_KEY)
        connection.execute(changed.values(value=OLD))
    engine.dispose()
    with Ledger.open(address) as ledger:
        assert ledger.rejects.newest(1) == ()
        assert ledger.acquire() == 3
