"""The sizes of stored contents, without reading more than a little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.catalog import Relation
    from headrace.runtime.published import Published

_MOST_UNREAD_BYTES: Final = 64 << 20
"""The maximum bytes of unread files that are read to count a relation's rows."""


def row_count(state: Published, relation: Relation, directory: Path) -> int | None:
    """Return the row count of a table or view; None if counting would read too many bytes.

    ``directory`` is the data directory. Damaged files are not counted either.
    """
    if state.unread_bytes(relation, directory) > _MOST_UNREAD_BYTES:
        return None
    try:
        return state.spine(relation, directory).weight
    except HeadraceError as error:
        if error.code is not Code.CORRUPT:
            raise
        return None
