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
    for delimiter, named in {";": ";", "\t": "TAB"}.items():
        (tmp_path / "other.txt").write_text(f"v{delimiter}w\n1{delimiter}2\n")
        with pytest.raises(HeadraceError) as raised:
            db.sql(f"COPY s FROM '{tmp_path}/other.txt' WITH (format = 'csv')")
        assert f"set the option delimiter = '{named}'" in raised.value.hint
        (tmp_path / "b" / "2.csv").write_text(f"v{delimiter}w\n")
        assert str(db.sql(f"COPY s FROM '{tmp_path}/b/2.csv' WITH (delimiter = '{named}')"))
    (tmp_path / "b" / "2.csv").write_text("v\n2\nx\n")
    assert str(db.sql(copy)) == (
        "2 rows copied, 1 rejected: see SHOW REJECTS, from 2 of 3 files: the others were copied"
        " before"
    )
    assert db.sql("SELECT v FROM s ORDER BY v").fetchall() == [(1,), (2,), (3,)]
    assert "6 rows" not in str(db.sql(f"{copy} WITH (once = false)"))
    assert db.sql("SELECT count(*) FROM s").fetchall() == [(6,)]
    with pytest.raises(HeadraceError, match="matches no file"):
        db.sql(f"COPY s FROM '{tmp_path}/*.parquet'")
    (tmp_path / "b" / "link.csv").symlink_to("/etc/hostname")
    with pytest.raises(HeadraceError, match="is a link out of the directory"):
        db.sql(copy)


VALUES = """
  (1, true, 1.50, 0.1D, 'it''s "q", \\n', X'ff00', DATE '2026-01-01', TIMESTAMP '2026-01-01 01:02:03.5', TIMESTAMP_NTZ '2026-01-01 00:00:00'),
  (2, NULL, NULL, DOUBLE('NaN'), '', X'', DATE '+10000-01-01', TIMESTAMP '+10000-01-01 00:00:00', TIMESTAMP_NTZ '-0044-03-15 12:00:00'),
  (3, false, -0.01, DOUBLE('-Infinity'), NULL, NULL, NULL, NULL, NULL)
"""


@pytest.mark.long
def test_rows_are_copied_to_files_and_back(db, tmp_path: Path) -> None:
    columns = (
        "id INT PRIMARY KEY, ok BOOLEAN, price DECIMAL(9,2), x DOUBLE, name STRING, raw BINARY,"
        " d DATE, at TIMESTAMP, ntz TIMESTAMP_NTZ"
    )
    db.sql(f"CREATE TABLE t ({columns}); CREATE TABLE u ({columns}); INSERT INTO t VALUES {VALUES}")
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT * FROM t")
    wanted = repr(sorted(db.sql("SELECT * FROM t").fetchall()))
    assert "'+10000-01-01', '+10000-01-01T00:00:00Z', '-0044-03-15T12:00:00'" in wanted
    whole, chosen = "v", "`t` (id, ok, price, x, `name`, raw, d, at, ntz)"
    query = "(SELECT * FROM t WHERE id > 0 ORDER BY id)"
    files = {"a.csv": whole, "a.tsv.gz": chosen, "a.jsonl": query, "a.parquet": whole}
    for name, source in files.items():
        path = tmp_path / name
        done = db.sql(f"COPY {source} TO '{path}'")
        assert str(done) == f'3 rows as of epoch {done.epoch} written to "{path}"'
        db.sql(f"TRUNCATE u; COPY u FROM '{path}'")
        assert repr(sorted(db.sql("SELECT * FROM u").fetchall())) == wanted, (name, source)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.csv", "a.jsonl", "a.parquet", "a.tsv.gz", "db"]  # fmt: skip
    assert db.sql("SELECT id FROM t WHERE d = DATE '+10000-01-01'").fetchall() == [(2,)]
    db.sql("UPDATE t SET ok = true WHERE d = DATE '+10000-01-01'")
    assert "+10000-01-01" in str(db.sql("SELECT * FROM t"))
    assert db.sql("SUBSCRIBE TO v").poll(10)
    for text, why in [
        (f"COPY v TO '{tmp_path}/db/ledger.db' WITH (format = csv)", "is in the data directory"),
        (f"COPY nothing TO '{tmp_path}/a.csv'", '"nothing" does not exist'),
        (f"COPY v TO '{tmp_path}/a.csv' WITH (headers = false)", 'option "headers"'),
        (f"COPY (SELECT array(1) AS a) TO '{tmp_path}/a.csv'", "cannot be written as CSV"),
    ]:
        with pytest.raises(HeadraceError, match=why):
            db.sql(text)
