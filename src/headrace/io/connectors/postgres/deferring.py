"""Changes that conflict with other rows, and are applied again at the end of the epoch.

A unique, exclusion or foreign key constraint may refuse a row that fits after other changes of the
same epoch: two rows swap a value, or a row takes the value of one that is deleted in a later part.
Such changes are copied into a temporary table. At the end of the epoch, one statement deletes the
rows of their keys and inserts the new ones, so that the order of rows does not matter. Only if that
fails are the rows inserted in ranges, to find those that are finally refused.

Columns of the table that the sink does not write keep their values. In a table that others
reference with ON DELETE CASCADE, SET NULL or SET DEFAULT, no row is deleted and inserted again: its
deferred rows are upserted in rounds, so a cycle of values, such as a swap, stays refused there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from headrace.execution.runtime.offenders import offenders
from headrace.execution.serving import by_key
from headrace.io.connectors.postgres.access import library
from headrace.io.connectors.postgres.target import copied
from headrace.io.connectors.sinks import refused_rows
from headrace.planning.sql.lexer import double_quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.execution.runtime.ports import RefusedRow
    from headrace.io.connectors.postgres.tables import Reference
    from headrace.types import Epoch


_DEFERRED: Final = "headrace_deferred"
_MOVED: Final = "headrace_moved"
_PLACE: Final = "headrace_place"
_DELETED: Final = "headrace_deleted"
_ROUNDS: Final = 16
"""The most rounds in which refused rows are retried, as long as each round accepts some."""

_OF_ROWS: Final = ("22", "23", "54")
"""Classes of errors caused by a row: invalid data, constraints, and limits of the server."""
_PASSING: Final = ("23001", "23503", "23505", "23P01")
"""Conflicts with other rows: restrict, foreign key, unique, exclusion."""

_OTHERS: Final = """
SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0
  AND NOT attisdropped AND attgenerated = '' AND attname::text <> ALL (%s) ORDER BY attnum
"""
_ACTING: Final = """
SELECT EXISTS (SELECT FROM pg_constraint
  WHERE contype = 'f' AND confrelid = to_regclass(%s) AND confdeltype IN ('c', 'n', 'd'))
"""


@dataclass(frozen=True, slots=True)
class Keyed:
    """The changes of a part: keys to delete, rows to write, and rows with NULL in their key."""

    deleted: pa.Table
    rows: pa.Table
    without_key: pa.Table

    @classmethod
    def of(cls, part: pa.Table, key: Sequence[str]) -> Keyed:
        """Divide the changes of a part."""
        inserted, deleted = by_key(part, key)
        whole = np.ones(inserted.num_rows, np.bool_)
        for name in key:
            whole &= inserted[name].is_valid().to_numpy()
        return cls(deleted, inserted.filter(pa.array(whole)), inserted.filter(pa.array(~whole)))


def reason(error: Any) -> str | None:
    """Return why the server refuses rows, in one line; None if the error is not caused by rows."""
    if not (error.sqlstate or "").startswith(_OF_ROWS):
        return None
    lines = [error.diag.message_primary or str(error), error.diag.message_detail or ""]
    return ": ".join(" ".join(line.split()).rstrip(".") for line in lines if line)


def may_pass(error: Any) -> bool:
    """Whether rows are refused because of other rows, which the same epoch may change."""
    return error.sqlstate in _PASSING


@dataclass(frozen=True, slots=True)
class _Range:
    """Deferred rows or keys ``[start, stop)`` of a part, numbered from ``first`` in the epoch."""

    first: int
    start: int
    stop: int
    deletes: bool
    part: tuple[int, int]
    """The part's offset and length in the spool file, in bytes."""


