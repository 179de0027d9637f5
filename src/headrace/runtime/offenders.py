"""Finding the rows of a batch that its target refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def offenders(count: int, attempt: Callable[[int, int], str | None]) -> dict[int, str]:
    """Write a batch of rows except those that are refused; return these, by place, with the reason.

    ``attempt(start, stop)`` writes the rows in ``[start, stop)`` whole, or none of them; it returns
    None, or why they were refused. A range that is refused is halved: for k offenders among n rows,
    O(k log n) attempts, in the order of the rows. A failure that is of no row is raised.
    """
    found: dict[int, str] = {}
    pending = [(0, count)] if count else []
    while pending:
        start, stop = pending.pop()
        why = attempt(start, stop)
        if why is None:
            continue
        if stop - start == 1:
            found[start] = why
            continue
        middle = (start + stop) // 2
        pending += [(middle, stop), (start, middle)]
    return found
