"""Queries that were planned once, kept by their texts until names mean something else.

Spark takes tens of milliseconds to plan what is answered in one. Only a query is kept that is
answered without a job: a plan of Spark is executed once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headrace.engine.reading.scans import Refused

if TYPE_CHECKING:
    from headrace.catalog import Catalog, Relation
    from headrace.catalyst.analysed import Shape
    from headrace.catalyst.select import Optimised
    from headrace.engine.reading.pulls import Pull
    from headrace.engine.reading.scans import Scan

_MOST: Final = 256


@dataclass(slots=True)
class Prepared:
    """A query that Spark has optimised, and how it can be answered without a job, once found.

    ``changes``: how often names had been given another meaning; ``is_kept``: whether it may be used
    again, for the same ``relations``.
    """

    text: str
    optimised: Optimised
    changes: int
    relations: tuple[Relation, ...] = ()
    pull: Pull | None = None
    scan: Scan | Refused = field(default_factory=Refused)
    is_kept: bool = False


@dataclass(slots=True)
class Plans:
    """The prepared queries of the present names, and the shapes; those not used for long go."""

    most: int = _MOST
    changes: int = 0
    """How often names were given another meaning."""
    _prepared: OrderedDict[str, Prepared] = field(default_factory=OrderedDict)
    _shapes: OrderedDict[str, tuple[Catalog, Shape]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, text: str) -> Prepared | None:
        """Return the prepared query of a text."""
        with self._lock:
            found = self._prepared.get(text)
            if found is not None:
                self._prepared.move_to_end(text)
            return found

    def keep(self, prepared: Prepared) -> None:
        """Keep a prepared query, if names still mean what they did."""
        with self._lock:
            if prepared.changes == self.changes:
                prepared.is_kept = True
                self._prepared[prepared.text] = prepared
                if len(self._prepared) > self.most:
                    self._prepared.popitem(last=False)

    def shape(self, text: str, catalog: Catalog) -> Shape | None:
        """Return the shape of a query in a catalog."""
        with self._lock:
            found = self._shapes.get(text)
            return found[1] if found is not None and found[0] is catalog else None

    def keep_shape(self, text: str, catalog: Catalog, shape: Shape, changes: int) -> None:
        """Keep the shape of a query that was analysed after so many changes."""
        with self._lock:
            if changes == self.changes:
                self._shapes[text] = catalog, shape
                if len(self._shapes) > self.most:
                    self._shapes.popitem(last=False)

    def clear(self) -> None:
        """Forget all, since names mean something else."""
        with self._lock:
            self.changes += 1
            self._prepared.clear()
            self._shapes.clear()
