"""Conditions over columns: taken apart, moved to other columns, and made safe to evaluate early.

A condition on a result that is moved to the inputs is evaluated for rows that the query may filter
out before it computes anything. So it is not an error if it fails there: a row for which it fails
counts as meeting it, and the query decides.

Which range of values the condition of a join asks for, besides the equality of keys.

A conjunct such as ``r.at >= l.at - INTERVAL '5' MINUTES`` compares a column of the left with one
of the right, each perhaps plus a constant. In the order of the one, the rows that it allows for a
row of the other side are those after some place, or before it. The condition itself is still
applied to each pair, so what is not recognised here only costs time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from py4j.java_gateway import JavaObject
from pyspark.sql.types import BooleanType, DateType, DayTimeIntervalType

from headrace.algebra.zset import Restriction, Test
from headrace.errors import HeadraceError
from headrace.planning.catalyst.allowed import INTEGERS
from headrace.planning.catalyst.clock import conjuncts
from headrace.planning.catalyst.plan import PartnerBound, Ranges, SortKey
from headrace.planning.catalyst.resolved import is_true, type_of
from headrace.planning.catalyst.scala import Numbers, items, kind_of, references, replaced, within
from headrace.planning.catalyst.vectors.reader import TIMES, is_constant
from headrace.planning.sql.lexer import TokenKind, tokens
from headrace.types import constants

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from pyspark.sql.types import DataType

    from headrace.planning.catalyst.pieces import Pieces
    from headrace.planning.catalyst.scala import Scala


_FLIPPED = {
    "EqualTo": "EqualTo",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
}
_BOUNDS = {
    "GreaterThan": "above",
    "GreaterThanOrEqual": "low",
    "LessThan": "below",
    "LessThanOrEqual": "high",
}
"""The bound of a test for each comparison of a column with a constant."""

_HOUR = 3_600_000_000
_DAY = 24 * _HOUR
"""Microseconds per day."""
_LONGEST = {
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": _HOUR // 60,
    "HOUR": _HOUR,
    "DAY": _DAY,
    "WEEK": 7 * _DAY,
    "MONTH": 31 * _DAY,
    "QUARTER": 92 * _DAY,
    "YEAR": 366 * _DAY,
}
"""The most microseconds of a period to whose beginning a time is truncated, in UTC."""


@dataclass(frozen=True, slots=True, eq=False)
class Conjunct:
    """A condition: Catalyst's handle, and the ids of the attributes that it uses."""

    handle: Any
    uses: frozenset[int]

    @property
    def text(self) -> str:
        """A readable text of the condition: integers without the suffix of their type."""
        text = str(self.handle.sql())
        try:
            return "".join(_pieces(text))
        except HeadraceError:  # the text has parts that only Spark can read
            return text

    def same(self, other: Conjunct) -> bool:
        """Whether Spark considers two conditions equal."""
        return bool(self.handle.semanticEquals(other.handle))


