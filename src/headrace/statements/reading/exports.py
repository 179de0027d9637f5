"""COPY ... TO: the rows of a relation or query, written to a file of this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.connectors import Given
from headrace.connectors.files.exported import ExportOptions, write_file
from headrace.errors import Code, HeadraceError, Span
from headrace.parts.naming import SYSTEM_SCHEMA
from headrace.sql import Name, Query
from headrace.sql.keywords import quote, quote_dotted
from headrace.statements.results import Progress, Result

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.parts.reader import Reader
    from headrace.sql import CopyTo
    from headrace.statements.reading.selects import Selects


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
