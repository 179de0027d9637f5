"""The work of ``headrace upgrade``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.files import ObjectStore
from headrace.interfaces.settings import Settings
from headrace.interfaces.statements.results import Result
from headrace.lifecycle.copies.inspecting import Inspected, upgrades
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa


def to_do(directory: Path, given: Mapping[str, str]) -> pa.Table:
    """Return what opening a database with this version would do, and why."""
    settings = Settings.of(given)

    def store_at(url: str) -> ObjectStore:
        return ObjectStore.at(settings.store_address(settings.store or url))

    found = upgrades(Inspected(directory, settings.ledger_address, store_at))
    rows = [(each.check, each.found, each.hint) for each in found]
    return Result.of(("what", "why", "done"), rows, Epoch(0)).to_arrow()
