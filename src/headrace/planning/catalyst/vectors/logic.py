"""Conditions, structs, hashes and casts that are the same for several types."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BooleanType

from headrace.algebra.zset.row_hash import hashes_of
from headrace.planning.catalyst.scala import items, maybe, node_name
from headrace.planning.catalyst.vectors.numbers import compared, greater, is_nan
from headrace.planning.catalyst.vectors.reader import (
    FLOATS,
    UnprovedError,
    child_of,
    children_of,
    column_of_type,
    is_comparable,
    kept_type,
    known_type,
    require,
)
from headrace.planning.catalyst.vectors.vector import Choice, Connective, Constant
from headrace.types import constants, to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql.types import DataType

    from headrace.planning.catalyst.vectors.reader import ExpressionReader, Known
    from headrace.planning.catalyst.vectors.vector import Value, Vector


def is_present(value: Value) -> Value:
    """Return whether values are not NULL."""
    return value.is_valid() if isinstance(value, pa.Array) else pc.is_valid(value)


def is_absent(value: Value) -> Value:
    """Return whether values are NULL."""
    return pc.is_null(value)


def same(equal: Value, left: Value, right: Value) -> Value:
    """Return SQL's ``<=>`` of values, given whether they are equal."""
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.if_else(pc.is_valid(equal), equal, both_null)


def among(value: Value, values: pa.Array, *, with_null: bool) -> Value:
    """Return SQL's ``IN`` of values and constants; with a NULL among them, never FALSE."""
    found = pc.is_in(value, value_set=values)
    if with_null:
        return pc.if_else(found, found, pa.scalar(None, pa.bool_()))
    return pc.if_else(pc.is_valid(value), found, pa.scalar(None, pa.bool_()))


def struct_of(*values: Value, type_: pa.StructType) -> Value:
    """Return structs of values, which are never NULL themselves."""
    rows = next(len(each) for each in values if isinstance(each, pa.Array))
    arrays = [pa.repeat(v, rows) if isinstance(v, pa.Scalar) else v for v in values]
    return pa.StructArray.from_arrays(arrays, fields=list(type_))


def field_of(value: Value, position: int) -> Value:
    """Return a field of structs; that of a NULL is NULL."""
    return value.flatten()[position]


def hashed(*values: Value, seed: int) -> Value:
    """Return Spark's ``xxhash64`` of values."""
    rows = next(len(each) for each in values if isinstance(each, pa.Array))
    arrays = [pa.repeat(v, rows) if isinstance(v, pa.Scalar) else v for v in values]
    return pa.array(hashes_of(arrays, rows, seed))


def _column(reader: ExpressionReader, handle: Any) -> Vector:
    return column_of_type(reader, handle, known_type(handle))


def _literal(reader: ExpressionReader, handle: Any) -> Vector:
    value = handle.value()
    of = known_type(handle) if value is not None else kept_type(handle)
    arrow = to_arrow(of)
    if value is None:
        return reader.constant(pa.scalar(None, arrow))
    if type(of) in FLOATS:
        return reader.constant(pa.scalar(float(value), arrow))
    found = constants(of, [value])
    if found is None:
        raise UnprovedError(f"Literal of type {of.simpleString()}")
    return reader.constant(found[0])


def _tested(function: Callable[[Value], Value]) -> Known:
    return lambda reader, handle: reader.call(function, pa.bool_(), child_of(reader, handle))


def _tested_for_null(function: Callable[[Value], Value]) -> Known:
    """Read a test of values of any type: only whether they are NULL is asked."""

    def read(reader: ExpressionReader, handle: Any) -> Vector:
        child = handle.child()
        if node_name(child) == "AttributeReference":
            value = column_of_type(reader, child, kept_type(child))
        else:
            value = reader.vector(child)
        return reader.call(function, pa.bool_(), value)

    return read


def _connected(*, decided: bool) -> Known:
    def read(reader: ExpressionReader, handle: Any) -> Vector:
        return _connective(reader, *children_of(reader, handle), decided=decided)

    return read


def _connective(reader: ExpressionReader, left: Vector, right: Vector, *, decided: bool) -> Vector:
    return reader.one(Connective(pa.bool_(), left, right, decided), left, right, decided)


def _compared(name: str, *, flipped: bool = False) -> Known:
    def read(reader: ExpressionReader, handle: Any) -> Vector:
        of = known_type(handle.left())
        left, right = children_of(reader, handle)
        if flipped:
            left, right = right, left
        return _comparison(reader, handle, of, name, left, right)

    return read


def _comparison(
    reader: ExpressionReader, handle: Any, of: DataType, name: str, left: Vector, right: Vector
) -> Vector:
    if type(of) in FLOATS:
        return reader.call(compared, pa.bool_(), left, right, name=name)
    require(handle, when=is_comparable(of), of=of)
    function = {"equal": pc.equal, "less": pc.less, "less_equal": pc.less_equal}[name]
    return reader.call(function, pa.bool_(), left, right)


def _same(reader: ExpressionReader, handle: Any) -> Vector:
    of = known_type(handle.left())
    left, right = children_of(reader, handle)
    equal = _comparison(reader, handle, of, "equal", left, right)
    return reader.call(same, pa.bool_(), equal, left, right)


