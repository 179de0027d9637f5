"""The connection to the JVM, without the wait of 40 ms for an answer of more than 8 KB.

The JVM writes an answer in blocks of 8 KB. With Nagle's algorithm, which py4j leaves on, a block is
sent only when the one before it has been acknowledged, and Linux delays an acknowledgement by 40
ms. Here the kernel is asked to acknowledge at once. The request holds until the next block has
arrived, so it is repeated before each read.
"""

from __future__ import annotations

import io
import socket
from functools import wraps
from typing import TYPE_CHECKING, Any

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BUFFER = 1 << 16
_QUICK = getattr(socket, "TCP_QUICKACK", None)
"""Linux has this option; other systems acknowledge in their own ways."""


class _PromptReader(io.RawIOBase):
    """Reads from a socket, and asks the kernel to acknowledge what arrives at once."""

    def __init__(self, source: socket.socket, option: int) -> None:
        self._source = source
        self._option = option

    def readable(self) -> bool:
        """Return True: it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what has arrived, at least one byte unless the connection has ended."""
        self._source.setsockopt(socket.IPPROTO_TCP, self._option, 1)
        return self._source.recv_into(buffer)


def acknowledge_at_once(spark: SparkSession) -> None:
    """Make this process acknowledge answers of the JVM at once, on all of its connections."""
    client: Any = spark.sparkContext._gateway._gateway_client  # noqa: SLF001
    if _QUICK is None or getattr(client, "acknowledges_at_once", False):
        return
    client.acknowledges_at_once = True
    create = client._create_new_connection  # noqa: SLF001

    @wraps(create)
    def create_prompt() -> Any:
        try:
            connection = create()
        except OSError as error:
            raise spark_has_ended(f"Its JVM does not answer: {error}.") from error
        return _prompt(connection, _QUICK)

    client._create_new_connection = create_prompt  # noqa: SLF001
    _prompt(client._get_connection(), _QUICK)  # noqa: SLF001


def spark_has_ended(why: str) -> HeadraceError:
    """Return the error of everyone who needs a Spark that has ended."""
    return HeadraceError(
        Code.UNAVAILABLE,
        "Spark has ended",
        why,
        "Nothing is lost: open the database again. If its heap was full, raise driver_memory.",
    )


def _prompt(connection: Any, option: int) -> Any:
    connection.stream = io.BufferedReader(_PromptReader(connection.socket, option), _BUFFER)
    return connection
