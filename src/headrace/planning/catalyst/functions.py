"""Calls of Catalyst's aggregate functions: whether sums suffice, or all rows are needed.

Generators, which return a row for each element of a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    VariantType,
)

from headrace.planning.catalyst.allowed import adds_in_order
from headrace.planning.catalyst.plan import (
    AggregateFunction,
    Expand,
    Percentiles,
    Pick,
    Plan,
    SortKey,
)
from headrace.planning.catalyst.rewrites import LISTS, ORDER_FORGOTTEN, unmarked
from headrace.planning.catalyst.scala import items, kind_of, maybe, part
from headrace.planning.catalyst.select import Edition
from headrace.types import holds, is_collated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.planning.catalyst.pieces import Pieces
    from headrace.planning.catalyst.plan import Expression


KEPT = {"Count": "count", "Sum": "sum", "Average": "avg", "Min": "min", "Max": "max"}
"""The names in Catalyst of functions that do not need the rows of a group."""

_PICKED = frozenset({"First", "Last", "MaxBy", "MinBy"})
"""The functions whose value is that of one row of a group."""

_EXACT_INSTEAD = {
    "ApproximatePercentile": "percentile",
    "HyperLogLogPlusPlus": "count(DISTINCT ...)",
}
"""The approximate functions that cost more than exact ones, with these."""

_NUMBERS = (ByteType, ShortType, IntegerType, LongType)
_EXACT = (*_NUMBERS, DecimalType)
_FLOATS = (FloatType, DoubleType)
_DIGITS = 18
"""The most digits of decimals whose percentiles are kept in order."""

_UNORDERED = frozenset(
    """
    ApproxCountDistinctForIntervals BitAndAgg BitOrAgg BitXorAgg BitmapConstructAgg BitmapOrAgg
    Count HyperLogLogPlusPlus Max Min Percentile PercentileCont PercentileDisc PivotFirst
    """.split()  # noqa: SIM905
)
"""The functions whose result does not depend on the order of the rows."""


def function_of(call: Any) -> str:
    """Return Catalyst's name of the function of an ``AggregateExpression``."""
    return kind_of(call.aggregateFunction())


def needs_rows(call: Any, arguments: tuple[DataType, ...], edition: Edition) -> str | None:
    """Return the reason why the value of a call needs all rows of its group, or None.

    Sums over rows or over distinct values, the least or greatest value, and values that are picked
    by an order, need no rows.
    """
    function, kind = call.aggregateFunction(), function_of(call)
    if edition >= Edition.PERCENTILES_KEPT and _percentiles(call, arguments) is not None:
        return None
    near = edition >= Edition.NEAR_ROWS and not call.isDistinct()
    picks = near and kind in _PICKED
    if kind in _EXACT_INSTEAD:
        return f"needs all rows of its group, which {_EXACT_INSTEAD[kind]} does not"
    if not picks and (kind not in KEPT or str(function.prettyName()).startswith("try_")):
        return "needs all rows of its group"
    if kind in ("Sum", "Average") and not isinstance(arguments[0], _EXACT):
        if near and isinstance(arguments[0], FloatType | DoubleType):
            return None
        return "adds inexact numbers, whose sum would drift when rows are retracted"
    if kind in ("Min", "Max") or picks or call.isDistinct():
        for type_ in arguments:
            if is_collated(type_):
                return "compares texts by a collation"
            if holds(type_, (MapType, VariantType)):
                return f"compares values of type {type_.simpleString().upper()}"
    return None


def is_ordered(call: Any, arguments: tuple[DataType, ...]) -> bool:
    """Return whether the value of a call may depend on the order of the rows."""
    kind = function_of(call)
    if kind in ("Sum", "Average"):
        in_order = adds_in_order(call.aggregateFunction())
        return in_order or not isinstance(arguments[0], _EXACT)
    return kind not in _UNORDERED


def has_no_order(call: Any, results: list[Any]) -> bool:
    """Return whether the results contain a list whose order is not stated."""
    kind = function_of(call)
    if kind == "ListAgg":
        return not items(call.aggregateFunction().orderExpressions())
    if kind not in LISTS:
        return False
    id_ = call.resultId().id()
    return any(_shown(result, id_, "") for result in results)


def _shown(expression: Any, id_: int, above: str) -> bool:
    kind = kind_of(expression)
    if kind == "AttributeReference" and expression.exprId().id() == id_:
        return above not in ORDER_FORGOTTEN
    return any(_shown(child, id_, kind) for child in items(expression.children()))


def leaves_out(below: Plan, grouping: int) -> bool:
    """Return whether one of the grouping sets below an aggregate omits an attribute, given by id.

    Spark returns NULL for an omitted attribute, and fails if it is a session.
    """
    if not isinstance(below, Expand):
        return False
    place = [attribute.id for attribute in below.attributes].index(grouping)
    values = [projection[place] for projection in below.projections]
    return any(kind_of(value) == "Literal" and value.value() is None for value in values)


