"""Numbers of plans: equal for parts, of one query or of several, that compute the same rows.

Two parts are equal if they are so except for the ids that Spark generates: expressions are compared
by the JVM, with each column replaced by its position in the inputs of its node.

Rows of views that Spark keeps while several queries read them, each computed once.

They are kept in memory, and on local disks beyond that. Spark's own cache would give them to every
query with an equal plan, also to one that reads another state; these are only in plans in which
they are put in place of a view.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from pyspark import StorageLevel

from headrace.planning.catalyst import plan
from headrace.planning.catalyst.resolved import attribute_of, columns_of, passed_on, type_of
from headrace.planning.catalyst.scala import (
    EXPRESSIONS,
    Numbers,
    Scala,
    items,
    kind_of,
    node_name,
    with_children,
    with_nodes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from headrace.planning.catalyst.node import Use


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


_ALONE = (plan.Constant, plan.Generate, plan.Loop, plan.LoopRef)
"""Nodes that are equal to no other: their rows depend on more than their fields."""
_QUERY_PLAN = "org.apache.spark.sql.catalyst.plans.QueryPlan"

Number = tuple[object, ...]
"""A key that is equal for equal values, and differs for different ones."""


def shape_of(node: plan.Plan) -> Number:
    """Return a key that is equal for equal nodes, and computed without calls to Spark.

    It may be equal for different ones.
    """
    below = tuple(shape_of(child) for child in node.inputs)
    if isinstance(node, plan.Scan):
        return (plan.Scan, node.relation, node.columns)
    return below[0] if isinstance(node, plan.Filter) else (type(node), *below)


@dataclass(slots=True)
class PlanNumbers:
    """Gives equal nodes equal numbers."""

    scala: Scala
    _numbers: dict[Number, int] = field(default_factory=dict)
    _of_nodes: dict[plan.Plan, int] = field(default_factory=dict)
    _of_expressions: Numbers = field(default_factory=Numbers)

    def of(self, node: plan.Plan) -> int:
        """Return the number of a node: equal for nodes that compute the same rows."""
        if node not in self._of_nodes:
            self._of_nodes[node] = self._numbered(self._parts(node))
        return self._of_nodes[node]

    def of_expressions(
        self, node: plan.Plan, expressions: Iterable[plan.Expression | None]
    ) -> tuple[object, ...]:
        """Return a key of some expressions over a node's columns, with None for none."""
        over = self._over((node,))
        return tuple(each and self._expression(each.handle, *over) for each in expressions)

    def of_core(self, node: plan.Aggregate) -> int:
        """Return the number of an aggregate's groups and functions, whatever its results are."""
        groups = (use for use in node.uses() if use.inputs)
        return self._numbered(("core", *self._own(node, groups)))

    def of_keys(self, node: plan.Plan, keys: Iterable[plan.Expression]) -> int:
        """Return the number of a node's rows with some expressions over them."""
        return self._numbered(("keys", self.of(node), *self.of_expressions(node, keys)))

    def _numbered(self, parts: Number) -> int:
        return self._numbers.setdefault(parts, len(self._numbers))

    def _parts(self, node: plan.Plan) -> Number:
        """Return everything on which a node's rows depend, as numbers."""
        if isinstance(node, _ALONE) or len({a.id for a in node.attributes}) < len(node.attributes):
            return (node,)
        if isinstance(node, plan.Aggregate):
            results = (use for use in node.uses() if not use.inputs)
            return ("shown", self.of_core(node), *self._used(results, (core_of(node),)))
        return (len(node.attributes), *self._own(node, node.uses()))

    def _own(self, node: plan.Plan, uses: Iterable[Use]) -> Number:
        """Return the kind of a node, its inputs, and some of its expressions over these."""
        below = (self.of(child) for child in node.inputs)
        return (type(node), *below, *node.parameters(), *self._used(uses, node.inputs))

    def _used(self, uses: Iterable[Use], inputs: tuple[plan.Plan, ...]) -> Iterator[Number]:
        over: tuple[Any, set[int]] | None = None
        for use in uses:
            over = over or self._over(inputs)
            yield use.field, use.how, self._expression(use.handle, *over)

    def _over(self, inputs: tuple[plan.Plan, ...]) -> tuple[Any, set[int]]:
        """Return the columns of some nodes, for :meth:`_expression`."""
        attributes = [a for child in inputs for a in child.attributes]
        of = self.scala.named(f"{EXPRESSIONS}.package$AttributeSeq")
        return of(self.scala.seq(a.handle for a in attributes)), {a.id for a in attributes}

    def _expression(self, handle: Any, over: Any, known: set[int]) -> object:
        """Return the number of an expression, with its columns replaced by their positions."""
        while kind_of(handle) == "Alias":
            handle = handle.child()
        if not {passed_on(a) for a in columns_of(handle)} <= known:
            return handle  # it refers to other columns than those of its input: never equal
        normal = self.scala.module(_QUERY_PLAN).normalizeExpressions(handle, over)
        return self._of_expressions.of(normal)


def core_of(node: plan.Aggregate) -> plan.Aggregate:
    """Return an aggregate whose results are its keys and the values of its functions."""
    results = tuple(
        replace(attribute_of(call.handle.resultAttribute()), name=call.text)
        for call in node.functions
    )
    shown = (*node.grouping_attributes, *results)
    return replace(node, results=tuple(_itself(a) for a in shown), attributes=shown)


def _itself(attribute: plan.Attribute) -> plan.Expression:
    handle = attribute.handle
    return plan.Expression(attribute.name, type_of(handle), attribute.id, attribute.id, handle)
