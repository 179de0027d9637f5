"""Following a query: by whole epochs, until the subscription or the database is closed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.catalog import Table, View
    from headrace.parts.reader import Reader
    from headrace.serving import Change, Follower, History
    from headrace.types import Epoch

_POLL_SECONDS = 0.5


class Subscription:
    """Follows a query: its contents first, as insertions, then its changes, by whole epochs.

    Iterating waits for changes, and ends when the subscription or the database is closed. With a
    ``limit`` it ends after that many rows; an update counts as one row.
    """

    kind = "changes"

    def __init__(
        self,
        reader: Reader,
        relation: Table | View,
        follower: Follower,
        may_continue: Callable[[], bool],
        release: Callable[[], None],
        limit: int | None = None,
    ) -> None:
        self._reader = reader
        self.relation = relation
        """The table or view that is followed, perhaps a hidden one."""
        self._follower = follower
        self._may_continue = may_continue
        self._release = release
        self._left = limit
        self._open = True

    def __repr__(self) -> str:
        """Return the query and the last epoch."""
        state = f"at epoch {self.epoch}" if self._open else "closed"
        return f"<headrace.Subscription to ({', '.join(self.columns)}), {state}>"

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of each change's row."""
        return tuple(self._follower.history.layout.columns.names)

    @property
    def history(self) -> History:
        """The snapshots and deltas that are followed, for those who follow them by themselves."""
        return self._follower.history

    @property
    def epoch(self) -> Epoch | None:
        """The last epoch that was delivered; a later subscription can start after it."""
        return self._follower.at

    @property
    def is_open(self) -> bool:
        """Whether more changes can arrive."""
        return self._open

    def poll(self, timeout: float = 0.0) -> list[Change] | None:
        """Return the changes of whole epochs, or None if none came within ``timeout`` seconds."""
        if not self._open:
            return None
        self._reader.require_epochs()
        found = self._follower.poll()
        if found is None and timeout > 0:
            self._reader.wait_beyond(self._follower.at, lambda: not self._open, timeout)
            found = self._follower.poll() if self._open else None
        return found if found is None or self._left is None else self._first(found, self._left)

    def _first(self, changes: list[Change], left: int) -> list[Change]:
        """Return the changes up to the last wanted row, and close after it."""
        taken: list[Change] = []
        for change in changes:
            if left == 0:
                break
            if change.operation == "-U":
                taken.append(change)  # an update is one row together with its +U
                continue
            rows = min(abs(change.weight), left)
            taken.append(replace(change, weight=rows if change.weight > 0 else -rows))
            left -= rows
        self._left = left
        if left == 0:
            self.close()
        return taken

    def __iter__(self) -> Iterator[Change]:
        while self._open and self._may_continue():
            yield from self.poll(_POLL_SECONDS) or ()

    def close(self) -> None:
        """Stop following; the hidden view of this subscription is dropped."""
        if not self._open:
            return
        self._open = False
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
