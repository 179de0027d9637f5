"""The process that writes to a ledger, as the ledger says it, and its last write."""

from __future__ import annotations

import datetime as dt
import os
import socket
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.storage.ledger.records import Fence


@dataclass(frozen=True, slots=True)
class LedgerWriter:
    """A process that has acquired a ledger: ``since`` is in Unix seconds, ``id`` is unique."""

    id: str
    host: str
    pid: int
    since: float

    @classmethod
    def this(cls, now: float) -> Self:
        """Return this process, as one that acquires a ledger now."""
        return cls(uuid.uuid4().hex, socket.gethostname(), os.getpid(), now)

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the writer that :meth:`to_json` wrote."""
        return cls(**value)

    def to_json(self) -> dict[str, Any]:
        """Return a value that ``json`` can write."""
        return asdict(self)

    def __str__(self) -> str:
        """Return the process, its host and since when it writes."""
        since = dt.datetime.fromtimestamp(self.since, dt.UTC)
        return f'process {self.pid} on host "{self.host}" since {since:%Y-%m-%d %H:%M:%S} UTC'


@dataclass(frozen=True, slots=True)
class LockedFence:
    """The fence, locked by a transaction.

    ``writer`` is the id of the writer that has acquired it, and ``written`` the number of its last
    write, where the database keeps them.
    """

    token: Fence
    writer: str | None = None
    written: int | None = None