def check_together(pieces: Pieces, functions: Sequence[AggregateFunction]) -> None:
    """Refuse an ordered list beside several DISTINCT aggregates: Spark's planner fails.

    Raises:
        HeadraceError: ``unsupported``.
    """
    distinct = [f for f in functions if f.distinct]
    apart = {frozenset(str(e.handle.sql()) for e in f.arguments) for f in distinct}
    if len(apart) <= 1 and all(f.condition is None for f in distinct):
        return
    for function in functions:
        call = function.handle.aggregateFunction()
        if kind_of(call) == "ListAgg" and items(call.orderExpressions()):
            raise pieces.unsupported(
                f"Spark cannot compute {function.text} beside several DISTINCT aggregates, or one "
                "with a FILTER",
                "Compute it in a query of its own, and join the two.",
                call,
            )


def condition_of(call: Any) -> Any | None:
    """Return the condition of ``FILTER (WHERE ...)``, if there is one."""
    return maybe(call.filter())


def called(
    pieces: Pieces,
    call: Any,
    results: list[Any],
    calls: Sequence[Any],
    edition: Edition,
    *,
    tied: bool,
) -> AggregateFunction:
    """Return a call of an aggregate function; ``results`` are the expressions that contain it.

    ``calls`` are all calls of the aggregate. With ``tied``, rows without a stated order have the
    order of ties, except rows that Spark first groups by distinct values.

    Raises:
        HeadraceError: ``unsupported`` if its value depends on an order that rows do not have.
    """
    call = unmarked(pieces.scala, call)
    function = call.aggregateFunction()
    text = str(call.sql())
    ordered = (
        tied
        and kind_of(function) != "CollectSet"
        and not any(unmarked(pieces.scala, each).isDistinct() for each in calls)
    )
    if not ordered and has_no_order(call, results):
        raise pieces.unsupported(
            f"the order of {text} is not stated",
            "Sort it: sort_array(collect_list(x)), or listagg(x) WITHIN GROUP (ORDER BY x).",
            function,
        )
    values = items(function.children())
    distinct = bool(call.isDistinct())
    if distinct:
        values = [pieces.scala.normalised(value) for value in values]
    arguments = tuple(pieces.expression(e) for e in values)
    types = tuple(argument.type for argument in arguments)
    condition = condition_of(call)
    name = KEPT.get(function_of(call), str(function.prettyName()))
    counts_rows = (
        name == "count"
        and condition is None
        and not distinct
        and all(not argument.handle.nullable() for argument in arguments)
    )
    return AggregateFunction(
        name,
        text,
        arguments,
        pieces.expression(condition) if condition is not None else None,
        counts_rows,
        distinct,
        needs_rows(call, types, edition),
        is_ordered(call, types),
        call,
        _pick(function, arguments),
        _percentiles(call, types),
        edition >= Edition.SIGNS_KEPT and name in ("min", "max") and holds(types[0], _FLOATS),
    )


def _percentiles(call: Any, arguments: Sequence[DataType]) -> Percentiles | None:
    """Return which values a function shows of those of a group, if they are kept in order."""
    function, kind = call.aggregateFunction(), kind_of(call.aggregateFunction())
    if kind not in ("Percentile", "PercentileDisc") or call.isDistinct():
        return None
    of = arguments[0]
    if not isinstance(of, (*_NUMBERS, FloatType, DoubleType)) and not (
        isinstance(of, DecimalType) and of.precision <= _DIGITS
    ):
        return None
    discrete = kind == "PercentileDisc"
    if discrete and function.legacyCalculation():
        return None
    if not discrete:
        times = function.frequencyExpression()
        if kind_of(times) != "Literal" or times.value() != 1:
            return None
    shares = function.percentageExpression().eval(None)
    is_list = not isinstance(shares, float)
    values = tuple(shares.toDoubleArray()) if is_list else (shares,)
    return Percentiles(values, discrete, bool(function.reverse()), is_list) if values else None


def _pick(function: Any, arguments: tuple[Expression, ...]) -> Pick | None:
    """Return which row has the value of a function, if it is that of one row."""
    match kind_of(function):
        case "MaxBy" | "MinBy" as kind:
            by = SortKey(arguments[1], descending=kind == "MaxBy", nulls_first=False)
            return Pick(arguments[0], by, last=True, skips_nulls=False)
        case "First" | "Last" as kind:
            return Pick(arguments[0], None, kind == "Last", bool(function.ignoreNulls()))
        case _:
            return None


_GENERATORS = (
    "Explode",
    "Inline",
    "JsonTuple",
    "PosExplode",
    "ReplicateRows",
    "Stack",
    "VariantExplode",
)


def generate_alone(pieces: Pieces, node: Any) -> Any:
    """Return a ``Generate`` that drops no columns but those of its input.

    Dropped columns are given by position, and Spark does not always adapt the positions when it
    removes columns. A column added after those of the input, such as the weight, would be dropped.

    Raises:
        HeadraceError: ``unsupported`` if the generator is not known.
    """
    generator = node.generator()
    name = kind_of(generator)
    if name not in _GENERATORS:
        hint = "Use explode, posexplode, inline, stack, json_tuple or variant_explode."
        raise pieces.unsupported(f"the generator {name} is not supported", hint, generator)
    given, width = items(node.unrequiredChildIndex()), node.child().output().length()
    own = [position for position in given if position < width]
    if len(own) == len(given):
        return node
    others = [part(node, position) for position in range(2, node.productArity())]
    return pieces.scala.logical("Generate", generator, pieces.scala.seq(own), *others)
