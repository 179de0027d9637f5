"""Arrays: their elements, their order, and what is made of them.

Elements are found by the rows that they are in. A NULL array has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType

from headrace.algebra.zset.order import valid
from headrace.planning.catalyst.scala import items, maybe, node_name
from headrace.planning.catalyst.vectors.reader import (
    UnprovedError,
    int_argument,
    is_comparable,
    is_constant,
    known_type,
    require,
    text_argument,
)
from headrace.planning.catalyst.vectors.vector import (
    DoubtError,
    InputColumn,
    InputRows,
    Vector,
    column_of,
    integers,
    made,
)
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.algebra.zset.order import Bools, Ints
    from headrace.planning.catalyst.vectors.reader import ExpressionReader, Known
    from headrace.planning.catalyst.vectors.vector import Value


@dataclass(frozen=True, slots=True)
class _Elements:
    """The elements of arrays, in order: ``lengths`` says how many each of them has."""

    values: pa.Array
    lengths: Ints

    @classmethod
    def of(cls, value: Value) -> _Elements:
        lists = column_of(value)
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        return cls(pc.list_flatten(lists), lengths.astype(np.int64))

    @property
    def starts(self) -> Ints:
        """The first element of each array."""
        return np.cumsum(self.lengths) - self.lengths

    @property
    def rows(self) -> Ints:
        """The array that each element is in."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def taken(self, positions: Ints) -> _Elements:
        """Return some of the elements, given in the order of the arrays."""
        lengths = np.bincount(self.rows[positions], minlength=len(self.lengths))
        return _Elements(self.values.take(pa.array(positions)), lengths)

    def lists(self, shown: Bools) -> pa.Array:
        """Return the elements as arrays: some are shown, and others are NULL."""
        ends = np.zeros(len(self.lengths) + 1, np.int32)
        np.cumsum(self.lengths, out=ends[1:])
        mask = None if shown.all() else pa.array(~shown)
        return pa.ListArray.from_arrays(pa.array(ends), self.values, mask=mask)

    def any(self, chosen: pa.Array) -> Bools:
        """Return which arrays have an element that is chosen."""
        true = pc.fill_null(chosen, fill_value=False).to_numpy(zero_copy_only=False)
        return np.bincount(self.rows[true], minlength=len(self.lengths)) > 0

    def order(self, direction: str, nulls: str) -> Ints:
        """Return the order of the elements in their arrays."""
        table = pa.table({"row": self.rows, "value": self.values})
        keys = [("row", "ascending", "at_end"), ("value", direction, nulls)]
        return np.asarray(pc.sort_indices(table, keys).to_numpy().astype(np.int64))


def size(value: Value, null: int | None) -> Value:
    """Return the number of elements of arrays, as INT, given that of NULL."""
    found = pc.list_value_length(value)
    return found if null is None else pc.fill_null(found, pa.scalar(null, pa.int32()))


def item(value: Value, ordinal: Value, default: pa.Scalar | None, *, fails: bool) -> Value:
    """Return elements by position, from 0 on; see :func:`_items`."""
    elements, places = _Elements.of(value), integers(ordinal)
    return _items(elements, places, valid(value) & _shown(ordinal), default, fails=fails)


def element(value: Value, ordinal: Value, default: pa.Scalar | None, *, fails: bool) -> Value:
    """Return elements by position, from 1 on, or from -1 on backwards; see :func:`_items`."""
    elements, places = _Elements.of(value), integers(ordinal)
    shown = valid(value) & _shown(ordinal)
    if (shown & (places == 0)).any():
        raise DoubtError
    places = np.where(places > 0, places - 1, elements.lengths + places)
    return _items(elements, places, shown, default, fails=fails)


def _items(
    elements: _Elements, places: Ints, shown: Bools, default: pa.Scalar | None, *, fails: bool
) -> Value:
    """Return elements; beyond an array, there is a default, or the expression ``fails``."""
    inside = (places >= 0) & (places < elements.lengths)
    beyond = shown & ~inside
    if fails and beyond.any():
        raise DoubtError
    found = elements.values.take(pa.array(elements.starts + places, mask=~(shown & inside)))
    return found if default is None else pc.if_else(pa.array(beyond), default, found)


def array_of(*values: Value, type_: pa.ListType) -> Value:
    """Return arrays of values."""
    rows = next(len(each) for each in values if isinstance(each, pa.Array))
    columns = [pa.repeat(v, rows) if isinstance(v, pa.Scalar) else v for v in values]
    columns = [c if c.type == type_.value_type else c.cast(type_.value_type) for c in columns]
    order = np.arange(rows)[:, None] + rows * np.arange(len(columns))
    elements = pa.concat_arrays(columns).take(pa.array(order.reshape(-1)))
    return _Elements(elements, np.full(rows, len(columns))).lists(np.ones(rows, np.bool_))


