"""The limits of a server: each is finite."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one server."""

    sql_bytes: int = 1 << 20
    """The maximum bytes of a request with SQL."""
    rows_bytes: int = 64 << 20
    """The maximum bytes of a request with rows, which is appended as a whole from memory."""
    body_seconds: float = 60.0
    """How long a request's body may take to arrive, plus one second per 64 KiB."""
    held_bytes: int = 256 << 20
    """The maximum bytes of such requests in memory at a time; further ones are refused."""
    statement_seconds: float = 60.0
    """The default timeout of a statement."""
    longest_seconds: float = 3600.0
    """The maximum timeout that a request may set."""
    json_rows: int = 100_000
    """The maximum rows of a JSON document, which is built in memory; other formats are streamed."""
    result_bytes: int = 1 << 30
    """The maximum bytes of a result, as Arrow."""
    statements: int = 16
    """The number of statements that run concurrently."""
    lookups: int = 8
    """The number of lookups that run concurrently beside them, so that none waits for a write."""
    queued: int = 64
    """The number of statements that may wait; further ones are refused."""
    sessions: int = 256
    idle_seconds: float = 600.0
    """The idle time after which a session ends."""
    logins: int = 1000
    """The maximum number of browser logins; another one ends the login that was idle longest."""
    login_seconds: float = 12 * 3600.0
    """The idle time after which a login ends."""
    subscribers: int = 2000
    followed: int = 64
    """The maximum number of different views and queries that are followed."""
    lag_bytes: int = 4 << 20
    """The maximum bytes queued for a subscriber; beyond, the changes are read from storage."""
    lag_seconds: float = 30.0
    """The time without progress after which a subscriber is disconnected."""
