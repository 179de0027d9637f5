"""The thread that statements run on, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from headrace.tools.cli.statement_thread import Abandoned, Interrupted, StatementThread, let_finish


def _press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def _ignore(_: str) -> None:
    """Take no notice."""


def test_a_call_returns_its_value_or_raises_its_error() -> None:
    thread = StatementThread(_ignore)
    assert thread.call(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        thread.call(lambda: 1 // 0)
    assert thread.call(threading.current_thread) is not threading.current_thread()


def test_ctrl_c_cancels_and_is_raised_when_the_call_has_ended() -> None:
    cancelled = threading.Event()

    def statement() -> None:
        _press()
        assert cancelled.wait(60)
        raise ValueError("cancelled")

    with pytest.raises(Interrupted) as interrupted:
        StatementThread(_ignore).call(statement, cancelled.set)
    assert not interrupted.value.finished


def test_a_call_that_finished_nevertheless_is_reported() -> None:
    pressed = threading.Event()

    def statement() -> int:
        _press()
        assert pressed.wait(60)
        return 7

    with pytest.raises(Interrupted) as interrupted:
        StatementThread(_ignore).call(statement, pressed.set)
    assert interrupted.value.finished
    assert interrupted.value.value == 7


def test_the_third_ctrl_c_leaves_a_statement_that_does_not_stop() -> None:
    ended = threading.Event()
    notices: list[str] = []
    first = threading.Lock()

    def cancel() -> None:
        if first.acquire(blocking=False):
            _press()

    def notice(text: str) -> None:
        notices.append(text)
        _press()

    with pytest.raises(Abandoned):
        StatementThread(notice).call(lambda: (_press(), ended.wait(60)), cancel)
    assert notices == ["still cancelling; press Ctrl-C once more to leave at once"]
    ended.set()


def test_ctrl_c_is_raised_again_after_a_call() -> None:
    before = signal.getsignal(signal.SIGINT)
    StatementThread(_ignore).call(lambda: None, let_finish)
    assert signal.getsignal(signal.SIGINT) is before
