"""What the documentation shows is run, and what can be set is documented."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from coverage_table import PAGE, page
from headrace.interfaces.settings import setting_names
from headrace.planning.sql import STATEMENTS, parse_statement, split
from headrace.tools.cli.commands import COMMANDS
from headrace.tools.cli.statement_help import STATEMENTS as HELP_OF_STATEMENTS

ROOT = Path(__file__).parents[1]


def blocks(name: str) -> list[str]:
    text = (ROOT / name).read_text()
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_the_examples_of_the_readme_run(tmp_path, spark, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    del spark  # the example joins the session that is there
    for block in blocks("README.md"):
        exec(compile(block, "README.md", "exec"), {})  # noqa: S102
    assert "68.5" in capsys.readouterr().out


@pytest.mark.parametrize("name", setting_names())
def test_every_setting_is_documented(name):
    assert f"| `{name}` |" in (ROOT / "docs/settings.md").read_text()


@pytest.mark.parametrize(
    "command", [name for command in COMMANDS for name in (command.name, *command.aliases)]
)
def test_every_command_of_the_shell_is_documented(command):
    assert f"`{command}`" in (ROOT / "docs/shell.md").read_text()


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_statement_has_help_in_the_shell(name):
    assert any(title.split()[0] == name for title in HELP_OF_STATEMENTS)


@pytest.mark.parametrize("name", HELP_OF_STATEMENTS)
def test_the_examples_of_the_shells_help_are_statements(name):
    (source,) = split(HELP_OF_STATEMENTS[name].example)
    assert source.sql.upper().startswith(name)
    parse_statement(source)


def test_every_operator_documents_its_algebra_state_cost_and_nulls():
    operators = [
        path
        for path in (ROOT / "src/headrace/algebra/operators").glob("*.py")
        if "(StatefulOperator):" in path.read_text()
    ]
    assert len(operators) >= 9
    for path in operators:
        for section in ("Algebra:", "State:", "Cost per epoch:", "NULL:"):
            assert section in path.read_text(), f"{path.name} lacks {section}"


def lines_to_read(source: str) -> int:
    """How many lines a reader has before them: all but those of imports."""
    imports = (ast.Import, ast.ImportFrom)
    found = [each for each in ast.walk(ast.parse(source)) if isinstance(each, imports)]
    return len(source.splitlines()) - sum(each.end_lineno - each.lineno + 1 for each in found)


def test_no_module_is_too_long_to_read():
    for path in (ROOT / "src").rglob("*.py"):
        assert lines_to_read(path.read_text()) <= 600, path


LONG_PAGES = ("changing.md", "lineage.md", "queries.md", "repair.md")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(path, id=path.name, marks=[pytest.mark.long] * (path.name in LONG_PAGES))
        for path in sorted((ROOT / "docs/sql").glob("*.md"))
        if "```sql" in path.read_text(encoding="utf-8")
    ],
)
def test_the_examples_of_the_sql_reference_run(db, page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = None
    for kind, block in re.findall(
        r"```(sql|text|python)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL
    ):
        match kind:
            case "sql":
                result = db.sql(block)
            case "python":
                exec(compile(block, page.name, "exec"), {"db": db})  # noqa: S102
            case "text":
                assert sorted(map(line, result.fetchall())) == block.strip().split("\n")


@pytest.mark.parametrize("name", HELP_OF_STATEMENTS)
def test_every_statement_is_in_the_contents_of_the_reference(name):
    contents = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| \[.*`{name}`.*\]\(", contents, re.MULTILINE)


def test_the_examples_of_the_server_read_what_they_create(db):
    texts = [(ROOT / name).read_text() for name in ("README.md", "docs/server.md")]
    found = [re.findall(r"```sql\n(CREATE TABLE orders .*?)```", text, re.DOTALL) for text in texts]
    assert found[0] == found[1]
    assert len(found[0]) == 1
    db.sql(found[0][0])
    (query,) = re.findall(r"\"sql\": \"(SELECT \* FROM totals WHERE name = \?)", texts[1])[:1]
    rows = db.sql(query, ["ann"]).fetchall()
    (shown,) = re.findall(r"^ \"rows\": (\[.*?\]\]),", texts[1], re.MULTILINE)[:1]
    assert shown == str([list(map(str, row)) for row in rows]).replace("'", '"')


def line(row):
    return " | ".join("NULL" if value is None else str(value) for value in row)


def test_the_page_of_tested_queries_is_current():
    assert PAGE.read_text("utf-8") == page(), "run python tests/coverage_table.py"


def test_decisions_are_numbered_one_by_one():
    files = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [int(file.name[:4]) for file in files] == list(range(1, len(files) + 1))
    for number, file in enumerate(files, 1):
        assert file.read_text(encoding="utf-8").startswith(f"# {number}. "), file.name


def test_every_dependency_has_its_reason_in_decision_3():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    text = (ROOT / "docs" / "decisions" / "0003-dependencies.md").read_text(encoding="utf-8")
    needed = [
        *project["project"]["dependencies"],
        *(each for extra in extras.values() for each in extra),
        *project["dependency-groups"]["dev"],
    ]
    names = {re.split(r"[^\w-]", each)[0] for each in needed}
    assert len(names) > 30
    assert not {name for name in names | extras.keys() if f"`{name}`" not in text}
