"""A SELECT that Spark has resolved and optimised once, and its plan as nodes.

This is the only place that walks such a plan. Pulls, scans by DuckDB and jobs all use it. A
relation is a :class:`Stored` leaf, whose rows are chosen when the query runs.

Expressions and attributes are handles of Catalyst's objects.

Editions of the planner: which operators it chooses for a query.

A later edition may choose cheaper operators, whose state has another form. A stored view keeps the
edition that planned it, which the digest of its circuit shows; a new build has the latest.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from headrace.planning.catalyst.resolved import id_of, is_never
from headrace.planning.catalyst.scala import READ_BY_TASK, items, maybe, node_name
from headrace.planning.catalyst.ties import with_one_order
from headrace.types import RelationId, require_rows_kept

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from headrace.planning.catalyst.analysed import Shape
    from headrace.planning.catalyst.transplant import Transplant


class Edition(IntEnum):
    """The numbered editions; each states what it changed."""

    FIRST = 1
    TIMES_COMPARED = 2
    """Comparisons with a time computed from a subquery's value read the rows it passes."""
    FIRST_WITHOUT_NUMBERS = 3
    """First rows of groups whose numbers are not shown are not numbered."""
    NEAR_ROWS = 4
    """Window functions that depend on rows nearby read these, and not all rows of a partition."""
    SESSIONS_KEPT = 5
    """Totals of session windows are kept by session, and those near a change are united."""
    PERCENTILES_KEPT = 6
    """Percentiles read the values next to the ones they have, and not all rows of a group."""
    ORDERS_COUNTED = 7
    """``dense_rank()`` counts the values of the order before a row, and reads the rows after it."""
    SIGNS_KEPT = 8
    """The least and greatest of floats are kept as they are, with the sign of a zero."""


LATEST: Final = max(Edition)


CONTENTS: Final = "contents_"
CHANGES: Final = "changes_"
"""The prefix of the name of a task that reads a relation; the relation's id follows."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of an optimised plan; other kinds than the subclasses are run by Spark only."""

    handle: Any
    below: tuple[Node, ...]

    @property
    def name(self) -> str:
        """Spark's name of its kind."""
        return node_name(self.handle)

    @property
    def output(self) -> list[Any]:
        """The attributes that it returns."""
        return items(self.handle.output())

    @property
    def uses(self) -> set[int]:
        """The ids of the attributes that its expressions refer to."""
        return set(map(id_of, items(self.handle.references().toSeq())))


@dataclass(frozen=True, slots=True)
class Stored(Node):
    """The rows of a relation: its contents if ``whole``, else the changes of its log."""

    relation: RelationId
    whole: bool

    @property
    def uses(self) -> set[int]:
        """Empty: a leaf uses no columns."""
        return set()


class Project(Node):
    """Computes expressions for each row."""

    __slots__ = ()

    @property
    def expressions(self) -> list[Any]:
        """The named values."""
        return items(self.handle.projectList())


class Filter(Node):
    """Keeps the rows for which a condition is true."""

    __slots__ = ()

    @property
    def condition(self) -> Any:
        """The condition."""
        return self.handle.condition()


class Aggregate(Node):
    """Groups rows."""

    __slots__ = ()

    @property
    def keys(self) -> list[Any]:
        """The values that are equal within a group."""
        return items(self.handle.groupingExpressions())

    @property
    def expressions(self) -> list[Any]:
        """The named values of a group."""
        return items(self.handle.aggregateExpressions())


class Sort(Node):
    """Orders rows."""

    __slots__ = ()

    @property
    def order(self) -> list[Any]:
        """The values to order by, each with its direction."""
        return items(self.handle.order())

    @property
    def is_total(self) -> bool:
        """Whether all rows are ordered, rather than those of each partition."""
        return bool(getattr(self.handle, "global")())


class Limit(Node):
    """Keeps the first rows."""

    __slots__ = ()

    @property
    def most(self) -> Any:
        """The expression of the number of rows."""
        return self.handle.limitExpr()


