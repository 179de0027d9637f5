"""``--functions FILE``: what is wrong with the file is said before Spark starts."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest

from headrace import connect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from conftest import Command

GRADE = """
import headrace
from limits_of_grades import HIGH

def worded(is_high):
    return "high" if is_high else "low"

@headrace.function(returns="STRING", deterministic=True)
def grade(amount):
    return worded(amount > HIGH)

other = headrace.function("doubled", lambda x: 2 * x, returns="INT", deterministic=True)
same = other
"""


@pytest.fixture(autouse=True)
def _modules_as_they_were(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import headrace\nnumber = 1 / 0\n", "ZeroDivisionError: division by zero (line 2)"),
        ("import headrace\ndef (:\n", "SyntaxError: invalid syntax (line 2)"),
        (
            "import no_such_module_of_anybody",
            "No module named 'no_such_module_of_anybody' (line 1)",
        ),
        ("raise SystemExit('not now')", "SystemExit: not now (line 1)"),
        ("def grade(x):\n    return x\n", "makes no functions"),
        ("", "makes no functions"),
        (
            "from headrace import function as f\na = f('f', abs, returns='INT')\nb = f('F', min, returns='INT')",
            'makes another function "F"',
        ),
        (
            "import headrace\n@headrace.function(returns='INT', kind='panda')\ndef f(x): ...\n",
            'Did you mean "pandas"? (line 2)',
        ),
    ],
)
def test_a_file_that_makes_no_functions_is_an_error(
    command: Command, tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    command.connect = partial(pytest.fail, "it was opened")
    assert command.sql("SELECT 1", "--functions", str(file)) == 1
    assert said in command.err
    assert "error[invalid]: file" in command.err
    assert "Traceback" not in command.err


def test_a_file_that_is_missing_is_wrong_usage(command: Command, tmp_path: Path) -> None:
    for file in (tmp_path / "none.py", tmp_path):
        assert command.sql("SELECT 1", "--functions", str(file)) == 2
        assert f"'{file}'" in command.err


def test_functions_of_python_are_listed_among_those_of_spark(command: Command) -> None:
    assert command.sql(r"\df [gh]r[ae]*", "--format", "csv") == 0
    assert command.out == "function,kind\r\ngrade,Python\r\ngreatest,built in\r\n"


@pytest.mark.long
@pytest.mark.spark
def test_functions_of_a_file_are_called_and_replaced(
    command: Command, spark: SparkSession, tmp_path: Path
) -> None:
    command.connect = lambda path, functions, **_: connect(
        path / "data", spark=spark, partitions=2, functions=functions
    )
    file = tmp_path / "grades.py"
    file.write_text(GRADE)
    (tmp_path / "limits_of_grades.py").write_text("HIGH = 10\n")
    with_file = ("--format", "csv", "--functions", str(file))
    setup = """
        CREATE TABLE orders (id INT, amount INT, PRIMARY KEY (id));
        INSERT INTO orders VALUES (1, 10), (2, 20);
        CREATE MATERIALIZED VIEW grades AS SELECT id, grade(amount) AS g FROM orders;
        SELECT g, doubled(id) AS d FROM grades ORDER BY id
    """
    assert command.sql(setup, *with_file) == 0, command.err
    assert command.out == "g,d\r\nlow,2\r\nhigh,4\r\n"

    assert command.sql("SELECT * FROM grades") == 1
    assert 'It calls function "grade", which is not registered.' in command.err
    assert "--functions FILE" in command.err

    file.write_text(GRADE.replace("low", "small"))
    sys.modules.pop("grades")
    assert command("verify", *with_file) == 1
    assert 'function "grade" differs' in command.err
    assert "--replace-functions" in command.err
    sys.modules.pop("grades")
    assert command("verify", *with_file, "--replace-functions") == 0, command.err
    assert command.out.endswith("grades,2,0,equal to batch\r\n")
    sys.modules.pop("grades")
    assert command.sql("SELECT g FROM grades WHERE id = 1", *with_file) == 0, command.err
    assert command.out == "g\r\nsmall\r\n"
