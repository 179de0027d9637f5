"""Pull queries without a Spark job: a projection and conditions over one stored relation.

Spark has resolved and optimised the query. Conditions that compare a column with a constant select
the rows: by a lookup if they determine the whole key, else by comparing columns in memory.
Catalyst's own expressions evaluate the rest of the query over the few selected rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import BooleanType, StructField, StructType

from headrace.serving.contents import can_look_up
from headrace.serving.python_values import python_values
from headrace.types import exchanged, with_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.catalyst.evaluation import Evaluation
    from headrace.catalyst.scala import Scala
    from headrace.catalyst.select import Optimised
    from headrace.serving import Contents
    from headrace.zset import Layout, Restriction

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
    """

    tests: Restriction
    condition: Evaluation | None
    columns: tuple[str, ...]
    names: tuple[str, ...] | None
    output: Evaluation | None
    schema: pa.Schema

    @classmethod
    def of(cls, scala: Scala, query: Optimised, columns: tuple[str, ...]) -> Pull | None:
        """Return a query over a relation's columns as a pull, or None for other forms of queries.

        The query must read this relation alone.
        """
        from headrace.catalyst import select  # noqa: PLC0415  (plain queries start without it)
        from headrace.catalyst.evaluation import Evaluation  # noqa: PLC0415
        from headrace.catalyst.predicates import Predicates  # noqa: PLC0415
        from headrace.catalyst.resolved import id_of, passed_on  # noqa: PLC0415

        projected = condition = None
        node = query.root
        if isinstance(node, select.Project):
            projected, (node,) = node.expressions, node.below
        if isinstance(node, select.Filter):
            condition, (node,) = node.condition, node.below
        if not isinstance(node, select.Stored) or not node.whole:
            return None
        if not query.is_deterministic or query.has_subqueries:
            return None
        output = node.output
        if len(output) != len(columns):
            return None
        by_id = {id_of(each): name for each, name in zip(output, columns, strict=True)}
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
            columns,
            tuple(by_id[id_] for id_ in ids if id_ is not None) if plain else None,
            Evaluation(scala, named, inputs, spark),
            exchanged(spark),
        )

    def rows(self, contents: Contents, indexes: Sequence[Contents] = ()) -> pa.Table | None:
        """Return the result, or None if there are so many rows that a job is faster.

        ``indexes`` have the same rows, arranged by other columns.

        Raises:
            Py4JError: an expression fails on a row.
        """
        evaluated = self.condition is not None or self.names is None
        most = _MOST_EVALUATED if evaluated else _MOST_ROWS
        found = self._chosen(contents, indexes, most)
        if found is None:
            return None
        found = found.select(self.columns)
        if self.condition is not None and found.num_rows:
            found = found.filter(self.condition.over(found).column(0))
        if not found.num_rows:
            return self.schema.empty_table()
        if self.names is None:
            computed = found if self.output is None else self.output.over(found)
            return with_schema(computed, self.schema)
        arrays = [found.column(name) for name in self.names]
        found = pa.Table.from_arrays(arrays, names=self.schema.names)
        return with_schema(found, self.schema)

    def _chosen(
        self, contents: Contents, indexes: Sequence[Contents], most: int
    ) -> pa.Table | None:
        """Return the rows that pass the tests, or None if there are more than ``most``."""
        by = next((each for each in (contents, *indexes) if self.finds_by(each.layout)), None)
        keys = None if by is None else self._keys(by.layout)
        if by is not None and keys is not None:
            parts = [by.by_key(key) for key in keys]
            found = pa.concat_tables(parts) if parts else contents.layout.columns.empty_table()
            passed = self.tests.rows(found)
            found = found if passed is None else found.filter(pa.array(passed))
            return found if found.num_rows <= most else None
        if contents.spine.rows_upper_bound > (_MOST_SCANNED if self.tests.tests else most):
            return None
        return contents.where(self.tests, most)

    def finds_by(self, layout: Layout) -> bool:
        """Whether its conditions determine all key columns of an arrangement."""
        return can_look_up(layout) and self.tests.gives(layout.key)

    def _keys(self, layout: Layout) -> Iterator[tuple[object, ...]] | None:
        """Return the keys that the tests allow; None if they are not determined, or too many."""
        keys = self.tests.of_key(layout.key, _MOST_KEYS)
        return None if keys is None else zip(*map(python_values, keys), strict=True)


_PASSES = StructType([StructField("passes", BooleanType())])
