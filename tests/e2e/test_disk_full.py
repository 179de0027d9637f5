"""A disk that is full: what is in, how to go on, and the cause, whatever process met it."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.errors import Code, HeadraceError
from headrace.io.connectors.files import source as files
from sessions import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = 30_000


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    if os.getuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a disk of a chosen size takes the right to mount one")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.long
def test_a_copy_that_fills_the_disk_says_what_is_in_and_goes_on_after_it(
    small, tmp_path, spark, monkeypatch
):
    monkeypatch.setattr(files, "CHUNK_BYTES", 1)
    monkeypatch.setattr("headrace.io.formats.blocks.BLOCK_BYTES", 1 << 16)
    file = tmp_path / "rows.csv"
    file.write_text("k,v\n" + "".join(f"{k},{k:060}\n" for k in range(ROWS)))
    ballast = small / "ballast"
    ballast.write_bytes(b"x" * 900_000)
    with headrace.connect(small / "d", spark=spark, continuous=False, partitions=PARTITIONS) as db:
        db.sql("CREATE TABLE t (k INT, v STRING)")
        copy = f"COPY t FROM '{file}'"
        with pytest.raises(HeadraceError) as full:
            db.sql(copy)
        assert full.value.code is Code.UNAVAILABLE
        kept = db.parts.ledger.head.log_end(db.parts.reader.catalog.resolve("t").id)
        assert 0 < kept < ROWS
        # whichever file needs another block first: a segment, or the ledger
        assert re.search("No space left on device|disk is full", full.value.detail)
        assert f"with {kept:,} rows, up to line {kept + 1:,}, are in table" in full.value.detail
        assert "then continues after these rows" in full.value.hint
        with pytest.raises(HeadraceError) as unread:
            db.sql("SELECT count(*) FROM t")
        assert unread.value.code is Code.UNAVAILABLE
        assert "o space" in f"{unread.value}"
        # What follows is mended: it is another state of the file, and the first rows are the same.
        ballast.unlink()
        subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
        with file.open("a") as more:
            more.write("-1,added\n")
        assert db.sql(copy).message.startswith(f"{ROWS + 1 - kept:,} rows copied, resumed")
        assert db.sql("SELECT count(*), sum(k) FROM t").fetchall() == [
            (ROWS + 1, sum(range(ROWS)) - 1)
        ]


def test_a_file_whose_first_part_has_changed_is_no_continuation(db, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CHUNK_BYTES", 1)
    monkeypatch.setattr("headrace.io.formats.blocks.BLOCK_BYTES", 1 << 10)
    db.sql("CREATE STREAM s (k INT)")
    file = tmp_path / "rows.csv"
    text = "k\n" + "".join(f"{k}\n" for k in range(1000))
    file.write_text(text)
    writes = []

    def third(_stage: str) -> None:
        writes.append(1)
        if len(writes) == 3:
            raise HeadraceError(Code.UNAVAILABLE, "the disk failed")

    append = db.parts.ledger.log.append_all
    monkeypatch.setattr(
        type(db.parts.ledger.log),
        "append_all",
        lambda _self, *given, **named: (third("append"), append(*given, **named))[1],
    )
    copy = f"COPY s FROM '{file}'"
    with pytest.raises(HeadraceError, match="the disk failed") as failed:
        db.sql(copy)
    assert "2 parts with" in failed.value.detail
    assert "CREATE OR REPLACE STREAM" in failed.value.hint
    file.write_text(text.replace("7\n", "8\n", 1))
    with pytest.raises(HeadraceError, match="has changed since its first part") as changed:
        db.sql(copy)
    assert changed.value.code is Code.CONFLICT
    assert "2 parts with" in changed.value.detail
    begun = db.sql("SELECT count(*) FROM s").fetchall()[0][0]
    assert db.sql(f"{copy} WITH (restart = true)").message == "1,000 rows copied"
    assert db.sql("SELECT count(*) FROM s").fetchall() == [(begun + 1000,)]
