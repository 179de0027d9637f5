"""A sink's mark in its target: the sink's identity, its last whole epoch and refused rows."""

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
    """Return the error that another sink owns a target; ``removed`` is how to remove its mark."""
    return HeadraceError(
        Code.CONFLICT,
        f"{what} belongs to another sink",
        "It may be one of another database, or one that was dropped: what a sink wrote stays.",
        f"Write elsewhere. If that sink is gone, remove what it wrote, and its mark: {removed}.",
    )


def moved_on(what: str, there: Epoch | None, known: Epoch | None) -> HeadraceError:
    """Return the error that a target's epoch is not the one that this process last saw there.

    A later epoch was written by another process of this database. An earlier one means that
    written changes are lost: to go on would leave wrong rows permanently.
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
    """Refuse a target that another sink owns, or, after a change of address, one never written.

    ``owner`` is the identity in the mark. Without one, ``there``, the epoch of the mark, shows
    whether the sink has written there.

    Raises:
        HeadraceError: ``conflict``.
    """
    if owner is not None and owner != context.identity:
        raise belongs_to_another(what, removed)
    if context.moved is not None and owner is None and (there or -1) < context.moved:
        raise HeadraceError(
            Code.CONFLICT,
            f"{what} does not contain what this sink has written",
            f"The sink has written epoch {context.moved}, and the target has no record of it.",
            "An address may change if it leads to the same rows. CREATE OR REPLACE the sink to"
            " write into another place.",
        )


def encoded(refused: Iterable[RefusedRow]) -> str:
    """Return refused rows and their reasons as JSON, for the mark."""
    return json.dumps([(each.row, each.why) for each in refused], ensure_ascii=False)


def decoded(text: str | None) -> list[RefusedRow]:
    """Return the rows that :func:`encoded` wrote."""
    return [RefusedRow(row, why) for row, why in json.loads(text or "[]")]


def pieces(text: str, most: int) -> list[str]:
    """Cut a text into pieces of at most ``most`` characters; none for an empty text."""
    return [text[start : start + most] for start in range(0, len(text), most)]


def refused_rows(
    epoch: Epoch, part: pa.Table, rows: pa.Table, key: Sequence[str], wrong: Mapping[int, str]
) -> list[RefusedRow]:
    """Return the refused rows with the reasons in ``wrong``, by index into ``rows``.

    ``rows`` has each key in the changes of ``part`` once; a refused row is shown as the last line
    of its key's changes.
    """
    if not wrong:
        return []
    places = sorted(wrong)
    lines = lines_of_keys(epoch, part, rows.take(pa.array(places, pa.int64())), key)
    return [RefusedRow(line, wrong[place]) for line, place in zip(lines, places, strict=True)]
