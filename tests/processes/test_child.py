"""Processes of ours: asked, cancelled, and ended with all that they have started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.cancelling import Cancellation
from headrace.interfaces.processes.messages import Child, Done, EndedError, Failed

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), *sys.path]))
    made = Child.started("pretended", tmp_path / "errors")
    yield made
    made.kill()


def ends(pid: int) -> bool:
    """Whether a process ends within a minute."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_it_answers_and_keeps_what_it_writes_of_errors(child: Child, tmp_path: Path):
    assert [child.ask(value, 1) for value in ("a", {"b": 2})] == ["a", {"b": 2}]
    assert (tmp_path / "errors").read_text() == "an error of Java\n"
    assert child.is_alive


def cancelled(child: Child, message: str, grace: float) -> HeadraceError:
    """Ask in a statement that is cancelled while it waits; return its error."""
    cancellation = Cancellation()

    def cancel() -> None:
        while not cancellation.running:
            time.sleep(0.01)
        cancellation.asked = True

    threading.Thread(target=cancel).start()
    with cancellation.statement(), pytest.raises(HeadraceError) as found:
        child.ask(message, grace)
    return found.value


def test_what_ends_when_it_is_cancelled_leaves_the_process_in_use(child: Child):
    assert cancelled(child, "obey", 60).code is Code.CANCELLED
    assert child.ask("next", 1) == "next"


def test_what_it_needs_for_an_answer_is_given_by_its_question(child: Child):
    assert child.ask(("need", 20), 1, give=lambda n: n + 1) == Done(21)

    def fails(_question: object) -> object:
        raise HeadraceError(Code.CORRUPT, "no such segment")

    failed = child.ask(("need", 20), 1, give=fails)
    assert (type(failed), failed.error.primary) == (Failed, "no such segment")


def test_what_needs_something_when_it_is_cancelled_stays_in_use(child: Child):
    assert cancelled(child, "need when cancelled", 60).code is Code.CANCELLED
    assert child.ask("next", 1) == "next"


def test_what_does_not_end_is_killed_with_all_that_it_has_started(child: Child):
    started = child.ask("pid", 1)
    assert cancelled(child, "disobey", 0.05).code is Code.CANCELLED
    assert not child.is_alive
    assert ends(started)


@pytest.mark.parametrize("message", ["end", "killed"])
def test_the_end_of_the_process_is_noticed(child: Child, message: str):
    if message == "killed":
        os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(EndedError):
        child.ask(message, 1)
    assert not child.is_alive


def test_what_it_wrote_is_a_reason_only_of_its_own_end(child: Child):
    assert child.ask("a", 1) == "a"
    with pytest.raises(EndedError):
        child.ask("end", 1)
    assert child.ending == "ended with status 1: an error of Java"


def test_a_process_that_is_killed_ended_by_a_signal(child: Child):
    assert child.ask("a", 1) == "a"
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(EndedError):
        child.ask("b", 1)
    assert child.ending == "ended by signal 9"


def test_what_is_left_of_a_process_that_has_ended_is_killed(child: Child):
    started = child.ask("pid", 1)
    os.kill(child.pid, signal.SIGKILL)
    while child.is_alive:
        time.sleep(0.01)
    assert Path(f"/proc/{started}").exists()
    child.kill()
    assert ends(started)


def test_it_may_be_killed_while_it_is_asked(child: Child):
    threading.Timer(0.1, child.kill).start()
    with pytest.raises(EndedError):
        child.ask("disobey", 1)


def test_it_ends_when_this_process_is_killed(tmp_path: Path):
    """As by kill -9, which leaves no time to end anything."""
    text = (
        "import sys; from pathlib import Path; from headrace.interfaces.processes.messages import Child;"
        "child = Child.started('pretended', Path(sys.argv[1]));"
        "print(child.pid, child.ask('pid', 1), flush=True); child.ask('disobey', 1)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    with subprocess.Popen(
        [sys.executable, "-c", text, str(tmp_path / "errors")],
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pids = list(map(int, parent.stdout.readline().split()))
        assert len(pids) == 2
        parent.kill()
    assert all(ends(pid) for pid in pids)
