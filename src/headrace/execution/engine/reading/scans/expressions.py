"""Writes expressions with the same meaning in DuckDB as its SQL.

An overflow, or a cast of a value that is out of range, is an error in both; Spark then answers the
query, with its own error.

The reason why only Spark can answer a query.

The types whose values DuckDB compares and orders exactly as Spark does.

The part of a condition that Arrow can test, for what reads rows before DuckDB does.

A test compares a column with constants; see
:meth:`headrace.planning.catalyst.predicates.Predicates. restriction`, which does the same with
Catalyst's own objects.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from headrace.algebra.zset import Restriction, Test
from headrace.errors import HeadraceError
from headrace.types import constants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql.types import DataType

    from headrace.execution.engine.reading.scans.tree import Value


class Refused(Exception):  # noqa: N818  (not an error: the query is answered otherwise)
    """DuckDB cannot answer a query; the text names the part of its plan that is the reason."""


INTEGERS: Final[Mapping[type, str]] = {
    ByteType: "TINYINT",
    ShortType: "SMALLINT",
    IntegerType: "INTEGER",
    LongType: "BIGINT",
}
FLOATS: Final[Mapping[type, str]] = {FloatType: "FLOAT", DoubleType: "DOUBLE"}
_OTHERS: Final[Mapping[type, str]] = {
    BooleanType: "BOOLEAN",
    DateType: "DATE",
    TimestampNTZType: "TIMESTAMP",
    TimestampType: "TIMESTAMPTZ",
}


def name_of(type_: DataType) -> str:
    """Return DuckDB's name of a type.

    Raises: Refused: DuckDB represents its values differently.
    """
    for names in (INTEGERS, FLOATS, _OTHERS):
        if type(type_) in names:
            return names[type(type_)]
    match type_:
        case DecimalType():
            return f"DECIMAL({type_.precision}, {type_.scale})"
        case StringType() if type(type_) is StringType and type_.isUTF8BinaryCollation():
            return "VARCHAR"
    raise Refused(f"type {type_.simpleString()}")


def is_exact(type_: DataType) -> bool:
    """Whether equal values of a type are identical: not for floats, where -0.0 equals 0.0."""
    name_of(type_)
    return type(type_) not in FLOATS


def is_lossless_to_decimal(source: DataType, target: DataType) -> bool:
    """Whether a cast to a decimal keeps all digits of a value, unless it overflows."""
    if not isinstance(target, DecimalType):
        return False
    wider = isinstance(source, DecimalType) and target.scale >= source.scale
    return wider or type(source) in INTEGERS


def constant(type_: DataType, value: Any) -> str:
    """Return a constant as SQL of DuckDB; None is NULL."""
    if value is None:
        return "NULL" if isinstance(type_, NullType) else f"CAST(NULL AS {name_of(type_)})"
    name = name_of(type_)
    match type_:
        case BooleanType():
            text = "true" if value else "false"
        case ByteType() | ShortType() | IntegerType() | LongType():
            text = f"'{int(value)}'"
        case DecimalType():
            text = f"'{Decimal(value):f}'"
        case FloatType() | DoubleType():
            text = f"'{value!r}'"
        case StringType():
            text = quoted(value)
        case DateType():
            return f"(DATE '1970-01-01' + CAST('{int(value)}' AS INTEGER))"
        case TimestampType():
            return f"make_timestamptz(CAST('{int(value)}' AS BIGINT))"
        case TimestampNTZType():
            return f"make_timestamp(CAST('{int(value)}' AS BIGINT))"
        case _:
            raise Refused(f"a constant of type {type_.simpleString()}")
    return f"CAST({text} AS {name})"


def quoted(text: str) -> str:
    """Return a string literal of SQL."""
    if "\0" in text:
        raise Refused("a text with a zero character")
    return "'" + text.replace("'", "''") + "'"


if TYPE_CHECKING:
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


_FLIPPED: Final = {
    "EqualTo": "EqualTo",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
}
_BOUNDS: Final = {
    "GreaterThan": "above",
    "GreaterThanOrEqual": "low",
    "LessThan": "below",
    "LessThanOrEqual": "high",
}


def restriction(condition: Value, names: Mapping[int, str]) -> tuple[Restriction, bool]:
    """Return the tests that a condition implies, and whether it is true for all that pass.

    ``names`` are those of the columns that can be tested, by the ids of attributes.
    """
    tests: list[Test] = []
    present: list[Test] = []
    exact = True
    for each in _conjuncts(condition):
        if each.kind == "Literal" and each.given is True:
            continue
        found = _tested(each)
        if found is None or found[0] not in names:
            exact = False
            continue
        test = found[1].of(names[found[0]])
        (tests if test.values is not None or test.bounds else present).append(test)
    tested = {test.column for test in tests}
    tests += [test for test in present if test.column not in tested]
    return Restriction(tuple(tests)), exact


def _conjuncts(condition: Value) -> Iterator[Value]:
    if condition.kind == "And":
        for each in condition.below:
            yield from _conjuncts(each)
    else:
        yield condition


def _tested(condition: Value) -> tuple[int, Test] | None:
    """Return the attribute that a condition compares with constants, and the test of it."""
    kind, below = condition.kind, condition.below
    if kind in _FLIPPED:
        return _compared(kind, *below)
    if kind == "IsNotNull" and below[0].kind == "AttributeReference":
        return below[0].id, Test("")
    if kind == "In" and all(each.kind == "Literal" for each in below[1:]):
        return _among(below[0], [each.given for each in below[1:]])
    if kind == "InSet":
        return _among(below[0], condition.given)
    if kind == "Or":
        left, right = map(_tested, below)
        if left is None or right is None or left[0] != right[0]:
            return None
        values = [left[1].values, right[1].values]
        if values[0] is None or values[1] is None:
            return None
        return left[0], Test("", pa.concat_arrays(values))
    return None


def _compared(kind: str, left: Value, right: Value) -> tuple[int, Test] | None:
    if left.kind == "Literal":
        kind, left, right = _FLIPPED[kind], right, left
    if right.kind != "Literal":
        return None
    found = _among(left, [right.given])
    if found is None or found[1].values is None or kind == "EqualTo" or not len(found[1].values):
        return found  # comparisons with NULL are never true
    return found[0], Test("", **{_BOUNDS[kind]: found[1].values[0]})


def _among(value: Value, given: Iterable[Any]) -> tuple[int, Test] | None:
    """Return the test that an attribute has one of some constants; NULL equals nothing.

    None for types that Arrow lacks or compares differently than Spark, and for values it lacks.
    """
    if value.kind != "AttributeReference":
        return None
    try:
        values = constants(value.type, given)
    except (HeadraceError, pa.ArrowInvalid, OverflowError):
        return None
    return None if values is None else (value.id, Test("", values.drop_null()))
