"""CREATE BRANCH, DROP BRANCH and SHOW BRANCHES."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.sql import AsOfTimestamp
from headrace.statements.results import Listed

if TYPE_CHECKING:
    from headrace.branches import Branch, Branches
    from headrace.parts.reader import Reader
    from headrace.sql import AsOf, CreateBranch, DropBranch, ShowBranches
    from headrace.types import Epoch

_LISTED: Final = {
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
        return Listed(tuple(_LISTED), [_row(each) for each in self.branches.all()], _LISTED)

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
