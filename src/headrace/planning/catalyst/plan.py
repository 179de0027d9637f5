"""Headrace's immutable plan of a query, made from Catalyst's optimised plan.

Every node keeps Catalyst's *resolved* expressions as handles on JVM objects. ``attributes`` are a
node's output columns in order; their ids are Catalyst's and are unique within a plan.

Each field of a node has a role: an input, expressions over inputs, or a parameter. From the roles,
:class:`~headrace.planning.catalyst.node.Node` derives the methods that passes use, so that they
need not list the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyspark.sql.types import DoubleType, FloatType

from headrace.planning.catalyst.node import (
    DERIVED,
    INPUT,
    WORDS,
    Evaluated,
    Node,
    Passed,
    Use,
    over,
)
from headrace.planning.catalyst.scala import items

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from pyspark.sql.types import DataType

    from headrace.planning.functions.folds import Folding
    from headrace.types import RelationId


@dataclass(frozen=True, slots=True)
class Attribute:
    """A resolved column: its id in Catalyst, its name and type, and the JVM object."""

    id: int
    name: str
    type: DataType
    nullable: bool
    handle: Any


@dataclass(frozen=True, slots=True)
class Expression(Evaluated):
    """A resolved expression, with a readable text.

    ``identity`` is equal for expressions of one query that compute the same from the same columns.
    Different expressions may have the same text: it has no types, and long ones are shortened.
    ``passes`` is the id of the attribute that the expression passes on unchanged, or None.
    """

    text: str
    type: DataType
    identity: Hashable
    passes: int | None
    handle: Any

    def evaluated(self) -> tuple[Any, tuple[bool, ...]]:
        """Return the expression."""
        return self.handle, ()


@dataclass(frozen=True, slots=True, eq=False)
class SortKey(Evaluated):
    """One expression of an order: its direction, and the position of NULLs."""

    expression: Expression
    descending: bool
    nulls_first: bool

    def evaluated(self) -> tuple[Any, tuple[bool, ...]]:
        """Return the expression, and its direction and position of NULLs."""
        return self.expression.handle, (self.descending, self.nulls_first)


@dataclass(frozen=True, slots=True, eq=False)
class Pick:
    """The value of one row of a group: the first, or the last of those that tie, in an order.

    Without ``by``, all rows tie. With ``skips_nulls``, rows whose value is NULL do not count; nor
    do those whose order is NULL.
    """

    value: Expression
    by: SortKey | None
    last: bool
    skips_nulls: bool


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Values at shares of a group that is sorted by a value; see Spark's ``percentile``."""

    shares: tuple[float, ...]
    discrete: bool
    descending: bool
    is_list: bool


@dataclass(frozen=True, slots=True, eq=False)
class AggregateFunction(Evaluated):
    """One aggregate call. ``counts_rows`` is true for ``count(*)`` and ``count(1)``.

    ``distinct``: each value of the arguments counts once. ``needs_rows`` is the reason why the
    result cannot be computed from sums or extrema, or None. ``ordered``: the result may depend on
    the order of rows. ``pick`` says which row has the value, if it is that of one row, and
    ``percentiles`` which values it shows. ``keeps_signs``: values are kept as they are, also zeros.

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
    pick: Pick | None = None
    percentiles: Percentiles | None = None
    keeps_signs: bool = False

    @property
    def skips_nulls(self) -> bool:
        """Whether rows in which an argument is NULL do not count."""
        return self.name in ("count", "sum", "avg", "min", "max", "listagg")

    @property
    def adds_floats(self) -> bool:
        """Whether floats are added up."""
        inexact = self.name in ("sum", "avg") and not self.distinct
        return inexact and isinstance(self.arguments[0].type, FloatType | DoubleType)

    def evaluated(self) -> tuple[Any, tuple[bool, ...]]:
        """Return the call, which has the arguments and the condition."""
        return self.handle, ()


def _itself(node: Plan) -> Passed:
    """Return all columns of an input, passed on under their own ids."""
    return tuple((attribute.id, attribute.id) for attribute in node.attributes)


def _passes(expressions: Iterable[Expression], attributes: Iterable[Attribute]) -> Passed:
    """Return the columns that expressions pass on, under the ids of some attributes."""
    pairs = zip(expressions, attributes, strict=True)
    return tuple((a.id, e.passes) for e, a in pairs if e.passes is not None)


@dataclass(frozen=True, slots=True, eq=False)
class Selection(Node):
    """Base class of nodes that return some rows of their input unchanged."""

    by_position: ClassVar[bool] = False

    child: Plan = field(metadata=INPUT)

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes of the input whose rows are chosen."""
        return self.child.attributes

    def passed(self) -> tuple[Passed, ...]:
        """Return the columns that are passed on: all columns of the input."""
        return (_itself(self.child), *((),) * (len(self.inputs) - 1))


