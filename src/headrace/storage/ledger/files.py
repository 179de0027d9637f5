"""The files that the ledger names, and those of them that no epoch needs.

A file is deleted in this order: take its name from :meth:`NamedFiles.garbage`, delete the file,
then :meth:`NamedFiles.forget` the name. ``since`` never moves back, so garbage stays garbage. A
crash in between leaves a name whose file is missing: no reader uses it, and the next round returns
it as garbage again (deleting a missing file is not an error). In the other order, a crash would
leave a file that the ledger does not name, which only the sweep at the next start would find.

Files of one bundle (:mod:`headrace.files.bundles`) are one object of a store, so they are deleted
together: none of them is garbage before all are. Below, the *unit* of a file is its bundle, or the
file itself.

Small files of the database that an object store does not have yet: the ledger keeps them.

A PUT costs tens of milliseconds and money, so a small pack or segment is stored by the transaction
that names it, and uploaded later together with others. Until then, whoever can read the ledger can
read the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import sqlalchemy as sa

from headrace.files.bundles import DIGITS, ENDING, MARK, unit_of
from headrace.files.mounts import PACKS, SEGMENTS
from headrace.storage.ledger import schema
from headrace.storage.ledger.driver_statement import FileKey, SmallFile
from headrace.storage.ledger.records import Files
from headrace.types import ArrangementId

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from headrace.storage.ledger.records import Merge, NewRun
    from headrace.storage.ledger.transactions import Transactions, WriteTransaction
    from headrace.types import Offset, RelationId


_TABLE: Final = schema.small_files
_BATCH: Final = 1_000

_folder: sa.BindParameter[str] = sa.bindparam("its_folder", type_=sa.Text())
_name: sa.BindParameter[str] = sa.bindparam("its_name", type_=sa.Text())
_ITS: Final = (_TABLE.c.folder == _folder) & (_TABLE.c.name == _name)
_BODY: Final = sa.select(_TABLE.c.body).where(_ITS)


class SmallFiles:
    """The small files that the ledger keeps, and those that it is about to. Thread-safe."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self.written = transactions.written_files

    def body(self, folder: str, name: str) -> bytes | None:
        """Return the bytes of a file; None if the ledger does not keep it (any longer).

        Raises:
            HeadraceError: UNAVAILABLE if the database does not answer.
        """
        written = self.written.get((folder, name))
        if written is not None:
            return written.body

        def query(connection: sa.Connection) -> bytes | None:
            its = {"its_folder": folder, "its_name": name}
            return connection.execute(_BODY, its).scalar()

        return self._transactions.store.read(query)

    def names(self) -> dict[FileKey, int]:
        """Return the folders and names of the files that transactions have stored, and sizes."""
        query = sa.select(_TABLE.c.folder, _TABLE.c.name, sa.func.length(_TABLE.c.body))
        with self._transactions.reading() as connection:
            return {(row[0], row[1]): row[2] for row in connection.execute(query)}

    def read(self, keys: Iterable[FileKey]) -> list[SmallFile]:
        """Return those of some files that transactions have stored."""
        files = []
        with self._transactions.reading() as connection:
            for folder, name in keys:
                its = {"its_folder": folder, "its_name": name}
                body = connection.execute(_BODY, its).scalar()
                if body is not None:
                    files.append(SmallFile(folder, name, body))
        return files

    def forget(self, keys: Iterable[FileKey]) -> None:
        """Keep some files no longer: the store has them, or nobody needs them.

        Raises:
            HeadraceError: CONFLICT if another process has taken over.
        """
        gone = list(keys)

        def change(writing: WriteTransaction) -> None:
            forget(writing.connection, gone)

        if gone:
            self._transactions.write(change)


def naming(runs: Iterable[NewRun], merges: Iterable[Merge]) -> frozenset[FileKey]:
    """Return the packs that a commit names."""
    outputs = (merge.output for merge in merges if merge.output is not None)
    return frozenset((PACKS, run.file.pack) for run in (*runs, *outputs))


def forget(connection: sa.Connection, keys: Iterable[FileKey]) -> None:
    """Remove small files in a write transaction."""
    by_folder: dict[str, list[str]] = {}
    for folder, name in keys:
        by_folder.setdefault(folder, []).append(name)
    for folder, names in by_folder.items():
        for start in range(0, len(names), _BATCH):
            among = _TABLE.c.name.in_(names[start : start + _BATCH])
            connection.execute(_TABLE.delete().where(_TABLE.c.folder == folder, among))


