"""Which former builds are due to be dropped, and when the thread that drops them looks again."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headrace.lifecycle.definitions.candidates import FormerBuilds
from headrace.planning.catalog import Catalog, PlainView, Stream, View
from headrace.types import RelationId, Schema
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from contextlib import AbstractContextManager

    from headrace.planning.catalog import Relation

STREAM = Stream(RelationId(1), "s", Schema(()))
VIEW = View(RelationId(2), "v", Schema(()), "", (STREAM.id,))


def former(id_: int, reads: RelationId, until: float | None) -> View:
    """Return what served before in the place of the view."""
    return replace(
        VIEW,
        id=RelationId(id_),
        name=f"__{id_}",
        depends_on=(reads,),
        candidate_of=VIEW.id,
        has_served=True,
        kept_until=until,
    )


@dataclass
class Published:
    """The publications of a database: what waits for them is told."""

    changed: threading.Condition = field(default_factory=threading.Condition)

    def wait_for(self, met: Callable[[], bool], seconds: float | None) -> bool:
        with self.changed:
            return self.changed.wait_for(met, seconds)

    def wake(self) -> None:
        with self.changed:
            self.changed.notify_all()


@dataclass
class Database:
    """The parts of a database that dropping uses; ``now`` is in seconds."""

    catalog: Catalog
    now_: float = 0.0
    published: Published = field(default_factory=Published)
    dropped: list[list[RelationId]] = field(default_factory=list)
    compactions: int = 0
    error: object = None

    @classmethod
    def of(cls, *relations: Relation) -> Database:
        return cls(Catalog.of([STREAM, VIEW, *relations]))

    @property
    def loop(self) -> Database:
        return self

    @property
    def compaction(self) -> Database:
        return self

    def now(self) -> int:
        return int(self.now_ * 1_000_000)

    def exclusive(
        self, _among: Collection[RelationId] | None = None
    ) -> AbstractContextManager[None]:
        return nullcontext()

    def drop(self, ids: Sequence[RelationId]) -> None:
        self.dropped.append(list(ids))
        self.become(Catalog.of(each for each in self.catalog if each.id not in ids))

    def become(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.published.wake()

    def run(self) -> None:
        self.compactions += 1


def builds(database: Any) -> FormerBuilds:
    return FormerBuilds(database, database)


def test_those_whose_time_is_over_are_dropped_with_the_candidates_that_read_them() -> None:
    database = Database.of(
        former(3, STREAM.id, 10.0),
        former(4, RelationId(3), 10.0),
        former(5, STREAM.id, 20.0),
        former(6, STREAM.id, None),
    )
    database.now_ = 9.0
    assert builds(database).drop_due() == 0
    assert (database.dropped, database.compactions) == ([], 0)
    database.now_ = 10.0
    assert builds(database).drop_due() == 2
    assert (database.dropped, database.compactions) == ([[3, 4]], 1)
    database.now_ = 1e9
    assert builds(database).drop_due() == 1
    assert database.dropped[1:] == [[5]]


def test_what_something_else_reads_is_not_dropped() -> None:
    reader = PlainView(RelationId(9), "p", Schema(()), "", (RelationId(3),))
    database = Database.of(former(3, STREAM.id, 10.0), reader)
    database.now_ = 11.0
    assert builds(database).drop_due() == 0
    assert database.dropped == []


def test_the_thread_drops_what_becomes_due_and_ends_when_it_is_closed() -> None:
    database = Database.of()
    thread = builds(database)
    thread.start()
    database.now_ = 5.0
    database.become(Catalog.of([STREAM, VIEW, former(3, STREAM.id, 5.0)]))
    until(lambda: database.dropped == [[3]])
    database.become(Catalog.of([STREAM, VIEW, former(4, STREAM.id, 1e9)]))
    thread.close()
    assert database.dropped == [[3]]


def test_the_thread_goes_on_after_an_error_which_is_shown() -> None:
    database = Database.of(former(3, STREAM.id, 5.0))
    database.now_ = 6.0
    failures = [OSError("no space")]
    drop = database.drop

    def failing(ids: Sequence[RelationId]) -> None:
        if failures:
            raise failures.pop()
        drop(ids)

    database.drop = failing  # type: ignore[method-assign]
    thread = builds(database)
    thread.start()
    until(lambda: database.dropped == [[3]])
    thread.close()
    assert "no space" in str(database.error)