# -- the nodes -----------------------------------------------------------------------------------

PLACE: Final = 1 << 20
TIME: Final = PLACE + 1


@dataclass(frozen=True, slots=True, eq=False)
class Scan(Node):
    """The rows of a stream, table or view.

    ``columns`` are the positions of the columns that are read. :data:`PLACE` and :data:`TIME` are
    the positions of a row's offset and time in the log of any stream.
    """

    relation: RelationId
    attributes: tuple[Attribute, ...] = field(metadata=DERIVED)
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Project(Node):
    """Named expressions over one input. Linear.

    ``calls`` are the texts of the calls of Python functions among them.
    """

    by_row: ClassVar[bool] = True
    by_position: ClassVar[bool] = False

    child: Plan = field(metadata=INPUT)
    expressions: tuple[Expression, ...] = field(metadata=over("child"))
    attributes: tuple[Attribute, ...] = field(metadata=DERIVED)
    calls: tuple[str, ...] = field(default=(), metadata=WORDS)

    def passed(self) -> tuple[Passed, ...]:
        """Return the columns that are passed on."""
        return (_passes(self.expressions, self.attributes),)


@dataclass(frozen=True, slots=True, eq=False)
class Filter(Selection):
    """The rows for which a condition is true. Linear.

    If the condition only checks that attributes are not NULL, ``present`` has their ids.
    """

    by_row: ClassVar[bool] = True

    condition: Expression = field(metadata=over("child"))
    present: frozenset[int] | None = field(default=None, metadata=DERIVED)


@dataclass(frozen=True, slots=True, eq=False)
class Temporal(Selection):
    """The rows for which ``enters <= now < leaves``: times in microseconds, None for no limit.

    A row with a time that is NULL is never in the result. ``text`` is the condition as written.
    """

    by_row: ClassVar[bool] = True

    enters: Expression | None = field(metadata=over("child"))
    leaves: Expression | None = field(metadata=over("child"))
    text: str = field(metadata=DERIVED)

    @property
    def times(self) -> tuple[Expression, ...]:
        """The times that are not None."""
        return tuple(time for time in (self.enters, self.leaves) if time is not None)


@dataclass(frozen=True, slots=True, eq=False)
class Expand(Node):
    """Each row once per projection, for hopping windows and grouping sets. Linear."""

    by_row: ClassVar[bool] = True
    by_position: ClassVar[bool] = False

    child: Plan = field(metadata=INPUT)
    projections: tuple[tuple[Any, ...], ...] = field(metadata=over("child"))
    attributes: tuple[Attribute, ...] = field(metadata=DERIVED)


@dataclass(frozen=True, slots=True, eq=False)
class Generate(Node):
    """Each row once per element that a generator such as ``explode`` returns for it. Linear.

    ``outer``: a row without elements is returned once. ``handle`` is Catalyst's node, which refers
    to the columns that it passes on by position.
    """

    by_row: ClassVar[bool] = True

    child: Plan = field(metadata=INPUT)
    text: str = field(metadata=WORDS)
    outer: bool
    handle: Any = field(metadata=DERIVED)
    attributes: tuple[Attribute, ...] = field(metadata=DERIVED)

    def uses(self) -> tuple[Use, ...]:
        """Return the generator."""
        return (Use("handle", self.handle.generator(), (self.child,)),)


@dataclass(frozen=True, slots=True, eq=False)
class UnionAll(Node):
    """The rows of all inputs, columns matched by position. Linear."""

    by_row: ClassVar[bool] = True

    children: tuple[Plan, ...] = field(metadata=INPUT)
    attributes: tuple[Attribute, ...] = field(metadata=DERIVED)

    def passed(self) -> tuple[Passed, ...]:
        """Return all columns of each input."""
        own = [attribute.id for attribute in self.attributes]
        return tuple(
            tuple(zip(own, (a.id for a in child.attributes), strict=True))
            for child in self.children
        )


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
class PartnerBound:
    """A bound of a row's partners, in their order: not before its ``value``, or not after it.

    ``shift`` is added to the value. If the bound ``is_open``, a value that is NULL does not bound.
    """

    value: Expression
    is_low: bool
    shift: int = 0
    is_open: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """The ranges of partners that the condition of a join allows, with each side in an order.

    ``of_left`` bounds the partners of a row of the left, ``of_right`` those of a row of the right.
    If only the ``nearest`` has a pair, that is the last one of the right within its bounds.
    """

    left: SortKey
    right: SortKey
    of_left: tuple[PartnerBound, ...]
    of_right: tuple[PartnerBound, ...]
    nearest: bool


