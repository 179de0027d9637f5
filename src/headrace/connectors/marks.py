"""What a sink records in its target besides rows: who writes there, and the last whole epoch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.connectors.lines import lines_of_keys
from headrace.errors import Code, HeadraceError
from headrace.runtime.ports import RefusedRow, lost_changes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.connectors.sinks import SinkContext
    from headrace.types import Epoch


def belongs_to_another(what: str, removed: str) -> HeadraceError:
    """Return the error that another sink writes there; ``removed`` forgets that it does."""
    return HeadraceError(
        Code.CONFLICT,
        f"{what} belongs to another sink",
        "It may be one of another database, or one that was dropped: what a sink wrote stays.",
        f"Write elsewhere. If that sink is gone, remove what it wrote, and its mark: {removed}.",
    )


def moved_on(what: str, there: Epoch | None, known: Epoch | None) -> HeadraceError:
    """Return the error that a target has another epoch than this process has found or written.

    A later one was written by a process that was replaced. An earlier one means that what was
    written is lost: going on would leave rows wrong for ever.
    """
    if known is not None and (there is None or there < known):
        return lost_changes(what, there, known)
    return HeadraceError(
        Code.UNAVAILABLE,
        f"{what} has changed since it was last looked at",
        f"It has epoch {there}: another process of this database has written to it.",
        "The delivery goes on after that epoch by itself.",
    )


def require_own(
    owner: str | None, context: SinkContext, what: str, removed: str, there: Epoch | None = None
) -> None:
    """Refuse a place whose mark has another ``owner``, or that a sink that moves has not written.

    ``there`` is the epoch of the mark, which is looked at if there is no owner.

    Raises:
        HeadraceError: ``conflict``.
    """
    if owner is not None and owner != context.identity:
        raise belongs_to_another(what, removed)
    if context.moved is not None and owner is None and (there or -1) < context.moved:
        raise HeadraceError(
            Code.CONFLICT,
            f"{what} has not what this sink has written",
            f"It has acknowledged epoch {context.moved}, and there is no record of that.",
            "An address may change if it leads to the same rows. CREATE OR REPLACE the sink to"
            " write into another place.",
        )


def encoded(refused: Iterable[RefusedRow]) -> str:
    """Return rows that were refused as text, for the mark."""
    return json.dumps([(each.row, each.why) for each in refused], ensure_ascii=False)


def decoded(text: str | None) -> list[RefusedRow]:
    """Return the rows that :func:`encoded` wrote."""
    return [RefusedRow(row, why) for row, why in json.loads(text or "[]")]


def pieces(text: str, most: int) -> list[str]:
    """Cut a text into pieces of at most ``most`` characters; an empty one has none."""
    return [text[start : start + most] for start in range(0, len(text), most)]


def refused_rows(
    epoch: Epoch, part: pa.Table, rows: pa.Table, key: Sequence[str], wrong: Mapping[int, str]
) -> list[RefusedRow]:
    """Return the changes of rows at some places as refused, each with the reason.

    The rows are of the changes in ``part``, by their key.
    """
    if not wrong:
        return []
    places = sorted(wrong)
    lines = lines_of_keys(epoch, part, rows.take(pa.array(places, pa.int64())), key)
    return [RefusedRow(line, wrong[place]) for line, place in zip(lines, places, strict=True)]
