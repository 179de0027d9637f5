"""COPY of patterns, and of files that were copied before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_that_was_copied_before_is_told_or_passed_over(db, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("v\n1\n2\n")
    db.sql("CREATE STREAM s (v INT)")
    assert str(db.sql(f"COPY s FROM '{path}'")).startswith("2 rows copied")
    assert "the same file was copied before" in str(db.sql(f"COPY s FROM '{path}'"))
    skipped = str(db.sql(f"COPY s FROM '{path}' WITH (once = true)"))
    assert skipped == "0 rows copied: the file was copied before"
    assert db.sql("SELECT count(*) FROM s").fetchall() == [(4,)]
    path.write_text("v\n3\n4\n5\n")
    assert str(db.sql(f"COPY s FROM '{path}' WITH (once = true)")) == "3 rows copied"


def test_a_pattern_copies_each_file_once_and_goes_on_after_a_failure(db, tmp_path: Path) -> None:
    for name, text in {"b/1.csv": "v\n1\n", "b/2.csv": "w\n2\n", "b/c/3.csv": "v\n3\n", ".x.csv": "v\n9\n"}.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    db.sql("CREATE STREAM s (v INT)")
    copy = f"COPY s FROM '{tmp_path}/**/*.csv'"
    with pytest.raises(HeadraceError, match=r"2\.csv.*has none of the columns"):
        db.sql(copy)
    (tmp_path / "b" / "2.csv").write_text("v\n2\nx\n")
    assert str(db.sql(copy)) == (
        "2 rows copied, 1 rejected: see SHOW REJECTS, from 2 of 3 files: the others were copied"
        " before"
    )
    assert db.sql("SELECT v FROM s ORDER BY v").fetchall() == [(1,), (2,), (3,)]
    assert "6 rows" not in str(db.sql(f"{copy} WITH (once = false)"))
    assert db.sql("SELECT count(*) FROM s").fetchall() == [(6,)]
    with pytest.raises(HeadraceError, match="names no file"):
        db.sql(f"COPY s FROM '{tmp_path}/*.parquet'")
    (tmp_path / "b" / "link.csv").symlink_to("/etc/hostname")
    with pytest.raises(HeadraceError, match="is a link out of the directory"):
        db.sql(copy)
