"""A connection to a server that breaks where a test says: before or after what is sent arrives."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_BYTES = 1 << 16


@dataclass
class Cut:
    """Passes connections on to a port of the loopback; ``port`` is its own.

    ``lose_answer_to`` and ``lose`` are cleared once they have broken a connection.
    """

    to: int
    listening: socket.socket
    lose_answer_to: bytes | None = None
    """What has arrived at the server if it is among what a client sends; no answer is passed on."""
    lose: bytes | None = None
    """What does not arrive at the server."""
    refuses: bool = False
    """Whether connections are closed at once."""
    after: bool = False
    """Whether all connections are broken, and others refused, once an answer was lost."""
    broken: int = 0
    """How many connections were broken."""
    _open: list[socket.socket] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.listening.getsockname()[1])

    def accept(self) -> None:
        """Accept connections until the end."""
        while True:
            try:
                client, _ = self.listening.accept()
            except OSError:
                return
            if self.refuses:
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", self.to))
            self._open += [client, server]
            silent = threading.Event()
            for work in (self._sent, self._answered):
                threading.Thread(target=work, args=(client, server, silent), daemon=True).start()

    def break_all(self) -> None:
        """Break all connections, and refuse others."""
        self.refuses = True
        for each in self._open:
            _close(each)

    def _sent(self, client: socket.socket, server: socket.socket, silent: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(_BYTES):
                if self.lose is not None and self.lose in data:
                    self.lose = None
                    self.broken += 1
                    break
                if self.lose_answer_to is not None and self.lose_answer_to in data:
                    self.lose_answer_to = None
                    silent.set()
                server.sendall(data)
        _close(client)
        _close(server)

    def _answered(
        self, client: socket.socket, server: socket.socket, silent: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := server.recv(_BYTES):
                if silent.is_set():
                    self.broken += 1
                    if self.after:
                        self.break_all()
                    break
                client.sendall(data)
        _close(client)
        _close(server)


def _close(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


@contextmanager
def cut(to: int) -> Iterator[Cut]:
    """Pass connections on to a port, from another one."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        made = Cut(to, listening)
        threading.Thread(target=made.accept, daemon=True).start()
        yield made
        made.break_all()
