"""BACKUP TO and SHOW BACKUPS IN."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.errors import Code, HeadraceError, unknown
from headrace.statements.results import Listed, Progress, Result

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.backups import Backups, Manifest
    from headrace.sql import Backup, Option, ShowBackups

_KEEP: Final = "keep"
_MADE: Final = ("name", "epoch", "files_copied", "bytes_copied", "files_reused")
_LISTED: Final = {
    "name": pa.string(),
    "epoch": pa.int64(),
    "taken_at": pa.timestamp("us", "UTC"),
    "files": pa.int64(),
    "bytes": pa.int64(),
    "version": pa.string(),
}


@dataclass(frozen=True, slots=True)
class BackupStatements:
    """Copies the database to another place, and lists these copies."""

    backups: Backups
    report: Callable[[Progress], None]

    def make(self, statement: Backup) -> Result:
        """Make a backup; return its name and epoch, what was copied, and what was there already."""
        keep = _keep(statement.options)

        def report(done: int, total: int) -> None:
            self.report(Progress("backing up", done, total, "bytes"))

        try:
            made = self.backups.make(statement.url, keep, report)
        except HeadraceError as error:
            raise error.at(statement.url_span) from error
        row = (made.name, made.epoch, made.files_copied, made.bytes_copied, made.files_reused)
        return Result.of(_MADE, [row], made.epoch)

    def show(self, statement: ShowBackups) -> Listed:
        """List the backups at a place, the newest first."""
        try:
            found = self.backups.at(statement.url)
        except HeadraceError as error:
            raise error.at(statement.url_span) from error
        return listed(found)


def listed(found: Sequence[Manifest]) -> Listed:
    """Return the rows of backups, the newest first."""
    rows = [
        (
            each.name,
            each.epoch,
            datetime.fromtimestamp(each.taken_at, UTC),
            len(each.files),
            each.size,
            each.version,
        )
        for each in reversed(found)
    ]
    return Listed(tuple(_LISTED), rows, _LISTED)


def _keep(options: tuple[Option, ...]) -> int | None:
    """Return how many backups are kept; None for all."""
    keep = None
    for option in options:
        if option.key != _KEEP:
            raise unknown("option", option.key, (_KEEP,), "There is: keep.").at(option.span)
        keep = int(option.value) if option.value.isdecimal() else 0
        if keep < 1 or option.secret:
            raise HeadraceError(
                Code.INVALID,
                f'option "keep" cannot be "{option.value}"',
                hint="Give the number of the newest backups to keep: 1 or more.",
                span=option.span,
            )
    return keep
