"""Our small immutable plan: what is left of a query after Catalyst has turned it into algebra.

Every node keeps Catalyst's *resolved* expressions as handles on JVM objects. ``attributes`` are a
node's output columns in order; their ids are Catalyst's and are unique within a plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable

    from pyspark.sql.types import DataType

    from headrace.types import RelationId


@dataclass(frozen=True, slots=True)
class Attribute:
    """A resolved column: Catalyst's id for it, its name and type, and the JVM object."""

    id: int
    name: str
    type: DataType
    nullable: bool
    handle: Any


@dataclass(frozen=True, slots=True)
class Expression:
    """A resolved expression, with its text for people.

    ``identity`` is equal for expressions of one query that compute the same of the same columns.
    The text of others may be equal: it has no types, and not all of what is long.
    ``passes`` is the id of the attribute that the expression merely passes on, if it does.
    """

    text: str
    type: DataType
    identity: Hashable
    passes: int | None
    handle: Any


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """The rows of a stream, table or view; ``columns`` are the positions that are read."""

    relation: RelationId
    attributes: tuple[Attribute, ...]
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Project:
    """Named expressions over one input. Linear.

    ``calls`` are the calls of Python functions that are among them, as text.
    """

    child: Plan
    expressions: tuple[Expression, ...]
    attributes: tuple[Attribute, ...]
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """The rows for which a condition is true. Linear.

    ``present`` are the ids of the attributes that are not NULL in the rows, where the condition
    says no more than that.
    """

    child: Plan
    condition: Expression
    present: frozenset[int] | None = None

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """Those of the input."""
        return self.child.attributes


@dataclass(frozen=True, slots=True, eq=False)
class Temporal:
    """The rows for which ``enters <= now < leaves``: times in microseconds, None for always.

    A row for which a time is NULL is never there. ``text`` is the condition as it was written.
    """

    child: Plan
    enters: Expression | None
    leaves: Expression | None
    text: str

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """Those of the input."""
        return self.child.attributes

    @property
    def times(self) -> tuple[Expression, ...]:
        """The times that there are."""
        return tuple(time for time in (self.enters, self.leaves) if time is not None)


@dataclass(frozen=True, slots=True, eq=False)
class Expand:
    """Each row once per projection, as hopping windows and grouping sets need. Linear."""

    child: Plan
    projections: tuple[tuple[Any, ...], ...]
    attributes: tuple[Attribute, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Generate:
    """Each row once per element that a generator such as ``explode`` yields for it. Linear."""

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
    """Which rows a join yields, by whether they have a partner."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"
    EXISTENCE = "existence"

    @property
    def keeps_left(self) -> bool:
        """Whether what becomes of a row of the left depends on whether it has a partner."""
        return self not in (JoinKind.INNER, JoinKind.RIGHT)

    @property
    def keeps_right(self) -> bool:
        """Whether what becomes of a row of the right depends on whether it has a partner."""
        return self in (JoinKind.RIGHT, JoinKind.FULL)

    @property
    def of_one_side(self) -> bool:
        """Whether the right only says which rows of the left there are."""
        return self in (JoinKind.SEMI, JoinKind.ANTI, JoinKind.EXISTENCE)


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """Pairs of rows whose keys are equal (NULL equals nothing) and for which ``residual`` is true.

    Outer joins have NULLs beside a row without a partner; semi and anti joins only have rows of
    the left; an existence join has each of those once, with ``flag``.
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
        """Those of the left, then those of the right where it has any, or the flag."""
        if self.flag is not None:
            return (*self.left.attributes, self.flag)
        if self.kind.of_one_side:
            return self.left.attributes
        return self.left.attributes + self.right.attributes


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """The rows of a plan for which a comparison with a value is true; a query has the value.

    ``value`` has one row, or none, which stands for NULL, of one column. ``condition`` compares
    ``bound``, of a row, with that column, by <, <=, > or >=; ``below`` says that it wants smaller
    bounds.
    """

    child: Plan
    value: Plan
    bound: Expression
    condition: Expression
    below: bool

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """Those of the rows."""
        return self.child.attributes


@dataclass(frozen=True, slots=True, eq=False)
class AggregateFunction:
    """One aggregate call. ``counts_rows`` is true of ``count(*)`` and ``count(1)``.

    ``distinct``: each value of the arguments counts once. ``needs_rows`` says why the result does
    not follow from sums or extrema, if so; ``ordered`` whether the order of rows may change it.

    ``handle`` is Catalyst's ``AggregateExpression``: its buffer attributes are what the
    accumulators are given to, and its ``evaluateExpression`` is what turns them into the result.
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
        """Whether rows for which an argument is NULL are known not to count."""
        return self.name in ("count", "sum", "avg", "min", "max", "listagg")


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate:
    """One row per group (one row in all where there is no grouping): keys, functions, results.

    ``session`` is the position of the key that is a session window, if there is one: such keys
    are intervals, which Spark merges within each group of the other keys. ``ties`` are the columns
    by which rows go where a function's value depends on their order.
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
        """The keys of which equal values make rows belong together."""
        return tuple(key for i, key in enumerate(self.grouping) if i != self.session)


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Each row with the values of window functions over its partition.

    ``handle`` is Catalyst's node, with the functions and the order; rows that tie go by ``ties``.
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
    """One expression of an order: its direction, and where NULL stands."""

    expression: Expression
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True, eq=False)
class FirstRows:
    """The rows of each group whose number in an order is in ``(skip, skip + count]``.

    ``order`` ends with what rows that tie go by. ``rank`` is the function that numbers them:
    ``row_number``, ``rank`` or ``dense_rank``. Without keys there is one group.
    """

    child: Plan
    keys: tuple[Expression, ...]
    order: tuple[SortKey, ...]
    rank: str
    count: int
    skip: int

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """Those of the input."""
        return self.child.attributes


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """The rows of a recursive WITH: those of the child, which refers to the loop's own rows.

    A row has a *level* as its last column: 0 for those that the recursion starts with, and one
    more than that of the row that it was made of. Below, :class:`LoopRef` with the same number
    stands for the rows so far; their levels are kept apart by whatever looks at several rows.
    Rows of the level ``limit`` must not be: the query fails there.
    """

    number: int
    child: Plan
    limit: int

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """Those of the input, the level last."""
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
    """Return a node over other inputs, whose attributes are the same."""
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
