"""Rows of views that Spark keeps while several queries read them, each computed once.

They are kept in memory, and on local disks beyond that. Spark's own cache would give them to every
query with an equal plan, also to one that reads another state; these are only in plans in which
they are put in place of a view.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from pyspark import StorageLevel

from headrace.catalyst.scala import Scala, items, node_name
from headrace.catalyst.walk import with_children, with_nodes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

_KEPT = "org.apache.spark.sql.execution.columnar.InMemoryRelation"


@dataclass(frozen=True, slots=True, eq=False)
class KeptRows:
    """The rows of a query, which are computed by the first jobs that read them."""

    scala: Scala
    relation: Any
    names: tuple[str, ...]

    @classmethod
    def of(cls, scala: Scala, frame: DataFrame) -> Self:
        """Return the rows of a query, to be kept until they are released."""
        # Both are private API, as is the rest of this package's.
        level = frame.sparkSession.sparkContext._getJavaStorageLevel(  # noqa: SLF001
            StorageLevel.MEMORY_AND_DISK
        )
        execution = frame._jdf.queryExecution()  # noqa: SLF001
        relation = scala.module(_KEPT).apply(level, execution, scala.none)
        return cls(scala, relation, tuple(frame.columns))

    def columns(self, attributes: Sequence[Any]) -> Any:
        """Return a plan of the rows whose columns are these attributes, found by their names."""
        scala, wanted = self.scala, {str(each.name()): each for each in attributes}
        own = items(self.relation.newInstance().output())
        output = [wanted.get(n, a) for n, a in zip(self.names, own, strict=True)]
        rows = self.relation.withOutput(scala.seq(output))
        return scala.logical("Project", scala.seq(attributes), rows)

    def release(self) -> None:
        """Stop keeping the rows; a query that still reads them computes them again."""
        self.relation.cacheBuilder().clearCache(False)  # noqa: FBT003


def with_kept_rows(scala: Scala, plan: Any, kept: Mapping[str, KeptRows]) -> Any:
    """Return an analysed plan in which temporary views have the rows kept under their names."""

    def nodes(node: Any) -> Any:
        if node_name(node) == "View":
            rows = kept.get(str(node.desc().identifier().table()))
            if rows is not None:
                found = rows.columns(items(node.output()))
                return node.withNewChildren(scala.seq([found]))
        return with_children(scala, node, nodes)

    return with_nodes(scala, plan, nodes)
