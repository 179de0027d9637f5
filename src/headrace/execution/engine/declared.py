"""The relations that queries may name, and the planner that knows them.

Names of relations and functions in a separate Spark session.

A relation is registered as a temporary view only before the first query that names it: each
registration costs several round trips to Spark, and queries name few of a database's relations.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.errors import Code, HeadraceError, Span
from headrace.execution.runtime.cancelling import check_cancelled
from headrace.planning.catalog import PlainView, Relation, Stream, Table
from headrace.planning.catalyst.planner import Planner
from headrace.planning.catalyst.rewrites import corrected, with_keys_typed
from headrace.planning.catalyst.scala import ASOF_JOINS, OPTIMIZER, scala_of
from headrace.planning.catalyst.transplant import Transplant
from headrace.planning.catalyst.written import with_one_word_names
from headrace.planning.dialects import log_of, spark_text
from headrace.planning.sql import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame, SparkSession

    from headrace.execution.engine.jobs.lease import SparkSource
    from headrace.planning.catalog import View
    from headrace.planning.catalyst.python import Registered
    from headrace.planning.functions import Folded, FunctionRecord
    from headrace.types import RelationId


_PLAIN_NAME = re.compile(r"[a-z0-9_-]+")
"""A name that has one spelling in a query, except for the case of letters."""
_WORD = re.compile(r"[a-z0-9_]+")


@dataclass(slots=True)
class _Declared:
    """A relation of a session: its names, and how it is registered.

    ``names`` are the words that a text has which names it; without any, every text may name it.
    ``query`` is the one as which it is registered, if it is: Spark resolves its names at each use.
    ``register`` is None once it is registered.
    """

    names: tuple[frozenset[str], ...]
    query: str
    register: Callable[[], None] | None
    named: frozenset[str] | None = None
    """The words of its query in Spark SQL, once they are known."""

    @classmethod
    def of(cls, names: Iterable[str], query: str, register: Callable[[], None]) -> _Declared:
        """Return a relation with these names, to be registered."""
        last = [name.lower().rpartition(".")[2] for name in names]
        plain = all(map(_PLAIN_NAME.fullmatch, last))
        return cls(tuple(map(_words, last)) if plain else (), query, register)

    def is_named(self, words: frozenset[str]) -> bool:
        """Whether a text with these words may name it."""
        return not self.names or any(name <= words for name in self.names)


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower()))


@dataclass(slots=True)
class SessionNames:
    """The declared names of a session of its own, opened when it is first needed.

    It leaves out the optimiser's rules ``excluded``, and has the properties ``chosen``.
    """

    source: SparkSource
    excluded: tuple[str, ...]
    chosen: tuple[tuple[str, str], ...] = ()
    relations: dict[str, Relation] = field(default_factory=dict)
    """The relations by dotted name, including those that are not declared in the session."""
    _folds: dict[str, Folded] = field(default_factory=dict)
    _declared: dict[RelationId, _Declared] = field(default_factory=dict)
    _registered: set[RelationId] = field(default_factory=set)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _session: SparkSession | None = None

    @property
    def session(self) -> SparkSession:
        """The session; this waits for Spark."""
        spark = self.source.session
        with self._lock:
            if self._session is None:
                opened = spark.newSession()
                rules = ",".join(f"{OPTIMIZER}.{rule}" for rule in self.excluded)
                excluded = ("spark.sql.optimizer.excludedRules", rules)
                for name, value in (ASOF_JOINS, excluded, *self.chosen):
                    opened.conf.set(name, value)
                self._session = opened
            return self._session

    @property
    def transplant(self) -> Transplant:
        """Builds logical plans in this session."""
        return Transplant(self.session, scala_of(self.session))

    # -- relations -------------------------------------------------------------------------

    def declare(
        self,
        relation: Relation,
        register: Callable[[], None],
        names: Iterable[str] = (),
        query: str = "",
    ) -> None:
        """Call ``register`` before the next query that may name a relation.

        Its names are its own, that of its log, and ``names``. If it is registered as a ``query``,
        the relations that this names are registered before, in the order of declaration.
        """
        known = [relation.name, log_of(relation.id), *names]
        with self._lock:
            self._declared.pop(relation.id, None)
            self._declared[relation.id] = _Declared.of(known, query, register)

    def discard(self, relation: Relation) -> None:
        """Discard the declaration of a relation, without its temporary views."""
        with self._lock:
            self._declared.pop(relation.id, None)

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

    def has(self, id_: RelationId) -> bool:
        """Whether a relation is declared."""
        return id_ in self._declared

    def flush(self) -> None:
        """Register all relations that are not."""
        with self._lock:
            for id_, declared in list(self._declared.items()):
                self._register(id_, declared)

    def require(self, text: str) -> None:
        """Register the relations that a text in Spark SQL may name, directly or through views."""
        with self._lock:
            texts, wanted = [_words(text)], dict[int, _Declared]()
            while texts:
                words = texts.pop()
                for id_, declared in self._declared.items():
                    if id_ not in wanted and declared.is_named(words):
                        wanted[id_] = declared
                        texts.append(self._named(declared))
            for id_, declared in list(self._declared.items()):
                if id_ in wanted:
                    self._register(id_, declared)

    def _named(self, declared: _Declared) -> frozenset[str]:
        """Return the words of the query as which a relation is registered."""
        if declared.named is None:
            query = declared.query
            declared.named = _words(self.plain(query)) if query else frozenset()
        return declared.named

    def _register(self, id_: RelationId, declared: _Declared) -> None:
        """Register a relation, unless it is."""
        if declared.register is not None:
            declared.register()
            declared.register = None
            self._registered.add(id_)

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
        read = spark_text(Span(query, 0, len(query)), self.relations, self._folds, once=True)
        return with_one_word_names(self.transplant.parser, read.span, self.relations).text

    def resolved(self, text: str) -> tuple[DataFrame, Any]:
        """Resolve a query in Spark SQL; return its DataFrame, and its corrected plan."""
        self.require(text)
        frame, transplant = self.session.sql(text), self.transplant
        scala = transplant.scala
        return frame, corrected(scala, with_keys_typed(scala, transplant.logical(frame)))


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