@dataclass(frozen=True, slots=True, eq=False)
class Join(Node):
    """Pairs of rows whose keys are equal (NULL equals nothing) and for which ``residual`` is true.

    Outer joins return NULLs beside a row without a match; semi and anti joins return only rows of
    the left; an existence join returns each of these once, with ``flag``.
    """

    by_position: ClassVar[bool] = False

    kind: JoinKind
    left: Plan = field(metadata=INPUT)
    right: Plan = field(metadata=INPUT)
    left_keys: tuple[Expression, ...] = field(metadata=over("left"))
    right_keys: tuple[Expression, ...] = field(metadata=over("right"))
    residual: Expression | None = field(metadata=over("left", "right"))
    flag: Attribute | None = field(default=None, metadata=DERIVED)
    ranges: Ranges | None = field(default=None, metadata=DERIVED)

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes of the left, then those of the right if it returns any, or the flag."""
        if self.flag is not None:
            return (*self.left.attributes, self.flag)
        if self.kind.of_one_side:
            return self.left.attributes
        return self.left.attributes + self.right.attributes

    def passed(self) -> tuple[Passed, ...]:
        """Return the columns that are passed on: of the left, and of the right if returned."""
        return _itself(self.left), () if self.kind.of_one_side else _itself(self.right)


@dataclass(frozen=True, slots=True, eq=False)
class Compared(Selection):
    """The rows of a plan for which a comparison with the value of a query is true.

    ``value`` has one column and at most one row; no row means NULL. ``condition`` compares
    ``bound``, an expression over a row, with that column, by <, <=, > or >=. ``below``: it is true
    for bounds smaller than the value.
    """

    by_row: ClassVar[bool] = True

    value: Plan = field(metadata=INPUT)
    bound: Expression = field(metadata=over("child"))
    condition: Expression = field(metadata=over("child", "value"))
    below: bool


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate(Node):
    """One row per group (one row in all without grouping): keys, functions, results.

    ``session`` is the position of the key that is a session window, or None: such keys are
    intervals, which Spark merges within each group of the other keys. ``ties`` are the columns by
    which rows are ordered for functions that depend on their order. ``kept``: sessions have state
    of their own.
    """

    by_position: ClassVar[bool] = False

    child: Plan = field(metadata=INPUT)
    grouping: tuple[Expression, ...] = field(metadata=over("child"))
    grouping_attributes: tuple[Attribute, ...] = field(metadata=DERIVED)
    functions: tuple[AggregateFunction, ...] = field(metadata=over("child"))
    results: tuple[Expression, ...] = field(metadata=over())
    attributes: tuple[Attribute, ...] = field(metadata=DERIVED)
    session: int | None = None
    ties: tuple[Expression, ...] = field(default=(), metadata=over("child"))
    kept: bool = field(default=False, metadata=DERIVED)

    @property
    def groups(self) -> tuple[Expression, ...]:
        """The keys."""
        return self.grouping

    def passed(self) -> tuple[Passed, ...]:
        """Return the columns that are grouping keys and in the result."""
        keys = dict(_passes(self.grouping, self.grouping_attributes))
        shown = _passes(self.results, self.attributes)
        return (tuple((own, keys[key]) for own, key in shown if key in keys),)

    @property
    def group_keys(self) -> tuple[Expression, ...]:
        """The keys whose equal values define the groups."""
        return tuple(key for i, key in enumerate(self.grouping) if i != self.session)


@dataclass(frozen=True, slots=True, eq=False)
class NearFrames:
    """The rows on which the values of window functions depend, in an order that ends with ties.

    These are some rows ``before`` and ``after`` a row, and those between the least of ``lowers``
    and the greatest of ``uppers``, which are values of the order. The functions whose columns are
    ``counted``, by id, also depend on all rows before these, by their number or by the sums of
    values; so many columns of the order make rows ``peers``, which they count together.
    """

    order: tuple[SortKey, ...]
    before: int
    after: int
    lowers: tuple[Expression, ...]
    uppers: tuple[Expression, ...]
    counted: frozenset[int]
    peers: int
    sums: tuple[Expression, ...]
    dense: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Window(Node):
    """Each row with the values of window functions over its partition, which are ``added`` to it.

    ``handle`` is Catalyst's node, with the functions and the order; ``ties`` orders rows that tie.
    Values depend on the rows that are ``near``; if that is None, on all rows of the partition.
    """

    by_position: ClassVar[bool] = False

    child: Plan = field(metadata=INPUT)
    partition: tuple[Expression, ...] = field(metadata=over("child"))
    text: str = field(metadata=WORDS)
    handle: Any = field(metadata=DERIVED)
    added: tuple[Attribute, ...] = field(metadata=DERIVED)
    ties: tuple[Expression, ...] = field(default=(), metadata=over("child"))
    near: NearFrames | None = field(default=None, metadata=DERIVED)

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes of the input, then those of the values."""
        return self.child.attributes + self.added

    @property
    def groups(self) -> tuple[Expression, ...]:
        """The keys of the partitions."""
        return self.partition

    def uses(self) -> tuple[Use, ...]:
        """Return the keys, the functions and the order."""
        functions, order = items(self.handle.windowExpressions()), items(self.handle.orderSpec())
        named = [("functions", each) for each in functions] + [("order", each) for each in order]
        return (*Node.uses(self), *(Use(name, each, (self.child,)) for name, each in named))

    def passed(self) -> tuple[Passed, ...]:
        """Return all columns of the input."""
        return (_itself(self.child),)


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Node):
    """Rows that the query contains, as in VALUES. ``handle`` is Catalyst's node."""

    handle: Any = field(metadata=DERIVED)
    attributes: tuple[Attribute, ...] = field(metadata=DERIVED)


