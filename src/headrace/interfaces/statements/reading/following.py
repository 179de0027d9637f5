"""SUBSCRIBE, PRINT, and SELECT ... EMIT CHANGES: queries whose changes are followed.

Parses what a program asks to follow: a name, a query, or a statement that follows one.

The subscription to a table or view of the open database, by whole epochs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from headrace.errors import Code, HeadraceError, Span
from headrace.execution.serving import Follower
from headrace.interfaces.statements.reading.keyed import simple_select
from headrace.interfaces.statements.results import Subscription
from headrace.planning.catalog import Stream, Table, View, key_of
from headrace.planning.catalog.naming import HIDDEN, is_candidate
from headrace.planning.sql import AsOfEpoch, Name, quote
from headrace.planning.sql import Print as SqlPrint
from headrace.planning.sql import Query as SqlQuery
from headrace.planning.sql import Subscribe as SqlSubscribe
from headrace.planning.sql.parts import Query
from headrace.planning.sql.statements import Print, Subscribe
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.execution.runtime.published import Published
    from headrace.execution.serving import Change, History
    from headrace.interfaces.statements.defining.views import Views
    from headrace.lifecycle.definitions.definer import Definer
    from headrace.lifecycle.states.evaluating import Evaluator
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.sql.parameters import Bound
    from headrace.types import RelationId


def followed_text(query: str) -> str:
    """Return the text of a query; the name of a relation stands for all its rows."""
    return query if " " in query.strip() else f"SELECT * FROM {query}"


def followed_statement(bound: Bound) -> Query | Subscribe | Print:
    """Parse the statement to follow.

    Raises:
        HeadraceError: ``invalid`` if the text is not one query, SUBSCRIBE or PRINT.
    """
    statements = bound.statements()
    if len(statements) != 1 or not isinstance(statements[0], Query | Subscribe | Print):
        raise HeadraceError(
            Code.INVALID,
            "only a query can be followed",
            hint="Give the name of a relation, a query, or one statement SUBSCRIBE or PRINT.",
        )
    return statements[0]


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


class SubscriptionStart(Enum):
    """Where a subscription begins, if not after an epoch."""

    CONTENTS = auto()
    NOW = auto()


class Pushed(NamedTuple):
    """A query whose changes a statement follows, and where it begins."""

    query: SqlQuery
    after: Epoch | SubscriptionStart


@dataclass(frozen=True, slots=True)
class QueryFollowing:
    """Follows queries. A query other than a whole view is a hidden view while it is followed.

    ``seen`` waits until relations show what the session must see, and returns that state;
    ``is_open`` says whether the session is open.
    """

    reader: Reader
    definer: Definer
    views: Views
    evaluator: Evaluator
    seen: Callable[[Iterable[RelationId]], Published]
    is_open: Callable[[], bool]

    def subscribed(self, statement: SqlSubscribe, begin: SubscriptionStart) -> Pushed:
        """Return what SUBSCRIBE follows; with a snapshot, it begins at ``begin``."""
        target = statement.target
        if isinstance(target, Name):
            self.reader.catalog.resolve(target.dotted, target.span)
            text = f"SELECT * FROM {target.dotted}"
            target = SqlQuery(text, Span.whole(text))
        after = statement.as_of.epoch if isinstance(statement.as_of, AsOfEpoch) else None
        if after is None and not statement.snapshot:
            return Pushed(target, SubscriptionStart.NOW)
        return Pushed(target, after or begin)

    def printed(self, statement: SqlPrint) -> Pushed:
        """Return what PRINT follows: the relation of this name, or the one over this topic."""
        catalog, topic = self.reader.catalog, statement.topic.lower()
        over = [
            relation
            for relation in catalog
            if isinstance(relation, Stream | Table)
            and relation.declaration.option("kafka_topic", "topic") == statement.topic
        ]
        named = catalog.find(topic)
        relation = over[0] if named is None and len(over) == 1 else named
        if relation is None:
            relation = catalog.resolve(topic, statement.topic_span)
        text = f"SELECT * FROM {'.'.join(map(quote, relation.name.split('.')))}"
        query = SqlQuery(text, Span.whole(text), emit_changes=True, limit=statement.limit)
        return Pushed(
            query, SubscriptionStart.CONTENTS if statement.from_beginning else SubscriptionStart.NOW
        )

    def follow(self, query: SqlQuery, after: Epoch | SubscriptionStart) -> ViewSubscription:
        """Follow a query from its present rows, from now, or after an epoch."""
        simple = simple_select(query.text)
        found = None if simple is None else self.reader.catalog.find(simple.relation)
        plain = simple is not None and not simple.equal and not simple.columns
        hidden: View | None = None
        if plain and isinstance(found, Table | View):
            relation: Table | View = found
        else:
            self.evaluator.try_planning(query.span)
            relation = hidden = self.views.create_hidden(query)
        self.reader.require_running(relation)
        state, reader = self.seen([relation.id]), self.reader
        match after:
            case SubscriptionStart.CONTENTS:
                start = None
            case SubscriptionStart.NOW:
                start = state.epoch
            case _:
                start = after
        history = reader.history(state, relation.id)
        follower = Follower(history, key_of(relation), lambda: reader.published.epoch, start)
        return ViewSubscription(
            reader, relation, follower, self.is_open, partial(self._release, hidden), query.limit
        )

    def _release(self, hidden: View | None) -> None:
        """Drop the hidden view of a query, unless it was dropped together with its inputs."""
        if hidden is not None and self.is_open() and hidden.id in self.reader.catalog.by_id:
            self.definer.drop([hidden.id])
