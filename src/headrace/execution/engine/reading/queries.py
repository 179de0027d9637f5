"""Answers SELECT over the stored contents of an epoch: by key, by DuckDB, or by a Spark job.

In a separate session, names of relations mean stored contents. The contents are chosen when a query
is answered, so queries can be planned before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headrace.algebra.zset import WEIGHT
from headrace.execution.engine.declared import SessionNames
from headrace.execution.engine.jobs.failures import step_failure
from headrace.execution.engine.jobs.scope import tagged
from headrace.execution.engine.reading.pulls import Plans, Prepared, Pull
from headrace.execution.engine.reading.scans import DuckDbQuery, Refused, Scans, translated
from headrace.execution.engine.reading.scans.reading import Readable, tree_of
from headrace.planning.catalog import PlainView, Relation, Sink, Stream, Table, View
from headrace.planning.catalyst.constants import VALUES_PARSED
from headrace.planning.catalyst.scala import collect_arrow
from headrace.planning.catalyst.select import Optimised, Stored, nodes
from headrace.planning.catalyst.ties import REORDERING
from headrace.planning.dialects import log_of
from headrace.planning.sql import quote
from headrace.storage.log.events import OFFSET
from headrace.types import exchanged, for_spark

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.errors import Span
    from headrace.execution.engine.engine import Engine
    from headrace.execution.engine.leaves import Leaves
    from headrace.execution.runtime.step import Share
    from headrace.execution.serving import Contents
    from headrace.planning.catalyst.analysed import Shape
    from headrace.planning.catalyst.python import Registered
    from headrace.storage.log import Events
    from headrace.types import RelationId


_EXCLUDED: Final = (
    REORDERING,
    # It computes on rows of VALUES while a query is planned, which may take long.
    "ConvertToLocalRelation",
    # With these, relations whose condition is never true would not be read.
    "PropagateEmptyRelation",
    "PruneFilters",
)


@dataclass(slots=True)
class Queries:
    """Plans and answers queries over contents. Thread-safe."""

    leaves: Leaves
    engine: Engine
    """Its lock of planning is held while the meaning of names changes, and while a query is
    prepared."""
    _names: SessionNames = field(init=False)
    plans: Plans = field(default_factory=Plans, init=False)
    _scans: Scans = field(default_factory=Scans, init=False)

    def __post_init__(self) -> None:
        """Create the names of a session of its own, in which they mean contents."""
        self._names = SessionNames(self.leaves.source, _EXCLUDED, (VALUES_PARSED,))

    # -- names -----------------------------------------------------------------------------

    def declare(self, relation: Relation, *, planned: bool = True) -> None:
        """Declare a relation under its name.

        The name of a plain view that is not ``planned`` is undefined: its query cannot run now.
        Spark gets the declaration before the next query.
        """
        self.plans.clear()
        names = self._names
        names.relations[relation.name] = relation
        if isinstance(relation, Sink):
            return
        if not isinstance(relation, PlainView):
            names.declare(relation, lambda: self._register(relation))
        elif planned:
            query = relation.query
            names.declare(relation, lambda: names.declare_text(relation), query=query)
        else:
            names.discard(relation)

    def _register(self, relation: Stream | Table | View) -> None:
        session = self._names.session
        contents = self.leaves.contents(session, relation, relation.id)
        contents.createOrReplaceTempView(quote(relation.name))
        if isinstance(relation, Stream):
            self.leaves.declare_log(session, relation)

    def provide(self, relation: Stream, rows: pa.Table) -> None:
        """Declare a relation without stored contents, with the given rows."""
        self._names.relations[relation.name] = relation
        frame = self._names.session.createDataFrame(for_spark(rows), relation.schema.spark)
        frame.createOrReplaceTempView(quote(relation.name))

    def forget(self, relation: Relation) -> None:
        """Remove the declaration of a relation."""
        self.plans.clear()
        self._names.forget(relation, [relation.name, log_of(relation.id)])

    def declare_function(self, function: Registered) -> None:
        """Declare a Python function, replacing a function of the same name."""
        self.plans.clear()
        self._names.declare_function(function)

    def forget_function(self, function: Registered) -> None:
        """Remove the declaration of a Python function."""
        self.plans.clear()
        self._names.forget_function(function)

    # -- queries ---------------------------------------------------------------------------

    def computed(self, rows: pa.Table, expressions: list[str], source: str = "__rows") -> pa.Table:
        """Return the values of expressions, each with its alias, for rows in their order.

        They read ``source``, a query over ``__rows`` that keeps its column ``__place``.

        Raises:
            HeadraceError: ``invalid`` if an expression fails on a row.
        """
        place, name = "__place", f"__rows_{uuid4().hex}"
        placed = rows.append_column(place, pa.array(np.arange(rows.num_rows)))
        try:
            self._names.session.createDataFrame(for_spark(placed)).createOrReplaceTempView(name)
            read = f"SELECT {', '.join([place, *expressions])} FROM "
            text = self._names.plain(read + source.replace("__rows", name))
            with tagged(self.leaves.source.session):
                found = collect_arrow(self._names.session.sql(text))
            self._names.session.catalog.dropTempView(name)
            return found.sort_by(place)
        except (PySparkException, Py4JError) as error:
            raise step_failure(error) from error

    def planned(self, query: Span) -> tuple[Shape, Prepared | None]:
        """Return the shape of a query over snapshots, and the query, ready to be answered once.

        The query is None if it names relations whose rows must be provided before it is prepared.
        The caller ensures that the meaning of names does not change.

        Raises:
            HeadraceError: at the place in the query, if it cannot be run.
        """
        names = self._names

        def require(text: str) -> None:
            try:
                names.require(text)
            except (PySparkException, Py4JError) as error:
                raise step_failure(error) from error

        found = self.engine.planner.select(query, names.session, names.has, require)
        if found is None:
            return self.engine.planner.analyse(query, once=True).shape, None
        return found.shape, Prepared(query.source, found.optimised, self.plans.changes)

    def prepared(self, query: str) -> Prepared:
        """Plan a query again, and return it ready to be answered once.

        The names of its text have their current meaning.
        """
        try:
            names, changes = self._names, self.plans.changes
            resolved = names.resolved(names.plain(query))
            return Prepared(query, Optimised.of(names.transplant, *resolved), changes)
        except (PySparkException, Py4JError) as error:
            raise step_failure(error) from error

    def answer(
        self,
        prepared: Prepared,
        relations: Sequence[Relation],
        contents: Callable[[RelationId], Contents | Events],
        shares: Callable[[], Mapping[RelationId, Share]],
        indexes: Sequence[Contents] = (),
    ) -> pa.Table | None:
        """Return the result of a prepared query over some relations, by the cheapest possible way.

        ``contents`` returns the rows of a stream, table or view, and ``indexes`` are the indexes of
        a single relation; ``shares`` returns the shares that a job reads, the logs of streams as
        corrected. Returns None if the query was cached, or planned without Spark, and must be
        prepared again.
        """
        optimised = prepared.optimised
        if optimised is not None and optimised.is_empty:
            return exchanged(optimised.schema).empty_table()
        known = prepared.is_kept
        if known and prepared.relations != tuple(relations):
            return None
        if optimised is not None and not known:
            self._find_way(prepared, optimised, relations)
        try:
            rows = prepared.without_job(contents, indexes, self._scans)
        except (PySparkException, Py4JError) as error:
            raise step_failure(error) from error
        if rows is None and optimised is not None and not known:
            return self.rows(optimised, shares())
        return rows

    def way(self, prepared: Prepared, relations: Sequence[Relation]) -> str:
        """Return a description of how :meth:`answer` would answer, with the reason for a job."""
        optimised = prepared.optimised
        if optimised is not None and optimised.is_empty:
            return "no rows, whatever is stored: its condition is never true"
        if optimised is not None and not prepared.is_kept:
            self._find_way(prepared, optimised, relations)
        if prepared.pull is not None:
            return "rows that its conditions choose, without a Spark job"
        if isinstance(prepared.scan, DuckDbQuery):
            return "a scan by DuckDB, without a Spark job"
        return f"a Spark job, because of {prepared.scan}"

    def _find_way(
        self, prepared: Prepared, optimised: Optimised, relations: Sequence[Relation]
    ) -> None:
        """Find how a query can be answered without a job; cache the query if it can."""
        prepared.relations = tuple(relations)
        try:
            prepared.pull = self._pull(optimised, relations)
            prepared.scan = self.scan(optimised, relations)
        except Refused as refused:
            prepared.scan = refused
        except (PySparkException, Py4JError) as error:
            raise step_failure(error) from error
        if optimised.is_lasting and (prepared.pull or isinstance(prepared.scan, DuckDbQuery)):
            self.plans.keep(prepared)

    def scan(self, query: Optimised, relations: Sequence[Relation]) -> DuckDbQuery:
        """Return a query over some relations as a query for DuckDB.

        Raises: Refused: only Spark can answer it; the text is the reason.
        """
        readable = {
            (r.id, True): Readable(r.schema.names, events=isinstance(r, Stream))
            for r in relations
            if isinstance(r, Stream | Table | View)
        }
        streams = (r for r in relations if isinstance(r, Stream))
        readable |= {(r.id, False): Readable(_placed(r), events=True) for r in streams}
        if not readable:
            raise Refused("what it reads, which is not stored")
        try:
            if not query.is_deterministic:
                raise Refused("a random function")
            if query.has_subqueries:
                raise Refused("a scalar subquery")
            return translated(tree_of(query.root, readable), exchanged(query.schema))
        except (PySparkException, Py4JError) as error:
            raise step_failure(error) from error

    def _pull(self, query: Optimised, relations: Sequence[Relation]) -> Pull | None:
        (relation,) = relations if len(relations) == 1 else (None,)
        if not isinstance(relation, Stream | Table | View):
            return None
        leaf = next((node for node in nodes(query.root) if isinstance(node, Stored)), None)
        names = relation.schema.names
        if isinstance(relation, Stream) and leaf is not None and not leaf.whole:
            names = _placed(relation)
        return Pull.of(self._names.transplant.scala, query, names)

    def rows(self, query: Optimised, shares: Mapping[RelationId, Share]) -> pa.Table:
        """Return the result of a query over the shares by a job, with Spark's types."""
        with self.leaves.reading(shares):
            return collect_arrow(query.frame)


def _placed(stream: Stream) -> tuple[str, ...]:
    """Return the columns of a stream's log in a plan: with the weight and the offset of a row."""
    return (*stream.logged.names, WEIGHT, OFFSET)
