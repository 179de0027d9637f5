"""What a sink records in its target besides rows: who writes there, and the last whole epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.connectors.lines import json_lines
from headrace.errors import Code, HeadraceError
from headrace.runtime.ports import Refused
from headrace.zset import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.types import Epoch


def belongs_to_another(what: str, removed: str) -> HeadraceError:
    """Return the error that another sink writes there; ``removed`` forgets that it does."""
    return HeadraceError(
        Code.CONFLICT,
        f"{what} belong to another sink",
        "It may be one of another database, or one that was dropped: what a sink wrote stays.",
        f"Write elsewhere. If that sink is gone, remove what it wrote, and its mark: {removed}.",
    )


def require_kept(what: str, there: Epoch | None, reached: Epoch | None) -> None:
    """Refuse a target that has lost changes: it is not where it was when it acknowledged some.

    Raises:
        HeadraceError: ``conflict``.
    """
    if reached is None or (there is not None and there >= reached):
        return
    at = "no epoch" if there is None else f"epoch {there}"
    raise HeadraceError(
        Code.CONFLICT,
        f"{what} have lost changes",
        f"They are at {at}, and epoch {reached} was acknowledged.",
        "RECONCILE SINK writes what is missing; RESET SINK writes all rows anew.",
    )


def refused_rows(
    epoch: Epoch, rows: pa.Table, key: Sequence[str], wrong: Mapping[int, str]
) -> list[Refused]:
    """Return the rows at some places as refused, each with the reason."""
    if not wrong:
        return []
    places = sorted(wrong)
    some = rows.take(pa.array(places, pa.int64()))
    found = []
    for at, place in enumerate(places):
        one = some.slice(at, 1).append_column(WEIGHT, pa.array([1], pa.int64()))
        (line,) = json_lines(epoch, one, key)
        found.append(Refused(line, wrong[place]))
    return found
