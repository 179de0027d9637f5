"""COPY: appends files, in parts.

The load of one file: appends it in parts, and continues where an earlier COPY stopped.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.feeds import Ingest
from headrace.interfaces.statements.changing.row_changes import not_taken, row_count
from headrace.interfaces.statements.changing.updates import chosen, target_named
from headrace.interfaces.statements.results import Progress
from headrace.io.connectors import ChangeFormat, Given, format_of, is_captured
from headrace.io.connectors.files.change_files import read_changes
from headrace.io.connectors.files.directories import FilePattern, is_pattern
from headrace.io.connectors.files.source import FileFormat, FileOptions, FileSource, identity, place
from headrace.io.formats.blocks import FilePosition
from headrace.lifecycle.inputs.admission import takes_some
from headrace.lifecycle.inputs.rows import depends_on_rows, rows_of, weighted, with_rows_before
from headrace.lifecycle.states.former_names import as_present, with_former
from headrace.planning.catalog import Stream, Table
from headrace.types import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from headrace.execution.runtime.ports import Part
    from headrace.interfaces.statements.changing.row_changes import Writes
    from headrace.lifecycle.inputs.log import Log
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.sql import Copy
    from headrace.storage.ledger import Ledger, LoadProgress, Reject
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


class Copied(NamedTuple):
    """The numbers of appended and rejected rows, a note, and the number of rows left out."""

    rows: int
    rejected: int
    note: str
    left_out: int = 0
    skipped: bool = False


_SKIPPED: Final = Copied(0, 0, ": the file was copied before", skipped=True)


@dataclass(frozen=True, slots=True)
class Copies:
    """Appends files to streams and tables; reported progress is durable."""

    reader: Reader
    log: Log
    ledger: Ledger
    writes: Writes
    report: Callable[[Progress], None]

    def run(self, statement: Copy) -> str:
        """Append the rows of files; return a message."""
        try:
            copied = self.copy(statement)
        finally:  # rows copied before a failure or cancellation stay
            relation = self.reader.catalog.find(statement.target.dotted)
            if isinstance(relation, Stream | Table):
                self.writes.show(relation.id, self.ledger.head.log_end(relation.id))
        rejects = f", {copied.rejected:,} rejected: see SHOW REJECTS" if copied.rejected else ""
        left_out = not_taken(copied.left_out)
        return f"{row_count(copied.rows)} copied{rejects}{left_out}{copied.note}"

    def copy(self, statement: Copy) -> Copied:
        """Append the rows of files, in parts; rows that do not fit are stored as rejects.

        An interrupted load of the same file is resumed where it stopped. For a pattern, files that
        were copied before are skipped, so the same COPY continues after a failure.
        """
        relation = target_named(self.reader.catalog, statement.target)
        path = Path(statement.path)
        if not is_pattern(statement.path) or path.exists():
            return self._copy_file(statement, relation, path, once=False)
        try:
            paths = _named(statement.path)
        except HeadraceError as error:
            raise error.at(statement.path_span) from error
        each = [self._copy_file(statement, relation, found, once=True) for found in paths]
        new = sum(not copied.skipped for copied in each)
        note = f", from {new:,} of {len(each):,} files: the others were copied before"
        return Copied(
            sum(copied.rows for copied in each),
            sum(copied.rejected for copied in each),
            f", from {new:,} files" if new == len(each) else note,
            sum(copied.left_out for copied in each),
        )

    def _copy_file(
        self, statement: Copy, relation: Stream | Table, path: Path, *, once: bool
    ) -> Copied:
        """Append one file; with ``once``, skip it if it was copied before."""
        if isinstance(relation, Table) and is_captured(relation):
            return self._copy_changes(statement, relation, path, once=once)
        return self._copy_rows(statement, relation, path, once=once)

    def _copy_rows(
        self, statement: Copy, relation: Stream | Table, path: Path, *, once: bool
    ) -> Copied:
        given, before = Given.of(statement.options), self._left_out(relation)
        load = None
        try:
            options = FileOptions.of(path, given)
            columns = chosen(relation, statement.columns, statement.span)
            load = Load.begin(self.ledger, self.log, relation, path, restart=options.restart)
            if load.before and (once if options.once is None else options.once):
                return _SKIPPED
            wanted = Schema(columns)
            if options.format is FileFormat.JSON:  # whose unknown names are ignored
                wanted = with_former(relation, wanted)
            source = FileSource(path, wanted, options)
            for part in source.parts(load.ingest.position):
                rows = self.log.with_defaults(relation, as_present(relation, part.rows))
                if isinstance(relation, Table):
                    rows = weighted(rows, 1)
                load.land(part, rows)
                self._report(load, part)
            load.finish()
        except HeadraceError as error:
            failure = error if load is None else load.stopped(error)
            raise failure.at(statement.path_span) from error
        left_out = self._left_out(relation) - before
        landed = load.ingest.landed - left_out
        return Copied(landed, load.ingest.rejected, load.note, left_out)

    def _left_out(self, relation: Stream | Table) -> int:
        return (
            sum(self.ledger.rejects.left_out(relation.id).values()) if takes_some(relation) else 0
        )

    def _copy_changes(self, statement: Copy, table: Table, path: Path, *, once: bool) -> Copied:
        """Append the changes given by the messages in a file."""
        chosen_options = _choices(statement, format_of(table))
        generated = table.declaration.generated
        value = Schema(tuple(c for c in table.schema.columns if c.name not in generated))
        decoder = ChangeFormat.of(table).captured(table, value)
        done, load = 0, None
        try:
            restart = chosen_options.get("restart", False)
            load = Load.begin(self.ledger, self.log, table, path, restart=restart)
            if load.before and chosen_options.get("once", once):
                return _SKIPPED
            for part, taken in read_changes(path, decoder, load.resumed):
                done += taken - self._land_changes(load, table, part)
                self._report(load, part)
            load.finish()
        except HeadraceError as error:
            failure = error if load is None else load.stopped(error)
            raise failure.at(statement.path_span) from error
        return Copied(done, load.ingest.rejected, load.note)

    def _land_changes(self, load: Load, table: Table, part: Part) -> int:
        """Append changes; other writers are locked out if the changes depend on the table's rows.

        Returns how many changes do not fit these rows.
        """
        given = len(part.rejects)
        depends = depends_on_rows(part, table.primary_key)
        with self.log.alone(table) if depends else nullcontext():
            if depends:
                rows = rows_of(self.reader, table)
                part = with_rows_before(part, table.primary_key, rows)
            changes = self.log.with_defaults(table, part.rows)
            load.land(part, changes.append_column(WEIGHT, part.rows[WEIGHT]))
        return len(part.rejects) - given

    def _report(self, load: Load, part: Part) -> None:
        what, rejected = f"copying {load.path.name}", load.ingest.rejected
        self.report(Progress(what, part.done, part.total, "bytes", rejected))


def _named(pattern: str) -> list[Path]:
    """Return the files that match a pattern, sorted by name.

    Raises:
        HeadraceError: ``invalid`` if no file matches, or a link leads out of its directory.
    """
    found = sorted(FilePattern.of(pattern).files(), key=lambda file: file.name)
    outside = next((file for file in found if file.outside is not None), None)
    if outside is not None:
        raise HeadraceError(
            Code.INVALID,
            f'file "{outside.path}" is a link out of the directory of the pattern',
            f"It leads to {outside.outside}.",
            "Remove the link, or COPY the file by its own path.",
        )
    if not found:
        raise HeadraceError(
            Code.INVALID,
            f"pattern '{pattern}' matches no file",
            hint="Names that begin with . or _ or end in .tmp are not matched.",
        )
    return [file.path for file in found]


def _choices(statement: Copy, form: str) -> dict[str, bool]:
    """Return the options ``restart`` and ``once``, if given.

    Other options choose a format, which a table of captured changes already has.
    """
    choices = {}
    for option in statement.options:
        key, value = option.key.lower(), option.value.lower()
        if key in {"restart", "once"} and value in {"true", "false"}:
            choices[key] = value == "true"
            continue
        if (option.key.lower(), option.value.lower()) in {("format", "json"), ("format", form)}:
            continue
        raise HeadraceError(
            Code.INVALID,
            f'option "{option.key}" is not for a table of format {form}',
            hint="Its files are captured changes, one JSON object per line.",
            span=option.span,
        )
    if statement.columns:
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"columns of a table of format {form} cannot be chosen",
            hint="Leave the list out: captured changes have the table's columns.",
            span=statement.span,
        )
    return choices
