"""The progress of loads of sources, with their notes, and of producers.

Rows that were not appended to logs: rejected rows with their text, others as counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from headrace.errors import Code, HeadraceError
from headrace.storage.ledger import schema
from headrace.storage.ledger.driver_statement import DriverStatement
from headrace.storage.ledger.records import LoadProgress, Reject
from headrace.types import RelationId

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from headrace.storage.ledger.records import ProducerPosition
    from headrace.storage.ledger.transactions import Transactions


_NOTE: Final = "\n"
"""The separator between the source of a load and the name of a note."""
_VALUE: Final = "value"
_LOAD: Final = (
    schema.loads.c.relation == sa.bindparam("its_relation"),
    schema.loads.c.source == sa.bindparam("its_source"),
)
_DELETE_NOTE: Final = DriverStatement(schema.loads.delete().where(*_LOAD))
_INSERT_LOAD: Final = DriverStatement(schema.loads.insert())
_UPDATE_LOAD: Final = DriverStatement(
    schema.loads.update()
    .where(*_LOAD)
    .values(progress=sa.bindparam("progress"), finished=sa.bindparam("finished"))
)
_SELECT_FINISHED: Final = DriverStatement(sa.select(schema.loads.c.finished).where(*_LOAD))
_PRODUCER: Final = (
    schema.producers.c.relation == sa.bindparam("its_relation"),
    schema.producers.c.producer == sa.bindparam("its_producer"),
)
_SELECT_SEQUENCE: Final = DriverStatement(sa.select(schema.producers.c.sequence).where(*_PRODUCER))
_UPDATE_SEQUENCE: Final = DriverStatement(
    schema.producers.update().where(*_PRODUCER).values(sequence=sa.bindparam("last"))
)


@dataclass(frozen=True, slots=True)
class Loads:
    """How far each source has been loaded into a relation; appends move it."""

    _transactions: Transactions

    def progress(self, relation: RelationId, source: str) -> LoadProgress | None:
        """Return the progress of the load of a source; None if it never began."""
        with self._transactions.reading() as connection:
            return _progress(connection, relation, source)

    def notes(self, relation: RelationId, source: str) -> dict[str, Any]:
        """Return the notes of the load of a source, by name; see :class:`LoadProgress`."""
        loads, prefix = schema.loads.c, source + _NOTE
        query = sa.select(loads.source, loads.progress).where(
            loads.relation == relation, loads.source.startswith(prefix, autoescape=True)
        )
        with self._transactions.reading() as connection:
            return {
                row.source.removeprefix(prefix): row.progress[_VALUE]
                for row in connection.execute(query)
                if row.source.startswith(prefix)  # LIKE may not tell cases apart
            }

    def unfinished(self, relation: RelationId) -> tuple[LoadProgress, ...]:
        """Return the loads into a relation that have begun and not ended, by source."""
        loads = schema.loads.c
        query = (
            sa.select(loads.source, loads.progress)
            .where(loads.relation == relation, ~loads.finished)
            .order_by(loads.source)
        )
        with self._transactions.reading() as connection:
            rows = connection.execute(query)
            return tuple(LoadProgress(row.source, row.progress) for row in rows)


@dataclass(frozen=True, slots=True)
class Producers:
    """The last number that each producer gave an append to a relation; appends move it."""

    _transactions: Transactions

    def last(self, relation: RelationId, producer: str) -> int | None:
        """Return the last number of a producer; None if it never appended."""
        return self.all_last([(relation, producer)]).get((relation, producer))

    def all_last(
        self, asked: Sequence[tuple[RelationId, str]]
    ) -> dict[tuple[RelationId, str], int]:
        """Return the last number of each of some producers; those without one are left out."""
        table = schema.producers.c
        wanted = sa.tuple_(table.relation, table.producer).in_(list(asked))
        with self._transactions.reading() as connection:
            rows = connection.execute(sa.select(schema.producers).where(wanted))
            return {(RelationId(row.relation), row.producer): row.sequence for row in rows}


def require_unfinished(connection: sa.Connection, relation: RelationId, load: LoadProgress) -> None:
    """Raise CONFLICT if a load has been finished before."""
    found = _SELECT_FINISHED.rows(connection, **_load(relation, load.source))
    if any(finished for (finished,) in found):
        raise HeadraceError(
            Code.CONFLICT,
            f'load of "{load.source}" was finished already',
            "Nothing was appended.",
            "Load it under another identity to append its rows once more.",
        )


def advance_load(connection: sa.Connection, relation: RelationId, load: LoadProgress) -> None:
    """Store the progress of a load and its new notes."""
    if load.notes:
        _write_notes(connection, relation, load)
    values = {"progress": dict(load.progress), "finished": load.finished}
    if not _UPDATE_LOAD.run(connection, {**_load(relation, load.source), **values}):
        _INSERT_LOAD.run(connection, {"relation": relation, "source": load.source, **values})


def _load(relation: RelationId, source: str) -> dict[str, Any]:
    return {"its_relation": relation, "its_source": source}


def is_new(connection: sa.Connection, relation: RelationId, position: ProducerPosition) -> bool:
    """Whether a producer's number is above the last one that it gave."""
    found = _SELECT_SEQUENCE.rows(connection, **_producer(relation, position))
    return all(position.sequence > last for (last,) in found)


def advance_producer(
    connection: sa.Connection, relation: RelationId, position: ProducerPosition
) -> None:
    """Store the last number of a producer."""
    last = {"last": position.sequence}
    if _UPDATE_SEQUENCE.run(connection, {**_producer(relation, position), **last}):
        return
    row = {"relation": relation, "producer": position.producer, "sequence": position.sequence}
    connection.execute(schema.producers.insert(), row)


