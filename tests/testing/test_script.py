"""Files of tests are read whole before anything runs."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headrace.errors import HeadraceError
from headrace.testing.script import (
    DIRECTIVES,
    ExpectChanges,
    ExpectRows,
    MoveClock,
    RunSql,
    Script,
    Write,
)
from headrace.tools.cli.command import main


def read(tmp_path, text):
    file = tmp_path / "a.test.sql"
    file.write_text(text)
    return Script.read(file, "a.test.sql")


def test_a_file_has_what_all_tests_share_then_tests(tmp_path):
    (tmp_path / "views").mkdir()
    script = read(
        tmp_path,
        """-- A plain comment.
--@ load views
--@ at 2026-02-01
CREATE TABLE t (k INT PRIMARY KEY, v DOUBLE);
INSERT INTO t VALUES (1, 1.0);

--@ test one
--@ rows t tolerance 0.1
--| k | v
--| 1 | 1.0
--@ advance 10 minutes

--@ test two
--@ alone v, w
--@ error is NULL
INSERT INTO t VALUES (NULL, 1);
SELECT 'a
b' AS x;
--| x
--| c
""",
    )
    assert script.loads == (tmp_path / "views",)
    assert len(script.definitions) == 1
    one, two = script.tests
    assert [(t.name, t.line, str(t.at)[:10]) for t in (one, two)] == [
        ("one", 7, "2026-02-01"), ("two", 13, "2026-02-01"),
    ]  # fmt: skip
    setup, rows, moved = (step.action for step in one.steps)
    assert isinstance(setup, RunSql)
    assert isinstance(rows, ExpectRows)
    assert (rows.name, rows.tolerance, rows.table.header) == ("t", 0.1, ("k", "v"))
    assert moved == MoveClock(by=timedelta(minutes=10))
    assert two.alone == ("v", "w")
    assert [step.fails for step in two.steps] == [None, "is NULL", None]
    assert two.steps[2].place.position == (17, 1)


def test_rows_written_and_changes_have_tables(tmp_path):
    script = read(
        tmp_path,
        "--@ test x\n--@ insert t\n--| k\n--| 1\n--@ delete t\n--| k\n--| 1\n"
        "--@ changes v\n--| +/- | k\n--|---\n--| + | 1\n--|---\n--| - | 1\n",
    )
    insert, delete, changes = (step.action for step in script.tests[0].steps)
    assert isinstance(insert, Write)
    assert (insert.deletes, delete.deletes) == (False, True)
    assert isinstance(changes, ExpectChanges)
    assert len(changes.table.parts) == 2


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("--@ tset x", 'directive "tset" does not exist', 1),
        ("--@ test x\n--@ advnace 1 day", 'Did you mean "advance"', 2),
        ("--@ test x\nSELECT 1;", "a query has no expected rows", 2),
        ("--@ test x\n\nSELEC 1;", "a statement", 3),
        ("--@ test x\n--@ rows v", "directive rows has no table", 2),
        ("--@ test x\n--@ epoch\n--| a", "directive epoch takes no table", 2),
        ("--@ test x\n--@ rows v\n--| a | b\n--| 1", "1 cells for 2 columns", 3),
        ("--@ test x\n--@ test x", 'there are two tests "x"', 2),
        ("--@ test x\n--@ load views", "load is within a test", 2),
        ("--@ load nowhere\n--@ test x", '"nowhere" does not exist', 1),
        ("--@ test x\n--@ advance soon", "'soon' is not a length of time", 2),
        ("--@ test x\n--@ late s many", "a name and a number", 2),
        ("--@ test x\n--@ epoch\n--@ alone v", "at the beginning", 3),
        ("--@ test x\n--@ epoch\n--@ at 2026-01-01", "at is not at the beginning", 3),
        ("--@ test x\n--@ error invalid", "nothing follows that could fail", 2),
        ("--@ test x\nDELETE FROM t\n--@ rows v\nWHERE 1 = 1;", "within a statement", 3),
        ("--| a", "nothing before it", 1),
    ],
)
def test_what_is_wrong_in_a_file_is_refused_at_its_line(tmp_path, text, message, line):
    with pytest.raises(HeadraceError) as caught:
        read(tmp_path, text)
    assert message in str(caught.value)
    assert f"a.test.sql:{line}:" in str(caught.value)


def test_a_file_without_tests_is_refused(tmp_path):
    with pytest.raises(HeadraceError, match="has no test"):
        read(tmp_path, "CREATE TABLE t (k INT);")


def test_a_wrong_file_ends_the_command_before_any_test(tmp_path, capsys):
    (tmp_path / "a.test.sql").write_text("--@ test x\n--@ epoch\n")
    (tmp_path / "b.test.sql").write_text("--@ test x\n--@ advnace 1 day\n")
    (tmp_path / "c.test.sql").write_text("--@ test\n")
    assert main(["test", str(tmp_path)]) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert f"{tmp_path}/b.test.sql:2:1" in errors
    assert f"{tmp_path}/c.test.sql:1:1" in errors
    (tmp_path / "b.test.sql").unlink()
    (tmp_path / "c.test.sql").unlink()
    assert main(["test", str(tmp_path), "-k", "nothing"]) == 2
    assert 'no test is named "nothing"' in capsys.readouterr().err
    assert main(["test", str(tmp_path / "d.test.sql")]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_every_directive_is_documented():
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs/how-to/test-a-view.md").read_text()
    for word in DIRECTIVES:
        assert f"| `{word}" in page, word
