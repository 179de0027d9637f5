"""One COPY of a file: appends it in parts, and continues where an earlier COPY stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog import Table
from headrace.errors import Code, HeadraceError
from headrace.ledger import LoadProgress
from headrace.sources.blocks import Progress
from headrace.sources.files import identity, place

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from headrace.catalog import Stream
    from headrace.ledger import Reject
    from headrace.session.instance import Instance
    from headrace.types import Offset


@dataclass(slots=True)
class Load:
    """One file being loaded into one relation, and how far it is loaded.

    ``parts``, ``rows`` and ``line`` count from the beginning of the file, including parts of an
    earlier COPY; ``copied`` and ``rejected`` count only those of this one. ``resumed`` is where it
    began.
    """

    instance: Instance
    relation: Stream | Table
    path: Path
    source: str
    resumed: Progress | None = None
    parts: int = 0
    rows: int = 0
    line: int = 0
    copied: int = 0
    rejected: int = 0

    @classmethod
    def begin(
        cls, instance: Instance, relation: Stream | Table, path: Path, *, restart: bool = False
    ) -> Load:
        """Return the unfinished load of the file, or a new one if there is none, or ``restart``."""
        if not path.is_file():
            return cls(instance, relation, path, str(path))  # the reader reports the error
        ledger = instance.ledger
        for known in ledger.unfinished_loads(relation.id):
            if not known.source.startswith(place(path)):
                continue
            if restart:
                ended = LoadProgress(known.source, known.progress, finished=True)
                with instance.appending:
                    instance.append(relation, _no_rows(relation), load=ended)
                continue
            at = Progress.of_json(known.progress)
            parts, rows = known.progress.get("parts", 1), known.progress.get("rows", 0)
            return cls(instance, relation, path, known.source, at, parts, rows, at.line)
        base, times = identity(path), 1
        while ledger.load_of(relation.id, f"{base}|{times}") is not None:
            times += 1
        return cls(instance, relation, path, f"{base}|{times}")

    @property
    def note(self) -> str:
        """Where the load resumed, for the message; empty if it began with the file."""
        return f", resumed at byte {self.resumed.position:,}" if self.resumed else ""

    def append(self, rows: pa.Table, progress: Progress, rejects: Sequence[Reject]) -> None:
        """Append one part durably, together with the position in the file."""
        counts = {"parts": self.parts + 1, "rows": self.rows + rows.num_rows}
        load = LoadProgress(self.source, {**progress.to_json(), **counts})
        with self.instance.appending:
            self.instance.append(self.relation, rows, load=load, rejects=rejects)
        self.parts += 1
        self.rows += rows.num_rows
        self.copied += rows.num_rows
        self.rejected += len(rejects)
        self.line = progress.line

    def finish(self) -> Offset:
        """Record that the whole file is loaded; return the log's end."""
        finished = LoadProgress(self.source, {}, finished=True)
        with self.instance.appending:
            return self.instance.append(self.relation, _no_rows(self.relation), load=finished)

    def stopped(self, error: HeadraceError) -> HeadraceError:
        """Return the error with the loaded part of the file, and how to continue or undo it."""
        if self.parts == 0:
            return error
        parts = "1 part" if self.parts == 1 else f"{self.parts:,} parts"
        rows = "1 row" if self.rows == 1 else f"{self.rows:,} rows"
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
