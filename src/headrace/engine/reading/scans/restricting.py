"""The part of a condition that Arrow can test, for what reads rows before DuckDB does.

A test compares a column with constants; see :meth:`headrace.catalyst.predicates.Predicates.
restriction`, which does the same with Catalyst's own objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.types import constants
from headrace.zset import Restriction, Test

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from headrace.engine.reading.scans.tree import Value

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
