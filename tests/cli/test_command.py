"""The command: formats, errors and exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from cli.fake_database import FakeDatabase, in_use
from headrace import connect
from headrace.interfaces.session import Subscription
from headrace.tools.cli.command import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from conftest import Command
    from headrace.execution.serving import Change


def _press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


# -- formats -------------------------------------------------------------------------------------


def test_a_piped_table_is_plain_aligned_text(command: Command) -> None:
    assert command.sql("CREATE x; SELECT 1") == 0
    assert command.out == (
        "create is done\n user | total\n------+-------\n ann  |    30\n NULL |     4\n"
    )
    assert command.err == ""


def test_json_has_an_object_a_line_and_messages_beside_it(command: Command) -> None:
    assert command.sql("CREATE x; SELECT 1", "--format", "json") == 0
    assert command.out == '{"user":"ann","total":30}\n{"user":null,"total":4}\n'
    assert command.err == "create is done\n"


def test_csv_has_a_header_and_messages_beside_it(command: Command) -> None:
    assert command.sql("CREATE x; SELECT 1", "--format", "csv") == 0
    assert command.out == "user,total\r\nann,30\r\n,4\r\n"
    assert command.err == "create is done\n"


def test_a_result_without_rows_still_has_its_header(command: Command) -> None:
    command.database.answer = pa.table({"n": pa.array([], pa.int32())})
    assert command.sql("SELECT 1") == 0
    assert command.out == " n\n---\n"
    assert command.sql("SELECT 1", "--format", "csv") == 0
    assert command.out.splitlines() == ["n"]
    assert command.sql("SELECT 1", "--format", "json") == 0
    assert command.out == ""


def test_two_columns_of_one_name_are_not_lost_in_json(command: Command) -> None:
    command.database.answer = pa.Table.from_arrays([pa.array([1])] * 2, ["a", "a"])
    assert command.sql("SELECT 1", "--format", "json") == 1
    assert "appears twice" in command.err


def test_vertical_has_a_line_per_value(command: Command) -> None:
    assert command.sql("CREATE x; SELECT 1", "--format", "vertical") == 0
    assert command.out == (
        "create is done\n"
        "-[ row 1 ]-------\nuser  | ann\ntotal | 30\n"
        "-[ row 2 ]-------\nuser  | NULL\ntotal | 4\n"
    )


def test_markdown_is_a_table_with_messages_beside_it(command: Command) -> None:
    command.database.answer = pa.table({"a|b": ["x|y\nz", None], "n": [1, 22]})
    assert command.sql("CREATE x; SELECT 1", "--format", "markdown") == 0
    assert command.out == ("| a\\|b | n |\n| --- | --: |\n| x\\|y<br>z | 1 |\n| NULL | 22 |\n")
    assert command.err == "create is done\n"


# -- scripts -------------------------------------------------------------------------------------


def test_an_error_shows_its_place_and_ends_the_script(command: Command, tmp_path: Path) -> None:
    script = tmp_path / "a.sql"
    script.write_text("\ufeffSELECT 1;\n\n  BAD thing;\nCREATE x;\n", encoding="utf-8")
    assert command("sql", "-f", str(script)) == 1
    assert command.err == (
        "error[invalid]: it is bad\n"
        f"  --> {script}:3:3\n"
        "   3 |   BAD thing;\n"
        "         ^^^^^^^^^\n"
        "hint: Make it good.\n"
    )
    assert command.out.startswith(" user")
    assert command.database.ran == ["SELECT 1", "BAD thing"]
    assert command.database.closed


def test_what_is_piped_in_is_a_script(command: Command) -> None:
    assert command("sql", stdin=b"SELECT ';' -- a;b\n; CREATE x") == 0
    assert command.database.ran == ["SELECT ';'", "CREATE x"]
    assert command("sql", stdin=b"BAD") == 1
    assert "<stdin>:1:1" in command.err


def test_a_script_may_go_on_after_errors_and_still_exits_with_1(command: Command) -> None:
    text = "BAD one; SELECT 1;\n\\nothing\n  BAD two;\nCREATE x"
    assert command.sql(text, "--on-error", "continue", "--format", "csv") == 1
    assert command.database.ran == ["BAD one", "SELECT 1", "BAD two", "CREATE x"]
    assert command.err.count("it is bad") == 2
    assert "   3 |   BAD two;\n         ^^^^^^^\n" in command.err
    assert 'command "\\nothing" does not exist' in command.err
    assert command.sql("SELECT 1; CREATE x", "--on-error", "continue") == 0


def test_commands_of_the_shell_run_in_scripts(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    text = f"\\dt\n\\format csv\n\\o {file}\nSELECT 1;\n\\o\n\\echo it's done\n\\q\nBAD"
    assert command.sql(text) == 0
    assert command.out == " name | kind | columns\n------+------+---------\nit's done\n"
    assert file.read_bytes() == b"user,total\r\nann,30\r\n,4\r\n"
    assert command.sql(r"SELECT 1 \d") == 1
    assert r"the statement before \d does not end" in command.err


def test_files_and_statements_run_in_the_order_given(command: Command, tmp_path: Path) -> None:
    script = tmp_path / "a.sql"
    script.write_text("SELECT 1", encoding="utf-8")
    assert command("sql", "-f", str(script), "-c", "CREATE x") == 0
    assert command("sql", "-c", "CREATE y", "-f", str(script)) == 0
    assert command("sql", "-c", "CREATE z", "-c", "SELECT 2") == 0
    assert command.database.ran == [
        *["SELECT 1", "CREATE x"],
        *["CREATE y", "SELECT 1"],
        *["CREATE z", "SELECT 2"],
    ]


def test_a_script_that_is_not_utf_8_is_refused_before_anything_runs(
    command: Command, tmp_path: Path
) -> None:
    script = tmp_path / "a.sql"
    script.write_bytes(b"SELECT '\xe9'")
    assert command("sql", "-f", str(script)) == 1
    assert "is not UTF-8" in command.err
    assert command.database.ran == []


def test_no_progress_is_shown_where_there_is_no_terminal(command: Command) -> None:
    assert command.sql("LOAD x") == 0
    assert (command.out, command.err) == ("9 rows copied\n", "")


# -- changes -------------------------------------------------------------------------------------


@pytest.fixture
def following(command: Command) -> Command:
    """Press Ctrl-C when all changes have been delivered."""
    command.database = FakeDatabase(at_end=_press_ctrl_c)
    return command


def test_changes_are_shown_until_ctrl_c(following: Command) -> None:
    assert following.sql("SUBSCRIBE totals; CREATE x") == 130
    assert following.out == (
        " epoch | op | user | total\n"
        "-------+----+------+-------\n"
        "     1 | +I | ann  |    30\n"
        "     2 | -U | ann  |      30\n"
        "     2 | +U | ann  | 1000000\n"
        "     2 | +I | NULL |       4\n"
        "     2 | +I | NULL |       4\n"
    )
    assert following.database.ran == ["SUBSCRIBE totals"]
    assert following.database.subscription.closed
    assert following.database.closed


def test_a_query_that_ends_by_itself_lets_the_next_statement_run(command: Command) -> None:
    database = command.database = FakeDatabase()

    def ends() -> None:
        database.subscription.close()

    database.at_end = ends
    assert command.sql("SUBSCRIBE totals; CREATE x") == 0
    assert database.ran == ["SUBSCRIBE totals", "CREATE x"]
    assert command.out.count("ann") == 3


def test_changes_in_json_say_epoch_operation_and_row(following: Command) -> None:
    assert following.sql("SUBSCRIBE totals", "--format", "json") == 130
    lines = [json.loads(line) for line in following.out.splitlines()]
    assert lines[:2] == [
        {"epoch": 1, "op": "+I", "row": {"user": "ann", "total": 30}},
        {"epoch": 2, "op": "-U", "row": {"user": "ann", "total": 30}},
    ]
    assert len(lines) == 5


def test_changes_in_csv_have_one_header(following: Command) -> None:
    assert following.sql("SUBSCRIBE totals", "--format", "csv") == 130
    assert following.out.splitlines()[:3] == ["epoch,op,user,total", "1,+I,ann,30", "2,-U,ann,30"]


# -- failures ------------------------------------------------------------------------------------


def test_an_unforeseen_failure_is_a_message_and_not_a_trace(command: Command) -> None:
    assert command.sql("BUG") == 1
    assert command.err == (
        "error[internal]: ZeroDivisionError: of nobody's making\n"
        "hint: Run the command with --debug to see where it failed.\n"
    )


def test_debug_shows_the_trace(command: Command) -> None:
    assert command("sql", "--debug", "-c", "BUG") == 1
    assert "Traceback" in command.err
    assert "fake_database.py" in command.err
    assert "hint" not in command.err


def test_a_missing_directory_is_created_with_a_notice(command: Command, tmp_path: Path) -> None:
    command.directory = tmp_path / "new" / "data"
    assert command.sql("SELECT 1") == 0
    assert command.err == f'created data directory "{command.directory}"\n'
    assert command.directory.is_dir()


def test_verify_creates_nothing(command: Command, tmp_path: Path) -> None:
    command.directory = tmp_path / "new"
    assert command("verify") == 1
    assert "does not exist" in command.err
    assert not command.directory.exists()


def test_a_file_is_no_data_directory(command: Command, tmp_path: Path) -> None:
    command.directory = tmp_path / "file"
    command.directory.touch()
    assert command.sql("SELECT 1") == 1
    assert "is a file" in command.err


def test_a_directory_in_use_is_an_error(command: Command) -> None:
    command.connect = in_use
    assert command.sql("SELECT 1") == 1
    assert command.err.startswith("error[conflict]: data directory ")
    assert "is open for writing" in command.err


def test_ctrl_c_cancels_the_statement_and_ends_the_script(command: Command) -> None:
    import threading

    def press() -> None:
        assert command.database.waiting.wait(60)
        _press_ctrl_c()

    threading.Thread(target=press).start()
    assert command.sql("WAIT; CREATE x") == 130
    assert command.database.ran == ["WAIT"]
    assert command.database.closed


@pytest.mark.long
def test_a_reader_that_has_gone_ends_the_command_quietly(tmp_path: Path) -> None:
    text = (
        "import sys; from fake_database import FakeDatabase; from headrace.tools.cli.command import main;"
        "sys.exit(main(connect=lambda *_, **_how: FakeDatabase()))"
    )
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-c", text, "--data", str(tmp_path), "sql", "-c", "SELECT 1"],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
        timeout=300,
        cwd=Path(__file__).parent,
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_files_and_statements_run_in_the_order_in_which_they_are_given(
    command: Command, tmp_path: Path
) -> None:
    script = tmp_path / "script.sql"
    script.write_text("SELECT 2; SELECT 3")
    given = ["-c", "SELECT 1", f"--file={script}", "-cSELECT 4", "-f", "-", "-c", "SELECT 6"]
    assert command("sql", *given, stdin=b"SELECT 5") == 0
    assert command.database.ran == [f"SELECT {n}" for n in range(1, 7)]


# -- usage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sql"], "Missing option '--data DIR'"),
        (["verify"], "or '--url URL'"),
        (["--url", "http://h", "sql", "--data", "x"], "exclude each other"),
        (["--url", "http://h", "serve"], "give --data DIR"),
        (["sql", "--data", "x", "--token-file", __file__], "are for --url"),
        (["sql", "--data", "x", "-f", "no-such.sql"], "does not exist"),
        (["sql", "--data", "x", "--format", "xml"], "is not one of"),
        (["sqll"], "No such command"),
    ],
)
def test_wrong_usage_exits_with_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


def test_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "headrace --data mill sql -f setup.sql" in capsys.readouterr().out


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"headrace {version('headrace')}\n"


# -- verify --------------------------------------------------------------------------------------


def test_verify_exits_with_0_where_all_views_are_right(command: Command) -> None:
    assert command("verify", "totals", "--format", "csv") == 0
    assert command.out.splitlines()[1] == "totals,2,0,equal to batch"
    assert command.database.ran == ["VERIFY `totals`"]


@pytest.mark.parametrize("wrong", [("t", 2, 1, "differs"), ("t", 0, 0, "stopped")])
def test_verify_exits_with_1_where_a_view_is_not_known_to_be_right(
    command: Command, wrong: tuple[str, int, int, str]
) -> None:
    command.database.verdicts.append(wrong)
    assert command("verify") == 1
    assert "equal to batch" in command.out


def test_verify_of_no_views_is_right(command: Command) -> None:
    command.database.verdicts = []
    assert command("verify") == 0


# -- the real database ---------------------------------------------------------------------------

_SETUP = """
CREATE STREAM readings (sensor STRING, reading DECIMAL(10, 2));
INSERT INTO readings VALUES ('a', 1.10), ('b', 5), ('a', 2.20);
CREATE MATERIALIZED VIEW totals AS
  SELECT sensor, count(*) AS n, sum(reading) AS total FROM readings GROUP BY sensor;