@dataclass(frozen=True, slots=True)
class _Tested:
    """A test that an attribute must pass for a condition to be true.

    If it is ``exact``, the condition is true for all values that pass.
    """

    attribute: int
    test: Test
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Predicates:
    """Takes conditions apart and puts them together."""

    scala: Scala
    _of_types: dict[str, DataType] = field(default_factory=dict)
    _sets: Numbers = field(default_factory=Numbers)
    _known: dict[tuple[int, int], list[Any]] = field(default_factory=dict)
    """The elements of sets of constants, by the numbers of the sets."""

    def conjuncts(self, condition: Any) -> tuple[Conjunct, ...]:
        """Return the conditions that all have to be true for a condition to be true."""
        if kind_of(condition) == "And":
            return (*self.conjuncts(condition.left()), *self.conjuncts(condition.right()))
        return (self.conjunct(condition),)

    def stated(self, conjuncts: Sequence[Conjunct]) -> tuple[Conjunct, ...]:
        """Return conditions without the ``IS NOT NULL`` that Spark derives.

        If the query has such a condition beside another one on the column, more rows may meet the
        result.
        """
        kept = []
        for each in conjuncts:
            others = (c for c in conjuncts if c is not each and kind_of(c.handle) != "IsNotNull")
            derived = kind_of(each.handle) == "IsNotNull"
            if not derived or not any(each.uses <= other.uses for other in others):
                kept.append(each)
        return tuple(kept)

    def conjunct(self, handle: Any) -> Conjunct:
        """Return an expression as a condition."""
        return Conjunct(handle, references(handle))

    def never(self) -> Any:
        """Return the condition FALSE."""
        return self._boolean(value=False)

    def moved(self, conjunct: Conjunct, columns: Mapping[int, Any]) -> Conjunct:
        """Return a condition over other columns: ``columns`` has the value of each attribute."""

        def other(expression: Any, kind: str, node: str) -> Any | None:
            if kind == "GetStructField":
                child = replaced(self.scala, expression.child(), node, other)
                if kind_of(child) == "CreateNamedStruct":  # its children are names and values
                    return items(child.children())[2 * int(expression.ordinal()) + 1]
            if kind != "AttributeReference":
                return None
            value = columns.get(int(expression.exprId().id()))
            return None if value is None else _unnamed(value)

        return self.conjunct(replaced(self.scala, conjunct.handle, "", other))

    def either(self, conjuncts: Sequence[Conjunct]) -> Conjunct:
        """Return the disjunction of some conditions."""
        handle = conjuncts[0].handle
        for each in conjuncts[1:]:
            handle = self.scala.expression("Or", handle, each.handle)
        return self.conjunct(handle)

    def met(self, conjuncts: Iterable[Conjunct]) -> Any | None:
        """Return an expression that is true if every condition is true or fails; None without any.

        It never fails, and is never NULL.
        """
        expression, seq, literal = self.scala.expression, self.scala.seq, self._boolean
        found = None
        for each in conjuncts:
            known = expression("Coalesce", seq([each.handle, literal(value=False)]))
            tried = expression("TryEval", known)
            # After a NULL, evaluation is conditional: Spark would compute common parts before.
            null = self._boolean(value=None)
            total = expression("Coalesce", seq([null, tried, literal(value=True)]))
            found = total if found is None else expression("And", found, total)
        return found

    def restriction(
        self, conditions: Iterable[Conjunct], names: Mapping[int, str]
    ) -> tuple[Restriction, bool]:
        """Return the part of conditions that Arrow can test, and whether this is all of them.

        Rows have the columns ``names``, by the ids of attributes. Every row for which all
        conditions are true passes the tests.
        """
        tests: list[Test] = []
        present: list[Test] = []
        exact = True
        for condition in conditions:
            if is_true(condition.handle):
                continue
            found = self._tested(condition.handle)
            if found is None or found.attribute not in names:
                exact = False
                continue
            test = found.test.of(names[found.attribute])
            (tests if test.values is not None or test.bounds else present).append(test)
            exact &= found.exact
        tested = {test.column for test in tests}
        tests += [test for test in present if test.column not in tested]
        return Restriction(tuple(tests)), exact

    def _tested(self, handle: Any) -> _Tested | None:
        """Return the test of an attribute, if a condition compares one attribute with constants."""
        kind = kind_of(handle)
        if kind in _FLIPPED:
            return self._compared(kind, handle.left(), handle.right())
        if kind == "IsNotNull" and kind_of(handle.child()) == "AttributeReference":
            return _Tested(int(handle.child().exprId().id()), Test(""))
        if kind in ("In", "InSet"):
            attribute = handle.value() if kind == "In" else handle.child()
            if kind_of(attribute) != "AttributeReference":
                return None
            if kind == "InSet":
                return self._among(attribute, self._elements(handle.hset()))
            given = items(handle.list())
            if any(kind_of(each) != "Literal" for each in given):
                return None
            return self._among(attribute, [_plain(each.value()) for each in given])
        if kind == "Or":
            left, right = self._tested(handle.left()), self._tested(handle.right())
            if left is None or right is None or left.attribute != right.attribute:
                return None
            if left.test.values is None or right.test.values is None:
                return _spanning(left, right)
            both = pa.concat_arrays([left.test.values, right.test.values])
            return _Tested(left.attribute, Test("", both))
        return None

    def _compared(self, kind: str, left: Any, right: Any) -> _Tested | None:
        if kind_of(right) == "AttributeReference" or kind_of(left) == "Literal":
            kind, left, right = _FLIPPED[kind], right, left
        if kind_of(right) != "Literal":
            return None
        if kind_of(left) != "AttributeReference":
            return self._floored(kind, left, right)
        found = self._among(left, [_plain(right.value())])
        if found is None or found.test.values is None or kind == "EqualTo":
            return found
        if not len(found.test.values):
            return found  # comparisons with NULL are never true
        bound = {_BOUNDS[kind]: found.test.values[0]}
        return _Tested(found.attribute, Test("", **bound))

    def _floored(self, kind: str, left: Any, right: Any) -> _Tested | None:
        """Return the test of a time whose period, such as its hour or window, is compared.

        The time is in the period that ``left`` names. ``right`` is a constant.
        """
        period, value = _period_of(left), _plain(right.value())
        if period is None or value is None:
            return None
        low = (value if kind_of(left) != "Cast" else value * _DAY) - period.named
        ends = {} if kind.startswith("Less") else {"low": low}
        if period.length is not None and not kind.startswith("Greater"):
            ends["below"] = low + period.length
        found = self._among(period.time, ends.values())
        if found is None or found.test.values is None or not ends:
            return None
        bounds = dict(zip(ends, found.test.values, strict=True))
        return _Tested(found.attribute, Test("", **bounds), exact=False)

    def _among(self, attribute: Any, given: Iterable[Any]) -> _Tested | None:
        """Return the test that a column has one of Catalyst's values; NULL equals nothing.

        None for types that Arrow lacks or compares differently than Spark, and for values it lacks.
        """
        known = str(attribute.dataType().json())
        if known not in self._of_types:
            self._of_types[known] = type_of(attribute)
        try:
            values = constants(self._of_types[known], given)
        except (HeadraceError, pa.ArrowInvalid, OverflowError):
            return None
        if values is None:
            return None
        return _Tested(int(attribute.exprId().id()), Test("", values.drop_null()))

    def _elements(self, found: Any) -> list[Any]:
        number = self._sets.of(found)
        if number not in self._known:
            iterator, values = found.iterator(), []
            while iterator.hasNext():
                values.append(_plain(iterator.next()))
            self._known[number] = values
        return self._known[number]

    def _boolean(self, *, value: bool | None) -> Any:
        type_ = self.scala.type(BooleanType().json())
        return self.scala.expression("Literal", value, type_)


