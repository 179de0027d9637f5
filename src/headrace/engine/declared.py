"""The relations that queries may name, and the planner that knows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.catalog import PlainView, Relation, Stream, Table
from headrace.catalyst.planner import Planner
from headrace.errors import Code, HeadraceError
from headrace.runtime.cancelling import check_cancelled

if TYPE_CHECKING:
    import threading

    from headrace.catalyst.python import Registered
    from headrace.engine.jobs.lease import SparkSource
    from headrace.functions import FunctionRecord
    from headrace.types import RelationId


@dataclass(slots=True)
class DeclaredRelations:
    """The declared relations by id and by name, inputs first. The lock of planning is held.

    The planner is made when it is first needed: that waits for Spark, and then declares to it
    what is declared. ``functions`` and ``remembered`` are its own; see :class:`Planner`.
    """

    source: SparkSource
    lock: threading.RLock
    by_id: dict[RelationId, Relation] = field(default_factory=dict)
    by_name: dict[str, Relation] = field(default_factory=dict)
    functions: dict[str, Registered] = field(default_factory=dict)
    remembered: dict[str, FunctionRecord] = field(default_factory=dict)
    _unplanned: set[RelationId] = field(default_factory=set)
    """The plain views that are not replaced by their queries."""
    _planner: Planner | None = None

    @property
    def planner(self) -> Planner:
        """The planner."""
        spark = self.source.session
        with self.lock:
            if self._planner is None:
                made = Planner(spark, self.by_name, self.functions, self.remembered)
                made.check = check_cancelled
                for relation in self.by_id.values():
                    self._restore(made, relation)
                self._planner = made
            return self._planner

    def declare(self, relation: Relation, *, planned: bool) -> None:
        """Declare a relation; a plain view that is ``planned`` is replaced by its query."""
        if planned:
            self._unplanned.discard(relation.id)
        else:
            self._unplanned.add(relation.id)
        if self._planner is not None:
            self._tell(self._planner, relation)
        self.by_id[relation.id] = relation
        self.by_name[relation.name] = relation

    def is_planned(self, relation: Relation) -> bool:
        """Whether a relation was declared as planned."""
        return relation.id not in self._unplanned

    def forget(self, relation: Relation) -> None:
        """Remove a relation."""
        if self._planner is not None:
            self._planner.forget(relation.name)
        self.by_id.pop(relation.id, None)
        self.by_name.pop(relation.name, None)

    def add(self, table: Table) -> None:
        """Declare a table that only some queries may name."""
        self.planner.declare(table.id, table.name, table.schema)
        self.by_name[table.name] = table

    def remove(self, table: Table) -> None:
        """Remove such a table."""
        self.planner.forget(table.name)
        del self.by_name[table.name]

    def _tell(self, planner: Planner, relation: Relation) -> None:
        if isinstance(relation, PlainView):
            names = relation.schema.names
            if relation.id not in self._unplanned:
                planner.define(relation.id, relation.name, relation.query, names)
        else:
            planner.declare(relation.id, relation.name, relation.schema)
        if isinstance(relation, Stream):
            planner.declare_log(relation.id, relation.logged)

    def _restore(self, planner: Planner, relation: Relation) -> None:
        """Declare a relation that was stored; one that cannot be is refused to who names it."""
        try:
            self._tell(planner, relation)
        except HeadraceError as error:
            if error.code is Code.CANCELLED:
                raise
            planner.undefined[relation.name] = error
