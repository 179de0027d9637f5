"""``headrace restore``: the backups at a place, and a database restored from one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.files import DirectoryPlace, StoreAddress
from headrace.interfaces.settings import LEDGER, Settings, backup_place
from headrace.interfaces.statements.copies import listed
from headrace.interfaces.statements.refreshing import Paced
from headrace.interfaces.statements.results import Progress, Result
from headrace.lifecycle.copies.backups import Target, restore
from headrace.lifecycle.copies.repository import Repository
from headrace.storage.ledger import data_directory
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa


def backups_at(url: str) -> pa.Table:
    """Return the backups at a place, the newest first, as ``SHOW BACKUPS`` does."""
    repository = Repository(backup_place(url))
    found = listed([repository.manifest(name) for name in repository.names()])
    return Result.of(found.names, found.rows, Epoch(0), found.types).to_arrow()


def restore_backup(
    url: str,
    name: str | None,
    data: str,
    settings: Mapping[str, str],
    report: Callable[[Progress], None],
) -> str:
    """Restore a backup at a place, the newest by default; return a message.

    ``data`` is a directory, or the URL of an object store; ``settings`` may name the ledger.

    Raises:
        HeadraceError: as :func:`headrace.lifecycle.copies.restore`; ``invalid`` for an object store
        without
            a ledger in PostgreSQL.
    """
    address, paced = Settings.of(settings).ledger_address, Paced(report)

    def shown(done: int, total: int) -> None:
        paced(Progress("restoring", done, total, "bytes"))

    if StoreAddress.is_store(data):
        if address is None:
            raise HeadraceError(
                Code.INVALID,
                f'a database in "{data}" needs a ledger in PostgreSQL',
                hint=f"Give --ledger, or {LEDGER}: postgresql://user@host/database.",
            )
        target = Target(backup_place(data), address, data)
    else:
        target = Target(DirectoryPlace(data_directory(data).absolute()), address)
    done = restore(Repository(backup_place(url)), target, name, shown)
    kept = f", {done.kept:,} were there already" if done.kept else ""
    return (
        f'restored backup {done.manifest.name}, epoch {done.manifest.epoch}, to "{data}":'
        f" {done.files:,} files{kept}"
    )