SELECT * FROM totals ORDER BY sensor;
SELECT senso FROM totals;
"""


@pytest.fixture
def real(command: Command, spark: SparkSession) -> Command:
    """Run the command against the real database, on the session that all tests share."""
    command.connect = lambda path, functions, **_: connect(
        path, spark=spark, partitions=2, functions=functions
    )
    return command


@pytest.mark.spark
def test_a_script_runs_from_end_to_end_and_the_next_command_goes_on(real: Command) -> None:
    assert real("sql", stdin=_SETUP.encode()) == 1
    assert real.out == (
        "created stream readings\n"
        "3 rows inserted\n"
        "created materialized view totals from 3 changes\n"
        " sensor | n | total\n"
        "--------+---+-------\n"
        " a      | 2 |  3.30\n"
        " b      | 1 |  5.00\n"
    )
    assert '"senso"' in real.err
    assert "--> <stdin>:7:8" in real.err

    insert = "INSERT INTO readings VALUES ('b', -5);"
    query = "SELECT total FROM totals WHERE sensor = 'b'"
    assert real.sql(insert + query, "--format", "json") == 0
    assert (real.out, real.err) == ('{"total":"0.00"}\n', "1 row inserted\n")
    assert real("verify", "totals", "--format", "csv") == 0
    assert real.out.splitlines()[1] == "totals,2,0,equal to batch"


@pytest.mark.long
@pytest.mark.spark
def test_changes_of_a_query_are_followed_until_ctrl_c(
    real: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll = Subscription.poll

    def poll_until_nothing_comes(self: Subscription, timeout: float) -> list[Change] | None:
        changes = poll(self, timeout)
        if changes is None:
            _press_ctrl_c()
        return changes

    monkeypatch.setattr(Subscription, "poll", poll_until_nothing_comes)
    assert real("sql", stdin=_SETUP.encode()) == 1
    query = "SELECT sensor, n FROM totals WHERE sensor = 'a' EMIT CHANGES"
    assert real.sql(query, "--format", "json") == 130
    (change,) = map(json.loads, real.out.splitlines())
    assert (change["op"], change["row"]) == ("+I", {"sensor": "a", "n": 2})