class Offset(Node):
    """Skips the first rows."""

    __slots__ = ()

    @property
    def skipped(self) -> Any:
        """The expression of the number of rows."""
        return self.handle.offsetExpr()


class Join(Node):
    """Joins rows of two sides."""

    __slots__ = ()

    @property
    def how(self) -> str:
        """Spark's name of the kind of join."""
        return str(self.handle.joinType().toString())

    @property
    def condition(self) -> Any | None:
        """The condition, if there is one."""
        return maybe(self.handle.condition())


class Union(Node):
    """Returns the rows of all nodes below, whose columns are matched by position."""

    __slots__ = ()

    @property
    def uses(self) -> set[int]:
        """The ids of the columns of the nodes below."""
        return {id_of(each) for node in self.below for each in node.output}


_KINDS: Final = {
    "Aggregate": Aggregate,
    "Filter": Filter,
    "GlobalLimit": Limit,
    "Join": Join,
    "LocalLimit": Limit,
    "Offset": Offset,
    "Project": Project,
    "Sort": Sort,
    "Union": Union,
}


def read(plan: Any) -> Node:
    """Return an optimised plan as nodes."""
    kind = node_name(plan)
    relation = stored_by(plan) if kind == READ_BY_TASK else None
    if relation is not None:
        return relation
    below = tuple(map(read, items(plan.children())))
    return _KINDS.get(kind, Node)(plan, below)


def stored_by(plan: Any) -> Stored | None:
    """Return the relation that a task reads, according to its name, or None."""
    name = str(plan.functionExpr().name())
    for start in (CONTENTS, CHANGES):
        if name.startswith(start):
            return Stored(plan, (), RelationId(int(name.removeprefix(start))), start == CONTENTS)
    return None


def nodes(root: Node) -> Iterator[Node]:
    """Yield a node and the nodes below it, without those of subqueries in expressions."""
    yield root
    for each in root.below:
        yield from nodes(each)


@dataclass(frozen=True, slots=True)
class Optimised:
    """A query that Spark has resolved and optimised; ``frame`` runs the plan, once."""

    frame: DataFrame
    root: Node
    is_lasting: bool
    """Whether the meaning of the query is constant: it names neither the time nor the session."""

    @classmethod
    def of(cls, transplant: Transplant, frame: DataFrame, logical: Any) -> Optimised:
        """Optimise the plan ``logical``, the rewritten plan of a query resolved as ``frame``.

        Raises:
            HeadraceError: ``unsupported`` if its columns have types that cannot be kept.
        """
        lasting = not transplant.scala.may_hold("CURRENT_LIKE", transplant.logical(frame))
        ordered = with_one_order(transplant, frame, logical)
        require_rows_kept(ordered.schema)
        return cls(ordered, read(transplant.optimised(ordered)), lasting)

    @property
    def schema(self) -> StructType:
        """The columns of the result."""
        return self.frame.schema

    @property
    def is_deterministic(self) -> bool:
        """Whether each evaluation has the same result."""
        return bool(self.root.handle.deterministic())

    @property
    def has_subqueries(self) -> bool:
        """Whether expressions have subqueries."""
        return bool(self.root.handle.subqueriesAll().nonEmpty())

    @property
    def is_empty(self) -> bool:
        """Whether the result is always empty, since a condition is never true."""
        node = self.root
        while isinstance(node, Filter | Limit | Project | Sort):
            if isinstance(node, Filter) and is_never(node.condition):
                return True
            (node,) = node.below
        return False

    @property
    def reads(self) -> frozenset[RelationId]:
        """The relations whose rows the result depends on."""
        roots = [self.root, *map(read, items(self.root.handle.subqueriesAll()))]
        found = (node for root in roots for node in nodes(root))
        return frozenset(node.relation for node in found if isinstance(node, Stored))


@dataclass(frozen=True, slots=True)
class Selected:
    """The shape of a query, and how it runs."""

    shape: Shape
    optimised: Optimised
