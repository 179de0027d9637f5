"""Headrace's immutable plan of a query, made from Catalyst's optimised plan.

Every node keeps Catalyst's *resolved* expressions as handles on JVM objects. ``attributes`` are a
node's output columns in order; their ids are Catalyst's and are unique within a plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

    from pyspark.sql.types import DataType

    from headrace.functions.folding import Folding
    from headrace.types import RelationId


@dataclass(frozen=True, slots=True)
class Attribute:
    """A resolved column: Catalyst's id of it, its name and type, and the JVM object."""

    id: int
    name: str
    type: DataType
    nullable: bool
    handle: Any


@dataclass(frozen=True, slots=True)
class Expression:
    """A resolved expression, with its text for people.

    ``identity`` is equal for expressions of one query that compute the same from the same columns.
    Different expressions may have the same text: it has no types, and long ones are shortened.
    ``passes`` is the id of the attribute that the expression passes on unchanged, or None.
    """

    text: str
    type: DataType
    identity: Hashable
    passes: int | None
    handle: Any


PLACE: Final = 1 << 20
TIME: Final = PLACE + 1


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """The rows of a stream, table or view.

    ``columns`` are the positions that are read; the place and the time of a row in a stream's log
    are at :data:`PLACE` and :data:`TIME`, whatever columns the stream has.
    """

    relation: RelationId
    attributes: tuple[Attribute, ...]
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Project:
    """Named expressions over one input. Linear.

    ``calls`` are the calls of Python functions among them, as text.
    """

    child: Plan
    expressions: tuple[Expression, ...]
    attributes: tuple[Attribute, ...]
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """The rows for which a condition is true. Linear.

    If the condition only checks that attributes are not NULL, ``present`` has their ids.
    """

    child: Plan
    condition: Expression
    present: frozenset[int] | None = None

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes of the input."""
        return self.child.attributes


@dataclass(frozen=True, slots=True, eq=False)
class Temporal:
    """The rows for which ``enters <= now < leaves``: times in microseconds, None for no limit.

    A row with a time that is NULL is never in the result. ``text`` is the condition as written.
    """

    child: Plan
    enters: Expression | None
    leaves: Expression | None
    text: str

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes of the input."""
        return self.child.attributes

    @property
    def times(self) -> tuple[Expression, ...]:
        """The times that are not None."""
        return tuple(time for time in (self.enters, self.leaves) if time is not None)


