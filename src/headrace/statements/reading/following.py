"""SUBSCRIBE, PRINT, and SELECT ... EMIT CHANGES: queries whose changes are followed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from headrace.catalog import Stream, Table, View, key_of
from headrace.errors import Span
from headrace.serving import Follower
from headrace.sql import AsOfEpoch, Name, Print, Query, Subscribe, quote
from headrace.statements.reading.simple import simple_select
from headrace.statements.reading.subscription import ViewSubscription

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.parts.definer import Definer
    from headrace.parts.evaluating import Evaluator
    from headrace.parts.reader import Reader
    from headrace.runtime.published import Published
    from headrace.statements.defining.views import Views
    from headrace.types import Epoch, RelationId


class SubscriptionStart(Enum):
    """Where a subscription begins, if not after an epoch."""

    CONTENTS = auto()
    NOW = auto()


class Pushed(NamedTuple):
    """A query whose changes a statement follows, and where it begins."""

    query: Query
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

    def subscribed(self, statement: Subscribe, begin: SubscriptionStart) -> Pushed:
        """Return what SUBSCRIBE follows; with a snapshot, it begins at ``begin``."""
        target = statement.target
        if isinstance(target, Name):
            self.reader.catalog.resolve(target.dotted, target.span)
            text = f"SELECT * FROM {target.dotted}"
            target = Query(text, Span.whole(text))
        after = statement.as_of.epoch if isinstance(statement.as_of, AsOfEpoch) else None
        if after is None and not statement.snapshot:
            return Pushed(target, SubscriptionStart.NOW)
        return Pushed(target, after or begin)

    def printed(self, statement: Print) -> Pushed:
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
        query = Query(text, Span.whole(text), emit_changes=True, limit=statement.limit)
        return Pushed(
            query, SubscriptionStart.CONTENTS if statement.from_beginning else SubscriptionStart.NOW
        )

    def follow(self, query: Query, after: Epoch | SubscriptionStart) -> ViewSubscription:
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