@dataclass(slots=True)
class Deferred:
    """The deferred changes of one epoch, in a transaction of ``session``.

    ``columns`` are those that the sink writes, including the ``key``. Only one part is in memory:
    parts with deferred changes are spooled to a temporary file, to report rows that stay refused.
    """

    session: Any
    table: Reference
    columns: Sequence[str]
    key: Sequence[str]
    _ranges: list[_Range] = field(default_factory=list)
    _count: int = 0
    _spool: IO[bytes] | None = None
    _part: tuple[pa.Table, tuple[int, int]] | None = None
    """The last spooled part, and its offset and length."""

    @staticmethod
    def prepare(session: Any, table: Reference, columns: Sequence[str]) -> None:
        """Create the temporary table of a session."""
        session.execute(
            f"CREATE TEMP TABLE {_DEFERRED} AS SELECT {_listed(columns)}, 0::bigint AS {_PLACE},"
            f" false AS {_DELETED} FROM {table.sql} WITH NO DATA"
        )

    def add(self, part: pa.Table, start: int, rows: pa.Table, *, deletes: bool) -> None:
        """Defer rows to write, or keys to delete, which begin at index ``start`` of the part's."""
        first, count = self._count, rows.num_rows
        self._count += count
        places = pa.array(np.arange(first, self._count))
        marked = rows.append_column(_PLACE, places).append_column(
            _DELETED, pa.repeat(pa.scalar(deletes), count)
        )
        listed = _listed(marked.column_names)
        with self.session.cursor() as cursor:
            copied(cursor, f"{_DEFERRED} ({listed})", marked)
        self._ranges.append(_Range(first, start, start + count, deletes, self._spooled(part)))

    def apply(self, epoch: Epoch) -> list[RefusedRow]:
        """Apply the deferred changes; return those that the table finally refuses."""
        if not self._count:
            return []
        if self._spool is None:
            raise AssertionError
        try:
            wrong = self._applied()
            self.session.execute(f"TRUNCATE {_DEFERRED}")
            return self._refused(epoch, wrong, self._spool)
        finally:
            self._spool.close()

    # -- the spool -------------------------------------------------------------------------

    def _spooled(self, part: pa.Table) -> tuple[int, int]:
        if self._part is not None and self._part[0] is part:
            return self._part[1]
        if self._spool is None:
            self._spool = TemporaryFile()  # noqa: SIM115 - apply closes it
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, part.schema) as stream:
            stream.write_table(part)
        written = sink.getvalue()
        where = (self._spool.tell(), written.size)
        self._spool.write(written)
        self._part = (part, where)
        return where

    def _refused(self, epoch: Epoch, wrong: dict[int, str], spool: IO[bytes]) -> list[RefusedRow]:
        found: list[RefusedRow] = []
        for each in self._ranges:
            count = each.stop - each.start
            here = {at: wrong[each.first + at] for at in range(count) if each.first + at in wrong}
            if here:
                spool.seek(each.part[0])
                part = pa.ipc.open_stream(spool.read(each.part[1])).read_all()
                keyed = Keyed.of(part, self.key)
                rows = (keyed.deleted if each.deletes else keyed.rows).slice(each.start, count)
                found += refused_rows(epoch, part, rows, self.key, here)
        return found

    # -- the table -------------------------------------------------------------------------

    def _applied(self) -> dict[int, str]:
        """Apply the changes, all at once if possible; return refused numbers, and why."""
        given = (self.table.sql, list(self.columns))
        others = [name for (name,) in self.session.execute(_OTHERS, given).fetchall()]
        (acting,) = self.session.execute(_ACTING, given[:1]).fetchone()
        if not acting and self._tried(self._at_once(others)) is None:
            return {}
        return self._one_by_one(others, moves=not acting)

    def _same(self, left: str, right: str) -> str:
        return " AND ".join(
            f"{left}.{double_quoted(n)} = {right}.{double_quoted(n)}" for n in self.key
        )

    def _at_once(self, others: Sequence[str]) -> str:
        """Return the statement that deletes the rows of all keys, then inserts the new rows.

        Each insertion counts the deleted rows, so that all are deleted before it begins.
        """
        into, ours = self.table.sql, _of("d", self.columns)
        gone = (
            f"WITH gone AS (DELETE FROM {into} t USING {_DEFERRED} d"
            f" WHERE {self._same('t', 'd')} RETURNING {_of('t', [*self.key, *others])})"
        )
        new = f"NOT d.{_DELETED} AND (SELECT count(*) FROM gone) >= 0"
        insert = f"INSERT INTO {into} ({_listed(self.columns)}) SELECT {ours} FROM {_DEFERRED} d"
        if not others:
            return f"{gone} {insert} WHERE {new}"
        same = self._same("g", "d")
        return (
            f"{gone}, fresh AS ({insert} WHERE {new}"
            f" AND NOT EXISTS (SELECT FROM gone g WHERE {same}))"
            f" INSERT INTO {into} ({_listed([*self.columns, *others])}) OVERRIDING SYSTEM VALUE"
            f" SELECT {ours}, {_of('g', others)} FROM {_DEFERRED} d JOIN gone g ON {same}"
            f" WHERE {new}"
        )

    def _one_by_one(self, others: Sequence[str], *, moves: bool) -> dict[int, str]:
        """Apply the changes in ranges, halving refused ones; return refused numbers, and why.

        A range may be accepted after others have been applied, so refused changes are retried.
        """
        every = [*self.columns, *others]
        self.session.execute(f"DROP TABLE IF EXISTS {_MOVED}")
        self.session.execute(
            f"CREATE TEMP TABLE {_MOVED} ON COMMIT DROP AS SELECT {_listed(every)}"
            f" FROM {self.table.sql} WITH NO DATA"
        )
        if moves:
            self._tried(
                f"WITH gone AS (DELETE FROM {self.table.sql} t USING {_DEFERRED} d"
                f" WHERE {self._same('t', 'd')} AND NOT d.{_DELETED} RETURNING {_of('t', every)})"
                f" INSERT INTO {_MOVED} SELECT * FROM gone"
            )
        pending = [
            place
            for deletes in (True, False)
            for each in self._ranges
            if each.deletes is deletes
            for place in range(each.first, each.first + each.stop - each.start)
        ]
        wrong: dict[int, str] = {}
        for _ in range(_ROUNDS):
            found = self._round(pending, others)
            wrong = {pending[at]: why for at, why in found.items()}
            if not wrong or len(wrong) == len(pending):
                break
            pending = list(wrong)
        self._tried(
            f"INSERT INTO {self.table.sql} ({_listed(every)}) OVERRIDING SYSTEM VALUE"
            f" SELECT {_listed(every)} FROM {_MOVED} m WHERE NOT EXISTS"
            f" (SELECT FROM {self.table.sql} t WHERE {self._same('t', 'm')}) ON CONFLICT DO NOTHING"
        )
        return wrong

    def _round(self, pending: Sequence[int], others: Sequence[str]) -> dict[int, str]:
        """Apply the changes of these numbers once; return indices of refused ones, and why."""
        into, kept = self.table.sql, f"{_DEFERRED} d WHERE NOT d.{_DELETED}"
        update = [
            f"{q} = EXCLUDED.{q}" for q in map(double_quoted, self.columns) if q not in self._keys
        ]
        action = f"UPDATE SET {', '.join(update)}" if update else "NOTHING"
        moved = f"{_MOVED} m WHERE {self._same('m', 'd')}"

        def attempt(start: int, stop: int) -> str | None:
            places = ",".join(map(str, pending[start:stop]))
            chosen = f"d.{_PLACE} = ANY ('{{{places}}}')"
            return self._tried(
                f"DELETE FROM {into} t USING {_DEFERRED} d"
                f" WHERE {self._same('t', 'd')} AND d.{_DELETED} AND {chosen}",
                f"INSERT INTO {into} ({_listed([*self.columns, *others])}) OVERRIDING SYSTEM VALUE"
                f" SELECT {', '.join([_of('d', self.columns), *(_of('m', [n]) for n in others)])}"
                f" FROM {_DEFERRED} d, {moved} AND NOT d.{_DELETED} AND {chosen}",
                f"INSERT INTO {into} ({_listed(self.columns)}) SELECT {_of('d', self.columns)}"
                f" FROM {kept} AND {chosen} AND NOT EXISTS (SELECT FROM {moved})"
                f" ON CONFLICT ({', '.join(self._keys)}) DO {action}",
            )

        return offenders(len(pending), attempt)

    @property
    def _keys(self) -> list[str]:
        return [double_quoted(name) for name in self.key]

    def _tried(self, *statements: str) -> str | None:
        """Execute statements within a savepoint; return None, or why the rows are refused."""
        try:
            with self.session.transaction():
                for each in statements:
                    self.session.execute(each)
        except library().Error as error:
            why = reason(error)
            if why is None:
                raise
            return why
        return None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(double_quoted, names))


def _of(alias: str, names: Sequence[str]) -> str:
    return ", ".join(f"{alias}.{double_quoted(name)}" for name in names)
