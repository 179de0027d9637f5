"""Pull queries without a Spark job: a projection and conditions over one relation, and a LIMIT.

Spark has resolved and optimised the query. Conditions that compare a column with a constant select
the rows: by a lookup if they determine the whole key, else by comparing columns in memory.
Catalyst's own expressions evaluate the rest of the query over the few selected rows. With a LIMIT,
reading stops as soon as there are enough rows: those of a stream are the last that arrived.

A cache of planned queries, by text, until the meaning of names changes.

Spark takes tens of milliseconds to plan a query that is answered in one. Only queries that are
answered without a job are cached: a plan of Spark is executed once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.types import BooleanType, StructField, StructType

from headrace.execution.engine.reading.scans import DuckDbQuery, Refused
from headrace.execution.serving.contents import Contents, can_look_up
from headrace.execution.serving.values import python_values
from headrace.types import exchanged, with_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.algebra.zset import Layout, Restriction
    from headrace.execution.engine.reading.scans import Scans
    from headrace.execution.serving import Contents as ServingContents
    from headrace.planning.catalog import Catalog, Relation
    from headrace.planning.catalyst.analysed import Shape
    from headrace.planning.catalyst.evaluation import Evaluation
    from headrace.planning.catalyst.scala import Scala
    from headrace.planning.catalyst.select import Optimised
    from headrace.storage.log import Events
    from headrace.types import RelationId


_MOST_KEYS = 1024
_MOST_EVALUATED = 2_000
"""The most rows for which evaluation in this process is faster than a job."""
_MOST_ROWS = 100_000
_MOST_SCANNED = 8_000_000
"""The most physical rows whose columns are compared in the driver."""


@dataclass(frozen=True, slots=True)
class Pull:
    """A query over the rows of one relation.

    The result has the rows that pass the ``tests`` and, unless it is None, the ``condition``;
    ``columns`` are read. ``names`` are the result's columns if they are columns of the relation,
    else ``output`` computes the result. A query that is planned without Spark needs no evaluation.
    ``limit`` is the most rows of the result: any rows will do. None is no limit.
    """

    tests: Restriction
    condition: Evaluation | None
    columns: tuple[str, ...]
    names: tuple[str, ...] | None
    output: Evaluation | None
    schema: pa.Schema
    limit: int | None = None

    @classmethod
    def of(cls, scala: Scala, query: Optimised, columns: tuple[str, ...]) -> Pull | None:
        """Return a query over a relation's columns as a pull, or None for other forms of queries.

        The query must read this relation alone; ``columns`` are those of its leaf.
        """
        from headrace.planning.catalyst import select  # noqa: PLC0415  (plain queries start without it)
        from headrace.planning.catalyst.evaluation import Evaluation  # noqa: PLC0415
        from headrace.planning.catalyst.predicates import Predicates  # noqa: PLC0415
        from headrace.planning.catalyst.resolved import id_of, passed_on  # noqa: PLC0415
        from headrace.planning.catalyst.scala import kind_of  # noqa: PLC0415

        projected = condition = limit = None
        node = query.root
        while isinstance(node, select.Limit):
            if kind_of(node.most) != "Literal":
                return None
            most, (node,) = int(node.most.value()), node.below
            limit = most if limit is None else min(most, limit)
        if isinstance(node, select.Project):
            projected, (node,) = node.expressions, node.below
        if isinstance(node, select.Filter):
            condition, (node,) = node.condition, node.below
        if not isinstance(node, select.Stored):
            return None
        if not query.is_deterministic or query.has_subqueries:
            return None
        output = node.output
        if len(output) != len(columns):
            return None
        used = {id_of(each) for each in query.root.output}.union(
            *(n.uses for n in select.nodes(query.root))
        )
        pairs = list(zip(output, columns, strict=True))
        pairs = [pair for pair in pairs if id_of(pair[0]) in used] or pairs[:1]
        output = [each for each, _ in pairs]
        by_id = {id_of(each): name for each, name in pairs}
        inputs, spark = scala.seq(output), query.schema
        predicates = Predicates(scala)
        conditions = () if condition is None else predicates.conjuncts(condition)
        tests, exact = predicates.restriction(conditions, by_id)
        passes = None if exact else scala.alias(condition, "passes")
        named = output if projected is None else projected
        ids = [passed_on(each) for each in named]
        plain = all(id_ in by_id for id_ in ids)
        return cls(
            tests,
            None if passes is None else Evaluation(scala, [passes], inputs, _PASSES),
            tuple(by_id.values()),
            tuple(by_id[id_] for id_ in ids if id_ is not None) if plain else None,
            Evaluation(scala, named, inputs, spark),
            exchanged(spark),
            limit,
        )

    def rows(
        self, contents: Contents | Events, indexes: Sequence[Contents] = ()
    ) -> pa.Table | None:
        """Return the result, or None if there are so many rows that a job is faster.

        ``indexes`` have the same rows, arranged by other columns.

        Raises:
            Py4JError: an expression fails on a row.
        """
        found = self._chosen(contents, indexes)
        if found is None:
            return None
        if self.limit is not None:
            found = found.slice(max(0, found.num_rows - self.limit))
        if not found.num_rows:
            return self.schema.empty_table()
        if self.names is None:
            computed = found if self.output is None else self.output.over(found)
            return with_schema(computed, self.schema)
        arrays = [found.column(name) for name in self.names]
        found = pa.Table.from_arrays(arrays, names=self.schema.names)
        return with_schema(found, self.schema)

    @property
    def _most(self) -> int:
        """The most rows to read, since a job is faster for more."""
        evaluated = self.condition is not None or self.names is None
        return _MOST_EVALUATED if evaluated else _MOST_ROWS

    def _chosen(self, contents: Contents | Events, indexes: Sequence[Contents]) -> pa.Table | None:
        """Return the rows of the result before it is computed, or None if they are many."""
        arranged = [each for each in (contents, *indexes) if isinstance(each, Contents)]
        by = next((each for each in arranged if self.finds_by(each.layout)), None)
        keys = None if by is None else self._keys(by.layout)
        if by is not None and keys is not None:
            parts = [by.by_key(key) for key in keys]
            found = pa.concat_tables(parts) if parts else contents.columns.empty_table()
            passed = self.tests.rows(found)
            found = found if passed is None else found.filter(pa.array(passed))
            return self._passed(found.select(self.columns))
        if self.limit is not None:
            return self._first(contents, self.limit)
        most = contents.rows_upper_bound
        if most > self._most and not self.tests.tests:
            return None
        if most > _MOST_SCANNED and isinstance(contents, Contents):
            return None
        found = contents.where(self.tests, self._most, self.columns)
        return None if found is None else self._passed(found)

    def _first(self, contents: Contents | Events, limit: int) -> pa.Table | None:
        """Return rows that are found first, at least as many as are wanted if there are."""
        if limit > self._most:
            return None
        parts, count, read = [contents.columns.empty_table().select(self.columns)], 0, 0
        for part in contents.newest(self.columns, self.tests, limit) if limit else ():
            read += part.num_rows
            if self.condition is not None and read > _MOST_EVALUATED:
                return None
            parts.append(self._filtered(part))
            count += parts[-1].num_rows
            if count >= limit:
                break
        return pa.concat_tables(reversed(parts))

    def _passed(self, rows: pa.Table) -> pa.Table | None:
        """Return the rows that meet the condition; None if there are too many to evaluate."""
        return None if rows.num_rows > self._most else self._filtered(rows)

    def _filtered(self, rows: pa.Table) -> pa.Table:
        if self.condition is None or not rows.num_rows:
            return rows
        return rows.filter(self.condition.over(rows).column(0))

    def finds_by(self, layout: Layout) -> bool:
        """Whether its conditions determine all key columns of an arrangement."""
        return can_look_up(layout) and self.tests.gives(layout.key)

    def _keys(self, layout: Layout) -> Iterator[tuple[object, ...]] | None:
        """Return the keys that the tests allow; None if they are not determined, or too many."""
        keys = self.tests.of_key(layout.key, _MOST_KEYS)
        return None if keys is None else zip(*map(python_values, keys), strict=True)


_PASSES = StructType([StructField("passes", BooleanType())])


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
        contents: Callable[[RelationId], ServingContents | Events],
        indexes: Sequence[ServingContents],
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
