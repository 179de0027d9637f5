"""Snapshots of PostgreSQL: which transactions are visible, and copies of tables.

A copy and the changes after it have neither a gap nor an overlap: a transaction is in the copy if
it is visible in the snapshot, and is applied afterwards otherwise. The position ``end`` is taken
after the snapshot, so it is after the commits of all visible transactions; for any transaction that
is committed before ``end``, the snapshot decides.

A commit is written to the server's log before it is visible. If the slot is advanced past it in
between, the transaction would be missing both in the copy and in the changes. So a copy waits for
the transactions that run when it is requested, while the slot is read, and its snapshot must see
all transactions that were read in that time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.csv as pcsv

from headrace.sql.keywords import double_quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.connectors.postgres.tables import CapturedTable, PgTable

_NOW: Final = "SELECT pg_current_snapshot()::text, (pg_current_wal_insert_lsn() - '0/0')::int8"
_PIECE_BYTES: Final = 4 << 20
_ROUND: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The visible transactions: those before ``xmax`` that were not ``running``.

    ``end`` is a position in the server's log after the commits of all of them.
    """

    xmax: int
    running: frozenset[int]
    end: int

    @classmethod
    def of(cls, text: str, end: int) -> Snapshot:
        """Parse PostgreSQL's text of a snapshot, ``xmin:xmax:running,...``."""
        _, xmax, running = text.split(":")
        return cls(int(xmax), frozenset(int(each) for each in running.split(",") if each), end)

    def sees(self, xid: int) -> bool:
        """Whether a committed transaction is visible, by the lower 32 bits of its id."""
        after = (xid - self.xmax) % _ROUND
        full = self.xmax + (after if after < _ROUND // 2 else after - _ROUND)
        return full < self.xmax and full not in self.running


def current(session: Any) -> Snapshot:
    """Return the current snapshot; the session must not be in a transaction."""
    text, end = session.execute(_NOW).fetchone()
    return Snapshot.of(text, end)


def taken(session: Any, tables: Sequence[CapturedTable]) -> Snapshot:
    """Begin a repeatable-read transaction in a session, and return its snapshot.

    The tables are locked first, since statements that rewrite a table ignore snapshots.
    """
    session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    session.execute("SET LOCAL lock_timeout = '10s'")
    names = ", ".join(table.reference.sql for table in tables)
    session.execute(f"LOCK TABLE {names} IN ACCESS SHARE MODE")
    return current(session)


def copied(session: Any, table: CapturedTable, found: PgTable) -> Iterator[list[pa.Array]]:
    """Yield the rows of a table in a session's snapshot in pieces: columns of text."""
    there = {name.lower(): name for name, _ in found.columns}
    there |= {name: name for name, _ in found.columns}
    names = [there.get(name) or there[name.lower()] for name in table.schema.names]
    listed = ", ".join(double_quoted(name) for name in names)
    yield from rows_of(session, f"SELECT {listed} FROM ONLY {table.reference.sql}", len(names))


def rows_of(session: Any, query: str, width: int) -> Iterator[list[pa.Array]]:
    """Yield the rows of a query with ``width`` columns in pieces: columns of text."""
    with (
        session.cursor() as cursor,
        cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)") as copy,
    ):
        piece: list[bytes] = []
        size = 0
        for data in copy:
            piece.append(bytes(data))
            size += len(data)
            if size >= _PIECE_BYTES:
                yield _texts(b"".join(piece), width)
                piece, size = [], 0
        if piece:
            yield _texts(b"".join(piece), width)


def _texts(data: bytes, width: int) -> list[pa.Array]:
    """Parse CSV in which only NULL is unquoted into columns of text."""
    names = [str(place) for place in range(width)]
    found = pcsv.read_csv(
        pa.BufferReader(data),
        pcsv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
        pcsv.ParseOptions(newlines_in_values=True, ignore_empty_lines=width > 1),
        pcsv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )
    return [column.combine_chunks() for column in found.columns]