@dataclass(frozen=True, slots=True, eq=False)
class FirstRows(Selection):
    """The rows of each group whose number in an order is in ``(skip, skip + count]``.

    ``order`` ends with the columns that order rows that tie. ``rank`` is the function that numbers
    rows: ``row_number``, ``rank`` or ``dense_rank``. Without keys there is one group.
    """

    keys: tuple[Expression, ...] = field(metadata=over("child"))
    order: tuple[SortKey, ...] = field(metadata=over("child"))
    rank: str
    count: int
    skip: int

    @property
    def groups(self) -> tuple[Expression, ...]:
        """The keys."""
        return self.keys


@dataclass(frozen=True, slots=True, eq=False)
class Fold(Node):
    """One row per key: its columns, and the row that a function computes from its events in order.

    The child has the columns of the events; the function knows them by ``names``. ``order`` ends
    with all columns, so that only equal events tie. ``returns`` is the type of the function's rows,
    and ``folding`` runs the function; the last of ``attributes`` is the row.
    """

    child: Plan = field(metadata=INPUT)
    function: str
    names: tuple[str, ...]
    keys: tuple[Expression, ...] = field(metadata=over("child"))
    order: tuple[SortKey, ...] = field(metadata=over("child"))
    returns: DataType
    folding: Folding = field(metadata=DERIVED)
    attributes: tuple[Attribute, ...] = field(metadata=DERIVED)

    @property
    def groups(self) -> tuple[Expression, ...]:
        """The keys."""
        return self.keys


@dataclass(frozen=True, slots=True, eq=False)
class Loop(Node):
    """The rows of a recursive WITH: the rows of the child, which refers to the loop's own rows.

    The last column of a row is its *level*: 0 for rows of the start, else one more than the level
    of the row from which the step computed it. Below the loop, :class:`LoopRef` with the same
    number is the loop's current rows; nodes that process several rows keep the levels separate. A
    row of level ``limit`` is an error.
    """

    number: int = field(metadata=DERIVED)
    child: Plan = field(metadata=INPUT)
    limit: int

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes of the input, the level last."""
        return self.child.attributes


@dataclass(frozen=True, slots=True, eq=False)
class LoopRef(Node):
    """The rows of the loop with a number; the level is the last column."""

    number: int = field(metadata=DERIVED)
    attributes: tuple[Attribute, ...] = field(metadata=DERIVED)


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


def scans(plan: Plan) -> tuple[Scan, ...]:
    """Return all leaves, left to right."""
    if isinstance(plan, Scan):
        return (plan,)
    return tuple(scan for child in plan.inputs for scan in scans(child))