def _spanning(one: _Tested, other: _Tested) -> _Tested | None:
    """Return the test that what passes either of two tests passes; None if these are not bounds."""
    ends = {}
    for name in one.test.bounds.keys() & other.test.bounds.keys():
        wider = pc.min_element_wise if name in ("low", "above") else pc.max_element_wise
        ends[name] = wider(one.test.bounds[name], other.test.bounds[name])
    return _Tested(one.attribute, Test("", **ends), exact=False) if ends else None


@dataclass(frozen=True, slots=True)
class _Period:
    """The period of a time column that an expression names.

    The expression is the period's beginning plus ``named`` microseconds; the period is at most
    ``length`` microseconds long, if that is known.
    """

    time: Any
    length: int | None
    named: int = 0


def _period_of(value: Any) -> _Period | None:
    """Return the period of a time column that an expression names, or None."""
    while kind_of(value) == "KnownNullable":
        value = value.child()
    kind, found = kind_of(value), None
    if kind == "TruncTimestamp":
        unit, time = items(value.children())
        named = str(unit.value()).upper() if kind_of(unit) == "Literal" else ""
        found = _Period(time, _LONGEST.get(named))
    elif kind == "Cast" and str(value.dataType().typeName()) == "date":
        found = _Period(value.child(), _DAY)
    elif kind == "PreciseTimestampConversion":
        found = _window_of(value.child())
    if found is None or kind_of(found.time) != "AttributeReference":
        return None
    return found if str(found.time.dataType().typeName()) == "timestamp" else None


def _window_of(bound: Any) -> _Period | None:
    """Return the slide of windows in which the time of a window lies whose bound is given.

    Spark subtracts from the time what it is past the beginning of a slide, and then adds constants:
    the number of slides before, and for the end of the window its length.
    """
    named, kind = 0, kind_of(bound)
    while kind in ("Add", "Subtract") and kind_of(bound.right()) == "Literal":
        named += int(bound.right().value()) * (1 if kind == "Add" else -1)
        bound = bound.left()
        kind = kind_of(bound)
    if kind != "Subtract" or kind_of(bound.left()) != "PreciseTimestampConversion":
        return None
    lengths = {
        int(each.right().value())
        for each in within(bound.right())
        if kind_of(each) == "Remainder" and kind_of(each.right()) == "Literal"
    }
    return _Period(bound.left().child(), lengths.pop(), named) if len(lengths) == 1 else None


def _unnamed(value: Any) -> Any:
    """Return the value of an alias, or the value itself."""
    return value.child() if kind_of(value) == "Alias" else value


def _plain(value: Any) -> Any:
    """Return a constant of Catalyst as a Python value: strings are JVM objects there."""
    return str(value.toString()) if isinstance(value, JavaObject) else value


def _pieces(text: str) -> Iterator[str]:
    """Yield the parts of a text of Spark, with BIGINTs without suffix."""
    at = 0
    for token in tokens(text):
        if token.kind is TokenKind.NUMBER and token.text.endswith("L"):
            yield text[at : token.end - 1]
            at = token.end
    yield text[at:]


_LOW: Final = frozenset({"GreaterThan", "GreaterThanOrEqual"})
_COMPARED: Final = _LOW | {"LessThan", "LessThanOrEqual"}
_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}


