"""SELECT, SUBSCRIBE and PRINT in a session; its properties say which queries are followed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from headrace.interfaces.session.properties import OFFSET_RESET, RUNTIME_MODE
from headrace.interfaces.statements.reading.following import Pushed, SubscriptionStart
from headrace.planning.sql import Print, Query, Subscribe

if TYPE_CHECKING:
    from headrace.interfaces.session.properties import Properties
    from headrace.interfaces.statements.reading.following import QueryFollowing, ViewSubscription
    from headrace.interfaces.statements.reading.selects import Selects
    from headrace.interfaces.statements.results import Result
    from headrace.planning.sql import Statement
    from headrace.types import Epoch


@dataclass(frozen=True, slots=True)
class SessionReads:
    """Runs queries once, or follows their changes."""

    properties: Properties
    selects: Selects
    following: QueryFollowing

    def query(self, query: Query) -> Result | ViewSubscription:
        """Run a query, or follow it if it is a push query in this session."""
        pushed = self.pushed(query)
        if pushed is None:
            return self.selects.select(query)
        return self.following.follow(*pushed)

    def subscribe(self, statement: Subscribe) -> ViewSubscription:
        """Follow what SUBSCRIBE names."""
        return self.following.follow(*self.following.subscribed(statement, self._begin()))

    def print(self, statement: Print) -> ViewSubscription:
        """Follow what PRINT names."""
        return self.following.follow(*self.following.printed(statement))

    def follow(
        self, statement: Query | Subscribe | Print, after: Epoch | None = None
    ) -> ViewSubscription:
        """Follow what a statement names, from its rows or after an epoch."""
        found = self.followed(statement)
        if after is None:
            return self.following.follow(*found)
        return self.following.follow(found.query, after or SubscriptionStart.CONTENTS)

    def pushed(self, statement: Statement) -> Pushed | None:
        """Return what a statement follows; None if it follows nothing."""
        match statement:
            case Query() if statement.emit_changes or self._is_streaming(statement):
                return self.followed(statement)
            case Subscribe() | Print():
                return self.followed(statement)
            case _:
                return None

    def followed(self, statement: Query | Subscribe | Print) -> Pushed:
        """Return the query and where following it begins in this session."""
        match statement:
            case Query():
                return Pushed(statement, self._begin())
            case Subscribe():
                return self.following.subscribed(statement, self._begin())
            case Print():
                return self.following.printed(statement)
            case _:
                assert_never(statement)

    def _begin(self) -> SubscriptionStart:
        """Return where a push query of this session begins."""
        return (
            SubscriptionStart.NOW
            if self.properties[OFFSET_RESET] == "latest"
            else SubscriptionStart.CONTENTS
        )

    def _is_streaming(self, query: Query) -> bool:
        """Return whether a bare SELECT is a push query in this session."""
        return self.properties[RUNTIME_MODE] == "streaming" and query.as_of is None
