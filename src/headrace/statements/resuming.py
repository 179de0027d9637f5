"""RESUME SOURCE: restarts a source that stopped with an error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog import Relation, Stream, Table
from headrace.errors import Code, HeadraceError
from headrace.runtime.feeds import FeedState

if TYPE_CHECKING:
    from headrace.connectors import Captures
    from headrace.parts.capturing import Capturing
    from headrace.parts.feeding import Feeding
    from headrace.parts.reader import Reader
    from headrace.runtime.feeds import Feed, Feeds
    from headrace.sql import Name, ResumeSource


@dataclass(frozen=True, slots=True)
class Resuming:
    """Restarts sources where their last part ended."""

    reader: Reader
    feeds: Feeds
    feeding: Feeding
    capturing: Capturing
    captures: Captures

    def resume(self, statement: ResumeSource) -> str:
        """Restart a source; return a message.

        Raises:
            HeadraceError: ``invalid`` if the source does not exist or has not stopped.
        """
        name = statement.name
        if name.dotted in self.captures:
            self._require_stopped(self.feeds.by_source.get(name.dotted), name)
            self.capturing.begin(self.captures.find(name.dotted))
            return f"resumed source {name}"
        relation = self._fed(name)
        self._require_stopped(self.feeds.by_relation.get(relation.id), name)
        self.feeds.forget(relation.id)
        self.feeding.begin(relation, rejecting=statement.rejecting)
        return f"resumed the source of {relation.kind} {relation.name}"

    def _fed(self, name: Name) -> Stream | Table:
        relation: Relation = self.reader.catalog.resolve(name.dotted, name.span)
        if isinstance(relation, Stream | Table) and relation.declaration.source:
            shared = relation.declaration.shared_source
            if shared is None:
                return relation
            raise HeadraceError(
                Code.INVALID,
                f'table "{name}" shares the source "{shared}"',
                hint=f"Use RESUME SOURCE {shared} if that has stopped, CREATE OR REPLACE TABLE if"
                " only the table has.",
                span=name.span,
            )
        raise HeadraceError(
            Code.INVALID,
            f'{relation.kind} "{name}" has no source',
            hint="SHOW SOURCES lists those that have a connector.",
            span=name.span,
        )

    def _require_stopped(self, feed: Feed | None, name: Name) -> None:
        if feed is not None and feed.state in {FeedState.RUNNING, FeedState.STARTING}:
            raise HeadraceError(
                Code.INVALID,
                f'source "{name}" has not stopped',
                hint="SHOW SOURCES shows the state of each.",
                span=name.span,
            )
