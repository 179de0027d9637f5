"""How far a statement has come, in words."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from cli.terminal import COLUMNS, LINES, Screen
from headrace.interfaces.session import Progress
from headrace.tools.cli.terminal import ProgressBar, count_text, progress_text, status

PATIENCE_SECONDS = 30


def test_rate_and_time_left_follow_what_is_done() -> None:
    filling = Progress("filling", 1_200, 6_000, "rows")
    assert count_text(filling) == "1,200 of 6,000 rows"
    paced = replace(filling, rate=300.4, seconds_left=16.0)
    assert count_text(paced) == "1,200 of 6,000 rows, 300 rows/s, 0:16 left"
    assert count_text(replace(paced, seconds_left=4 * 3600.0)).endswith("4:00:00 left")


def test_where_the_total_is_not_known_only_the_rate_is_shown() -> None:
    copying = Progress("copying", 4_000_000, None, "bytes", rejected=2, rate=2e6)
    assert count_text(copying) == "4.0 MB, 2 rejected, 2.0 MB/s"


def test_nothing_is_left_at_the_end() -> None:
    done = Progress("filling", 10, 10, "rows", rate=2.0, seconds_left=0.0)
    assert count_text(done) == "10 of 10 rows, 2 rows/s"


def test_a_bar_is_as_full_as_the_share_that_is_done() -> None:
    assert progress_text(Progress("filling", 1, 3, "rows")).startswith(
        f"filling {'━' * 10}{'─' * 20} 1"
    )
    assert progress_text(Progress("filling", 5, 3, "rows")).startswith(f"filling {'━' * 30} 5")
    assert progress_text(Progress("copying", 5, None, "bytes")) == "copying 5 bytes"


class Pty:
    """A terminal that this process writes to, and what it has been given so far."""

    def __init__(self) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.stream = os.fdopen(slave, "w")
        self.raw = ""
        self.screen = Screen()

    def read(self, seconds: float) -> bool:
        """Take what is written within some seconds; return whether anything was."""
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        text = os.read(self.master, 65536).decode()
        self.raw += text
        self.screen.write(text)
        return True

    def wait_for(self, pattern: str) -> None:
        """Read until the screen shows a pattern."""
        while not re.search(pattern, self.screen.text()):
            assert self.read(PATIENCE_SECONDS), self.screen.text()


@contextmanager
def terminal():
    opened = Pty()
    try:
        yield opened
    finally:
        opened.stream.close()
        os.close(opened.master)


def test_the_line_moves_on_while_standard_error_is_redirected_and_leaves_nothing() -> None:
    """Starting Spark sends what the JVM writes to a file: the descriptor is another one then."""
    with terminal() as shown:
        with status("starting Spark…", shown.stream):
            shown.wait_for("⠋ starting Spark… 0:0")
            kept = os.dup(shown.stream.fileno())
            with Path(os.devnull).open("w") as nowhere:
                os.dup2(nowhere.fileno(), shown.stream.fileno())
            for frame in "⠙⠹⠸":
                shown.wait_for(f"{frame} starting Spark…")
            os.dup2(kept, shown.stream.fileno())
            os.close(kept)
        shown.stream.write("ready\n")
        shown.stream.flush()
        shown.wait_for("ready")
        assert shown.screen.text() == "ready"
        assert shown.raw.count("\n") == 1


def test_a_statement_that_runs_leaves_no_line_behind() -> None:
    with terminal() as shown:
        bar = ProgressBar(shown.stream)
        for n in range(2):
            with bar:
                shown.wait_for("running; Ctrl-C cancels 0:0")
                bar.update(Progress("filling", 1, 2, "rows"))
                shown.wait_for("filling ━+─+ 1 of 2 rows")
            shown.stream.write(f"result {n}\n")
            shown.stream.flush()
            shown.wait_for(f"result {n}")
        assert shown.screen.text() == "result 0\nresult 1"
        assert shown.raw.count("\n") == 2
