"""The work of ``headrace doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.files import ObjectStore
from headrace.interfaces.settings import Settings
from headrace.interfaces.statements.refreshing import Paced
from headrace.interfaces.statements.results import Progress, Result
from headrace.lifecycle.copies.inspecting import Inspected, State, inspect
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import pyarrow as pa


_NAMES = ("check", "state", "found", "hint")


def findings(
    directory: Path,
    given: Mapping[str, str],
    report: Callable[[Progress], None],
    *,
    quick: bool,
) -> tuple[pa.Table, bool]:
    """Return what checks of a database have found, and whether anything is wrong."""
    settings, paced = Settings.of(given), Paced(report)

    def store_at(url: str) -> ObjectStore:
        return ObjectStore.at(settings.store_address(settings.store or url))

    def shown(done: int, total: int) -> None:
        paced(Progress("reading files", done, total, "bytes"))

    inspected = Inspected(directory, settings.ledger_address, store_at)
    found = inspect(inspected, quick=quick, report=shown)
    rows = [(each.check, each.state.value, each.found, each.hint) for each in found]
    wrong = any(each.state is State.WRONG for each in found)
    return Result.of(_NAMES, rows, Epoch(0)).to_arrow(), wrong