def contains(value: Value, searched: Value) -> Value:
    """Return whether arrays have an element; with a NULL among the others, never FALSE."""
    lists = column_of(value)
    elements = _Elements.of(lists)
    if isinstance(searched, pa.Array):
        equal = pc.equal(elements.values, searched.take(pa.array(elements.rows)))
    else:
        equal = pc.equal(elements.values, searched)
    found = elements.any(equal)
    shown = valid(lists) & _shown(searched) & (found | ~elements.any(pc.is_null(elements.values)))
    return made(found, pa.bool_(), shown)


def place_of(value: Value, searched: Value) -> Value:
    """Return the first position of a constant in arrays, from 1 on, or 0."""
    elements = _Elements.of(value)
    equal = pc.fill_null(pc.equal(elements.values, searched), fill_value=False)
    places = np.flatnonzero(equal.to_numpy(zero_copy_only=False))
    rows, first = np.unique(elements.rows[places], return_index=True)
    found = np.zeros(len(elements.lengths), np.int64)
    found[rows] = places[first] - elements.starts[rows] + 1
    return made(found, pa.int64(), valid(value))


def in_order(value: Value, *, ascending: bool) -> Value:
    """Return arrays in order; NULLs are less than other elements."""
    elements = _Elements.of(value)
    if ascending:
        order = elements.order("ascending", "at_start")
    else:
        order = elements.order("descending", "at_end")
    return elements.taken(order).lists(valid(value))


def extreme(value: Value, *, least: bool) -> Value:
    """Return the least or greatest elements of arrays, of those that are not NULL."""
    elements = _Elements.of(value)
    order = elements.order("ascending", "at_end" if least else "at_start")
    sides = elements.starts if least else elements.starts + elements.lengths - 1
    empty = elements.lengths == 0
    places = np.zeros(len(sides), np.int64)
    places[~empty] = order[sides[~empty]]
    return elements.values.take(pa.array(places, mask=empty))


def distinct(value: Value) -> Value:
    """Return arrays without repetitions."""
    elements = _Elements.of(value)
    codes = elements.values.dictionary_encode(null_encoding="encode")
    keys = elements.rows * (len(codes.dictionary) + 1) + codes.indices.to_numpy()
    _, first = np.unique(keys, return_index=True)
    return elements.taken(np.sort(first)).lists(valid(value))


def backwards(value: Value) -> Value:
    """Return arrays in the opposite order."""
    elements = _Elements.of(value)
    rows, starts = elements.rows, elements.starts
    places = 2 * starts[rows] + elements.lengths[rows] - 1 - np.arange(len(rows))
    return elements.taken(places).lists(valid(value))


def part(value: Value, start: int, length: int) -> Value:
    """Return parts of arrays, from a position on that counts from 1, or backwards from -1."""
    elements = _Elements.of(value)
    first = np.full(len(elements.lengths), start - 1) if start > 0 else elements.lengths + start
    within = np.arange(len(elements.values)) - elements.starts[elements.rows]
    first = np.where(first < 0, elements.lengths, first)[elements.rows]
    return elements.taken(np.flatnonzero((within >= first) & (within < first + length))).lists(
        valid(value)
    )


def joined(value: Value, separator: str) -> Value:
    """Return the texts of arrays one after the other, without those that are NULL."""
    elements, lists = _Elements.of(value), column_of(value)
    if elements.values.null_count:
        lists = elements.taken(np.flatnonzero(valid(elements.values))).lists(valid(lists))
    return pc.binary_join(lists, separator)


def selected(value: Value, chosen: Value) -> Value:
    """Return arrays with those elements that are chosen, given for all elements."""
    elements = _Elements.of(value)
    true = pc.fill_null(chosen, fill_value=False).to_numpy(zero_copy_only=False)
    return elements.taken(np.flatnonzero(true)).lists(valid(value))


def some(value: Value, chosen: Value) -> Value:
    """Return whether an element is chosen; if that of another is NULL, never FALSE."""
    elements = _Elements.of(value)
    found = elements.any(chosen)
    return made(found, pa.bool_(), valid(value) & (found | ~elements.any(pc.is_null(chosen))))


def replaced(value: Value, values: Value) -> Value:
    """Return arrays with other elements, given for all elements."""
    return _Elements(values, _Elements.of(value).lengths).lists(valid(value))


_OVER_ELEMENTS: Final = {"exists": some, "filter": selected, "transform": replaced}


@dataclass(frozen=True, slots=True, eq=False)
class OverElements(Vector):
    """A function of arrays and of an expression over each of their elements."""

    name: str
    lists: Vector
    body: Vector

    def computed(self, rows: InputRows) -> Value:
        """Evaluate the expression over all elements."""
        lists = self.lists.column(rows)
        elements = _Elements.of(lists).values
        given = self.body.column(InputRows([elements], len(elements)))
        return _OVER_ELEMENTS[self.name](lists, given)


def _shown(value: Value) -> Bools:
    return np.array([value.is_valid]) if isinstance(value, pa.Scalar) else valid(value)


