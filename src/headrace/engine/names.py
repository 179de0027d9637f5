"""Names of relations and functions in a separate Spark session.

A relation is registered as a temporary view only before the next query: each registration costs a
round trip to Spark, and most databases never run some kinds of queries.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.catalyst.corrections import corrected
from headrace.catalyst.qualified import with_one_word_names
from headrace.catalyst.scala import ASOF_JOINS, OPTIMIZER, scala_of
from headrace.catalyst.transplant import Transplant
from headrace.catalyst.void_keys import with_keys_typed
from headrace.dialects import spark_text
from headrace.errors import Span
from headrace.sql import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame, SparkSession

    from headrace.catalog import PlainView, Relation, View
    from headrace.catalyst.python import Registered
    from headrace.functions import Folded
    from headrace.types import RelationId


@dataclass(slots=True)
class SessionNames:
    """The declared names of one session; ``declared`` are the ids of the relations."""

    session: SparkSession
    relations: dict[str, Relation] = field(default_factory=dict)
    """The relations by dotted name, including those that are not declared in the session."""
    declared: set[RelationId] = field(default_factory=set)
    _folds: dict[str, Folded] = field(default_factory=dict)
    _registered: set[RelationId] = field(default_factory=set)
    _pending: dict[RelationId, Callable[[], None]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @classmethod
    def beside(cls, spark: SparkSession, excluded: Iterable[str]) -> SessionNames:
        """Open another session of the application, without the optimiser rules ``excluded``."""
        session = spark.newSession()
        session.conf.set(*ASOF_JOINS)
        rules = ",".join(f"{OPTIMIZER}.{rule}" for rule in excluded)
        session.conf.set("spark.sql.optimizer.excludedRules", rules)
        return cls(session)

    @property
    def transplant(self) -> Transplant:
        """Builds logical plans in this session."""
        return Transplant(self.session, scala_of(self.session))

    # -- relations -------------------------------------------------------------------------

    def declare(self, relation: Relation, register: Callable[[], None]) -> None:
        """Call ``register`` before the next query, in the order of declaration."""
        with self._lock:
            self.declared.add(relation.id)
            self._pending[relation.id] = register

    def discard(self, relation: Relation) -> None:
        """Discard the pending registration of a relation."""
        with self._lock:
            self.declared.discard(relation.id)
            self._pending.pop(relation.id, None)

    def forget(self, relation: Relation, names: Iterable[str]) -> None:
        """Remove a relation, and the temporary views that represent it under these names."""
        self.relations.pop(relation.name, None)
        with self._lock:
            self.discard(relation)
            registered = relation.id in self._registered
            self._registered.discard(relation.id)
        if registered:
            for name in names:
                self.session.catalog.dropTempView(name)

    def flush(self) -> None:
        """Run all pending registrations."""
        with self._lock:
            for id_ in list(self._pending):
                self._registered.add(id_)
                self._pending[id_]()
                del self._pending[id_]

    def declare_text(self, view: View | PlainView, name: str | None = None) -> None:
        """Register a view as its query, under its name or another."""
        columns = ", ".join(quote(name) for name in view.schema.names)
        self.session.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW {quote(name or view.name)} ({columns}) "
            f"AS {self.plain(view.query)}"
        )

    # -- functions -------------------------------------------------------------------------

    def declare_function(self, function: Registered) -> None:
        """Declare a Python function, replacing a function of the same name."""
        if function.function.folded is not None:
            self._folds[function.function.key] = function.function.folded
        function.declare(self.session)

    def forget_function(self, function: Registered) -> None:
        """Remove the declaration of a Python function."""
        self._folds.pop(function.function.key, None)
        function.forget(self.session)

    # -- queries ---------------------------------------------------------------------------

    def plain(self, query: str) -> str:
        """Return a query in Spark SQL."""
        read = spark_text(Span(query, 0, len(query)), self.relations, self._folds)
        return with_one_word_names(self.transplant.parser, read.span, self.relations).text

    def resolved(self, text: str) -> tuple[DataFrame, Any]:
        """Resolve a query in Spark SQL; return its DataFrame, and its corrected plan."""
        self.flush()
        frame, transplant = self.session.sql(text), self.transplant
        scala = transplant.scala
        return frame, corrected(scala, with_keys_typed(scala, transplant.logical(frame)))
