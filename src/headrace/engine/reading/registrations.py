"""Temporary views that are registered with Spark only before a query that may need them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.catalog import Relation
    from headrace.types import RelationId


@dataclass(slots=True)
class PendingRegistrations:
    """Temporary views that one Spark session has, and those to be registered before its next query.

    Registering costs a round trip to Spark each, and most databases never run a query of one kind.
    """

    registered: set[RelationId] = field(default_factory=set)
    pending: dict[RelationId, Callable[[], None]] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def add(self, relation: Relation, register: Callable[[], None]) -> None:
        """Have ``register`` called before the next query, after those added before it."""
        with self.lock:
            self.pending[relation.id] = register

    def discard(self, relation: Relation) -> None:
        """Discard the pending registration of a relation."""
        with self.lock:
            self.pending.pop(relation.id, None)

    def flush(self) -> None:
        """Register everything that is pending."""
        with self.lock:
            for id_ in list(self.pending):
                self.registered.add(id_)
                self.pending[id_]()
                del self.pending[id_]

    def remove(self, relation: Relation) -> bool:
        """Forget a relation; return whether Spark has it registered."""
        with self.lock:
            self.discard(relation)
            registered = relation.id in self.registered
            self.registered.discard(relation.id)
            return registered
