"""BACKUP TO and SHOW BACKUPS IN.

CREATE BRANCH, DROP BRANCH and SHOW BRANCHES.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.errors import Code, HeadraceError, unknown
from headrace.interfaces.statements.results import Listed, Progress, Result
from headrace.planning.sql import AsOfTimestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.lifecycle.copies.backups import Backups
    from headrace.lifecycle.copies.branch_places import Branch
    from headrace.lifecycle.copies.branching import Branches
    from headrace.lifecycle.copies.repository import Manifest
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.sql import (
        AsOf,
        Backup,
        CreateBranch,
        DropBranch,
        Option,
        ShowBackups,
        ShowBranches,
    )
    from headrace.types import Epoch


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


_BRANCHES_LISTED: Final = {
    "name": pa.string(),
    "from_epoch": pa.int64(),
    "created_at": pa.timestamp("us", "UTC"),
    "epoch": pa.int64(),
    "own_bytes": pa.int64(),
    "shared_bytes": pa.int64(),
    "in_use": pa.string(),
}


@dataclass(frozen=True, slots=True)
class BranchStatements:
    """Makes, drops and lists the branches of the database."""

    branches: Branches
    reader: Reader

    def create(self, statement: CreateBranch) -> str:
        """Make a branch; return what it is without."""
        name = statement.name.dotted
        try:
            if statement.if_not_exists and self.branches.exists(name):
                return f"branch {name} exists already"
            made = self.branches.create(name, self._epoch(statement.begins))
        except HeadraceError as error:
            raise error.at(statement.span) from error
        told = f"created branch {made.name} at epoch {made.epoch}"
        if made.without:
            told += f", without {', '.join(made.without)}"
        if made.refilled:
            told += f"; when it is opened, it fills again {', '.join(made.refilled)}"
        return told

    def drop(self, statement: DropBranch) -> str:
        """Drop a branch."""
        name = statement.name.dotted
        try:
            if statement.if_exists and not self.branches.exists(name):
                return f"branch {name} does not exist"
            self.branches.drop(name)
        except HeadraceError as error:
            raise error.at(statement.name.span) from error
        return f"dropped branch {name}"

    def show(self, _statement: ShowBranches) -> Listed:
        """List the branches, by name."""
        return Listed(
            tuple(_BRANCHES_LISTED), [_row(each) for each in self.branches.all()], _BRANCHES_LISTED
        )

    def _epoch(self, begins: AsOf | None) -> Epoch | None:
        if isinstance(begins, AsOfTimestamp):
            return self.reader.epoch_at(begins)
        return None if begins is None else begins.epoch


def _row(branch: Branch) -> tuple[object, ...]:
    at = branch.created_at
    return (
        branch.name,
        branch.from_epoch,
        None if at is None else datetime.fromtimestamp(at, UTC),
        branch.epoch,
        branch.own_bytes,
        branch.shared_bytes,
        branch.in_use,
    )