@dataclass(frozen=True, slots=True)
class _Compared:
    """A conjunct: a column of the left plus a number, compared with a column of the right.

    ``greater``: the left is the greater one. ``is_open``: it is also true where the column of the
    right is NULL.
    """

    left: Any
    right: Any
    shift: int
    greater: bool
    is_open: bool = False


def ranges_of(
    pieces: Pieces,
    condition: Any | None,
    sides: tuple[AbstractSet[int], AbstractSet[int]],
    nearest: AbstractSet[int],
) -> Ranges | None:
    """Return the ranges that a condition asks for; None if it does not.

    ``sides`` are the ids of the columns of the left and of the right. ``nearest`` are those of the
    right that have the value of the next row, as as-of joins have it.
    """
    every = [] if condition is None else [_compared(each, sides) for each in conjuncts(condition)]
    found = [each for each in every if each is not None]
    closed = [each for each in found if not each.is_open]
    if not closed:
        return None
    first = closed[0]
    bounds = [each for each in closed if _is_one(each.left, first.left)]
    bounds = [each for each in bounds if _is_one(each.right, first.right)]
    following = [each for each in found if each.is_open and _id(each.right) in nearest]
    descending = bool(following) and not first.greater
    left, right = pieces.expression(first.left), pieces.expression(first.right)
    of_left = [PartnerBound(left, each.greater is descending, each.shift) for each in bounds]
    of_right = [PartnerBound(right, each.greater is not descending, -each.shift) for each in bounds]
    for each in following if all(_is_one(each.left, first.left) for each in following) else ():
        value = pieces.expression(each.right)
        is_low = each.greater is not descending
        of_right.append(PartnerBound(value, is_low, -each.shift, is_open=True))
    return Ranges(
        SortKey(left, descending, nulls_first=True),
        SortKey(right, descending, nulls_first=True),
        tuple(of_left),
        tuple(of_right),
        bool(following),
    )


def _compared(condition: Any, sides: tuple[AbstractSet[int], AbstractSet[int]]) -> _Compared | None:
    """Return a conjunct that compares a column of each side; None if it does not."""
    kind = kind_of(condition)
    if kind == "Or":
        null, other = items(condition.children())
        found = _compared(other, sides) if kind_of(null) == "IsNull" else None
        if found is None or found.shift or not null.child().semanticEquals(found.right):
            return None
        return replace(found, is_open=True)
    if kind not in _COMPARED:
        return None
    first, second = (_shifted(each) for each in items(condition.children()))
    if first is None or second is None:
        return None
    greater, shift = kind in _LOW, first[1] - second[1]
    own = _side(first[0], sides), _side(second[0], sides)
    if own == (0, 1):
        return _Compared(first[0], second[0], shift, greater)
    return _Compared(second[0], first[0], -shift, not greater) if own == (1, 0) else None


def _side(column: Any, sides: tuple[AbstractSet[int], AbstractSet[int]]) -> int | None:
    return next((side for side, columns in enumerate(sides) if _id(column) in columns), None)


def _id(column: Any) -> int:
    return int(column.exprId().id())


def _is_one(one: Any, other: Any) -> bool:
    return _id(one) == _id(other)


def _shifted(value: Any) -> tuple[Any, int] | None:
    """Return the column that a value is, and the number that is added to it; None if it is not.

    The number is in units of the type: 1, a day or a microsecond.
    """
    type_ = type_of(value)
    match kind_of(value):
        case "AttributeReference" if _is_ordinal(type_):
            return value, 0
        case "KnownNotNull":
            return _shifted(value.child())
        case "Cast" if type(type_) in INTEGERS and type(type_of(value.child())) in INTEGERS:
            wider = type_of(value.child()).jsonValue()
            return _shifted(value.child()) if _BITS[wider] <= _BITS[type_.jsonValue()] else None
        case "Add" | "Subtract" as kind if type(type_) in INTEGERS:
            return _moved(value.left(), value.right(), -1 if kind == "Subtract" else 1)
        case "DateAdd":
            return _moved(value.startDate(), value.days(), 1)
        case "DateSub":
            return _moved(value.startDate(), value.days(), -1)
        case "TimestampAddInterval" if _is_in_utc(value):
            return _moved(value.left(), value.right(), 1)
        case _:
            return None


def _moved(value: Any, by: Any, sign: int) -> tuple[Any, int] | None:
    found = _shifted(value)
    constant = is_constant(by) and type(type_of(by)) in (*INTEGERS, DayTimeIntervalType)
    return (found[0], found[1] + sign * int(by.value())) if found and constant else None


def _is_in_utc(value: Any) -> bool:
    zone = value.timeZoneId()
    return bool(zone.isDefined()) and str(zone.get()) == "UTC"


def _is_ordinal(type_: DataType) -> bool:
    return type(type_) in INTEGERS or isinstance(type_, (DateType, *TIMES))
