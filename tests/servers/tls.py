"""TLS in front of a server that has none: a proxy in the process, by a certificate of the tests."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BYTES = 1 << 16


@contextmanager
def encrypted(port: int, certificates: Path) -> Iterator[int]:
    """Yield a port of the loopback that passes all on to another, decrypted.

    ``certificates`` is a PEM file with the key and the certificates.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_accept, args=(listener, context, port), daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, context: ssl.SSLContext, port: int) -> None:
    while True:
        try:
            plain, _ = listener.accept()
        except OSError:
            return
        try:
            client = context.wrap_socket(plain, server_side=True)
        except (OSError, ssl.SSLError):
            plain.close()
            continue
        server = socket.create_connection(("127.0.0.1", port))
        for pair in ((client, server), (server, client)):
            threading.Thread(target=_pass, args=pair, daemon=True).start()


def _pass(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(_BYTES):
            target.sendall(data)
    except OSError:
        pass
    finally:
        for each in (source, target):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
