"""The state of streams and tables as inputs: their source, its progress, rejected rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.io.connectors import CONNECTOR, stopped_with
from headrace.lifecycle.inputs.admission import DUPLICATE, LATE
from headrace.planning.catalog import Stream, Table, key_of
from headrace.planning.catalog.naming import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.execution.runtime.feeds import Feed, Feeds
    from headrace.io.connectors import Captures
    from headrace.lifecycle.inputs.admission import Admission
    from headrace.planning.catalog import Relation
    from headrace.storage.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Fed:
    """The activity of a source, its number of pending messages if known, and its error."""

    state: str
    behind: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SourceState:
    """The input state of one stream or table, or of a source of several tables.

    ``rejected``, ``duplicates`` and ``late`` count rows since its creation; None where rows are not
    checked for it. ``acknowledged`` of the rejected ones need no attention. ``watermark`` is in
    microseconds, and so are its ``delay`` behind the newest event time and the allowed
    ``lateness``.
    """

    name: str
    kind: str
    key: tuple[str, ...]
    connector: str | None
    fed: Fed
    rejected: int | None = None
    acknowledged: int | None = None
    duplicates: int | None = None
    late: int | None = None
    watermark: int | None = None
    delay: int | None = None
    lateness: int | None = None
    shared: str | None = None
    """The source of several tables that it is one of."""
    inserted: bool = False
    """Whether its rows are inserted by statements, not read from a source."""


@dataclass(frozen=True, slots=True)
class SourceStates:
    """Reads the states of sources."""

    ledger: Ledger
    captures: Captures
    feeds: Feeds
    admission: Admission

    def of(self, relations: Iterator[Relation]) -> Iterator[SourceState]:
        """Yield the input states of streams and tables among relations, then of shared sources."""
        for relation in relations:
            if isinstance(relation, Stream | Table) and not relation.name.startswith(HIDDEN):
                yield self._of(relation)
        for capture in self.captures:
            fed = _fed(self.feeds.by_source.get(capture.name))
            yield SourceState(capture.name, "source", (), "postgres", fed)

    def _of(self, relation: Stream | Table) -> SourceState:
        duplicates, late = self._left_out(relation)
        rejects = self.ledger.rejects.counted(relation.id)
        return SourceState(
            relation.name,
            relation.kind,
            key_of(relation),
            dict(relation.declaration.source).get(CONNECTOR),
            self.fed(relation),
            rejects.rejected,
            rejects.acknowledged,
            duplicates,
            late,
            self.admission.watermark(relation),
            relation.declaration.delay if relation.declaration.watermark else None,
            relation.declaration.lateness,
            relation.declaration.shared_source,
            not relation.declaration.source,
        )

    def _left_out(self, relation: Stream | Table) -> tuple[int | None, int | None]:
        """Return the numbers of duplicates and of late rows; None where rows are not checked."""
        if self.admission.gate(relation) is None or not isinstance(relation, Stream):
            return None, None
        found, unique = self.ledger.rejects.left_out(relation.id), relation.declaration.unique
        timed = relation.declaration.watermark or relation.declaration.lateness is not None
        return (
            found.get(DUPLICATE, 0) if unique else None,
            found.get(LATE, 0) if timed else None,
        )

    def fed(self, relation: Stream | Table) -> Fed:
        """Return the activity of the source of a stream or table."""
        shared = relation.declaration.shared_source
        if shared is None:
            return _fed(self.feeds.by_relation.get(relation.id))
        feed = self.feeds.by_source.get(shared)
        position = (feed.ingest.position or {}).get(relation.id) if feed is not None else None
        stopped = stopped_with(position)
        if stopped is not None:
            return Fed("stopped", error=str(stopped))
        found = _fed(feed)
        copying = found.state == "running" and position is None
        return Fed("copying" if copying else found.state, error=found.error)


def _fed(feed: Feed | None) -> Fed:
    if feed is None:
        return Fed("running")
    return Fed(str(feed.state), feed.behind, None if feed.error is None else str(feed.error))
