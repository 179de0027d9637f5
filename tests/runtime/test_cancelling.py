"""Cancelling a statement that waits, without a JVM."""

from __future__ import annotations

import threading

import pytest

from headrace.errors import HeadraceError
from headrace.runtime.cancelling import Cancellation, StatementLock


def test_a_cancelled_statement_does_not_wait_for_a_lock_that_others_hold() -> None:
    lock = StatementLock()
    cancellation, held, done = lock.cancellation, threading.Event(), threading.Event()

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
    cancellation.check()
    with cancellation.statement():
        cancellation.check()
        cancellation.asked = True
        beside = threading.Thread(target=cancellation.check)
        beside.start()
        beside.join()
        with pytest.raises(HeadraceError):
            cancellation.check()
    cancellation.check()
    assert not cancellation.running
