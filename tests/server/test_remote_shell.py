"""The shell on a served database, in a pseudo-terminal: it is the shell of an embedded one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from cli.terminal import CTRL_C, CTRL_D, ENTER, PROMPT, TAB, Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from served import Served


def _slowly(value: int) -> int:
    """Wait, and use no processor: unlike a join without an equality, it ends when cancelled."""
    time.sleep(0.1)
    return value


@pytest.fixture
def shell(server: Served, tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal("real", ["--url", server.server.url, "sql"], tmp_path)
    yield opened
    opened.close()


@pytest.mark.long
def test_a_session_of_a_shell_on_a_server(shell: Terminal, server: Served, tmp_path: Path) -> None:
    shell.see(f'server "{server.server.url}"', r"\q or Ctrl-D leaves.")
    shell.enter("CREATE TABLE wages (id INT PRIMARY KEY, payer STRING, cents_paid DECIMAL(10,2));")
    shell.see("created table wages (")
    shell.enter(
        "CREATE MATERIALIZED VIEW earners AS SELECT payer, sum(cents_paid) AS s FROM wages GROUP BY payer;"
    )
    shell.see("created materialized view earners from 0 changes (")
    shell.enter(
        "INSERT INTO wages VALUES (1, 'ann', 30), (2, 'bob', 12.50); SELECT * FROM earners;"
    )
    shell.see("2 rows inserted", "2 rows (epoch ", ", up to date, ", " s)")
    for row in (" ann   | 30.00", " bob   | 12.50"):
        assert row in shell.screen.text()

    shell.see(PROMPT)
    shell.type("SELECT cents_p" + TAB)
    shell.watch(r"SELECT cents_paid\Z")
    shell.type(", na FROM wag" + TAB)
    shell.watch(r"FROM wages\Z")
    shell.type(";" + ENTER)
    shell.see('"na"', "1 | SELECT cents_paid, na FROM wages", "^^")
    shell.enter(r"\d wages")
    shell.see("column", "type", "cents_paid", "decimal(10,2)")
    shell.enter(r"\l")
    shell.see(server.server.url)

    script = tmp_path / "write.sql"
    script.write_text("INSERT INTO wages VALUES (3, 'ann', 20);\nSUBSCRIBE earners;\n")
    shell.enter(r"\live on")
    shell.enter(rf"\i {script}")
    shell.watch(r" ann +\| +50\.00\n(.*\n)?2 rows \(epoch \d+, 2 changes\)")
    server.database.sql("INSERT INTO wages VALUES (4, 'ann', 1)")
    shell.watch(r" ann +\| +51\.00\n(.*\n)?2 rows \(epoch \d+, 2 changes\)")
    shell.type(CTRL_C)
    shell.see("stopped")

    shell.enter("CREATE TABLE lots (n BIGINT);")
    shell.see("created table lots")
    server.database.insert("lots", [(n,) for n in range(1000)])
    server.database.flush()  # the shell's session need not see what another one writes
    server.database.register("slowly_s", _slowly, returns="BIGINT", deterministic=True)
    shell.enter("SELECT sum(slowly_s(n)) FROM lots;")
    shell.see("running; Ctrl-C cancels")
    shell.type(CTRL_C)
    shell.see("stopped")
    shell.enter("SELECT count(*) + 1 AS next FROM lots WHERE n > 5;")
    shell.see("next", "995", "1 row (")
    shell.see(PROMPT)
    shell.type(CTRL_D)
    assert shell.ended() == 0
