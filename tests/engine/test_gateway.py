"""Answers of the JVM are acknowledged at once, on every connection."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from headrace.execution.engine.jobs.lease import _prompt, acknowledge_at_once

if TYPE_CHECKING:
    import io


class Connection:
    """A connection as py4j has it, which remembers what is asked of its socket."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.socket = self
        self.options: list[tuple[int, int, int]] = []
        self.stream: io.BufferedIOBase | None = None

    def setsockopt(self, *option: int) -> None:
        self.options.append(option)

    def recv_into(self, buffer: memoryview) -> int:
        return self.end.recv_into(buffer)


def test_each_read_asks_for_an_acknowledgement_and_loses_no_byte() -> None:
    here, there = socket.socketpair()
    sent = b"".join(b"%06d" % n for n in range(50_000)) + b"\n"
    sender = threading.Thread(target=lambda: (there.sendall(sent), there.close()))
    sender.start()
    connection = _prompt(Connection(here), 12)
    assert connection.stream.readline() == sent
    assert connection.stream.readline() == b""
    sender.join()
    here.close()
    assert len(connection.options) > 2
    assert set(connection.options) == {(socket.IPPROTO_TCP, 12, 1)}


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="an option of Linux")
def test_connections_of_all_threads_are_prompt(spark) -> None:
    acknowledge_at_once(spark)
    acknowledge_at_once(spark)
    client = spark.sparkContext._gateway._gateway_client
    found = []

    def ask() -> None:
        answer = spark.sparkContext._jvm.org.apache.commons.lang3.StringUtils.repeat("xy", 50_000)
        found.append((answer == "xy" * 50_000, type(client._get_connection().stream.raw).__name__))

    ask()
    other = threading.Thread(target=ask)
    other.start()
    other.join()
    assert found == [(True, "_PromptReader")] * 2
