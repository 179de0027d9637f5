"""Lineage by column, read from a query that Spark has resolved.

It is read before Spark optimises, so that columns which the query names are found although the
optimiser would do without them. Each node says what its columns' values depend on, and what decides
which rows there are; a node of an unknown kind makes all its columns depend on all below it.

Not followed: the columns that order rows which tie in an ORDER BY, since all columns do.

The text of a resolved expression by where its columns come from, not by what they are called.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from py4j.protocol import Py4JError

from headrace.errors import Code, HeadraceError
from headrace.planning.catalog.lineage import (
    Influence,
    Influences,
    LineageColumn,
    RelationLineage,
    merged,
    through,
)
from headrace.planning.catalyst.resolved import id_of, names_and_ids
from headrace.planning.catalyst.scala import (
    SUBQUERIES,
    items,
    kind_of,
    maybe,
    node_name,
    part,
    references,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headrace.types import RelationId


_OF_NULL: Final = re.compile(r"(count|isnull|isnotnull)\(<([\d.]*):[\w(),]*>\)")
"""Functions of a column that only ask whether it is NULL, whatever its type."""
_ALIKE: Final = frozenset(
    """
    AggregateExpression And AttributeReference Average CaseWhen Cast Coalesce Count EqualNullSafe
    EqualTo GreaterThan GreaterThanOrEqual Greatest If In IsNotNull IsNull Least LessThan
    LessThanOrEqual Literal Not Or Sum
    """.split()  # noqa: SIM905
)
"""Expressions of integers whose value does not depend on how many bytes these have."""
_INTEGERS: Final = frozenset({"tinyint", "smallint", "int", "bigint"})
_VARIABLE: Final = "NamedLambdaVariable"
_CALL: Final = "AggregateExpression"
_SHORTENED: Final = re.compile(r"\.\.\. \d+ more fields")


@dataclass(frozen=True, slots=True)
class BoundExpression:
    """An expression over columns: its text and types as of :func:`bound_text`.

    ``reads`` are the positions of the columns that it reads. Two that are equal compute the same,
    whatever the columns and the variables of lambdas are called.
    """

    text: str
    types: tuple[str, ...]
    reads: frozenset[int]


def bound_column(resolved: Any) -> BoundExpression | None:
    """Return the only column of a resolved projection, over the columns of its input.

    None if it is no such projection, or Spark does not say what it computes.
    """
    if node_name(resolved) != "Project":
        return None
    (column,) = items(resolved.projectList())
    ids = [int(each.exprId().id()) for each in items(resolved.child().output())]
    found = bound_text(column, {id_: str(position) for position, id_ in enumerate(ids)})
    if found is None:
        return None
    read = references(column)
    reads = frozenset(position for position, id_ in enumerate(ids) if id_ in read)
    return BoundExpression(*found, reads)


def bound_text(handle: Any, places: Mapping[int, str]) -> tuple[str, tuple[str, ...]] | None:
    """Return the text of an expression, and the types of all its parts, parents first.

    In the text, a column is its place by the id of its attribute, with its type, and the variable
    of a lambda is its number. There are no types of functions that only ask whether a column is
    NULL. Returns None if Spark has shortened the text, so that it does not say what the expression
    is.
    """
    while node_name(handle) == "Alias":
        handle = handle.child()
    text = str(handle.toString())
    every = list(within(handle))
    variables = [each for each in every if node_name(each) == _VARIABLE]
    numbers: dict[int, int] = {}
    for each in variables:
        id_ = int(each.exprId().id())
        number = numbers.setdefault(id_, len(numbers))
        text = re.sub(rf"lambda {re.escape(str(each.name()))}#{id_}L?\b", f"lambda {number}", text)
    if _SHORTENED.search(text):
        return None
    for each in items(handle.references().toSeq()):
        id_ = int(each.exprId().id())
        place = f"<{places.get(id_, '')}:{each.dataType().simpleString()}>"
        text = re.sub(rf"{re.escape(str(each.name()))}#{id_}L?\b", place, text)
    if _OF_NULL.fullmatch(text):
        return _OF_NULL.sub(r"\1(<\2>)", text), ()
    return text, tuple(map(_type_of, every))


def alike_text(handle: Any, places: Mapping[int, str]) -> Any:
    """Return a value that is equal for expressions which compute the same from wider integers.

    In it, integers have no types, and are not cast to others; all else is as in :func:`bound_text`.
    None if that is.
    """
    kind, below = node_name(handle), items(handle.children())
    if kind == "Alias" or (kind == "Cast" and _is_integer(handle) and _is_integer(below[0])):
        return alike_text(below[0], places)
    known = kind in _ALIKE and (
        _is_integer(handle) or kind in (_CALL, "Average") or _type(handle) == "boolean"
    )
    if kind == "Cast" or not known:
        return bound_text(handle, places)
    found = tuple(alike_text(child, places) for child in below)
    shown: Any = None
    if kind == "AttributeReference":
        shown = places.get(int(handle.exprId().id()))
    elif kind == "Literal":
        shown = str(handle.value())
    elif kind == _CALL:
        shown = bool(handle.isDistinct())
    if None in found or (shown is None and not below):
        return None
    return kind, "integer" if _is_integer(handle) else _type(handle), shown, found


def _is_integer(handle: Any) -> bool:
    return _type(handle) in _INTEGERS


def _type(handle: Any) -> str:
    return str(handle.dataType().simpleString())


def _type_of(part: Any) -> str:
    try:
        return f"{node_name(part)} {part.dataType().simpleString()}"
    except Py4JError:  # it has none, such as the frame of a window
        return node_name(part)


_ROUNDS: Final = 1_000
"""More rounds than the influences in a recursion take to be complete."""
_EXPANDED: Final = "__"
"""The prefix of the names of views that are expanded: no user has named them."""


@dataclass(slots=True)
class LineageReader:
    """Reads the lineage of one resolved query.

    ``relations`` are the relations by the ids of their stand-ins, ``names`` those of all views and
    stand-ins by name.
    """

    relations: Mapping[int, RelationId]
    names: Mapping[str, RelationId]
    check: Callable[[], None] = lambda: None
    _values: dict[int, Influences] = field(default_factory=dict)
    """What the values of each attribute depend on, by its id."""
    _tables: dict[int, tuple[list[Influences], Influences]] = field(default_factory=dict)
    """The columns and the rows of each common table expression, by its id."""
    _reads: set[RelationId] = field(default_factory=set)

    def lineage(self, plan: Any, names: Iterable[str]) -> RelationLineage:
        """Return the lineage of a query whose columns have these names, in order."""
        rows = self._plan(plan)
        columns = {
            name: self._value(id_)
            for name, (_, id_) in zip(names, names_and_ids(plan), strict=True)
        }
        return RelationLineage(columns, rows, frozenset(self._reads))

    # -- plans -----------------------------------------------------------------------------------

    def _plan(self, plan: Any) -> Influences:
        """Record the values of a plan's columns; return what decides which rows it has."""
        self.check()
        rule = self._RULES.get(node_name(plan))
        return self._unknown(plan) if rule is None else rule(self, plan)

    def _set(self, plan: Any, values: Iterable[Influences]) -> None:
        """Record the values of a node's columns, in order."""
        own = (id_ for _, id_ in names_and_ids(plan))
        self._values |= dict(zip(own, values, strict=True))

    def _columns(self, plan: Any) -> list[Influences]:
        """Return the values of a node's columns, in order."""
        return [self._value(id_) for _, id_ in names_and_ids(plan)]

    def _read(self, plan: Any, relation: RelationId) -> Influences:
        self._reads.add(relation)
        identity = frozenset((Influence.IDENTITY,))
        names = (name for name, _ in names_and_ids(plan))
        self._set(plan, ({LineageColumn(relation, name): identity} for name in names))
        return {}

    def _stand_in(self, plan: Any) -> Influences:
        return self._read(plan, self.relations[plan.rdd().id()])

    def _view(self, plan: Any) -> Influences:
        """Read a view as an input, or expand it."""
        name = str(plan.desc().identifier().table())
        if name in self.names and not name.startswith(_EXPANDED):
            return self._read(plan, self.names[name])
        rows = self._plan(plan.child())
        self._set(plan, self._columns(plan.child()))
        return rows

    def _without_input(self, plan: Any) -> Influences:
        self._set(plan, ({} for _ in names_and_ids(plan)))
        return {}

    def _passing(self, plan: Any) -> Influences:
        return self._plan(plan.child())

    def _with_tables(self, plan: Any) -> Influences:
        for table in items(plan.cteDefs()):
            rows = self._plan(table.child())
            self._tables[int(table.id())] = self._columns(table.child()), rows
        return self._plan(plan.plan())

    def _table(self, plan: Any) -> Influences:
        return self._referred(plan, int(plan.cteId()))

    def _looped(self, plan: Any) -> Influences:
        return self._referred(plan, int(plan.loopId()))

    def _referred(self, plan: Any, number: int) -> Influences:
        """Give the columns of a reference the values of the table that it refers to."""
        values, rows = self._tables[number]
        self._set(plan, values)
        return rows

    def _loop(self, plan: Any) -> Influences:
        """Return the rows of a recursion, once a further round adds nothing."""
        rows, number = self._plan(plan.anchor()), int(plan.id())
        values = self._columns(plan.anchor())
        for _ in range(_ROUNDS):
            self._tables[number] = values, rows
            more = merged((rows, self._plan(plan.recursion())))
            further = zip(values, self._columns(plan.recursion()), strict=True)
            rows, values = more, [merged(pair) for pair in further]
            if self._tables[number] == (values, rows):
                self._set(plan, values)
                return rows
        raise HeadraceError(Code.INTERNAL, "the lineage of a recursion does not become complete")

    def _project(self, plan: Any) -> Influences:
        rows = self._plan(plan.child())
        self._name(items(plan.projectList()))
        return rows

    def _filter(self, plan: Any) -> Influences:
        rows = self._plan(plan.child())
        return merged((rows, through(Influence.FILTER, self._of(plan.condition()))))

    def _join(self, plan: Any) -> Influences:
        rows = merged((self._plan(plan.left()), self._plan(plan.right())))
        on = self._of_all(items(plan.expressions()))
        return merged((rows, through(Influence.JOIN, on)))

    def _lateral(self, plan: Any) -> Influences:
        rows = merged((self._plan(plan.left()), self._plan(plan.right().plan())))
        on = self._of_any(plan.condition())
        return merged((rows, through(Influence.JOIN, on)))

    def _aggregate(self, plan: Any) -> Influences:
        rows = self._plan(plan.child())
        keys = self._of_all(items(plan.groupingExpressions()))
        self._name(items(plan.aggregateExpressions()))
        return merged((rows, through(Influence.GROUP_BY, keys)))

    def _distinct(self, plan: Any) -> Influences:
        rows = self._plan(plan.child())
        return merged((rows, through(Influence.GROUP_BY, merged(self._columns(plan)))))

    def _sort(self, plan: Any) -> Influences:
        rows = self._plan(plan.child())
        order = self._of_all(items(plan.order()))
        return merged((rows, through(Influence.SORT, order)))

    def _window(self, plan: Any) -> Influences:
        rows = self._plan(plan.child())
        self._name(items(plan.windowExpressions()))
        return rows

    def _generate(self, plan: Any) -> Influences:
        rows = self._plan(plan.child())
        elements = through(Influence.TRANSFORMATION, self._of(plan.generator()))
        self._values |= {id_of(each): elements for each in items(plan.generatorOutput())}
        return merged((rows, through(Influence.JOIN, elements)))

    def _expand(self, plan: Any) -> Influences:
        rows = self._plan(plan.child())
        several = [[self._of(each) for each in items(p)] for p in items(plan.projections())]
        self._set(plan, [merged(each) for each in zip(*several, strict=True)])
        return rows

    def _union(self, plan: Any) -> Influences:
        below = items(plan.children())
        rows = merged([self._plan(each) for each in below])
        columns = [self._columns(each) for each in below]
        self._set(plan, [merged(each) for each in zip(*columns, strict=True)])
        return rows

    def _compared(self, plan: Any) -> Influences:
        """Return the rows of INTERSECT or EXCEPT: all columns of both sides decide."""
        rows = merged((self._plan(plan.left()), self._plan(plan.right())))
        left, right = self._columns(plan.left()), self._columns(plan.right())
        self._set(plan, left)
        return merged((rows, through(Influence.FILTER, merged((*left, *right)))))

    def _unknown(self, plan: Any) -> Influences:
        """Make all columns of a node of another kind depend on all columns and rows below it."""
        below = items(plan.children())
        rows = merged([self._plan(each) for each in below])
        given = [value for each in below for value in self._columns(each)]
        given.append(self._of_all(items(plan.expressions())))
        values = through(Influence.TRANSFORMATION, merged(given))
        passed = {id_ for each in below for _, id_ in names_and_ids(each)}
        self._values |= {id_: values for _, id_ in names_and_ids(plan) if id_ not in passed}
        return merged((rows, through(Influence.FILTER, values)))

    _RULES: ClassVar[Mapping[str, Callable[[LineageReader, Any], Influences]]] = {
        "Aggregate": _aggregate,
        "AsOfJoin": _join,
        "CTERelationDef": _passing,
        "CTERelationRef": _table,
        "Deduplicate": _distinct,
        "Distinct": _distinct,
        "Except": _compared,
        "Except All": _compared,
        "Expand": _expand,
        "Filter": _filter,
        "Generate": _generate,
        "GlobalLimit": _passing,
        "Intersect": _compared,
        "Intersect All": _compared,
        "Join": _join,
        "LateralJoin": _lateral,
        "LimitAll": _passing,
        "LocalLimit": _passing,
        "LocalRelation": _without_input,
        "LogicalRDD": _stand_in,
        "Offset": _passing,
        "OneRowRelation": _without_input,
        "Project": _project,
        "Repartition": _passing,
        "RepartitionByExpression": _passing,
        "ResolvedHint": _passing,
        "ResolvedInlineTable": _without_input,
        "Sort": _sort,
        "SubqueryAlias": _passing,
        "Union": _union,
        "UnionLoop": _loop,
        "UnionLoopRef": _looped,
        "View": _view,
        "Window": _window,
        "WithCTE": _with_tables,
    }
    """The rules by the kind of node."""

    # -- expressions -----------------------------------------------------------------------------

    def _name(self, named: Iterable[Any]) -> None:
        """Record the values of expressions with names."""
        for each in named:
            if kind_of(each) != "AttributeReference":
                self._values[id_of(each)] = self._of(each)

    def _value(self, id_: int) -> Influences:
        found = self._values.get(id_)
        if found is None:
            raise HeadraceError(Code.INTERNAL, f"the lineage of attribute {id_} is not known")
        return found

    def _of_any(self, option: Any) -> Influences:
        """Return what the value of an expression in a Scala ``Option`` depends on."""
        expression = maybe(option)
        return {} if expression is None else self._of(expression)

    def _of_all(self, expressions: Iterable[Any]) -> Influences:
        return merged(self._of(each) for each in expressions)

    def _of(self, expression: Any) -> Influences:
        """Return what the value of an expression depends on."""
        kind = kind_of(expression)
        if kind in SUBQUERIES:
            return self._subquery(expression, kind)
        match kind:
            case "AttributeReference":
                return self._value(id_of(expression))
            case "Literal":
                return {}
            case "Alias":
                return self._of(expression.child())
            case "OuterReference":
                return self._of(expression.e())
            case "GetStructField":
                return self._field(expression)
            case "If":
                either = (expression.trueValue(), expression.falseValue())
                return self._conditional([expression.predicate()], self._of_all(either))
            case "CaseWhen":
                branches = items(expression.branches())
                chosen = self._of_all(part(each, 1) for each in branches)
                chosen = merged((chosen, self._of_any(expression.elseValue())))
                return self._conditional([part(each, 0) for each in branches], chosen)
            case "Coalesce":
                several = items(expression.children())
                return self._conditional(several[:-1], self._of_all(several))
            case "AggregateExpression":
                function = expression.aggregateFunction()
                given = through(Influence.AGGREGATION, self._of_children(function))
                only = self._of_any(expression.filter())
                return merged((given, through(Influence.CONDITIONAL, only)))
            case "WindowExpression":
                function, over = expression.windowFunction(), expression.windowSpec()
                order = self._of_all(items(over.children()))
                computed = through(Influence.TRANSFORMATION, self._of(function))
                return merged((computed, through(Influence.WINDOW, order)))
            case _:
                return through(Influence.TRANSFORMATION, self._of_children(expression))

    def _of_children(self, expression: Any) -> Influences:
        return self._of_all(items(expression.children()))

    def _conditional(self, conditions: Iterable[Any], chosen: Influences) -> Influences:
        values = through(Influence.TRANSFORMATION, chosen)
        return merged((values, through(Influence.CONDITIONAL, self._of_all(conditions))))

    def _field(self, expression: Any) -> Influences:
        """Return the field of an input's struct, or what all of the struct depends on."""
        below = self._of(expression.child())
        if list(below.values()) == [frozenset((Influence.IDENTITY,))]:
            (column,) = below
            name = str(expression.childSchema().apply(expression.ordinal()).name())
            one = LineageColumn(column.relation, column.column, (*column.path, name))
            return {one: frozenset((Influence.IDENTITY,))}
        return through(Influence.TRANSFORMATION, below)

    def _subquery(self, expression: Any, kind: str) -> Influences:
        """Return what the value of a subquery depends on: its column, and which rows it has."""
        plan = expression.plan()
        rows = self._plan(plan)
        values = [] if kind == "Exists" else self._columns(plan)
        given = through(Influence.TRANSFORMATION, merged(values))
        return merged((rows, given))
