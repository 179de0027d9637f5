"""The subscription to a table or view of the open database, by whole epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.catalog import Table
from headrace.errors import Code, HeadraceError
from headrace.parts.naming import HIDDEN, is_candidate
from headrace.statements.results import Subscription
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.catalog import View
    from headrace.parts.reader import Reader
    from headrace.serving import Change, Follower, History


class ViewSubscription(Subscription):
    """Follows a table or view; a hidden view is dropped when this is closed."""

    def __init__(
        self,
        reader: Reader,
        relation: Table | View,
        follower: Follower,
        may_continue: Callable[[], bool],
        release: Callable[[], None],
        limit: int | None = None,
    ) -> None:
        super().__init__(limit)
        self._reader = reader
        self.relation = relation
        """The followed table or view, which may be hidden."""
        self._follower = follower
        self._session_is_open = may_continue
        self._drop = release

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of each change's row."""
        return tuple(self._follower.history.layout.columns.names)

    @property
    def history(self) -> History:
        """The followed snapshots and deltas, for callers that read them directly."""
        return self._follower.history

    @property
    def epoch(self) -> Epoch:
        """The last epoch that was delivered; a later subscription can start after it."""
        return self._follower.at or Epoch(0)

    def _may_continue(self) -> bool:
        return self._session_is_open()

    def _next(self, timeout: float) -> list[Change] | None:
        self._reader.require_epochs([self.relation.id])
        self._require_same()
        found = self._poll()
        if found is None and timeout > 0:
            self._reader.wait_beyond(self._follower.at, lambda: not self._open, timeout)
            found = self._poll() if self._open else None
        return found

    def _poll(self) -> list[Change] | None:
        """Return new changes, unless the columns of the relation were altered meanwhile."""
        at = self._follower.at
        try:
            found = self._follower.poll()
        except HeadraceError:
            self._require_same()
            raise
        try:
            self._require_same()
        except HeadraceError:
            self._follower.at = at
            raise
        return found

    def _require_same(self) -> None:
        """Raise if the relation was dropped or altered, or another one has its name."""
        now = self._reader.catalog.by_id.get(self.relation.id)
        if now is None:
            what, hint = "was dropped", None
        elif is_candidate(now) or (isinstance(now, Table) and now.schema != self.relation.schema):
            what, hint = "has other columns now", "Subscribe again."
        else:
            return
        name = self.relation.name
        shown = "what the query reads" if name.startswith(HIDDEN) else f'"{name}"'
        raise HeadraceError(Code.CONFLICT, f"{shown} {what}", hint=hint)

    def _release(self) -> None:
        self._drop()
