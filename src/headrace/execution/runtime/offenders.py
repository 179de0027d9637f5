"""Find the rows of a batch that fail: a batch that fails as a whole is divided."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


T = TypeVar("T")


class RowRange(NamedTuple):
    """The rows ``[start, stop)`` of a batch."""

    start: int
    stop: int


def divided(
    count: int,
    attempt: Callable[[int, int], T],
    failed: Callable[[T], bool],
    *,
    alone: int = 1,
    into: int = 2,
) -> Iterator[tuple[RowRange, T]]:
    """Attempt a batch of rows; yield the pieces that succeed or cannot be divided, in order.

    ``attempt(start, stop)`` treats the rows ``[start, stop)`` whole, or none of them. If that has
    ``failed``, they are divided ``into`` some pieces; pieces of at most ``alone`` rows are not
    divided. Each piece comes with the result of its attempt. For k rows that fail among n,
    O(k log n) attempts.
    """
    pending = [RowRange(0, count)] if count else []
    while pending:
        piece = pending.pop()
        result = attempt(*piece)
        rows = piece.stop - piece.start
        if rows <= alone or not failed(result):
            yield piece, result
            continue
        size = max(alone, -(-rows // into))
        starts = range(piece.start, piece.stop, size)
        pending += [RowRange(at, min(at + size, piece.stop)) for at in reversed(starts)]


def offenders(count: int, attempt: Callable[[int, int], str | None]) -> dict[int, str]:
    """Write a batch of rows except those that are refused; return these, by place, with the reason.

    ``attempt(start, stop)`` writes the rows in ``[start, stop)`` whole, or none of them; it returns
    None, or why they were refused. A failure that no row causes is raised.
    """
    pieces = divided(count, attempt, lambda why: why is not None)
    return {piece.start: why for piece, why in pieces if why is not None}