_FILES_BATCH: Final = 10_000

_DEAD: Final = (schema.runs.c.removed <= schema.arrangements.c.since) | (
    schema.runs.c.removed <= schema.runs.c.added
)
"""No readable epoch contains a run: it was removed by its arrangement's ``since``, or merged before
any epoch contained it."""


def _unit(name: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
    """Return what a file is deleted with, as :func:`unit_of`."""
    begin = sa.func.length(name) - ENDING + 1
    is_in_one = (sa.func.length(name) > ENDING) & (sa.func.substr(name, begin, len(MARK)) == MARK)
    return sa.case((is_in_one, sa.func.substr(name, begin + len(MARK), DIGITS)), else_=name)


_PACK_UNIT: Final = _unit(schema.runs.c.pack)
_SEGMENT_UNIT: Final = _unit(schema.segments.c.file)

_OWNED: Final = schema.runs.join(
    schema.arrangements, schema.arrangements.c.id == schema.runs.c.arrangement
)
_OF_LOGS: Final = schema.segments.join(
    schema.objects, schema.objects.c.relation == schema.segments.c.relation
).join(schema.logs, schema.logs.c.relation == schema.segments.c.relation)
# An id in an expression has arrangements read first, and then of each, by an index, the runs that
# were removed: those of no other, and none that is live.
_WITH_DEAD: Final = (
    sa.select(schema.runs.c.pack)
    .join_from(
        schema.arrangements,
        schema.runs,
        (schema.runs.c.arrangement == schema.arrangements.c.id.concat(""))
        & (schema.runs.c.removed < schema.NEVER),
    )
    .where(_DEAD)
    .distinct()
)
# An id in an expression has logs read first, and then of each, by its key, the segments that begin
# before what is kept of it, and all of a log that was dropped: those of no other.
_OF_RETIRED: Final = (
    sa.select(schema.segments.c.file)
    .join_from(
        schema.logs, schema.segments, schema.segments.c.relation == schema.logs.c.relation + 0
    )
    .where(schema.segments.c.first_offset < schema.logs.c.since)
)
_OF_DROPPED: Final = (
    sa.select(schema.segments.c.file)
    .join_from(
        schema.objects, schema.segments, schema.segments.c.relation == schema.objects.c.relation + 0
    )
    .where(schema.objects.c.dropped_epoch.is_not(None))
)
_MAYBE_DEAD_SEGMENTS: Final = sa.union(_OF_RETIRED, _OF_DROPPED)
_NAMED_SEGMENTS: Final = sa.union(
    sa.select(schema.segments.c.file), sa.select(schema.replaced_files.c.file)
)
_REPLACED_UNIT: Final = _unit(schema.replaced_files.c.file)
_DEAD_SIZE: Final = sa.func.sum(sa.case((_DEAD, schema.runs.c.bytes), else_=0))
_KEPT_SIZE: Final = sa.func.sum(sa.case((_DEAD, 0), else_=schema.runs.c.bytes))
_MIXED: Final = (
    sa.select(_PACK_UNIT.label("unit"))
    .select_from(_OWNED)
    .group_by("unit")
    .having((_DEAD_SIZE > 0) & (_KEPT_SIZE > 0))
)
_USES: Final = _MIXED.add_columns(
    _DEAD_SIZE,
    _KEPT_SIZE,
    sa.func.sum(sa.case((_DEAD | (schema.runs.c.removed == schema.NEVER), 0), else_=1)),
)
_DEAD_BYTES: Final = (
    sa.select(schema.runs.c.arrangement, sa.func.sum(schema.runs.c.bytes).label("bytes"))
    .select_from(_OWNED)
    .where(_DEAD, _PACK_UNIT.in_(_MIXED))
    .group_by(schema.runs.c.arrangement)
)


class PackUse(NamedTuple):
    """The bytes of the dead runs of a pack or a bundle, and of its others; how many are replaced.

    Runs that were replaced are readable at earlier epochs only, so no merge takes them.
    """

    unit: str
    dead: int
    kept: int
    replaced: int


@dataclass(frozen=True, slots=True)
class CheckedRange:
    """A part of a file, with the XXH3 of its bytes (64 bits, in hexadecimal)."""

    position: int
    bytes: int
    checksum: str


@dataclass(frozen=True, slots=True)
class NeededFile:
    """A file that readable epochs need a part of: all that is named is in its first ``bytes``.

    ``folder`` is that of the data directory. ``ranges`` are the parts that are needed, in order;
    other bytes may have any value. A file of the log may be appended to later.
    """

    folder: str
    name: str
    bytes: int
    ranges: tuple[CheckedRange, ...]


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """The packs of runs, and the files of segments. Any other file is left over from a crash."""

    _transactions: Transactions

    def known(self) -> Files:
        """Return every file that the ledger names; those that were there before are garbage.

        Raises:
            HeadraceError: CONFLICT if this process writes and another one has taken over: it may
                name others.
        """
        with self._transactions.reading() as connection:
            self._transactions.require_newest(connection)
            return Files(
                frozenset(connection.execute(sa.select(schema.runs.c.pack).distinct()).scalars()),
                frozenset(connection.execute(_NAMED_SEGMENTS).scalars()),
            )

    def needed(self) -> tuple[NeededFile, ...]:
        """Return the files that are not garbage: what a copy of the database must have."""
        runs, segments = schema.runs.c, schema.segments.c
        of_runs = (
            sa.select(runs.pack, runs.position, runs.bytes, runs.checksum, _DEAD)
            .select_from(_OWNED)
            .order_by(runs.pack, runs.position)
        )
        of_segments = (
            sa.select(
                segments.file,
                segments.position,
                segments.bytes,
                segments.checksum,
                _dead_segment({}),
            )
            .select_from(_OF_LOGS)
            .order_by(segments.file, segments.position)
        )
        with self._transactions.reading() as connection:
            return (
                *_needed(PACKS, connection.execute(of_runs)),
                *_needed(SEGMENTS, connection.execute(of_segments)),
            )

    def garbage(self, held: Mapping[RelationId, Offset] = MappingProxyType({})) -> Files:
        """Return the files that no readable epoch needs, now or later.

        The logs of relations that are ``held`` are still read from these offsets on.

        Raises:
            HeadraceError: CONFLICT if another process has taken over: its readers may need them.
        """
        with self._transactions.reading() as connection:
            self._transactions.require_newest(connection)
            packs, segments, replaced = (
                _found(connection, garbage, connection.execute(perhaps).scalars())
                for perhaps, garbage in (
                    (_WITH_DEAD, _garbage_packs),
                    (_MAYBE_DEAD_SEGMENTS, partial(_garbage_segments, held)),
                    (sa.select(schema.replaced_files.c.file), partial(_garbage_replaced, held)),
                )
            )
            return Files(packs, segments | replaced)

    def dead_bytes(self) -> dict[ArrangementId, int]:
        """Return the bytes of dead runs that are deleted with others only, by arrangement."""
        with self._transactions.reading() as connection:
            found = connection.execute(_DEAD_BYTES)
            return {ArrangementId(row.arrangement): row.bytes for row in found}

    def pack_uses(self) -> tuple[PackUse, ...]:
        """Return the packs and bundles in which some runs are dead and others are not."""
        with self._transactions.reading() as connection:
            return tuple(PackUse(*row) for row in connection.execute(_USES))

    def log_uses(self, among: Collection[str] | None = None) -> dict[str, int]:
        """Return how many bytes are needed of each file that landings share, by its name.

        Those that nobody needs are left out, and others than those ``among`` some.
        """
        table = schema.segments.c
        query = (
            sa.select(table.file, sa.func.sum(table.bytes))
            .select_from(_OF_LOGS)
            .where(table.footer.is_(None), ~_dead_segment({}))
            .group_by(table.file)
        )
        if among is not None:
            query = query.where(table.file.in_(among))
        with self._transactions.reading() as connection:
            return {file: int(size) for file, size in connection.execute(query)}

    def forget(self, files: Files) -> None:
        """Remove the names of garbage files; delete the files themselves first.

        Names that are not garbage stay. The ledger keeps none of the files itself any longer.
        """
        with self._transactions.writing() as writing:
            connection = writing.connection
            for folder, column, names, garbage in (
                (PACKS, schema.runs.c.pack, files.packs, _garbage_packs),
                (SEGMENTS, schema.segments.c.file, files.segments, partial(_garbage_segments, {})),
            ):
                for among in _batches(names):
                    found = set(connection.execute(garbage(among)).scalars())
                    connection.execute(column.table.delete().where(column.in_(found)))
                    if folder == SEGMENTS:
                        replaced, its = schema.replaced_files, schema.replaced_files.c.file
                        found.update(connection.execute(_garbage_replaced({}, among)).scalars())
                        connection.execute(replaced.delete().where(its.in_(found)))
                    forget(connection, ((folder, name) for name in found))


def _found(
    connection: sa.Connection,
    garbage: Callable[[Sequence[str]], sa.Select[Any]],
    names: Iterable[str],
) -> frozenset[str]:
    """Return the files, among some, that a query finds."""
    parts = (connection.execute(garbage(among)).scalars() for among in _batches(names))
    return frozenset(chain.from_iterable(parts))


def _batches(names: Iterable[str]) -> Iterator[list[str]]:
    """Yield names in the parts that a statement may have."""
    listed = sorted(names)
    for start in range(0, len(listed), _FILES_BATCH):
        yield listed[start : start + _FILES_BATCH]


def _garbage_packs(among: Sequence[str]) -> sa.Select[Any]:
    """Return the query for the packs, among some, in whose units all runs are dead."""
    named = sa.select(schema.runs.c.pack).select_from(_OWNED)
    return _garbage(named, _PACK_UNIT, _DEAD, among)


def _garbage_segments(held: Mapping[RelationId, Offset], among: Sequence[str]) -> sa.Select[Any]:
    """Return the query for the files of the log, among some, in units that nobody needs.

    Nobody needs a segment if its relation's log starts after it and it is not ``held``, or if the
    relation was dropped and none of its arrangements can be read.
    """
    named = sa.select(schema.segments.c.file).select_from(_OF_LOGS)
    return _garbage(named, _SEGMENT_UNIT, _dead_segment(held), among)


def _garbage_replaced(held: Mapping[RelationId, Offset], among: Sequence[str]) -> sa.Select[Any]:
    """Return the query for the files whose segments were merged, among some, that nobody needs.

    Nobody needs another one of their units either.
    """
    needed = (
        sa.select(_SEGMENT_UNIT)
        .select_from(_OF_LOGS)
        .where(_in_units(schema.segments.c.file, _SEGMENT_UNIT, among), ~_dead_segment(held))
    )
    file = schema.replaced_files.c.file
    return sa.select(file).where(file.in_(among), _REPLACED_UNIT.not_in(needed))


def _garbage(
    named: sa.Select[tuple[str]],
    unit: sa.ColumnElement[str],
    dead: sa.ColumnElement[bool],
    among: Sequence[str],
) -> sa.Select[Any]:
    """Return the query for the named files, among some, whose units are all dead."""
    (name,) = named.selected_columns
    needed = named.with_only_columns(unit).where(_in_units(name, unit, among), ~dead)
    return named.distinct().where(name.in_(among)).where(dead, unit.not_in(needed))


def _in_units(
    name: sa.ColumnElement[str], unit: sa.ColumnElement[str], among: Sequence[str]
) -> sa.ColumnElement[bool]:
    """Return whether a file is in a unit of some files; by its name, if none is in a bundle."""
    units = {unit_of(each) for each in among}
    return name.in_(among) if units == {*among} else unit.in_(units)


def _dead_segment(held: Mapping[RelationId, Offset]) -> sa.ColumnElement[bool]:
    """Return whether nobody needs a segment; see :func:`_garbage_segments`."""
    owners, objects = schema.arrangements.c, schema.objects.c
    segments, logs = schema.segments.c, schema.logs.c
    readable = sa.exists().where(
        owners.owner == objects.relation, owners.since < objects.dropped_epoch
    )
    end = segments.first_offset + segments.rows
    retired = end <= logs.since
    for relation, first in held.items():
        retired &= (segments.relation != relation) | (end <= first)
    return (objects.dropped_epoch.is_not(None) & ~readable) | retired


def _needed(folder: str, rows: Iterable[Any]) -> Iterator[NeededFile]:
    """Yield the files of a folder that have a part that is needed.

    ``rows`` are parts of them, by file and position: its position, bytes, checksum, and whether it
    is dead.
    """
    for name, parts in groupby(rows, key=lambda row: row[0]):
        end, ranges = 0, []
        for _, position, size, checksum, dead in parts:
            end = position + size
            if not dead:
                ranges.append(CheckedRange(position, size, checksum))
        if ranges:
            yield NeededFile(folder, name, end, tuple(ranges))