def _producer(relation: RelationId, position: ProducerPosition) -> dict[str, Any]:
    return {"its_relation": relation, "its_producer": position.producer}


def _progress(connection: sa.Connection, relation: RelationId, source: str) -> LoadProgress | None:
    loads = schema.loads.c
    query = sa.select(loads.progress, loads.finished).where(
        loads.relation == relation, loads.source == source
    )
    found = connection.execute(query).one_or_none()
    return None if found is None else LoadProgress(source, found.progress, found.finished)


def _write_notes(connection: sa.Connection, relation: RelationId, load: LoadProgress) -> None:
    """Write the notes of a load, each as a finished load of its own."""
    rows = [
        {
            "relation": relation,
            "source": f"{load.source}{_NOTE}{name}",
            "progress": {_VALUE: value},
            "finished": True,
        }
        for name, value in load.notes.items()
    ]
    names = [str(row["source"]) for row in rows]
    _DELETE_NOTE.run(connection, *(_load(relation, name) for name in names))
    _INSERT_LOAD.run(connection, *rows)


@dataclass(frozen=True, slots=True)
class RejectRecord:
    """A rejected row in the ledger, with its number. Times are in Unix seconds."""

    reject: Reject
    at: float
    id: int
    acknowledged_at: float | None = None
    """When somebody said that it needs no attention any more."""


@dataclass(frozen=True, slots=True)
class RejectCount:
    """How many rows of a relation were rejected, and how many of them were acknowledged."""

    rejected: int
    acknowledged: int

    @property
    def unacknowledged(self) -> int:
        """How many still ask for attention."""
        return self.rejected - self.acknowledged


@dataclass(frozen=True, slots=True)
class Rejects:
    """Per relation, the rows that were not appended; appends add to them."""

    _transactions: Transactions

    def newest(self, relation: RelationId, limit: int = 100) -> tuple[RejectRecord, ...]:
        """Return the newest rejected rows of a relation, newest first."""
        table = schema.rejects.c
        query = (
            sa.select(schema.rejects)
            .where(table.relation == relation)
            .order_by(table.id.desc())
            .limit(limit)
        )
        with self._transactions.reading() as connection:
            return tuple(
                RejectRecord(
                    Reject(row.file, row.line, row.column, row.reason, row.raw),
                    row.at,
                    row.id,
                    row.acknowledged_at,
                )
                for row in connection.execute(query)
            )

    def count(self, relation: RelationId) -> int:
        """Return how many rows of a relation were rejected."""
        return self.counted(relation).rejected

    def counted(self, relation: RelationId) -> RejectCount:
        """Return how many rows of a relation were rejected, and how many were acknowledged."""
        its = schema.logs.c
        query = sa.select(its.rejected, its.acknowledged).where(its.relation == relation)
        with self._transactions.reading() as connection:
            found = connection.execute(query).one_or_none()
        return RejectCount(0, 0) if found is None else RejectCount(*found)

    def acknowledge(self, relation: RelationId, ids: Collection[int] | None = None) -> int:
        """Record that rejected rows need no attention any more; return how many are new to that.

        They stay where they are. Without ``ids``, all rows of the relation are acknowledged.
        """
        its, logs = schema.rejects.c, schema.logs
        new = (its.relation == relation) & its.acknowledged_at.is_(None)
        if ids is not None:
            new &= its.id.in_(ids)
        now = self._transactions.clock()
        with self._transactions.writing() as writing:
            connection = writing.connection
            changed = schema.rejects.update().where(new).values(acknowledged_at=now)
            count = connection.execute(changed).rowcount
            counted = logs.update().where(logs.c.relation == relation)
            connection.execute(counted.values(acknowledged=logs.c.acknowledged + count))
        return count

    def left_out(self, relation: RelationId) -> Mapping[str, int]:
        """Return how many rows a relation's log has not taken, by reason, besides rejects."""
        with self._transactions.reading() as connection:
            return left_out(connection, relation)


def left_out(connection: sa.Connection, relation: RelationId) -> dict[str, int]:
    """Return the counts of rows that are no rejects, by reason."""
    its = schema.left_out.c
    query = sa.select(its.reason, its.rows).where(its.relation == relation)
    return {row.reason: row.rows for row in connection.execute(query)}


def add(
    connection: sa.Connection, relation: RelationId, rejects: Sequence[Reject], now: float
) -> None:
    """Store rejected rows, each with as much of its text as is kept."""
    if rejects:
        rows = [_row(relation, each, now) for each in rejects]
        connection.execute(schema.rejects.insert(), rows)


def count(connection: sa.Connection, relation: RelationId, rows: Mapping[str, int]) -> None:
    """Add to the counts of rows that were left out, by reason."""
    known = left_out(connection, relation) if rows else {}
    its = schema.left_out.c
    for reason, more in rows.items():
        if reason not in known:
            row = {"relation": relation, "reason": reason, "rows": more}
            connection.execute(schema.left_out.insert(), row)
            continue
        mine = (its.relation == relation) & (its.reason == reason)
        counted = schema.left_out.update().where(mine).values(rows=known[reason] + more)
        connection.execute(counted)


def _row(relation: RelationId, reject: Reject, now: float) -> dict[str, object]:
    raw = reject.raw.encode("utf-8", "replace")[: schema.REJECT_BYTES].decode("utf-8", "ignore")
    return {
        "relation": relation,
        "file": reject.file,
        "line": reject.line,
        "column": reject.column,
        "reason": reject.reason.replace("\0", "\ufffd"),
        "raw": raw.replace("\0", "\ufffd"),  # PostgreSQL's text cannot hold NUL
        "at": now,
    }