def _in(reader: ExpressionReader, handle: Any) -> Vector:
    given, of = items(handle.list()), known_type(handle.value())
    if type(of) in FLOATS or not all(node_name(each) == "Literal" for each in given):
        return _any_equal(reader, handle, of, [handle.value(), *given])
    return _among(reader, handle, handle.value(), [each.value() for each in given])


def _any_equal(reader: ExpressionReader, handle: Any, of: DataType, given: Sequence[Any]) -> Vector:
    """Return whether the first of some expressions equals one of the others."""
    require(handle, when=len(given) > 1)
    value, *others = map(reader.vector, given)
    equal = [_comparison(reader, handle, of, "equal", value, each) for each in others]
    return reduce(lambda found, each: _connective(reader, found, each, decided=True), equal)


def _in_set(reader: ExpressionReader, handle: Any) -> Vector:
    return _among(reader, handle, handle.child(), items(handle.hset().toSeq()))


def _among(reader: ExpressionReader, handle: Any, value: Any, given: list[Any]) -> Vector:
    of = known_type(value)
    found = constants(of, given)
    if found is None or not len(found):
        raise UnprovedError(f"{node_name(handle)} of type {of.simpleString()}")
    known, with_null = found.drop_null(), found.null_count > 0
    vector = reader.vector(value)
    return reader.call(among, pa.bool_(), vector, values=known, with_null=with_null)


def _if(reader: ExpressionReader, handle: Any) -> Vector:
    given = (handle.predicate(), handle.trueValue(), handle.falseValue())
    return _chosen(reader, *map(reader.vector, given))


def _chosen(reader: ExpressionReader, when: Vector, then: Vector, otherwise: Vector) -> Vector:
    return reader.one(Choice(then.type, when, then, otherwise), when, then, otherwise)


def _case(reader: ExpressionReader, handle: Any) -> Vector:
    otherwise = maybe(handle.elseValue())
    if otherwise is None:
        found = reader.constant(pa.scalar(None, to_arrow(known_type(handle))))
    else:
        found = reader.vector(otherwise)
    for pair in reversed(items(handle.branches())):
        when, then = reader.vector(pair._1()), reader.vector(pair._2())  # noqa: SLF001  (of Scala)
        found = _chosen(reader, when, then, found)
    return found


def _coalesce(reader: ExpressionReader, handle: Any) -> Vector:
    *first, found = children_of(reader, handle)
    for each in reversed(first):
        when = reader.call(is_present, pa.bool_(), each)
        found = _chosen(reader, when, each, found)
    return found


def _other_than_nan(reader: ExpressionReader, handle: Any) -> Vector:
    of = known_type(handle)
    require(handle, when=type(of) in FLOATS, of=of)
    left, right = children_of(reader, handle)
    return _chosen(reader, reader.call(is_nan, pa.bool_(), left), right, left)


def _hash(reader: ExpressionReader, handle: Any) -> Vector:
    given = children_of(reader, handle)
    return reader.call(hashed, pa.int64(), *given, seed=int(handle.seed()))


def _struct(reader: ExpressionReader, handle: Any) -> Vector:
    arrow = to_arrow(known_type(handle))
    values = [reader.vector(each) for each in items(handle.children())[1::2]]
    require(handle, when=not all(isinstance(each, Constant) for each in values))
    return reader.call(struct_of, arrow, *values, type_=arrow)


def _field(reader: ExpressionReader, handle: Any) -> Vector:
    arrow, position = to_arrow(known_type(handle)), int(handle.ordinal())
    return reader.call(field_of, arrow, child_of(reader, handle), position=position)


def _extreme(function: Callable[..., Value], *, least: bool) -> Known:
    def read(reader: ExpressionReader, handle: Any) -> Vector:
        of = known_type(handle)
        if type(of) in FLOATS:
            found, *others = children_of(reader, handle)
            for each in others:
                found = reader.call(greater, found.type, found, each, type_=found.type, least=least)
            return found
        require(handle, when=is_comparable(of) and not isinstance(of, BooleanType), of=of)
        return reader.call(function, to_arrow(of), *children_of(reader, handle))

    return read


KNOWN: Final[Mapping[str, Known]] = {
    "Alias": child_of,
    "And": _connected(decided=False),
    "AttributeReference": _column,
    "CaseWhen": _case,
    "Coalesce": _coalesce,
    "CreateNamedStruct": _struct,
    "EqualNullSafe": _same,
    "EqualTo": _compared("equal"),
    "GetStructField": _field,
    "GreaterThan": _compared("less", flipped=True),
    "GreaterThanOrEqual": _compared("less_equal", flipped=True),
    "Greatest": _extreme(pc.max_element_wise, least=False),
    "If": _if,
    "In": _in,
    "InSet": _in_set,
    "IsNotNull": _tested_for_null(is_present),
    "IsNull": _tested_for_null(is_absent),
    "KnownFloatingPointNormalized": child_of,
    "KnownNotNull": child_of,
    "KnownNullable": child_of,
    "Least": _extreme(pc.min_element_wise, least=True),
    "LessThan": _compared("less"),
    "LessThanOrEqual": _compared("less_equal"),
    "Literal": _literal,
    "NaNvl": _other_than_nan,
    "Not": _tested(pc.invert),
    "Or": _connected(decided=True),
    "XxHash64": _hash,
}
