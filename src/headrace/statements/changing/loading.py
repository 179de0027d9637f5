"""The load of one file: appends it in parts, and continues where an earlier COPY stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog import Table
from headrace.connectors.files.source import identity, place
from headrace.errors import Code, HeadraceError
from headrace.formats.blocks import FilePosition
from headrace.runtime.ingest import Ingest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from headrace.catalog import Stream
    from headrace.ledger import Ledger, LoadProgress, Reject
    from headrace.parts.log import Log
    from headrace.runtime.ports import Part
    from headrace.types import Offset


@dataclass(slots=True)
class Load:
    """A file being loaded into a relation, and the position reached.

    ``line`` counts from the beginning of the file. ``resumed`` is where this COPY began, if it
    continues an earlier one. ``before`` is how often the file was copied in its present state.
    """

    relation: Stream | Table
    path: Path
    ingest: Ingest
    line: int = 0
    resumed: FilePosition | None = None
    before: int = 0

    @classmethod
    def begin(
        cls,
        ledger: Ledger,
        log: Log,
        relation: Stream | Table,
        path: Path,
        *,
        restart: bool = False,
    ) -> Load:
        """Return the unfinished load of the file; without one, or with ``restart``, a new one."""

        def into(rows: pa.Table, *, load: LoadProgress, rejects: Sequence[Reject]) -> Offset:
            return log.append(relation, rows, load=load, rejects=rejects).end

        if not path.is_file():
            return cls(relation, path, Ingest(into, str(path)))  # the reader reports the error
        for known in ledger.loads.unfinished(relation.id):
            if not known.source.startswith(place(path)):
                continue
            ingest = Ingest.of(ledger, relation.id, known.source, into)
            if restart:
                ingest.finish(_no_rows(relation))
                continue
            at = FilePosition.of_json(ingest.position or {})
            return cls(relation, path, ingest, at.line, at)
        base, times = identity(path), 1
        while ledger.loads.progress(relation.id, f"{base}|{times}") is not None:
            times += 1
        return cls(relation, path, Ingest(into, f"{base}|{times}"), before=times - 1)

    @property
    def note(self) -> str:
        """A note for the message: where the load resumed, or that it repeats one; or empty."""
        if self.resumed:
            return f", resumed at byte {self.resumed.position:,}"
        again = "; the same file was copied before: WITH (once = true) would skip it"
        return again if self.before else ""

    def land(self, part: Part, changes: pa.Table) -> None:
        """Append one part durably, together with the position in the file."""
        self.ingest.land(part, changes)
        self.line = FilePosition.of_json(part.position).line

    def finish(self) -> Offset:
        """Record that the whole file is loaded; return the log's end."""
        return self.ingest.finish(_no_rows(self.relation))

    def stopped(self, error: HeadraceError) -> HeadraceError:
        """Return the error with how much of the file is loaded, and how to continue or undo it."""
        landed, so_far = self.ingest.parts, self.ingest.rows
        if landed == 0:
            return error
        parts = "1 part" if landed == 1 else f"{landed:,} parts"
        rows = "1 row" if so_far == 1 else f"{so_far:,} rows"
        into = f'{self.relation.kind} "{self.relation.name}"'
        read = f"{parts} with {rows}, up to line {self.line:,}"
        loaded = f"Of the file, {read}, are in {into} and stay there."
        back = (
            "DELETE its rows to remove them"
            if isinstance(self.relation, Table)
            else "a stream's rows cannot be deleted other than by CREATE OR REPLACE STREAM"
        )
        again = "WITH (restart = true) reads the file from its beginning"
        match error.code:
            case Code.CONFLICT:
                on = "Restore the file as it was to continue."
            case Code.INVALID:
                on = "Correct the rest of the file; the same COPY then continues after these rows."
            case _:
                on = "Remove the cause; the same COPY then continues after these rows."
        return HeadraceError(
            error.code,
            error.primary,
            f"{error.detail} {loaded}" if error.detail else loaded,
            f"{on} Otherwise, {back}; COPY ... {again}.",
            error.span,
        )


def _no_rows(relation: Stream | Table) -> pa.Table:
    return relation.schema.arrow.empty_table()
