"""What pytest shows of an error in a user's test, in a pytest of its own without Spark."""

import subprocess
import sys
from pathlib import Path

import pytest

TEST = """
import pytest
from headrace.errors import Code, HeadraceError
from headrace.io.formats.fitting import not_fitting
from headrace.planning.sql import parse

@pytest.fixture
def broken():
    return parse("CREATE VIEW v")

def test_refused():
    parse("SELEC 1")

def test_fixture(broken):
    pass
"""


@pytest.mark.parametrize("full", [False, True])
def test_a_refusal_is_shown_where_the_test_made_it(tmp_path: Path, full):
    (tmp_path / "test_it.py").write_text(TEST)
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        *(["-o", "headrace_full_trace=true"] if full else []),
    ]
    found = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--disable-plugin-autoload",
         "-p", "headrace.testing.plugin", "--rootdir", tmp_path, tmp_path],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    ).stdout  # fmt: skip
    assert "1 failed, 1 error" in found
    assert found.count("error[invalid]") >= 2
    assert 'parse("SELEC 1")' in found
    assert ("headrace/planning/sql/parser.py" in found) is full
    assert full or len(found.splitlines()) < 50
