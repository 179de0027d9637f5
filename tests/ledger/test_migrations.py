"""A ledger of an earlier format is migrated when it is opened, in one transaction."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from headrace.algebra.spine import RunFile
from headrace.errors import Code, HeadraceError
from headrace.storage.ledger import (
    EpochCommit,
    Ledger,
    Mode,
    Reject,
    RejectCount,
    SegmentFile,
    migrations,
    schema,
)
from headrace.storage.ledger.migrations import Migration
from headrace.types import Epoch, Offset, RelationId
from ledger.building import relation
from ledger.former import of_format

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
def test_a_ledger_in_postgresql_is_migrated_in_one_transaction_without_a_copy(
    postgres_url: str,
) -> None:
    address = postgres_url
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


def test_the_files_of_runs_of_format_4_become_packs_with_one_run(tmp_path: Path) -> None:
    place, _ = of_format(4, tmp_path / "old")
    with closing(sqlite3.connect(place / "ledger.db")) as connection:
        before = connection.execute("SELECT * FROM runs").fetchall()
    (tmp_path / "new").mkdir()
    with Ledger.open(tmp_path / "new" / "ledger.db"):
        pass
    with Ledger.open(place / "ledger.db") as ledger:
        assert ledger.files.known().packs == {path.name for path in (place / "runs").iterdir()}
        runs = ledger.spines.of([record.id for record in ledger.spines.arrangements()])
        assert {run.file.position for own in runs.values() for run in own} == {0}
    with closing(sqlite3.connect(place / "ledger.db")) as connection:
        after = connection.execute("SELECT * FROM runs").fetchall()
        found = shape(connection)
    assert sorted(after) == sorted((name, 0, *rest) for name, *rest in before)
    with closing(sqlite3.connect(tmp_path / "new" / "ledger.db")) as connection:
        assert shape(connection) == found, "a migrated ledger is like a new one"


def shape(connection: sqlite3.Connection) -> dict[str, Any]:
    """Return the columns and indexes of each table."""
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {
        name: (
            connection.execute(f"PRAGMA table_info({name})").fetchall(),
            connection.execute(f"PRAGMA foreign_key_list({name})").fetchall(),
            sorted(
                (index[1], connection.execute(f"PRAGMA index_info({index[1]})").fetchall())
                for index in connection.execute(f"PRAGMA index_list({name})").fetchall()
            ),
        )
        for (name,) in tables
    }


FORMAT_8 = """
    DROP TABLE replaced_files;
    ALTER TABLE segments DROP COLUMN footer;
    ALTER TABLE segments DROP COLUMN begun_at;
    UPDATE meta SET value = '8' WHERE key = 'format'
"""

FORMAT_7 = f"""
    {FORMAT_8};
    DROP TABLE spans;
    ALTER TABLE rejects DROP COLUMN acknowledged_at;
    ALTER TABLE logs DROP COLUMN acknowledged;
    UPDATE meta SET value = '7' WHERE key = 'format'
"""


def test_rejects_of_format_7_can_be_acknowledged(tmp_path: Path, postgres_url: str) -> None:
    for address in (tmp_path / "ledger.db", postgres_url):
        orders = rejected_in(address)
        place = f"sqlite:///{address}" if isinstance(address, Path) else address
        engine = sa.create_engine(place)
        with engine.begin() as connection:
            for statement in FORMAT_7.split(";"):
                connection.execute(sa.text(statement))
        engine.dispose()
        with Ledger.open(address) as ledger:
            ledger.acquire()
            (found,) = ledger.rejects.newest(orders)
            assert (found.reject, found.acknowledged_at) == (REJECT, None)
            assert ledger.rejects.counted(orders) == RejectCount(1, 0)
            assert ledger.rejects.acknowledge(orders) == 1
            assert ledger.rejects.counted(orders) == RejectCount(1, 1)
            assert ledger.spans.since(5, 0) == ()


def test_segments_of_format_8_can_be_merged(tmp_path: Path, postgres_url: str) -> None:
    for address in (tmp_path / "ledger.db", postgres_url):
        orders = rejected_in(address)
        place = f"sqlite:///{address}" if isinstance(address, Path) else address
        with Ledger.open(address) as ledger:
            ledger.acquire()
            for number in range(2):
                ledger.log.append(orders, SegmentFile("a.arrow", 3, 10, "c", 64 * number))
        engine = sa.create_engine(place)
        with engine.begin() as connection:
            for statement in FORMAT_8.split(";"):
                connection.execute(sa.text(statement))
        engine.dispose()
        with Ledger.open(address) as ledger:
            ledger.acquire()
            known = ledger.log_merges.segments(orders, Offset(0), Offset(6))
            assert [each.begun_at for each in known] == [s.appended_at for s, _, _ in known]
            new = SegmentFile("b.parquet", 6, 20, "d", footer="e")
            gone, _ = ledger.log_merges.exchange(known, new)
            assert gone == {"a.arrow"}
            assert ledger.files.known().segments == {"a.arrow", "b.parquet"}
            ((found, begun, _),) = ledger.log_merges.segments(orders, Offset(0), Offset(6))
            assert (found.file, begun) == (new, known[0].begun_at)
            assert not ledger.violations()


REJECT = Reject("orders.csv", 3, "id", 'column "id": "two" is not an INT', "two,bob")


def rejected_in(address: Path | str) -> RelationId:
    """Make a ledger with a relation, of which a row was rejected."""
    with Ledger.open(address) as ledger:
        ledger.acquire()
        orders = relation(ledger, "orders")
        ledger.commit(EpochCommit(Epoch(0), "first", created=(orders,)))
        ledger.log.append(orders.relation, None, rejects=[REJECT])
        return orders.relation


OLD_RUNS = f"""
    {FORMAT_8};
    DROP TABLE spans;
    ALTER TABLE rejects DROP COLUMN acknowledged_at;
    ALTER TABLE logs DROP COLUMN acknowledged;
    DROP TABLE small_files;
    DROP TABLE runs;
    CREATE TABLE runs (
        name TEXT NOT NULL PRIMARY KEY, arrangement TEXT NOT NULL REFERENCES arrangements (id),
        rows BIGINT NOT NULL, bytes BIGINT NOT NULL, checksum TEXT NOT NULL, low BIGINT NOT NULL,
        high BIGINT NOT NULL, added BIGINT NOT NULL, removed BIGINT NOT NULL, kind TEXT NOT NULL
    );
    CREATE INDEX runs_by_removal ON runs (arrangement, removed);
    CREATE INDEX runs_by_addition ON runs (arrangement, added);
    INSERT INTO runs
    SELECT 'a.arrow', id, 1, 10, 'c', -5, 5, 1, {schema.NEVER}, 'delta' FROM arrangements;
    UPDATE meta SET value = '4' WHERE key = 'format'
"""


def test_runs_of_format_4_in_postgresql_become_packs(postgres_url: str) -> None:
    address = postgres_url
    with Ledger.open(address) as ledger:
        ledger.acquire()
        ledger.commit(EpochCommit(Epoch(0), "first", created=(relation(ledger, "orders"),)))
    engine = sa.create_engine(address)
    with engine.begin() as connection:
        for statement in OLD_RUNS.split(";"):
            connection.execute(sa.text(statement))
    engine.dispose()
    with Ledger.open(address) as ledger:
        (record,) = ledger.spines.arrangements()
        (run,) = ledger.spines.runs(record.id)
        assert run.file == RunFile("a.arrow", 0, 1, 10, "c", -5, 5)
        ledger.acquire()
