"""The progress of loads of sources, with their notes, and of producers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from headrace.errors import Code, HeadraceError
from headrace.ledger import schema
from headrace.ledger.driver_statement import DriverStatement
from headrace.ledger.records import LoadProgress
from headrace.types import RelationId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.ledger.records import ProducerPosition
    from headrace.ledger.transactions import Transactions

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
