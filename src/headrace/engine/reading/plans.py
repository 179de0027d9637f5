"""A cache of planned queries, by text, until the meaning of names changes.

Spark takes tens of milliseconds to plan a query that is answered in one. Only queries that are
answered without a job are cached: a plan of Spark is executed once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headrace.engine.reading.scans import DuckDbQuery, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from headrace.catalog import Catalog, Relation
    from headrace.catalyst.analysed import Shape
    from headrace.catalyst.select import Optimised
    from headrace.engine.reading.pulls import Pull
    from headrace.engine.reading.scans import Scans
    from headrace.log import Events
    from headrace.serving import Contents
    from headrace.types import RelationId
    from headrace.zset import Restriction

_MOST: Final = 256


@dataclass(slots=True)
class Prepared:
    """A query that is planned, and how to answer it without a job, once that is found.

    Spark has ``optimised`` it, unless it is a plain query, which is planned without. ``changes`` is
    the number of changes of names at the time of planning; ``is_kept``: the query is cached, or
    planned without Spark, for the same ``relations``.
    """

    text: str
    optimised: Optimised | None
    changes: int
    relations: tuple[Relation, ...] = ()
    pull: Pull | None = None
    scan: DuckDbQuery | Refused = field(default_factory=Refused)
    is_kept: bool = False

    @property
    def needs_no_job(self) -> bool:
        """Whether it is answered by a pull or by DuckDB, unless there are too many rows."""
        return self.pull is not None or isinstance(self.scan, DuckDbQuery)

    def reads(
        self, relation: RelationId
    ) -> Iterator[tuple[Restriction, int | None, tuple[str, ...]]]:
        """Yield what is read of a relation without a job: which rows, how many, which columns."""
        if self.pull is not None:
            yield self.pull.tests, self.pull.limit, self.pull.columns
        elif isinstance(self.scan, DuckDbQuery):
            for leaf in self.scan.leaves:
                if leaf.relation == relation:
                    yield leaf.restriction, leaf.limit, leaf.columns

    def without_job(
        self,
        contents: Callable[[RelationId], Contents | Events],
        indexes: Sequence[Contents],
        scans: Scans,
    ) -> pa.Table | None:
        """Return the result by a pull or by DuckDB; None if only a job returns it, or is faster.

        Raises:
            Py4JError: an expression of a pull fails on a row.
        """
        rows = None
        if self.pull is not None:
            rows = self.pull.rows(contents(self.relations[0].id), indexes)
        if rows is None and isinstance(self.scan, DuckDbQuery):
            rows = scans.rows(self.scan, contents)
        return rows


@dataclass(slots=True)
class Plans:
    """A cache, evicting the least recently used, of prepared queries and shapes."""

    most: int = _MOST
    changes: int = 0
    """The number of times that the meaning of names has changed."""
    _prepared: OrderedDict[str, Prepared] = field(default_factory=OrderedDict)
    _shapes: OrderedDict[str, tuple[Catalog, Shape]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, text: str) -> Prepared | None:
        """Return the cached query with a text, or None."""
        with self._lock:
            found = self._prepared.get(text)
            if found is not None:
                self._prepared.move_to_end(text)
            return found

    def keep(self, prepared: Prepared) -> None:
        """Cache a prepared query, unless the meaning of names has changed since."""
        with self._lock:
            if prepared.changes == self.changes:
                prepared.is_kept = True
                self._prepared[prepared.text] = prepared
                if len(self._prepared) > self.most:
                    self._prepared.popitem(last=False)

    def shape(self, text: str, catalog: Catalog) -> Shape | None:
        """Return the cached shape of a query in a catalog, or None."""
        with self._lock:
            found = self._shapes.get(text)
            return found[1] if found is not None and found[0] is catalog else None

    def keep_shape(self, text: str, catalog: Catalog, shape: Shape, changes: int) -> None:
        """Cache the shape of a query that was analysed after so many ``changes``."""
        with self._lock:
            if changes == self.changes:
                self._shapes[text] = catalog, shape
                if len(self._shapes) > self.most:
                    self._shapes.popitem(last=False)

    def clear(self) -> None:
        """Clear the cache, since the meaning of names has changed."""
        with self._lock:
            self.changes += 1
            self._prepared.clear()
            self._shapes.clear()
