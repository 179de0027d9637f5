"""What a database answers to a statement, for tests that look at nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace import HeadraceError

if TYPE_CHECKING:
    from headrace import Database


def rows(db: Database, text: str) -> list[tuple[Any, ...]]:
    """Return the rows that a query answers, in order."""
    return sorted(db.sql(text).fetchall())


def refused(db: Database, text: str) -> HeadraceError:
    """Return the error that a statement is refused with."""
    with pytest.raises(HeadraceError) as caught:
        db.sql(text)
    return caught.value