@dataclass(frozen=True, slots=True, eq=False)
class Expand:
    """Each row once per projection, for hopping windows and grouping sets. Linear."""

    child: Plan
    projections: tuple[tuple[Any, ...], ...]
    attributes: tuple[Attribute, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Generate:
    """Each row once per element that a generator such as ``explode`` returns for it. Linear."""

    child: Plan
    text: str
    handle: Any
    attributes: tuple[Attribute, ...]


@dataclass(frozen=True, slots=True, eq=False)
class UnionAll:
    """The rows of all inputs, columns matched by position. Linear."""

    children: tuple[Plan, ...]
    attributes: tuple[Attribute, ...]


class JoinKind(Enum):
    """The kinds of joins: which rows are returned, by whether they have a match."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"
    EXISTENCE = "existence"

    @property
    def keeps_left(self) -> bool:
        """Whether the result for a row of the left depends on whether it has a match."""
        return self not in (JoinKind.INNER, JoinKind.RIGHT)

    @property
    def keeps_right(self) -> bool:
        """Whether the result for a row of the right depends on whether it has a match."""
        return self in (JoinKind.RIGHT, JoinKind.FULL)

    @property
    def of_one_side(self) -> bool:
        """Whether the right side only decides which rows of the left are returned."""
        return self in (JoinKind.SEMI, JoinKind.ANTI, JoinKind.EXISTENCE)


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """Pairs of rows whose keys are equal (NULL equals nothing) and for which ``residual`` is true.

    Outer joins return NULLs beside a row without a match; semi and anti joins return only rows of
    the left; an existence join returns each of these once, with ``flag``.
    """

    kind: JoinKind
    left: Plan
    right: Plan
    left_keys: tuple[Expression, ...]
    right_keys: tuple[Expression, ...]
    residual: Expression | None
    flag: Attribute | None = None

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes of the left, then those of the right if it returns any, or the flag."""
        if self.flag is not None:
            return (*self.left.attributes, self.flag)
        if self.kind.of_one_side:
            return self.left.attributes
        return self.left.attributes + self.right.attributes


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """The rows of a plan for which a comparison with the value of a query is true.

    ``value`` has one column, and one row or none, which means NULL. ``condition`` compares
    ``bound``, an expression over a row, with that column, by <, <=, > or >=. ``below``: whether it
    is true of bounds smaller than the value.
    """

    child: Plan
    value: Plan
    bound: Expression
    condition: Expression
    below: bool

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes of the rows."""
        return self.child.attributes


@dataclass(frozen=True, slots=True, eq=False)
class AggregateFunction:
    """One aggregate call. ``counts_rows`` is true for ``count(*)`` and ``count(1)``.

    ``distinct``: each value of the arguments counts once. ``needs_rows`` is the reason why the
    result cannot be computed from sums or extrema, or None; ``ordered``: whether it may depend on
    row order.

    ``handle`` is Catalyst's ``AggregateExpression``: its buffer attributes receive the
    accumulators, and its ``evaluateExpression`` computes the result from them.
    """

    name: str
    text: str
    arguments: tuple[Expression, ...]
    condition: Expression | None
    counts_rows: bool
    distinct: bool
    needs_rows: str | None
    ordered: bool
    handle: Any

    @property
    def skips_nulls(self) -> bool:
        """Whether rows in which an argument is NULL do not count."""
        return self.name in ("count", "sum", "avg", "min", "max", "listagg")


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate:
    """One row per group (one row in all without grouping): keys, functions, results.

    ``session`` is the position of the key that is a session window, or None: such keys are
    intervals, which Spark merges within each group of the other keys. ``ties`` are the columns by
    which rows are ordered for functions that depend on their order.
    """

    child: Plan
    grouping: tuple[Expression, ...]
    grouping_attributes: tuple[Attribute, ...]
    functions: tuple[AggregateFunction, ...]
    results: tuple[Expression, ...]
    attributes: tuple[Attribute, ...]
    session: int | None = None
    ties: tuple[Expression, ...] = ()

    @property
    def group_keys(self) -> tuple[Expression, ...]:
        """The keys whose equal values define the groups."""
        return tuple(key for i, key in enumerate(self.grouping) if i != self.session)


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Each row with the values of window functions over its partition.

    ``handle`` is Catalyst's node, with the functions and the order; ``ties`` orders rows that tie.
    """

    child: Plan
    partition: tuple[Expression, ...]
    text: str
    handle: Any
    attributes: tuple[Attribute, ...]
    ties: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """Rows that are written in the query. ``handle`` is Catalyst's node."""

    handle: Any
    attributes: tuple[Attribute, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SortKey:
    """One expression of an order: its direction, and the position of NULLs."""

    expression: Expression
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True, eq=False)
class FirstRows:
    """The rows of each group whose number in an order is in ``(skip, skip + count]``.

    ``order`` ends with the columns that order rows that tie. ``rank`` is the function that numbers
    rows: ``row_number``, ``rank`` or ``dense_rank``. Without keys there is one group.
    """

    child: Plan
    keys: tuple[Expression, ...]
    order: tuple[SortKey, ...]
    rank: str
    count: int
    skip: int

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes of the input."""
        return self.child.attributes


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """One row per key: its columns, and the row that a function makes of its events in order.

    The child has the columns of the events, which the function knows by ``names``. ``order`` ends
    with all of them, so that only equal events tie. ``returns`` is the type of the function's rows,
    ``folding`` runs it; the last of ``attributes`` is the row.
    """

    child: Plan
    function: str
    names: tuple[str, ...]
    keys: tuple[Expression, ...]
    order: tuple[SortKey, ...]
    returns: DataType
    folding: Folding
    attributes: tuple[Attribute, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """The rows of a recursive WITH: those of the child, which refers to the loop's own rows.

    A row has its *level* as the last column: 0 for rows of the start, and for others one more than
    the level of the row that the step computed them from. Below, :class:`LoopRef` with the same
    number is the present rows of the loop; nodes that process several rows keep the levels
    separate. A row of the level ``limit`` is an error.
    """

    number: int
    child: Plan
    limit: int

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes of the input, the level last."""
        return self.child.attributes


@dataclass(frozen=True, slots=True, eq=False)
class LoopRef:
    """The rows of the loop with that number, the level as the last column."""

    number: int
    attributes: tuple[Attribute, ...]


Plan = (
    Scan
    | Constant
    | Loop
    | LoopRef
    | Project
    | Filter
    | Temporal
    | Expand
    | Generate
    | UnionAll
    | Join
    | Compared
    | Aggregate
    | Window
    | FirstRows
    | Fold
)


def children(plan: Plan) -> tuple[Plan, ...]:
    """Return the inputs of a node, left to right."""
    match plan:
        case Scan() | Constant() | LoopRef():
            return ()
        case UnionAll():
            return plan.children
        case Join():
            return (plan.left, plan.right)
        case Compared():
            return (plan.child, plan.value)
        case _:
            return (plan.child,)


def with_children(plan: Plan, below: tuple[Plan, ...]) -> Plan:
    """Return a node over other inputs that have the same attributes."""
    match plan:
        case Scan() | Constant() | LoopRef():
            return plan
        case UnionAll():
            return replace(plan, children=below)
        case Join():
            left, right = below
            return replace(plan, left=left, right=right)
        case Compared():
            child, value = below
            return replace(plan, child=child, value=value)
        case _:
            (child,) = below
            return replace(plan, child=child)


def scans(plan: Plan) -> tuple[Scan, ...]:
    """Return all leaves, left to right."""
    if isinstance(plan, Scan):
        return (plan,)
    return tuple(scan for child in children(plan) for scan in scans(child))