def _array(reader: ExpressionReader, handle: Any) -> tuple[Vector, ArrayType]:
    """Return an argument that is an array."""
    of = known_type(handle)
    require(handle, when=isinstance(of, ArrayType), of=of)
    return reader.vector(handle), of


def _ordered_array(reader: ExpressionReader, handle: Any) -> Vector:
    """Return an argument that is an array of elements that Arrow compares as Spark does."""
    value, of = _array(reader, handle)
    require(handle, when=is_comparable(of.elementType), of=of)
    return value


def _size(reader: ExpressionReader, handle: Any) -> Vector:
    value, _ = _array(reader, handle.child())
    null = -1 if handle.legacySizeOfNull() else None
    return reader.call(size, pa.int32(), value, null=null)


def _item(reader: ExpressionReader, handle: Any) -> Vector:
    given, ordinal = items(handle.children())
    value, of = _array(reader, given)
    default, function = None, item
    if node_name(handle) == "ElementAt":
        function, other = element, maybe(handle.defaultValueOutOfBound())
        if other is not None:
            require(handle, when=is_constant(other))
            default = pa.scalar(text_argument(handle, other))
    arrow, place, fails = to_arrow(of.elementType), reader.vector(ordinal), handle.failOnError()
    return reader.call(function, arrow, value, place, default=default, fails=bool(fails))


def _array_of(reader: ExpressionReader, handle: Any) -> Vector:
    arrow, given = to_arrow(known_type(handle)), items(handle.children())
    require(handle, when=bool(given))
    return reader.call(array_of, arrow, *map(reader.vector, given), type_=arrow)


def _contains(reader: ExpressionReader, handle: Any) -> Vector:
    given, searched = items(handle.children())
    value = _ordered_array(reader, given)
    return reader.call(contains, pa.bool_(), value, reader.vector(searched))


def _place_of(reader: ExpressionReader, handle: Any) -> Vector:
    given, searched = items(handle.children())
    require(handle, when=is_constant(searched))
    value = _ordered_array(reader, given)
    return reader.call(place_of, pa.int64(), value, reader.vector(searched))


def _in_order(reader: ExpressionReader, handle: Any) -> Vector:
    given, ascending = items(handle.children())
    require(handle, when=is_constant(ascending))
    value = _ordered_array(reader, given)
    return reader.call(in_order, value.type, value, ascending=bool(ascending.value()))


def _extreme(*, least: bool) -> Known:
    def read(reader: ExpressionReader, handle: Any) -> Vector:
        value = _ordered_array(reader, handle.child())
        return reader.call(extreme, to_arrow(known_type(handle)), value, least=least)

    return read


def _distinct(reader: ExpressionReader, handle: Any) -> Vector:
    value = _ordered_array(reader, handle.child())
    return reader.call(distinct, value.type, value)


def _part(reader: ExpressionReader, handle: Any) -> Vector:
    given, start, length = items(handle.children())
    first, most = int_argument(handle, start), int_argument(handle, length)
    require(handle, when=first != 0 and most >= 0)
    value, _ = _array(reader, given)
    return reader.call(part, value.type, value, start=first, length=most)


def _joined(reader: ExpressionReader, handle: Any) -> Vector:
    given, *others = items(handle.children())
    require(handle, when=len(others) == 1)
    value = _ordered_array(reader, given)
    return reader.call(joined, pa.string(), value, separator=text_argument(handle, others[0]))


def _over_elements(reader: ExpressionReader, handle: Any) -> Vector:
    """Read a function with a lambda that uses the element alone."""
    given, function = items(handle.children())
    value, _ = _array(reader, given)
    (variable, *others) = items(function.arguments())
    require(handle, when=not others)
    name = node_name(handle)
    require(handle, when=name != "exists" or bool(handle.followThreeValuedLogic()))
    inner = type(reader)({int(variable.exprId().id()): 0}, reader.known)
    body = inner.vector(function.function())
    made = OverElements(to_arrow(known_type(handle)), name, value, body)
    return reader.one(made, name, value, body)


def _variable(reader: ExpressionReader, handle: Any) -> Vector:
    type_, place = to_arrow(known_type(handle)), reader.places.get(int(handle.exprId().id()))
    if place is None:
        raise UnprovedError("a column outside of a lambda")
    return reader.one(InputColumn(type_, place), place)


KNOWN: Final[Mapping[str, Known]] = {
    "ArrayContains": _contains,
    "ArrayDistinct": _distinct,
    "ArrayJoin": _joined,
    "ArrayMax": _extreme(least=False),
    "ArrayMin": _extreme(least=True),
    "ArrayPosition": _place_of,
    "CreateArray": _array_of,
    "ElementAt": _item,
    "GetArrayItem": _item,
    "Size": _size,
    "Slice": _part,
    "SortArray": _in_order,
    "NamedLambdaVariable": _variable,
    "exists": _over_elements,
    "filter": _over_elements,
    "transform": _over_elements,
}
