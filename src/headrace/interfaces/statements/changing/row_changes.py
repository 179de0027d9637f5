"""INSERT, UPDATE, DELETE, TRUNCATE and CORRECT in a session, and rows passed by a program.

After a write of a session: later reads wait for it, and affected views are recorded.

CORRECT STREAM: replaces or voids earlier events; the log keeps the original events.

The rows that a statement would write: it runs on a log that records but appends nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import pyarrow.compute as pc

from headrace.errors import Code, HeadraceError, Span, masked
from headrace.interfaces.statements.changing.inserts import Inserts
from headrace.interfaces.statements.changing.updates import (
    Updates,
    as_defined,
    chosen,
    require_defined,
    split_assignments,
    updated,
)
from headrace.interfaces.statements.results import Progress
from headrace.lifecycle.history.amending import amendments
from headrace.lifecycle.history.repairing import TrialAmending, TrialLog
from headrace.lifecycle.inputs.rows import require_present
from headrace.lifecycle.states.declarations import in_statement
from headrace.planning.catalog import ROWTIME, Stream, Table, View
from headrace.planning.catalog.naming import HIDDEN
from headrace.planning.dialects import OFFSET, log_of
from headrace.planning.sql import Correct, Delete, Insert, Truncate, Update, quote
from headrace.storage.ledger import Correction
from headrace.types import Offset

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from headrace.execution.runtime.published import Published
    from headrace.interfaces.statements.changing.inserts import Rows
    from headrace.interfaces.statements.changing.updates import Assigned, WrittenRows
    from headrace.interfaces.statements.sinks.creations import SinkCreations
    from headrace.lifecycle.history.amending import Amending
    from headrace.lifecycle.history.changes import ChangeClassifier
    from headrace.lifecycle.inputs.log import Log
    from headrace.lifecycle.states.access import Principal
    from headrace.lifecycle.states.evaluating import Snapshots
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Catalog, Relation
    from headrace.planning.catalyst.analysed import Shape
    from headrace.planning.sql import Statement
    from headrace.storage.ledger import ProducerPosition
    from headrace.types import RelationId


@dataclass(frozen=True, slots=True)
class Writes:
    """Reports writes to the session and to the history of changes.

    ``wrote`` makes later reads of the session wait for the changes before an offset of a log.
    """

    reader: Reader
    changes: ChangeClassifier
    principal: Principal
    wrote: Callable[[RelationId, Offset], None]

    def show(self, relation: RelationId, end: Offset) -> None:
        """Make later reads of this session wait for the changes before an offset of a log."""
        self.wrote(relation, end)
        self.reader.show_written(relation, end)

    def of_rows(self, statement: Statement, written: WrittenRows) -> int:
        """Make changed rows visible to the session; record the effect of changed versions on views.

        Versions are the rows of a table with ``effective_from``. Returns the number of rows.
        """
        self.show(written.relation, written.end)
        table = self.reader.catalog.by_id.get(written.relation)
        if written.rows and isinstance(table, Table) and table.effective_from is not None:
            by = self.principal.name
            origin = {"statement": masked(statement.span.source)}
            carried = self.changes.of_versions(table, written.end)
            self.changes.record(carried, origin if by is None else {**origin, "by": by})
        return written.rows

    def of_events(self, corrected: CorrectionResult) -> int:
        """Make corrected events visible, record the affected views, and return the count."""
        self.show(corrected.stream.id, corrected.end)
        if corrected.events:
            carried = self.changes.of_correction(corrected.stream, corrected.rebuilt)
            self.changes.record(carried, corrected.origin)
        return corrected.events


def row_count(count: int) -> str:
    """Return a number of rows for a message."""
    return f"{count:,} {'row' if count == 1 else 'rows'}"


def not_taken(count: int) -> str:
    """Return the part of a message about rows that a relation did not accept."""
    return f", {count:,} not taken: duplicate or late" if count else ""


class CorrectionResult(NamedTuple):
    """The result of a correction: the number of events, the log's end, and the origin to record.

    ``rebuilt`` are the views that were rebuilt first.
    """

    stream: Stream
    events: int
    end: Offset
    origin: Mapping[str, str]
    rebuilt: tuple[View, ...] = ()


@dataclass(frozen=True, slots=True)
class Corrections:
    """Corrects events of streams; durable when a method returns."""

    reader: Reader
    snapshots: Snapshots
    log: Log
    amending: Amending
    principal: Principal
    report: Callable[[Progress], None]

    def correct(self, statement: Correct) -> CorrectionResult:
        """Replace or void the matching events, as they are after all corrections so far.

        Views change by the difference, in one epoch. Before the first correction of a stream, views
        that rely on its events never changing are rebuilt.
        """
        return as_defined(
            lambda: self._stream(statement), lambda stream: self._correct(stream, statement)
        )

    def _correct(self, stream: Stream, statement: Correct) -> CorrectionResult:
        assigned = self._assigned(stream, statement)
        constants, computed = split_assignments(assigned, dict(stream.declaration.defaults))
        with self.log.correcting(stream.id):
            found = self._matching(stream, statement, computed)
            if not found.num_rows:
                return CorrectionResult(stream, 0, self.reader.ledger.head.log_end(stream.id), {})
            names = stream.logged.names
            old, offsets = found.select(names), found[OFFSET]
            new = None
            if statement.assignments:
                values = found.columns[len(names) + 1 :]
                new = updated(stream.schema, old, constants, computed, values)
                require_present(stream, new, statement.span)
                new = self.log.with_computed(stream, new)
                if stream.declaration.rowtime:
                    new = new.append_column(old.schema.field(ROWTIME), old[ROWTIME])
            what = f"preparing views of {stream.name}"
            stream, rebuilt = self.amending.prepared(
                stream, lambda done, total: self.report(Progress(what, done, total, "rows"))
            )
            rows = amendments(old, offsets, new)
            events, origin = found.num_rows, self._origin(statement)
            first = Offset(pc.min(offsets).as_py())
            written = self.log.correct(stream, rows, Correction(events, origin, first))
        return CorrectionResult(stream, events, written.end, origin, rebuilt)

    def _origin(self, statement: Correct) -> dict[str, str]:
        origin = {"statement": masked(statement.span.source)}
        if statement.reason is not None:
            origin["reason"] = statement.reason
        if self.principal.name is not None:
            origin["by"] = self.principal.name
        return origin

    def _stream(self, statement: Correct) -> Stream:
        relation = self.reader.catalog.resolve(statement.name.dotted, statement.name.span)
        if isinstance(relation, Stream) and not relation.name.startswith(HIDDEN):
            return relation
        raise HeadraceError(
            Code.INVALID,
            f'"{relation.name}" is a {relation.kind}, not a stream',
            hint=_hint(relation),
            span=statement.name.span,
        )

    def _assigned(self, stream: Stream, statement: Correct) -> list[Assigned]:
        columns = {column.name.lower(): column for column in stream.schema.columns}
        for each in statement.assignments:
            (column,) = chosen(stream, (each.column,), each.span)
            if column.name.lower() not in columns:
                raise HeadraceError(
                    Code.UNSUPPORTED,
                    f"correcting {column.name} is not supported",
                    "It is the time at which the event arrived.",
                    span=each.span,
                )
        return [(columns[a.column.lower()], a.expression.span) for a in statement.assignments]

    def _matching(self, stream: Stream, statement: Correct, computed: list[Assigned]) -> pa.Table:
        """Return the matching events with their offsets, and the values of expressions."""
        text = ", ".join(
            [quote(name) for name in stream.logged.names]
            + [OFFSET]
            + [f"({span.source}) AS `__new{i}`" for i, (_, span) in enumerate(computed)]
        )
        log, alias = log_of(stream.id), quote(stream.name.rpartition(".")[2])
        text = (
            f"SELECT {text} FROM (SELECT *, {OFFSET} AS ROWOFFSET FROM {log}) AS {alias} "
            f"WHERE (({statement.where.text}))"
        )

        def state(shape: Shape) -> Published:
            return self.reader.settled((*shape.reads, stream.id))

        try:
            rows, read = self.snapshots.rows(Span.whole(text), state, lambda _: text, (stream.id,))
        except HeadraceError as error:
            raise in_statement(error, statement.span) from error
        require_defined(stream, read)
        return rows


def as_correction(catalog: Catalog, statement: Delete) -> Correct | None:
    """Return a DELETE from a stream as a correction; None for other relations.

    Raises:
        HeadraceError: ``invalid`` without a condition.
    """
    target = statement.target
    if not isinstance(catalog.find(target.dotted), Stream):
        return None
    if statement.where is None:
        raise HeadraceError(
            Code.INVALID,
            "DELETE FROM a stream needs a condition",
            hint="Say which events: WHERE at < TIMESTAMP '2026-01-01'. Or DROP the stream.",
            span=target.span,
        )
    return Correct(target, (), statement.where, statement.span)


def _hint(relation: Relation) -> str:
    if isinstance(relation, View) and relation.into is not None:
        return "Correct the events of the streams that it reads."
    return "UPDATE and DELETE change the rows of a table; INVALIDATE recomputes rows of a view."


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Changes rows and events; each method but :meth:`append` returns a message."""

    reader: Reader
    inserts: Inserts
    updates: Updates
    corrections: Corrections
    creations: SinkCreations
    writes: Writes

    def insert(self, statement: Insert) -> str:
        """Insert rows; a query into a table with a connector runs continuously."""
        if self.creations.is_job(statement):
            return self.creations.start_job(statement)
        return self._done(statement, self.inserts.insert(statement), "inserted")

    def update(self, statement: Update) -> str:
        """Update rows of a table."""
        return self._done(statement, self.updates.update(statement), "updated")

    def delete(self, statement: Delete) -> str:
        """Delete rows of a table, or void events of a stream."""
        voids = as_correction(self.reader.catalog, statement)
        if voids is not None:
            return self.correct(voids)
        return self._done(statement, self.updates.delete(statement), "deleted")

    def truncate(self, statement: Truncate) -> str:
        """Delete all rows of a table."""
        return self._done(statement, self.updates.truncate(statement), "deleted")

    def correct(self, statement: Correct) -> str:
        """Replace or void events of a stream."""
        corrected = self.corrections.correct(statement)
        events = self.writes.of_events(corrected)
        done = "replaced" if statement.assignments else "voided"
        retired = self.reader.published.starts.get(corrected.stream.id, 0)
        note = f"; the first {retired:,} are no longer kept, and stay in views" if retired else ""
        return f"{events:,} {'event' if events == 1 else 'events'} {done}{note}"

    def append(self, name: str, rows: Rows, producer: ProducerPosition | None = None) -> int:
        """Append rows passed by a program, matched to columns by name; return their number."""
        written = self.inserts.append(name, rows, producer)
        self.writes.show(written.relation, written.end)
        return written.rows

    def _done(
        self, statement: Insert | Update | Delete | Truncate, written: WrittenRows, verb: str
    ) -> str:
        rows = self.writes.of_rows(statement, written)
        return f"{row_count(rows)} {verb}{not_taken(written.left_out)}"


