"""Reading Catalyst's expressions as vectors, and what all readers of expressions need."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    NullType,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from headrace.errors import HeadraceError
from headrace.planning.catalyst.allowed import INTEGERS, is_plain_text
from headrace.planning.catalyst.resolved import id_of, type_of
from headrace.planning.catalyst.scala import items, maybe, node_name
from headrace.planning.catalyst.vectors.vector import (
    HIGHEST,
    Call,
    Constant,
    DoubtError,
    InputColumn,
    InputRows,
    height,
)
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql.types import DataType

    from headrace.planning.catalyst.vectors.vector import Value, Vector


if TYPE_CHECKING:
    Known: TypeAlias = "Callable[[ExpressionReader, Any], Vector]"
    """Reads an expression of one class as a vector."""

FLOATS: Final = (FloatType, DoubleType)
TIMES: Final = (TimestampType, TimestampNTZType)
_EXACT: Final = (
    BinaryType,
    BooleanType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    TimeType,
    *TIMES,
    *INTEGERS,
)
"""The types, beside STRING, in which equal values are identical and Arrow compares as Spark."""


class UnprovedError(Exception):
    """An expression is not in the allow-list; the text is its class, and what is unknown of it."""


@dataclass(frozen=True, slots=True)
class ExpressionReader:
    """Converts expressions over the columns at some ``places``, given by the ids of attributes.

    ``known`` has what reads each class of expression. Equal parts of expressions become one vector,
    which is evaluated once.
    """

    places: Mapping[int, int]
    known: Mapping[str, Known]
    _made: dict[tuple[Any, ...], Vector] = field(default_factory=dict)

    def vector_of(self, expression: Any) -> Vector | None:
        """Return an expression as a vector, or None if only Spark evaluates it."""
        try:
            found = self.vector(expression)
        except (UnprovedError, RecursionError):
            return None
        return found if height(found) <= HIGHEST else None

    def why_unproved(self, expression: Any) -> str:
        """Return why only Spark evaluates an expression: a class that is unknown, or too deep."""
        try:
            self.vector(expression)
        except UnprovedError as unproved:
            return str(unproved)
        except RecursionError:
            pass
        return node_name(expression)

    def vector(self, expression: Any) -> Vector:
        """Return an expression as a vector.

        Raises:
            UnprovedError: only Spark evaluates it; the text names the class that is unknown.
        """
        kind = node_name(expression)
        known = self.known.get(kind)
        if known is None:
            raise UnprovedError(kind)
        return known(self, expression)

    def call(
        self,
        function: Callable[..., Value],
        type_: pa.DataType,
        /,
        *given: Vector,
        **parameters: Any,
    ) -> Vector:
        """Return a call of a function; a call with constants only is evaluated."""
        made = Call(type_, function, given, tuple(parameters.items()))
        if given and all(isinstance(each, Constant) for each in given):
            try:
                return self.constant(made.column(InputRows([], 1))[0])
            except DoubtError:
                return made
        return self.one(made, function, *given, *parameters.items())

    def constant(self, value: pa.Scalar) -> Vector:
        """Return a constant."""
        # 0.0 and -0.0 are equal.
        part = repr(value.as_py()) if pa.types.is_floating(value.type) else value
        return self.one(Constant(value.type, value), part)

    def one(self, made: Vector, *parts: Any) -> Vector:
        """Return a vector, or the one that was made of the same parts before."""
        try:
            return self._made.setdefault((type(made), made.type, *parts), made)
        except TypeError:  # a part cannot be compared
            return made


def known_type(handle: Any) -> DataType:
    """Return the type of an expression, whose values are the same in Arrow as in Spark."""
    found = type_of(handle)
    if not is_known(found):
        raise UnprovedError(f"{node_name(handle)} of type {found.simpleString()}")
    return found


def kept_type(handle: Any) -> DataType:
    """Return the type of an expression that is only passed on, or tested for NULL.

    Raises:
        UnprovedError: values of this type are not kept in columns of Arrow.
    """
    found = type_of(handle)
    try:
        to_arrow(found)
    except HeadraceError:
        require(handle, when=False, of=found)
    require(handle, when=not isinstance(found, NullType), of=found)
    return found


def column_of_type(reader: ExpressionReader, handle: Any, type_: DataType) -> Vector:
    """Return a column of the input as it is.

    Raises:
        UnprovedError: the column is of another node.
    """
    place = reader.places.get(id_of(handle))
    if place is None:
        raise UnprovedError("a column of another node")
    return reader.one(InputColumn(to_arrow(type_), place), place)


def is_known(type_: DataType) -> bool:
    """Whether values of a type are the same in Arrow as in Spark."""
    match type_:
        case ArrayType():
            return is_known(type_.elementType)
        case StructType():
            return all(is_known(each.dataType) for each in type_.fields)
        case _:
            return is_comparable(type_) or type(type_) in FLOATS


def is_comparable(type_: DataType) -> bool:
    """Whether equal values of a type are identical, and Arrow compares them as Spark does."""
    return type(type_) in _EXACT or is_plain_text(type_)


def require(handle: Any, *, when: bool, of: DataType | None = None) -> None:
    """Raise :class:`UnprovedError` for an expression, naming a type, except in one case."""
    if not when:
        about = "" if of is None else f" of type {of.simpleString()}"
        raise UnprovedError(f"{node_name(handle)}{about}")


def require_utc(handle: Any) -> None:
    """Raise :class:`UnprovedError` for an expression in another time zone."""
    require(handle, when=str(maybe(handle.timeZoneId())) == "UTC")


def child_of(reader: ExpressionReader, handle: Any) -> Vector:
    """Return the only child of an expression."""
    return reader.vector(handle.child())


def children_of(reader: ExpressionReader, handle: Any) -> list[Vector]:
    """Return the children of an expression."""
    return [reader.vector(each) for each in items(handle.children())]


def text_argument(handle: Any, argument: Any) -> str:
    """Return an argument of an expression that is a constant of type STRING."""
    require(handle, when=is_constant(argument) and is_plain_text(type_of(argument)))
    return str(argument.value().toString())


def int_argument(handle: Any, argument: Any) -> int:
    """Return an argument of an expression that is a constant of type INT."""
    require(handle, when=is_constant(argument))
    return int(argument.value())


def is_constant(argument: Any) -> bool:
    """Whether an argument is a constant that is not NULL."""
    return node_name(argument) == "Literal" and argument.value() is not None
