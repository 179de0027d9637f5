"""Writes expressions with the same meaning in DuckDB as its SQL.

An overflow, or a cast of a value that is out of range, is an error in both; Spark then answers the
query, with its own error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.types import BooleanType, DateType, DecimalType, StringType

from headrace.engine.reading.scans.refused import Refused
from headrace.engine.reading.scans.types import (
    INTEGERS,
    constant,
    is_exact,
    is_lossless_to_decimal,
    name_of,
    quoted,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql.types import DataType

    from headrace.engine.reading.scans.tree import Value

    Expression = Callable[[Value], str]
    Aggregate = Callable[[Value, DataType, str, str], str]

_EXACT_DOUBLES: Final = 2**53


def column(id_: int) -> str:
    """Return the name of the column of an attribute, given by id."""
    return f"c{id_}"


def expression(value: Value) -> str:
    """Return an expression as SQL.

    Raises: Refused: DuckDB may compute it differently.
    """
    return _KNOWN[value.kind](value)


def _attribute(value: Value) -> str:
    name_of(value.type)
    return column(value.id)


def _child(value: Value) -> str:
    return expression(value.below[0])


def _listed(values: Sequence[Value]) -> str:
    return ", ".join(map(expression, values))


def _infix(operator: str) -> Expression:
    return lambda value: f"({f' {operator} '.join(map(expression, value.below))})"


def _arithmetic(operator: str) -> Expression:
    return lambda value: _typed(value, f" {operator} ".join(map(expression, value.below)))


def _of_texts(name: str) -> Expression:
    def called(value: Value) -> str:
        _require(value.below[0], StringType, name)
        return f"{name}({_listed(value.below)})"

    return called


def _of_date(name: str) -> Expression:
    def called(value: Value) -> str:
        _require(value.below[0], DateType, name)
        return f"CAST({name}({_child(value)}) AS INTEGER)"

    return called


def _length(value: Value) -> str:
    _require(value.below[0], StringType, "length")
    return f"CAST(length({_child(value)}) AS INTEGER)"


def _concat(value: Value) -> str:
    _require(value, StringType, "concat")
    return f"({' || '.join(map(expression, value.below))})"


def _require(value: Value, type_: type[DataType], name: str) -> None:
    name_of(value.type)
    if not isinstance(value.type, type_):
        raise Refused(f"function {name} on type {value.type.simpleString()}")


def _if(value: Value) -> str:
    when, then, otherwise = map(expression, value.below)
    return f"(CASE WHEN {when} THEN {then} ELSE {otherwise} END)"


def _in(value: Value) -> str:
    return f"({_child(value)} IN ({_listed(value.below[1:])}))"


def _in_set(value: Value) -> str:
    of = value.below[0].type
    return f"({_child(value)} IN ({', '.join(constant(of, each) for each in value.given)}))"


def _case(value: Value) -> str:
    """Return a CASE; the inputs are conditions and values in turn, and perhaps a last value."""
    parts = list(map(expression, value.below))
    end = f" ELSE {parts.pop()}" if len(parts) % 2 else ""
    when = " ".join(f"WHEN {a} THEN {b}" for a, b in zip(parts[::2], parts[1::2], strict=True))
    # All branches have Spark's type, which DuckDB would otherwise infer from them.
    return f"CAST(CASE {when}{end} END AS {name_of(value.type)})"


def _cast(value: Value) -> str:
    """Return a cast between integers, to a decimal of at least the same scale, or to text."""
    source, target = value.below[0].type, value.type
    whole = type(source) in INTEGERS
    same = (
        (whole and type(target) in INTEGERS)
        or is_lossless_to_decimal(source, target)
        or (type(target) is StringType and (whole or isinstance(source, BooleanType)))
        or source == target
    )
    if not same:
        raise Refused(f"CAST of {source.simpleString()} to {target.simpleString()}")
    return f"CAST({_child(value)} AS {name_of(target)})"


def _typed(value: Value, text: str) -> str:
    """Return arithmetic on integers or decimals, whose result is exact or an error."""
    return f"CAST({text} AS {name_of(value.type)})"


def _like(value: Value) -> str:
    return f"({_child(value)} LIKE {quoted(value.given)})"


def _aggregate(value: Value) -> str:
    call = value.given
    arguments = list(value.below)
    condition = arguments.pop() if call.filtered else None
    distinct = "DISTINCT " if call.distinct else ""
    only = "" if condition is None else f" FILTER (WHERE {expression(condition)})"
    if call.kind == "Count":
        return f"count({distinct}{_counted(arguments, distinct)}){only}"
    if len(arguments) != 1:
        raise Refused(f"function {call.name}")
    of, argument = arguments[0].type, expression(arguments[0])
    known = _AGGREGATES.get(call.kind)
    if known is None or not is_exact(of):
        raise Refused(f"function {call.name} on type {of.simpleString()}")
    return known(value, of, f"{distinct}{argument}", only)


def _counted(given: list[Value], distinct: str) -> str:
    """Return the argument of ``count``, whose values that are not NULL are counted."""
    if len(given) != 1 or (distinct and not is_exact(given[0].type)):
        raise Refused("function count of several values, or of distinct floats")
    return expression(given[0])


def _extreme(name: str) -> Aggregate:
    return lambda _called, _of, value, only: f"{name}({value}){only}"


def _sum(called: Value, of: DataType, value: str, only: str) -> str:
    if type(of) in INTEGERS or isinstance(of, DecimalType):
        return f"CAST(sum({value}){only} AS {name_of(called.type)})"
    raise Refused(f"function sum on type {of.simpleString()}")


def _average(_called: Value, of: DataType, value: str, only: str) -> str:
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
    "Coalesce": lambda value: f"coalesce({_listed(value.below)})",
    "Concat": _concat,
    "Contains": _of_texts("contains"),
    "DayOfMonth": _of_date("day"),
    "EndsWith": _of_texts("ends_with"),
    "EqualNullSafe": _infix("IS NOT DISTINCT FROM"),
    "EqualTo": _infix("="),
    "GreaterThan": _infix(">"),
    "GreaterThanOrEqual": _infix(">="),
    "If": _if,
    "In": _in,
    "InSet": _in_set,
    "IsNotNull": lambda value: f"({_child(value)} IS NOT NULL)",
    "IsNull": lambda value: f"({_child(value)} IS NULL)",
    "KnownNotNull": _child,
    "Length": _length,
    "LessThan": _infix("<"),
    "LessThanOrEqual": _infix("<="),
    "Like": _like,
    "Literal": lambda value: constant(value.type, value.given),
    "Month": _of_date("month"),
    "Multiply": _arithmetic("*"),
    "Not": lambda value: f"(NOT {_child(value)})",
    "Or": _infix("OR"),
    "StartsWith": _of_texts("starts_with"),
    "Subtract": _arithmetic("-"),
    "UnaryMinus": lambda value: _typed(value, f"-({_child(value)})"),
    "Year": _of_date("year"),
}

EXPRESSIONS: Final = frozenset(_KNOWN)
"""The kinds of expressions that DuckDB may compute."""
