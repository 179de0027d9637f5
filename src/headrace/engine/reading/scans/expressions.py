"""Translates Catalyst's resolved expressions with the same meaning in DuckDB to its SQL.

An overflow, or a cast of a value that is out of range, is an error in both; Spark then answers the
query, with its own error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import BooleanType, DateType, DecimalType, StringType

from headrace.catalyst.exact import (
    adds_in_order,
    is_lossless_to_decimal,
    keeps_all_digits,
    plain_pattern,
)
from headrace.catalyst.resolved import id_of, type_of
from headrace.catalyst.scala import items, kind_of, maybe
from headrace.engine.reading.scans.refused import Refused
from headrace.engine.reading.scans.types import INTEGERS, constant, is_exact, name_of, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql.types import DataType

    Expression = Callable[[Any], str]
    Aggregate = Callable[[Any, DataType, str, str], str]

_EXACT_DOUBLES: Final = 2**53


def column(id_: int) -> str:
    """Return the name of the column of an attribute, given by id."""
    return f"c{id_}"


def expression(handle: Any) -> str:
    """Return an expression as SQL.

    Raises: Refused: DuckDB may compute it differently.
    """
    known = _KNOWN.get(kind_of(handle))
    if known is None:
        raise Refused(f"function {handle.prettyName()}")
    return known(handle)


def _attribute(handle: Any) -> str:
    name_of(type_of(handle))
    return column(id_of(handle))


def _child(handle: Any) -> str:
    return expression(handle.child())


def _listed(handles: Any) -> str:
    return ", ".join(map(expression, items(handles)))


def _infix(operator: str) -> Expression:
    return lambda handle: f"({expression(handle.left())} {operator} {expression(handle.right())})"


def _arithmetic(operator: str) -> Expression:
    return lambda handle: _checked(
        handle, f"{expression(handle.left())} {operator} {expression(handle.right())}"
    )


def _of_texts(name: str) -> Expression:
    def called(handle: Any) -> str:
        _require(handle.left(), StringType, name)
        return f"{name}({expression(handle.left())}, {expression(handle.right())})"

    return called


def _of_date(name: str) -> Expression:
    def called(handle: Any) -> str:
        _require(handle.child(), DateType, name)
        return f"CAST({name}({_child(handle)}) AS INTEGER)"

    return called


def _length(handle: Any) -> str:
    _require(handle.child(), StringType, "length")
    return f"CAST(length({_child(handle)}) AS INTEGER)"


def _concat(handle: Any) -> str:
    _require(handle, StringType, "concat")
    return f"({' || '.join(map(expression, items(handle.children())))})"


def _require(handle: Any, type_: type[DataType], name: str) -> None:
    of = type_of(handle)
    name_of(of)
    if not isinstance(of, type_):
        raise Refused(f"function {name} on type {of.simpleString()}")


def _if(handle: Any) -> str:
    when, then = expression(handle.predicate()), expression(handle.trueValue())
    return f"(CASE WHEN {when} THEN {then} ELSE {expression(handle.falseValue())} END)"


def _in_set(handle: Any) -> str:
    of = type_of(handle.child())
    listed = ", ".join(constant(of, value) for value in items(handle.hset().toSeq()))
    return f"({expression(handle.child())} IN ({listed}))"


def _case(handle: Any) -> str:
    branches = [
        f"WHEN {expression(pair._1())} THEN {expression(pair._2())}"  # noqa: SLF001  (of Scala)
        for pair in items(handle.branches())
    ]
    otherwise = maybe(handle.elseValue())
    end = "" if otherwise is None else f" ELSE {expression(otherwise)}"
    # All branches have Spark's type, which DuckDB would otherwise infer from them.
    return f"CAST(CASE {' '.join(branches)}{end} END AS {name_of(type_of(handle))})"


def _cast(handle: Any) -> str:
    """Return a cast between integers, to a decimal of at least the same scale, or to text."""
    source, target = type_of(handle.child()), type_of(handle)
    value = expression(handle.child())
    whole = type(source) in INTEGERS
    same = (
        (whole and type(target) in INTEGERS)
        or is_lossless_to_decimal(source, target)
        or (type(target) is StringType and (whole or isinstance(source, BooleanType)))
        or source == target
    )
    if not same or str(handle.evalMode().toString()) == "TRY":
        raise Refused(f"CAST of {source.simpleString()} to {target.simpleString()}")
    return f"CAST({value} AS {name_of(target)})"


def _checked(handle: Any, text: str) -> str:
    """Return arithmetic on integers or decimals, whose result is exact or an error."""
    of = type_of(handle)
    if not keeps_all_digits(handle):
        raise Refused(f"arithmetic on type {of.simpleString()}")
    return f"CAST({text} AS {name_of(of)})"


def _like(handle: Any) -> str:
    if kind_of(handle.right()) != "Literal":
        raise Refused("LIKE with a pattern that is computed")
    text = plain_pattern(handle)
    if text is None or type(type_of(handle.left())) is not StringType:
        raise Refused("LIKE with an escape character")
    return f"({expression(handle.left())} LIKE {quoted(text)})"


def _aggregate(handle: Any) -> str:
    function = handle.aggregateFunction()
    distinct = "DISTINCT " if handle.isDistinct() else ""
    condition = maybe(handle.filter())
    only = "" if condition is None else f" FILTER (WHERE {expression(condition)})"
    kind, given = kind_of(function), items(function.children())
    if kind == "Count":
        return f"count({distinct}{_counted(given, distinct)}){only}"
    if len(given) != 1:
        raise Refused(f"function {function.prettyName()}")
    of, value = type_of(given[0]), expression(given[0])
    known = _AGGREGATES.get(kind)
    if known is None or not is_exact(of) or adds_in_order(function):
        raise Refused(f"function {function.prettyName()} on type {of.simpleString()}")
    return known(handle, of, f"{distinct}{value}", only)


def _counted(given: list[Any], distinct: str) -> str:
    """Return the argument of ``count``, whose values that are not NULL are counted."""
    if len(given) != 1 or (distinct and not is_exact(type_of(given[0]))):
        raise Refused("function count of several values, or of distinct floats")
    return expression(given[0])


def _extreme(name: str) -> Aggregate:
    return lambda _handle, _of, value, only: f"{name}({value}){only}"


def _sum(handle: Any, of: DataType, value: str, only: str) -> str:
    if type(of) in INTEGERS or isinstance(of, DecimalType):
        return f"CAST(sum({value}){only} AS {name_of(type_of(handle))})"
    raise Refused(f"function sum on type {of.simpleString()}")


def _average(_handle: Any, of: DataType, value: str, only: str) -> str:
    """Return the average of integers: the quotient of two numbers that are exact as doubles.

    Spark adds doubles, whose sum is exact up to 53 bits. If it might not be exact, the query fails
    in DuckDB, and Spark answers it.
    """
    if type(of) not in INTEGERS or value.startswith("DISTINCT "):
        raise Refused(f"function avg on type {of.simpleString()}")
    inexact = f"sum(abs(CAST({value} AS HUGEINT))){only} > {_EXACT_DOUBLES}"
    total, count = f"CAST(sum({value}){only} AS DOUBLE)", f"count({value}){only}"
    return (
        f"(CASE WHEN {inexact} THEN CAST(error('inexact') AS DOUBLE)"
        f" WHEN {count} = 0 THEN NULL ELSE {total} / CAST({count} AS DOUBLE) END)"
    )


_AGGREGATES: Final[Mapping[str, Aggregate]] = {
    "Min": _extreme("min"),
    "Max": _extreme("max"),
    "Sum": _sum,
    "Average": _average,
}

_KNOWN: Final[Mapping[str, Expression]] = {
    "Add": _arithmetic("+"),
    "AggregateExpression": _aggregate,
    "Alias": _child,
    "And": _infix("AND"),
    "AttributeReference": _attribute,
    "CaseWhen": _case,
    "Cast": _cast,
    "Coalesce": lambda handle: f"coalesce({_listed(handle.children())})",
    "Concat": _concat,
    "Contains": _of_texts("contains"),
    "DayOfMonth": _of_date("day"),
    "EndsWith": _of_texts("ends_with"),
    "EqualNullSafe": _infix("IS NOT DISTINCT FROM"),
    "EqualTo": _infix("="),
    "GreaterThan": _infix(">"),
    "GreaterThanOrEqual": _infix(">="),
    "If": _if,
    "In": lambda handle: f"({expression(handle.value())} IN ({_listed(handle.list())}))",
    "InSet": _in_set,
    "IsNotNull": lambda handle: f"({_child(handle)} IS NOT NULL)",
    "IsNull": lambda handle: f"({_child(handle)} IS NULL)",
    "KnownNotNull": _child,
    "Length": _length,
    "LessThan": _infix("<"),
    "LessThanOrEqual": _infix("<="),
    "Like": _like,
    "Literal": lambda handle: constant(type_of(handle), handle.value()),
    "Month": _of_date("month"),
    "Multiply": _arithmetic("*"),
    "Not": lambda handle: f"(NOT {_child(handle)})",
    "Or": _infix("OR"),
    "StartsWith": _of_texts("starts_with"),
    "Subtract": _arithmetic("-"),
    "UnaryMinus": lambda handle: _checked(handle, f"-({_child(handle)})"),
    "Year": _of_date("year"),
}
