"""SELECT: rows by key or all rows are read from a spine; an evaluator answers other queries.

COPY ... TO: the rows of a relation or query, written to a file of this machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.types import LongType, StringType

from headrace.algebra.spine import PackWriter
from headrace.errors import Code, HeadraceError, Span
from headrace.execution.serving import CHANGE_COLUMNS, ChangedRows
from headrace.interfaces.statements.reading.keyed import Simple, chosen, rows_by_key, simple_select
from headrace.interfaces.statements.reading.point_in_time import GivenRows
from headrace.interfaces.statements.results import Freshness, Progress, Result
from headrace.io.connectors import Given
from headrace.io.connectors.files.change_files import ExportOptions, write_file
from headrace.lifecycle.states.evaluating import Beside
from headrace.lifecycle.states.system_relations import is_system
from headrace.planning.catalog import Relation, Stream, Table, View, key_of
from headrace.planning.catalog.naming import SYSTEM_SCHEMA
from headrace.planning.dialects import AtEpoch, AtTimes, with_epochs
from headrace.planning.sql import AsOf, AsOfEpoch, AsOfTimestamp, ChangesBetween, Name, Query
from headrace.planning.sql.lexer import quote, quote_dotted
from headrace.storage.ledger import NO_EPOCH, RunKind, RunRecord
from headrace.types import Column, RelationId, Schema, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from headrace.execution.runtime.published import Published
    from headrace.interfaces.statements.reading.point_in_time import PointInTime
    from headrace.lifecycle.states.evaluating import Snapshots
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Catalog
    from headrace.planning.catalyst.analysed import Shape
    from headrace.planning.dialects import WithEpochs
    from headrace.planning.sql import CopyTo
    from headrace.planning.sql.as_of import PairsAsOf
    from headrace.storage.ledger import Ledger, Slice
    from headrace.types import Epoch


@dataclass(frozen=True, slots=True)
class Exports:
    """Writes files, but not into the data directory."""

    reader: Reader
    selects: Selects
    report: Callable[[Progress], None]

    def export(self, statement: CopyTo) -> Result:
        """Write the rows of a relation or query to a file, which is renamed when complete.

        A whole table or view is read in parts; the rows of other queries are held in memory, as by
        SELECT. The result has the number of rows and their epoch.
        """
        source = statement.source
        if isinstance(source, Name) and not _is_listing(source):
            self.reader.catalog.resolve(source.dotted, source.span)
        path = Path(statement.path.removeprefix("file://")).absolute()
        try:
            options = ExportOptions.of(path, Given.of(statement.options))
            self._require_outside(path)
            schema, parts, epoch, dirty = self.selects.in_parts(_query(statement))

            def report(rows: int) -> None:
                self.report(Progress(f"writing {path.name}", rows, rows, "rows", 0))

            rows = write_file(path, schema, parts, options, report)
        except HeadraceError as error:
            raise error.at(statement.path_span) from error
        what = f"{rows:,} {'row' if rows == 1 else 'rows'}"
        note = "; some may not be right: see SHOW DIRTY" if dirty else ""
        return Result(None, epoch, f'{what} as of epoch {epoch} written to "{path}"{note}')

    def _require_outside(self, path: Path) -> None:
        if path.resolve().is_relative_to(self.reader.directory.resolve()):
            raise HeadraceError(
                Code.INVALID,
                f'file "{path}" is in the data directory',
                "Its files belong to the database.",
                "Write to another directory.",
            )


def _is_listing(name: Name) -> bool:
    return name.dotted.lower().startswith(f"{SYSTEM_SCHEMA}.")


def _query(statement: CopyTo) -> Query:
    """Return the query of a statement; for a relation, a query of its columns."""
    source = statement.source
    if isinstance(source, Query):
        return source
    listed = ", ".join(map(quote, statement.columns)) or "*"
    text = f"SELECT {listed} FROM {quote_dotted(source.dotted)}"
    return Query(text, Span.whole(text))


_FIRST_ID: Final = 2**40
"""The first id of tables known to one query only; relations of a catalog have smaller ids."""

_Found: TypeAlias = "tuple[pa.Table, Published, tuple[RelationId, ...], AbstractSet[RelationId]]"
"""Rows, their state, the relations read, and those views among them that are dirty there."""


@dataclass(frozen=True, slots=True)
class Selects:
    """Answers the queries of one session.

    ``seen`` waits until relations show what the session must see, and returns that state.
    """

    reader: Reader
    ledger: Ledger
    snapshots: Snapshots
    point_in_time: PointInTime
    seen: Callable[[Iterable[RelationId]], Published]

    def select(self, query: Query) -> Result:
        """Run a query in the newest state, or at the epochs in its text."""
        at_epochs = self._at_epochs(query)
        table, state, reads, dirty = at_epochs or self._direct(query) or self._evaluated(query)
        if query.as_of is not None or at_epochs is not None:
            reads = ()  # how far views had read then is not stored
        fresh = Freshness.of(state, self.ledger.head.ends, reads, dirty)
        return Result(table, state.epoch, freshness=fresh)

    def _evaluated(self, query: Query) -> _Found:
        reads: tuple[RelationId, ...] = ()

        def state(shape: Shape) -> Published:
            nonlocal reads
            reads = shape.reads
            return self._state(query, self.seen(shape.reads), shape.reads)

        try:
            rows, read = self.snapshots.rows(query.span, state, lambda _: query.text)
        except HeadraceError as error:
            raise error.at(query.span) from error
        return rows, read, reads, read.dirty.keys() & {*reads}

    def _state(self, query: Query, last: Published, reads: Iterable[RelationId]) -> Published:
        """Return the state in which a query reads relations."""
        relations = [last.catalog.by_id[id_] for id_ in reads if not is_system(id_)]
        state = self._as_of(query.as_of, last, relations)
        for relation in relations:
            if query.as_of is not None and isinstance(relation, Stream):
                raise HeadraceError(
                    Code.UNSUPPORTED,
                    f'AS OF on stream "{relation.name}" is not supported',
                    hint="Tables and views can be read as they were.",
                    span=query.span,
                )
        return state

    def _at_epochs(self, query: Query) -> _Found | None:
        """Return the result of a query that reads tables at their own epochs; None for others."""
        while True:
            catalog = self.reader.catalog
            at = with_epochs(query.span, catalog.by_name, f"__at_{uuid4().hex}_")
            if not at.tables:
                return None
            given = {
                each.name: self._pairs(query, each.read)
                for each in at.tables
                if isinstance(each, AtTimes)
            }
            found = self._read_at(query, at, _beside(catalog, at.tables, given), given)
            if found is not None:
                return found

    def _pairs(self, query: Query, read: PairsAsOf) -> GivenRows:
        """Return the rows of a query with the values of views, each as of its own time."""
        if query.as_of is not None:
            raise HeadraceError(
                Code.UNSUPPORTED,
                "AS OF at the end of a query with AS_OF is not supported",
                hint="Write it after the names of tables.",
                span=query.as_of.span,
            )
        pairs = self.select(Query(read.pairs.source, read.pairs)).to_arrow()
        try:
            found = self.point_in_time.read(pairs, read.views, read.time)
        except HeadraceError as error:
            raise error.at(read.span) from error
        return GivenRows.of(found.to_arrow(), pairs.column_names)

    def _read_at(
        self, query: Query, at: WithEpochs, beside: Beside, given: Mapping[str, GivenRows]
    ) -> _Found | None:
        """Return the result of such a query; None if the catalog changed meanwhile."""
        ids = {table.id for table in beside.tables}
        dirty: set[RelationId] = set()
        held: list[Published] = []
        pack = PackWriter(self.reader.directory / "runs", alone=True)

        def state(shape: Shape) -> Published:
            others = [id_ for id_ in shape.reads if id_ not in ids]
            stored = [each.relation.id for each in at.tables if isinstance(each, AtEpoch)]
            last = self.seen([*others, *stored])
            found = self._state(query, last, others)
            dirty.update(found.dirty.keys() & {*others})
            spines, layouts = dict(found.spines), dict(found.layouts)
            for table, each in zip(beside.tables, at.tables, strict=True):
                id_ = rows_of(table.id)
                if isinstance(each, AtTimes):
                    rows = given[each.name]
                    spines[id_] = tuple(
                        RunRecord(run, id_, RunKind.MERGED, found.epoch, None)
                        for run in rows.write(pack)
                    )
                    layouts[id_] = rows.layout
                    continue
                if isinstance(each.read, ChangesBetween):
                    then, upto = self._range(each.relation, each.read, last, found.epoch)
                    history = self.reader.history(then, each.relation.id)
                    changes = ChangedRows(history, key_of(each.relation))
                    spines[id_] = tuple(
                        RunRecord(run, id_, RunKind.MERGED, upto, None)
                        for run in changes.write(then.epoch, upto, pack)
                    )
                    layouts[id_] = changes.layout
                else:
                    then = self._as_of(each.read, last, [each.relation])
                    self.reader.require_running(each.relation, then)
                    spines[id_] = then.runs(each.relation)
                    layouts[id_] = then.layout(each.relation)
                dirty.update(then.dirty.keys() & {each.relation.id})
                held.append(then)  # keeps its epoch readable
            pack.finish()
            return replace(found, catalog=beside.added, spines=spines, layouts=layouts, _opened={})

        try:
            with at.query.mapping_errors():
                rows = self.snapshots.rows_beside(at.query.span, beside, state)
        finally:
            if not pack.is_empty:
                pack.abandon()
        return None if rows is None else (*rows, (), dirty)

    def _range(
        self, relation: Table | View, read: ChangesBetween, last: Published, now: Epoch
    ) -> tuple[Published, Epoch]:
        """Return the state after which changes are read, and the last epoch of the range.

        That is ``now`` by default. The changes are all kept as long as the state is held.
        """
        then = self._as_of(read.after, last, [relation])
        upto = now if read.upto is None else self._epoch(read.upto, last.epoch)
        if upto < then.epoch:
            raise HeadraceError(
                Code.INVALID,
                f"the range of epochs ends before it begins: {then.epoch} to {upto}",
                hint="The changes are those after the first epoch, up to the second one.",
                span=read.span,
            )
        self.reader.require_running(relation, last, upto)
        self._require_known(relation, read, upto)
        return then, upto

    def _direct(self, query: Query) -> _Found | None:
        """Return the result of a simple query of stored rows, which needs no Spark; else None.

        Its text has the form of :func:`simple_select`, it compares exactly the columns of a key or
        an index with literals of their types, and these types can be hashed; or it has no WHERE.
        """
        asked = self._simple(query)
        if asked is None:
            return None
        relation, state, simple = asked
        if simple.equal:
            unique = [relation] if key_of(relation) else []
            arranged = [*unique, *self.reader.indexes(state, relation)]
            contents = (self.reader.contents(state, each) for each in arranged)
            found = rows_by_key(relation, contents, simple)
            if found is None:
                return None
        else:
            found = self.reader.contents(state, relation).whole()
        dirty = {relation.id} if relation.id in state.dirty else set()
        if dirty and simple.equal and not self._are_dirty(found, state.dirty[relation.id]):
            dirty = set()
        return found.select(chosen(relation, simple)), state, (relation.id,), dirty

    def in_parts(self, query: Query) -> tuple[pa.Schema, Iterator[pa.Table], Epoch, bool]:
        """Return the rows of a query in parts, their epoch, and whether some may be dirty.

        The rows of a whole table or view are read lazily, those of other queries at once.
        """
        asked = self._simple(query)
        if asked is None or asked[2].equal:
            result = self.select(query)
            table, fresh = result.to_arrow(), result.freshness
            return table.schema, iter([table]), result.epoch, bool(fresh and fresh.dirty)
        relation, state, simple = asked
        names = chosen(relation, simple)
        contents = self.reader.contents(state, relation)
        schema = pa.schema([contents.layout.columns.field(name) for name in names])
        return schema, contents.parts(names), state.epoch, relation.id in state.dirty

    def _simple(self, query: Query) -> tuple[Table | View, Published, Simple] | None:
        """Return the relation and the state that a simple query reads; None for other queries."""
        simple = simple_select(query.text)
        if simple is None:
            return None
        while True:
            relation = self.reader.catalog.find(simple.relation)
            if not isinstance(relation, Table | View):
                return None
            if not simple.fits(relation):
                return None
            last = self.seen([relation.id])
            if last.catalog.by_id.get(relation.id) is relation:
                break
        state = self._as_of(query.as_of, last, [relation])
        self.reader.require_running(relation, state)
        return relation, state, simple

    def _are_dirty(self, found: pa.Table, slices: tuple[Slice, ...]) -> bool:
        """Whether a key's rows are in a dirty slice; if there are no rows, some may be missing."""
        conditions = [each.where for each in slices]
        if not found.num_rows or "" in conditions:
            return True
        covers = " OR ".join(f"coalesce(({where}), false)" for where in conditions)
        rows = self.snapshots.evaluator.computed(found, [f"({covers}) AS __dirty"], "__rows")
        return any(rows["__dirty"].to_pylist())

    def _as_of(
        self, as_of: AsOf | None, last: Published, relations: Sequence[Relation]
    ) -> Published:
        """Return the state to read: the last one, or the one at the given epoch."""
        if as_of is None:
            return last
        epoch = self._epoch(as_of, last.epoch)
        for relation in relations:
            self.reader.require_running(relation, last, epoch)
            self._require_known(relation, as_of, epoch)
        try:
            return self.reader.as_of(epoch, last, relations)
        except HeadraceError as error:
            raise error.at(as_of.span) from error

    def _require_known(
        self, relation: Relation, as_of: AsOf | ChangesBetween, epoch: Epoch
    ) -> None:
        """Raise if the view did not exist at the epoch, or then used another function."""
        if not isinstance(relation, View):
            return
        gap = self.ledger.dirty.gap_at(relation.id, epoch)
        if gap is None:
            return
        if gap.after == NO_EPOCH:
            raise HeadraceError(
                Code.INVALID,
                f'epoch {epoch} of view "{relation.name}" is no longer kept',
                detail=f"It was rebuilt in epoch {gap.until}, when a Python function changed.",
                hint=f"Read it as of epoch {gap.until} or later.",
                span=as_of.span,
            )
        raise HeadraceError(
            Code.INVALID,
            f'view "{relation.name}" has no rows of epoch {epoch}',
            detail=f"It stopped after epoch {gap.after}, and was rebuilt in epoch {gap.until}.",
            hint="Read it as of an epoch in which it ran.",
            span=as_of.span,
        )

    def _epoch(self, as_of: AsOf, last: Epoch) -> Epoch:
        match as_of:
            case AsOfEpoch():
                if as_of.epoch > last:
                    raise HeadraceError(
                        Code.INVALID,
                        f"epoch {as_of.epoch} does not exist yet",
                        detail=f"The last epoch is {last}.",
                        span=as_of.span,
                    )
                return as_of.epoch
            case AsOfTimestamp():
                return self.reader.epoch_at(as_of)


