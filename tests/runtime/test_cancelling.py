"""Cancelling a statement that waits, without a JVM."""

from __future__ import annotations

import threading

import pytest

from headrace.errors import HeadraceError
from headrace.execution.runtime.cancelling import Cancellation, StatementLock, check_cancelled


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


def test_a_lock_goes_to_who_has_waited_longest_not_back_to_who_had_it() -> None:
    lock, order = StatementLock(), []

    def take(name: str) -> None:
        with lock:
            order.append(name)

    waiting = [threading.Thread(target=take, args=(name,)) for name in "ab"]
    with lock:
        for number, thread in enumerate(waiting, 1):
            thread.start()
            while len(lock._waiting) < number:
                pass
    take("again")
    for thread in waiting:
        thread.join()
    assert order == ["a", "b", "again"]


def test_who_gives_up_waiting_is_not_given_the_lock() -> None:
    lock, cancellation = StatementLock(), Cancellation()
    taken = threading.Event()

    def cancelled() -> None:
        with cancellation.statement(), pytest.raises(HeadraceError), lock:
            pass

    def take() -> None:
        with lock:
            taken.set()

    threads = [threading.Thread(target=cancelled), threading.Thread(target=take)]
    with lock:
        threads[0].start()
        while not lock._waiting:
            pass
        threads[1].start()
        cancellation.asked = True
        threads[0].join()
        assert not taken.is_set()
    assert taken.wait(60)
    threads[1].join()


def test_who_no_longer_needs_a_lock_goes_on_without_it_while_others_hold_it() -> None:
    lock, made, order = StatementLock(), [], []

    def wait(name: str) -> None:
        with lock.unless(lambda: name in made) as holds:
            order.append((name, holds))

    def fail() -> None:
        with lock.unless(lambda: not 1 / 0) as holds:
            order.append(("failed", holds))

    waiting = [threading.Thread(target=wait, args=(name,)) for name in "abc"]
    waiting.append(threading.Thread(target=fail))
    with lock:
        for number, thread in enumerate(waiting, 1):
            thread.start()
            while len(lock._waiting) < number:
                pass
        made.append("b")
        lock.reconsider()
        waiting[1].join()
        waiting[3].join()
        assert sorted(order) == [("b", False), ("failed", False)]
        lock.wait_free(60)  # which its holder does not wait for
    for thread in waiting:
        thread.join()
    assert order[2:] == [("a", True), ("c", True)]
    lock.wait_free(60)


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
