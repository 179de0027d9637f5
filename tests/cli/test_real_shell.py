"""The shell with the real database, in a pseudo-terminal, as a new user has it.

One test, since each step works in what those before it have left, and Spark starts once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cli.terminal import CTRL_C, CTRL_D, ENTER, PROMPT, TAB, UP, Terminal
from headrace.tools.cli.shell import FIRST_STEPS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(
        "real",
        ["--data", str(tmp_path / "data"), "sql"],
        tmp_path,
        HEADRACE_PARTITIONS="2",
        JDK_JAVA_OPTIONS="-XX:TieredStopAtLevel=1",
    )
    yield opened
    opened.close()


def the_shell_says_what_it_opened_and_what_to_try(shell: Terminal, _: Path) -> None:
    shell.see("created data directory", "opening")
    shell.see("empty, epoch 0 (opened in ", r"\q or Ctrl-D leaves.", "Three things to try:")
    for step in FIRST_STEPS:
        assert step in shell.see(step)


def what_it_suggests_works(shell: Terminal, _: Path) -> None:
    create, view, insert = FIRST_STEPS
    shell.enter(create)
    shell.see("created table orders (")
    shell.enter(view)
    shell.see("created materialized view totals from 0 changes (")
    shell.enter(insert)
    shell.see("2 rows inserted", "name |   sum", "2 rows (epoch ", ", up to date, ", " s)")
    for row in (" ann  | 30.00", " bob  | 12.50"):
        assert row in shell.screen.text()


def a_statement_is_typed_over_lines_with_completion_and_found_again(
    shell: Terminal, _: Path
) -> None:
    shell.see(PROMPT)
    shell.type("SELECT nam" + TAB)
    shell.watch(r"SELECT name\Z")
    shell.type(", na, amount * 2" + ENTER + "FROM ord" + TAB)
    shell.watch(r"FROM orders\Z")
    shell.type(" WHERE id = 1;" + ENTER)
    shell.watch(r"(?s)orders WHERE id = 1;.*error\[\w+\].*\"na\"")
    shell.see(PROMPT)
    shell.type(UP)
    shell.see("WHERE id = 1;")
    shell.type(CTRL_C)
    shell.enter("SELECT na FROM orders WHERE id = 1;")
    shell.see('"na"', "1 | SELECT na FROM orders", "^^", 'hint: Did you mean "name"?')


def relations_are_listed_and_described(shell: Terminal, _: Path) -> None:
    shell.enter(r"\d")
    shell.see(
        "orders",
        "table",
        "id int, name string, amount decimal(10,2)",
        "totals",
        "materialized view",
    )
    shell.enter(r"\d orders")
    shell.see("column", "type", "amount", "decimal(10,2)")
    shell.enter(r"\d+ totals")
    shell.see("query", "sum(amount)")
    shell.enter(r"\l")
    shell.see("last epoch")


def watch_shows_what_others_write(shell: Terminal, _: Path) -> None:
    shell.enter(r"SELECT count(*) AS n FROM orders \watch 0.1")
    shell.watch(r"every 0\.1 s.*\n n\s*\n-+\n 2\n1 row")
    shell.type(CTRL_C)
    shell.see("stopped")


def a_live_table_changes_as_rows_are_written(shell: Terminal, home: Path) -> None:
    script = home / "write.sql"
    script.write_text("INSERT INTO orders VALUES (3, 'ann', 20);\nSUBSCRIBE totals;\n")
    shell.enter(r"\live on")
    shell.enter(rf"\i {script}")
    shell.watch(r" ann +\| +50\.00\n(.*\n)?2 rows \(epoch \d+, 2 changes\)")
    shell.type(CTRL_C)
    shell.see("stopped")


def ctrl_c_cancels_a_query_that_computes_and_the_next_one_runs(shell: Terminal, _: Path) -> None:
    rows = ", ".join(f"({n})" for n in range(1000))
    shell.enter("CREATE TABLE many (n BIGINT);")
    shell.see("created table many")
    shell.enter(f"INSERT INTO many VALUES {rows};")
    shell.see("1,000 rows inserted")
    shell.enter(
        "SELECT count(*) FROM many a, many b, many c, many d WHERE (a.n*b.n+c.n*d.n) % 1003 = 7;"
    )
    shell.see("running; Ctrl-C cancels")
    shell.type(CTRL_C)
    shell.see("stopped")
    shell.enter("SELECT count(*) + 1 AS next FROM many WHERE n > 5;")
    shell.see("next", "995", "1 row (")


def ctrl_d_leaves(shell: Terminal, _: Path) -> None:
    shell.see(PROMPT)
    shell.type(CTRL_D)
    assert shell.ended() == 0


@pytest.mark.long
@pytest.mark.spark
def test_a_session_from_the_first_line_to_the_last(shell: Terminal, tmp_path: Path) -> None:
    for step in (
        the_shell_says_what_it_opened_and_what_to_try,
        what_it_suggests_works,
        a_statement_is_typed_over_lines_with_completion_and_found_again,
        relations_are_listed_and_described,
        watch_shows_what_others_write,
        a_live_table_changes_as_rows_are_written,
        ctrl_c_cancels_a_query_that_computes_and_the_next_one_runs,
        ctrl_d_leaves,
    ):
        step(shell, tmp_path)
