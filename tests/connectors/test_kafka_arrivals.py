"""Messages that a thread reads ahead: none is lost, and how long they are gathered. No broker."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import pytest

from headrace.io.connectors.kafka import arrivals as module
from headrace.io.connectors.kafka.arrivals import Arrivals, Arrived, Batch, gathered_by

HOUR = 3600.0


def batch(text: str) -> Batch:
    """Return a message per letter, which is its value."""
    values = [letter.encode() for letter in text]
    nothing = [None] * len(values)
    numbers = list(range(len(values)))
    return Batch(["t"] * len(values), numbers, numbers, nothing, nothing, values, nothing)


def said(arrived: Arrived) -> tuple[str, dict[str, int], Any]:
    return b"".join(arrived.messages.values).decode(), dict(arrived.ends), arrived.failed


@dataclass
class Client:
    """A client whose polls return what a test sends; a poll waits until something is sent."""

    sent: SimpleQueue[Arrived | Exception] = field(default_factory=SimpleQueue)
    polls: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def consume(self) -> Arrived:
        self.polls.release()
        found = self.sent.get()
        if isinstance(found, Exception):
            raise found
        return found

    def send(self, text: str = "", ends: dict[str, int] | None = None, failed: Any = None) -> None:
        """Send a message per letter, and return when the thread has them and polls again."""
        self.polls.acquire(timeout=60)
        self.sent.put(Arrived(batch(text), ends or {}, failed))


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_IDLE_SECONDS", HOUR)
    return Client()


@pytest.fixture
def arrivals(client: Client):
    begun = Arrivals(client.consume, lambda: 0.0)
    begun.start()
    yield begun
    begun.interrupt()
    client.sent.put(Arrived())
    begun.close()


def polling(client: Client) -> None:
    """Wait until the thread polls, so that what was sent before has arrived."""
    client.polls.acquire(timeout=60)
    client.polls.release()


def test_who_waits_gets_a_message_as_soon_as_it_arrives(client, arrivals) -> None:
    taken: list[Arrived] = []
    waiting = threading.Thread(target=lambda: taken.append(arrivals.take(10)))
    waiting.start()
    client.send("a")
    waiting.join(60)
    assert [said(each)[0] for each in taken] == ["a"]


def test_what_has_arrived_is_taken_by_poll_with_what_is_said_after_it(client, arrivals) -> None:
    client.send("ab")
    client.send("cde", {"t/0": 5})
    client.send()
    polling(client)
    assert said(arrivals.take(4)) == ("ab", {}, None)
    client.send("", {"t/1": 1})
    polling(client)
    assert said(arrivals.take(2)) == ("cde", {"t/0": 5}, None)
    client.send("fg", {"t/0": 6})
    client.send("h", {"t/0": 9})
    polling(client)
    assert said(arrivals.take(3)) == ("fgh", {"t/0": 9, "t/1": 1}, None)


def test_a_failure_comes_after_the_messages_before_it(client, arrivals) -> None:
    client.send("ab")
    client.send("c", failed="lost")
    arrivals._thread.join(60)
    assert said(arrivals.take(2)) == ("ab", {}, None)
    assert said(arrivals.take(2)) == ("c", {}, "lost")
    with pytest.raises(CancelledError):
        arrivals.ask(lambda: None).result()


def test_what_the_thread_raises_is_raised_where_messages_are_taken(client, arrivals) -> None:
    client.send("a")
    client.sent.put(ValueError("no"))
    arrivals._thread.join(60)
    assert said(arrivals.take(1)) == ("a", {}, None)
    with pytest.raises(ValueError, match="no"):
        arrivals.take(1)


def test_questions_are_answered_between_polls_by_the_thread_that_polls(client, arrivals) -> None:
    found: list[Any] = []
    asked = arrivals.ask(lambda: found.append(threading.current_thread()))
    wrong = arrivals.ask([].pop)
    client.send("a")
    asked.result(60)
    assert found == [arrivals._thread]
    with pytest.raises(IndexError):
        wrong.result(60)
    assert said(arrivals.take(1))[0] == "a"


def test_the_thread_stops_reading_where_nobody_takes(client, arrivals, monkeypatch) -> None:
    monkeypatch.setattr(module, "_MOST_WAITING", 3)
    client.send("ab")
    client.send("c")
    assert not client.polls.acquire(timeout=0.01)
    assert said(arrivals.take(3))[0] == "abc"
    client.send("d")
    client.send("e")
    polling(client)
    assert said(arrivals.take(3))[0] == "de"


def test_closing_ends_the_wait_for_messages(client) -> None:
    begun = Arrivals(client.consume)
    begun.start()
    waiting = threading.Thread(target=begun.take, args=(1,))
    waiting.start()
    begun.interrupt()
    waiting.join(60)
    assert not waiting.is_alive()
    client.sent.put(Arrived())
    begun.close()


def test_messages_are_gathered_by_how_long_the_last_part_took_but_not_for_long() -> None:
    assert gathered_by(5.0, 3.0, 0.0) == 5.0
    assert gathered_by(5.0, 3.0, 0.01) == pytest.approx(5.005)
    assert gathered_by(5.0, 5.001, 0.01) == pytest.approx(5.011)
    assert gathered_by(5.0, 3.0, 9.0) == pytest.approx(5.01)
    assert gathered_by(5.0, 9.0, 9.0) == pytest.approx(9.02)


def test_gathering_ends_with_enough_messages(client) -> None:
    now = [0.0]
    begun = Arrivals(client.consume, lambda: now[0])
    begun.start()
    client.send("a")
    polling(client)
    assert said(begun.take(2))[0] == "a"
    now[0] = 1.0  # and no more passes
    client.send("b")
    client.send("c")
    polling(client)
    assert said(begun.take(2))[0] == "bc"
    begun.interrupt()
    client.sent.put(Arrived())
    begun.close()