RowChange: TypeAlias = Insert | Update | Delete | Truncate | Correct


@dataclass(frozen=True, slots=True)
class Trials:
    """Runs statements that change rows without effect."""

    reader: Reader
    snapshots: Snapshots
    log: Log
    amending: Amending
    principal: Principal
    report: Callable[[Progress], None]

    def written(self, statement: RowChange) -> tuple[Stream | Table, pa.Table] | None:
        """Return the relation and the changes that a statement would append; None without changes.

        An epoch with all earlier changes is made first.
        """
        self.reader.settle_all()
        log = TrialLog.of(self.log)
        updates = Updates(self.reader, self.snapshots, log)
        if isinstance(statement, Delete):
            statement = as_correction(self.reader.catalog, statement) or statement
        match statement:
            case Insert():
                Inserts(self.reader, self.snapshots, log).insert(statement)
            case Update():
                updates.update(statement)
            case Delete():
                updates.delete(statement)
            case Truncate():
                updates.truncate(statement)
            case Correct():
                Corrections(
                    self.reader,
                    self.snapshots,
                    log,
                    TrialAmending.of(self.amending),
                    self.principal,
                    self.report,
                ).correct(statement)
        if not any(rows.num_rows for _, rows in log.taken):
            return None
        ((relation, rows),) = log.taken
        return relation, rows
