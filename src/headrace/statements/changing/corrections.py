"""CORRECT STREAM: replaces or voids earlier events; the log keeps the original events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.compute as pc

from headrace.catalog import ROWTIME, Stream, View
from headrace.dialects import OFFSET, log_of
from headrace.errors import Code, HeadraceError, Span, masked
from headrace.history.amending import amendments
from headrace.ledger import Correction
from headrace.parts.naming import HIDDEN
from headrace.parts.places import in_statement
from headrace.parts.written_rows import require_present
from headrace.sql import Correct, quote
from headrace.statements.changing.assignments import split_assignments, updated
from headrace.statements.changing.targets import as_defined, chosen, require_defined
from headrace.statements.results import Progress
from headrace.types import Offset

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from headrace.catalog import Catalog, Relation
    from headrace.catalyst.analysed import Shape
    from headrace.history.amending import Amending
    from headrace.parts.access import Principal
    from headrace.parts.log import Log
    from headrace.parts.reader import Reader
    from headrace.parts.snapshots import Snapshots
    from headrace.runtime.published import Published
    from headrace.sql import Delete
    from headrace.statements.changing.assignments import Assigned


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
