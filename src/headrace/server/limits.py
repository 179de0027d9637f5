"""What clients of a server may ask for: every limit is finite."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one server."""

    sql_bytes: int = 1 << 20
    """The longest request that holds SQL."""
    rows_bytes: int = 64 << 20
    """The longest request that holds rows: it is appended as a whole, from memory."""
    body_seconds: float = 60.0
    """How long the body of a request may take to come, and a second more for each 64 KiB of it."""
    held_bytes: int = 256 << 20
    """How much of such requests is in memory at a time; others are refused meanwhile."""
    statement_seconds: float = 60.0
    """How long a statement may take if its request names no timeout."""
    longest_seconds: float = 3600.0
    """The longest timeout that a request may name."""
    json_rows: int = 100_000
    """The most rows of one JSON document, which is made in memory; other formats are streamed."""
    result_bytes: int = 1 << 30
    """The largest result, as Arrow."""
    statements: int = 16
    """How many statements run side by side."""
    queued: int = 64
    """How many more may wait; others are refused."""
    sessions: int = 256
    idle_seconds: float = 600.0
    """After how long without a statement a session ends."""
    logins: int = 1000
    """How many browsers are logged in; beyond that, the one that was idle for longest is not."""
    login_seconds: float = 12 * 3600.0
    """After how long without a request a login ends."""
    subscribers: int = 2000
    followed: int = 64
    """How many different views and queries are followed."""
    lag_bytes: int = 4 << 20
    """How much may wait in memory to be sent to a subscriber; one that is slower reads by itself
    what it has missed."""
    lag_seconds: float = 30.0
    """After how long a subscriber that takes nothing is dropped."""
