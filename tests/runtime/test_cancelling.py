"""Cancelling a statement that waits, without a JVM."""

from __future__ import annotations

import threading

import pytest

from headrace.errors import HeadraceError
from headrace.runtime.cancelling import Cancellation, StatementLock, check_cancelled


def test_a_cancelled_statement_does_not_wait_for_a_lock_that_others_hold() -> None:
    lock, cancellation = StatementLock(), Cancellation()
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(60)
    with cancellation.statement():
        cancellation.asked = True
        with pytest.raises(HeadraceError, match="the statement was cancelled"), lock:
            pass
    done.set()
    holder.join()
    with lock, lock:
        pass


def test_only_the_statement_that_runs_is_cancelled() -> None:
    cancellation = Cancellation()
    cancellation.asked = True
    check_cancelled()
    with cancellation.statement():
        check_cancelled()
        cancellation.asked = True
        beside = threading.Thread(target=check_cancelled)
        beside.start()
        beside.join()
        with pytest.raises(HeadraceError):
            check_cancelled()
    check_cancelled()
    assert not cancellation.running