def _beside(
    catalog: Catalog, tables: Iterable[AtEpoch | AtTimes], given: Mapping[str, GivenRows]
) -> Beside:
    """Return the tables that replace relations read at epochs, and rows that are ``given``."""
    made = tuple(
        Table(RelationId(_FIRST_ID + i), each.name, given[each.name].columns, ())
        if isinstance(each, AtTimes)
        else Table(RelationId(_FIRST_ID + i), each.name, *_columns_and_key(each))
        for i, each in enumerate(tables)
    )
    added = catalog
    for table in made:
        added = added.with_(table)
    return Beside(made, catalog, added)


def _columns_and_key(table: AtEpoch) -> tuple[Schema, tuple[str, ...]]:
    """Return the columns of what is read of a table or view, and the unique ones."""
    relation, schema = table.relation, table.relation.schema
    if not isinstance(table.read, ChangesBetween):
        return schema, key_of(relation)
    for name in schema.names:
        if name.lower() in CHANGE_COLUMNS:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'{relation.kind} "{relation.name}" FOR CHANGES is not supported: it has a column'
                f' "{name}"',
                detail=f"Changes have the columns {', '.join(CHANGE_COLUMNS)} besides its own.",
                hint="Follow its changes with SUBSCRIBE, or give the column another name.",
                span=table.read.span,
            )
    types = (StringType(), LongType(), LongType())
    added = (Column(*each, nullable=False) for each in zip(CHANGE_COLUMNS, types, strict=True))
    return Schema((*schema.columns, *added)), ()
