"""``headrace serve``: where it listens, and how it ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import urllib.request
from typing import TYPE_CHECKING

import pytest

from headrace.errors import Code, HeadraceError
from headrace.interfaces.server.address import ListenAddress
from headrace.tools.cli import serve
from headrace.tools.cli.restarting import LostDatabaseError

if TYPE_CHECKING:
    from conftest import Command


def free_port() -> int:
    with ListenAddress.of("127.0.0.1:0").bound() as found:
        return int(found.getsockname()[1])


@pytest.mark.parametrize(("ending", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_it_serves_until_it_is_asked_to_end(command: Command, ending: int, code: int) -> None:
    port, answers = free_port(), []
    before = signal.getsignal(signal.SIGTERM)

    def ask() -> None:
        while not answers:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz") as found:
                    answers.append(found.read())
            except OSError:
                time.sleep(0.02)
        while signal.getsignal(signal.SIGTERM) is before:  # it has not said where it is
            time.sleep(0.02)
        os.kill(os.getpid(), ending)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    address = f"127.0.0.1:{port}"
    assert command("serve", "--listen", address, "--query-processes", "0") == code
    asking.join()
    assert answers == [b'{"status":"ok"}']
    assert f"at http://127.0.0.1:{port} (Ctrl-C stops it)" in command.out
    assert command.database.closed


def test_an_address_that_others_could_reach_is_refused_before_anything_is_opened(
    command: Command,
) -> None:
    command.connect = lambda *_: pytest.fail("it was opened")
    assert command("serve", "--listen", "0.0.0.0:8088") == 1
    assert "error[unsupported]: listening on '0.0.0.0' without TLS is not supported" in command.err


def test_without_its_libraries_it_says_how_to_get_them(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert command("serve") == 1
    assert "error[invalid]: the library uvicorn is not installed" in command.err
    assert 'pip install "headrace[server]"' in command.err


def test_a_server_whose_spark_was_asked_to_end_with_it_ends_and_does_not_start_again() -> None:
    found = HeadraceError(Code.UNAVAILABLE, "Spark has ended")

    def lost() -> HeadraceError:
        os.kill(os.getpid(), signal.SIGTERM)
        return found

    serve._wait_for_end(lost)
    with pytest.raises(LostDatabaseError, match="Spark has ended"):
        serve._wait_for_end(lambda: found)
