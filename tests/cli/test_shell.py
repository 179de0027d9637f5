"""The shell in a pseudo-terminal, as a person at the keyboard has it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from cli.terminal import CTRL_C, CTRL_D, ENTER, PROMPT, TAB, UP, Terminal
from headrace.tools.cli.commands import COMMANDS, HELP
from headrace.tools.cli.interpreter import complete

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    arguments = ["--data", str(tmp_path / "data"), "sql"]
    opened = Terminal("fake", arguments, tmp_path, EDITOR="/bin/sh -c 'echo SAY edited\\; > $0'")
    yield opened
    opened.close()


@pytest.mark.long
def test_a_statement_may_take_several_lines_and_ends_with_a_semicolon(terminal: Terminal) -> None:
    terminal.see(r"\q or Ctrl-D leaves.")
    terminal.enter("SELECT 1")
    terminal.see("...")
    terminal.type(";\r")
    terminal.see("user", "total", "ann", "30", "NULL", "4", "2 rows (epoch 7, ")
    terminal.enter(r"\q")
    assert terminal.ended() == 0


@pytest.mark.long
def test_errors_do_not_end_the_shell_and_ctrl_d_does(terminal: Terminal) -> None:
    terminal.enter("BAD thing;")
    terminal.see("error[invalid]: it is bad", "^^^^", "hint: Make it good.")
    terminal.enter("BUG;")
    terminal.see("error[internal]: ZeroDivisionError: of nobody's making")
    terminal.enter(r"\tming")
    terminal.see(r'command "\tming" does not exist', r"Did you mean \timing?")
    terminal.enter("CREATE x;")
    terminal.see("create is done (")
    terminal.see(PROMPT)
    terminal.type(CTRL_D)
    assert terminal.ended() == 0


@pytest.mark.long
def test_ctrl_c_drops_what_is_typed(terminal: Terminal) -> None:
    terminal.see(PROMPT)
    terminal.type("SELECT half" + CTRL_C)
    terminal.enter("CREATE x;")
    terminal.see("create is done (")
    terminal.enter("Exit;")
    assert terminal.ended() == 0


def test_ctrl_c_cancels_the_running_statement_and_not_the_shell(terminal: Terminal) -> None:
    terminal.enter("WAIT; CREATE x;")
    terminal.see("waiting for Ctrl-C")
    terminal.type(CTRL_C)
    assert "is done" not in terminal.see("stopped")
    terminal.enter("CREATE x;")
    terminal.see("create is done (")


@pytest.mark.long
def test_changes_are_shown_until_ctrl_c(terminal: Terminal) -> None:
    terminal.enter("SUBSCRIBE totals;")
    terminal.see("Ctrl-C ends them", "+I", "ann", "-U", "+U", "1000000", "NULL", "NULL")
    terminal.type(CTRL_C)
    terminal.see("stopped")
    terminal.enter("CREATE x;")
    terminal.see("create is done (")


@pytest.mark.long
def test_tab_completes_what_is_typed(terminal: Terminal) -> None:
    terminal.see(PROMPT)
    terminal.type("SAY tot" + TAB)
    terminal.see("als")
    terminal.type(" WHERE use" + TAB)
    terminal.see("WHERE", "r")
    terminal.type(";\r")
    terminal.see("said: SAY totals WHERE user")


@pytest.mark.long
def test_commands_describe_and_switch(terminal: Terminal) -> None:
    terminal.enter(r"\d")
    terminal.see("name", "kind", "columns", "readings", "stream", "totals", "view", "user string")
    terminal.enter(r"\dt")
    terminal.see(r"There are no tables; \h CREATE shows how to make one.")
    terminal.enter(r"\dn")
    terminal.see("show is done")
    terminal.enter(r"\d totals;")
    terminal.see("describe is done")
    terminal.enter(r"\timing off")
    terminal.see("timing is off")
    terminal.enter("SELECT 1;")
    terminal.see("2 rows (epoch 7)")
    terminal.enter(r"\f json")
    terminal.see("format is json")
    terminal.enter("SELECT 1;")
    terminal.see('{"user":null,"total":4}')
    terminal.enter(r"\f xml")
    terminal.see('format "xml" does not exist')
    terminal.enter(r"\?")
    terminal.see(r"\d+ NAME")


@pytest.mark.long
def test_statements_are_remembered_without_their_secrets(
    terminal: Terminal, tmp_path: Path
) -> None:
    terminal.enter("CREATE x WITH (password = 'hush');")
    terminal.see("create is done")
    terminal.see(PROMPT)
    terminal.type(UP + "\r")
    terminal.see("create is done")
    terminal.enter(r"\q")
    assert terminal.ended() == 0
    history = tmp_path / "state" / "headrace" / "history"
    assert "CREATE x WITH (password = '****')" in history.read_text(encoding="utf-8")
    assert history.stat().st_mode & 0o077 == 0


@pytest.mark.long
def test_progress_is_shown_on_a_terminal_and_gone_afterwards(terminal: Terminal) -> None:
    terminal.enter("LOAD x;")
    terminal.see("copying a.csv", "512 bytes of 2.0 kB, 3 rejected", "9 rows copied (")


@pytest.mark.long
def test_ctrl_c_with_nothing_typed_says_how_to_leave(terminal: Terminal) -> None:
    terminal.see(PROMPT)
    terminal.type(CTRL_C)
    terminal.see(r"Type \q or press Ctrl-D to leave.")
    terminal.see(PROMPT)
    terminal.type(CTRL_D)
    assert terminal.ended() == 0


@pytest.mark.long
def test_watch_draws_over_its_result_until_ctrl_c(terminal: Terminal) -> None:
    terminal.enter(r"TICK now \watch 0.01")
    terminal.watch(r"every 0.01 s, Ctrl-C ends it: TICK now\n ticks\s*\n-+\n tick [5-9]")
    shown = terminal.screen.text()
    assert len(re.findall(r"tick \d", shown)) == 1, shown
    terminal.type(CTRL_C)
    terminal.see("stopped")
    terminal.enter("CREATE x;")
    terminal.see("create is done (")


@pytest.mark.long
def test_watch_ends_after_as_many_times_as_asked_for(terminal: Terminal) -> None:
    terminal.enter("TICK;")
    terminal.see("tick 1")
    terminal.enter(r"\watch i=0.01 c=3")
    terminal.see("tick 4")
    terminal.enter(r"\watch soon")
    terminal.see("cannot be read", r"hint: Type \watch 5")
    terminal.enter(r"SUBSCRIBE totals \watch 1")
    terminal.see("a statement that follows changes cannot be watched")


@pytest.mark.long
def test_a_live_table_shows_the_rows_as_they_are_now(terminal: Terminal) -> None:
    terminal.enter(r"\live on")
    terminal.see("live is on")
    terminal.enter("SUBSCRIBE totals;")
    terminal.watch(r"2 rows|3 rows \(epoch 2, 3 changes\); Ctrl-C ends it")
    shown = terminal.screen.text()
    assert re.search(r"user \| +total\n-+\+-+\n ann +\| +1000000\n NULL \| +4\n NULL", shown), shown
    terminal.type(CTRL_C)
    terminal.see("stopped\n")


@pytest.mark.long
def test_long_results_go_through_the_pager(terminal: Terminal) -> None:
    terminal.enter("LONG;")
    terminal.see("199", "200 rows (epoch 7")
    terminal.enter(r"\pager off")
    terminal.see("pager is off")
    terminal.enter("LONG;")
    terminal.see("199", "200 rows (epoch 7")


@pytest.mark.long
def test_a_wide_table_is_cut_to_the_terminal_and_expanded_is_whole(terminal: Terminal) -> None:
    terminal.enter("WIDE;")
    terminal.see("xxx… |", r"cut to the terminal: \x on shows all of it")
    assert all(len(line) <= 100 for line in terminal.screen.text().splitlines())
    terminal.enter(r"WIDE \gx")
    terminal.see("-[ row 1 ]-", "column0 | " + "x" * 60, "column3 | " + "x" * 60)
    terminal.enter(r"\x")
    terminal.see("expanded display is on")
    terminal.enter("WIDE;")
    terminal.see("column3 | " + "x" * 60)


@pytest.mark.long
def test_results_can_go_to_a_file(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    terminal.enter(rf"\o {file}")
    terminal.see("results go to")
    terminal.enter("SELECT 1;")
    terminal.enter(r"\o")
    terminal.enter("SAY back;")
    terminal.see("said: SAY back")
    assert file.read_text() == " user | total\n------+-------\n ann  |    30\n NULL |     4\n"


@pytest.mark.long
def test_a_script_runs_with_its_commands(terminal: Terminal, tmp_path: Path) -> None:
    script = tmp_path / "a.sql"
    script.write_text("SAY one;\n\\echo it's two\nSAY three \\g\n\\format json\nSELECT 1;\nBAD;\n")
    terminal.enter(rf"\i {script}")
    terminal.see("said: SAY one", "it's two", "said: SAY three", '{"user":"ann","total":30}')
    terminal.see("error[invalid]: it is bad", f"--> {script}:6:1", "^^^")
    script.write_text(rf"\i {script}")
    terminal.enter(rf"\i {script}")
    terminal.see("is included too deep")


@pytest.mark.long
def test_the_editor_changes_the_last_statement(terminal: Terminal) -> None:
    terminal.enter("SAY this;")
    terminal.see("said: SAY this")
    terminal.enter(r"\e")
    terminal.see("said: SAY edited")


@pytest.mark.long
def test_a_command_leaves_the_statement_before_it_at_the_prompt(terminal: Terminal) -> None:
    terminal.enter(r"SAY half \d")
    terminal.see("readings", "totals", PROMPT, "SAY half")
    terminal.type(";" + ENTER)
    terminal.see("said: SAY half")


@pytest.mark.long
def test_help_is_there_for_every_command_and_for_statements(terminal: Terminal) -> None:
    for command in COMMANDS:
        assert f"  {command.name} {command.arguments}".rstrip() in HELP
    terminal.enter(r"\h create t")
    terminal.see("CREATE TABLE: declare a table", "PRIMARY KEY", "Example:")
    terminal.enter(r"\h selct")
    terminal.see(r"Did you mean \h SELECT?")
    terminal.enter(r"\df *_day")
    terminal.see("last_day", "next_day", "2 rows")
    terminal.enter(r"\l")
    terminal.see("data directory", "mill", "1 stream, 1 view")


@pytest.mark.parametrize(
    "text",
    ["", "SELECT 1;", "SELECT 1; -- done", "-- note", r"\d", "quit", r"SELECT 1 \g", r"\echo it's"],
)
def test_enter_runs_what_is_complete(text: str) -> None:
    assert complete(text)


@pytest.mark.parametrize(
    "text", ["SELECT 1", "SELECT ';", "/* ;", "SELECT 1; SELECT 2", "SELEC", r"SELECT '\g"]
)
def test_enter_continues_what_is_not(text: str) -> None:
    assert not complete(text)
