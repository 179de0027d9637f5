"""Random nested types, values with NULL at every level, and expressions that fail on no row."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headrace.types import holds, to_arrow

if TYPE_CHECKING:
    from random import Random

INT, TEXT, TRUTH = IntegerType(), StringType(), BooleanType()
SCALARS = (
    INT,
    INT,
    TEXT,
    TEXT,
    TRUTH,
    ByteType(),
    ShortType(),
    LongType(),
    FloatType(),
    DoubleType(),
    DecimalType(9, 2),
    DecimalType(38, 10),
    BinaryType(),
    DateType(),
    TimestampType(),
    TimestampNTZType(),
    DayTimeIntervalType(0, 3),
)
KEYS = (INT, TEXT, LongType(), DateType(), DecimalType(9, 2), StructType([StructField("a", INT)]))
NULLS = 0.25
_TEXTS = ("", "a", "b", "ab", "ß", "日本", "x'y", "null", "7")
_START = datetime(2024, 2, 28, 23, tzinfo=UTC)


def random_type(random: Random, depth: int) -> DataType:
    """Return a type with up to ``depth`` levels of arrays, maps and structs."""
    if depth == 0 or random.random() < 0.15:
        return random.choice(SCALARS)
    match random.randrange(5):
        case 0 | 1:
            return ArrayType(random_type(random, depth - 1))
        case 2:
            return MapType(random.choice(KEYS), random_type(random, depth - 1))
        case _:
            return StructType(
                [StructField(name, random_type(random, depth - 1)) for name in ("a", "b")]
            )


def random_value(random: Random, type_: DataType, nulls: float = NULLS) -> Any:
    """Return a value as PyArrow takes it, NULL at any level."""
    if random.random() < nulls:
        return None
    drawn = random.randrange(6)
    match type_:
        case ArrayType():
            return [random_value(random, type_.elementType) for _ in range(drawn % 4)]
        case MapType():
            keys = [random_value(random, type_.keyType, nulls=0) for _ in range(drawn % 4)]
            apart = {repr(key): key for key in keys}
            return [(key, random_value(random, type_.valueType)) for key in apart.values()]
        case StructType():
            return {f.name: random_value(random, f.dataType) for f in type_.fields}
        case _:
            return _scalar(type_, drawn)


def _scalar(type_: DataType, drawn: int) -> Any:
    match type_:
        case StringType():
            return _TEXTS[drawn]
        case BooleanType():
            return drawn % 2 == 0
        case BinaryType():
            return _TEXTS[drawn].encode()
        case FloatType() | DoubleType():
            return (0.0, -0.0, 1.5, float("nan"), float("inf"), -2.25)[drawn]
        case DecimalType():
            return Decimal(drawn * 25 - 50).scaleb(-2)
        case DateType():
            return date(2024, 2, 27) + timedelta(days=drawn)
        case TimestampType():
            return _START + timedelta(minutes=drawn)
        case TimestampNTZType():
            return _START.replace(tzinfo=None) + timedelta(minutes=drawn)
        case DayTimeIntervalType():
            return timedelta(hours=drawn)
        case _:
            return drawn - 2


def random_rows(random: Random, columns: dict[str, DataType], count: int) -> pa.Table:
    """Return rows of some columns."""
    return pa.table(
        {
            name: pa.array([random_value(random, type_) for _ in range(count)], to_arrow(type_))
            for name, type_ in columns.items()
        }
    )


def _parts(*types: DataType) -> list[DataType]:
    """Return types and the types of their parts."""
    found = list(types)
    for type_ in found:
        match type_:
            case ArrayType():
                found.append(type_.elementType)
            case MapType():
                found += [type_.keyType, type_.valueType]
            case StructType():
                found += [field.dataType for field in type_.fields]
    return found


def _orderly(type_: DataType) -> bool:
    return not holds(type_, (MapType,))


@dataclass
class Expressions:
    """Makes expressions over columns, of a wanted type."""

    random: Random
    columns: dict[str, DataType]
    _inside: dict[str, DataType] = field(default_factory=dict)
    _names: int = 0

    def some_type(self) -> DataType:
        """Return the type of a column or of a part of one."""
        return self.random.choice([*_parts(*self.columns.values()), *self._inside.values()])

    def of(self, type_: DataType, depth: int) -> str:
        """Return an expression of a type; ``depth`` bounds its size."""
        if depth <= 0:
            return self._leaf(type_)
        forms = [self._leaf, *[self._any_of] * 2, self._reached, self._guarded]
        match type_:
            case ArrayType():
                forms += [self._array] * 6
            case MapType():
                forms += [self._map] * 6
            case StructType():
                forms += [self._struct] * 2
            case BooleanType():
                forms += [self._truth] * 6
            case IntegerType():
                forms += [self._number] * 3
            case StringType():
                forms += [self._text] * 3
        form = self.random.choice(forms)
        return form(type_) if form == self._leaf else form(type_, depth - 1)

    def _leaf(self, type_: DataType) -> str:
        """Return a variable or a column, or a field of one, else NULL."""
        scope = {**self.columns, **self._inside}
        found = [name for name, given in scope.items() if given == type_]
        found += [
            f"{name}.{inner.name}"
            for name, given in scope.items()
            if isinstance(given, StructType)
            for inner in given.fields
            if inner.dataType == type_
        ]
        if found and self.random.random() < 0.9:
            return self.random.choice(found)
        match type_:
            case IntegerType():
                return str(self.random.randrange(4))
            case StringType():
                return self.random.choice(("'a'", "'7'", "''"))
            case BooleanType():
                return self.random.choice(("true", "false"))
            case ArrayType() if self.random.random() < 0.7:
                return f"CAST(array() AS {type_.simpleString()})"
        return f"CAST(NULL AS {type_.simpleString()})"

    def _any_of(self, type_: DataType, depth: int) -> str:
        one, other = self.of(type_, depth), self.of(type_, depth)
        forms = [
            f"coalesce({one}, {other})",
            f"if({self.of(TRUTH, depth)}, {one}, {other})",
            f"CASE WHEN {self.of(TRUTH, depth)} THEN {one} END",
        ]
        if _orderly(type_):
            forms.append(f"greatest({one}, {other})")
            forms.append(f"least({one}, {other})")
        return self.random.choice(forms)

    def _reached(self, type_: DataType, depth: int) -> str:
        """Return an element of an array, a value of a map, or a field of a struct."""
        match self.random.randrange(6):
            case 0:
                of = self.of(ArrayType(type_), depth)
                return f"try_element_at({of}, {self.random.choice((1, 2, -1, 9))})"
            case 1:
                return f"get({self.of(ArrayType(type_), depth)}, {self.of(INT, depth)})"
            case 2:
                key = self.random.choice(KEYS)
                of = self.of(MapType(key, type_), depth)
                at = self.of(key, depth)
                return f"element_at({of}, {at})" if depth % 2 else f"({of})[{at}]"
            case 3:
                pair = StructType([StructField("a", type_), StructField("b", INT)])
                return f"({self.of(pair, depth)}).a"
            case 4:
                array = self.of(ArrayType(type_), depth)
                if _orderly(type_):
                    return f"{self.random.choice(('array_max', 'array_min'))}({array})"
                return f"try_element_at({array}, 1)"
            case _:
                return self._aggregate(type_, depth)

    def _aggregate(self, type_: DataType, depth: int) -> str:
        of = self.some_type()
        array, start = self.of(ArrayType(of), depth), self.of(type_, depth)
        (sum_, each), merged = self._lambda((type_, of), type_, depth)
        return f"aggregate({array}, {start}, ({sum_}, {each}) -> {merged})"

    def _guarded(self, type_: DataType, depth: int) -> str:
        """Return what fails on an empty array, where it is not empty."""
        array = self._variable()
        pair = self.of(ArrayType(ArrayType(type_)), depth)
        first = f"if(size({array}) > 0, {array}[0], CAST(NULL AS {type_.simpleString()}))"
        return f"try_element_at(transform({pair}, {array} -> {first}), 1)"

    def _array(self, type_: ArrayType, depth: int) -> str:
        element, random = type_.elementType, self.random
        given = self.of(type_, depth)
        of = self.some_type()
        forms = [
            self._transformed,
            lambda: f"filter({given}, {self._over((element,), TRUTH, depth)})",
            lambda: f"filter({given}, {self._over((element, INT), TRUTH, depth)})",
            lambda: f"array({self.of(element, depth)}, {self.of(element, depth)})",
            lambda: f"concat({given}, {self.of(type_, depth)})",
            lambda: f"reverse({given})",
            lambda: f"slice({given}, {random.choice((1, 2, -1))}, 2)",
            lambda: f"array_compact({given})",
            lambda: f"array_append({given}, {self.of(element, depth)})",
            lambda: f"array_prepend({given}, {self.of(element, depth)})",
            lambda: (
                f"array_insert({given}, {random.choice((1, 3, -1))}, {self.of(element, depth)})"
            ),
            lambda: f"array_repeat({self.of(element, depth)}, {random.randrange(3)})",
            lambda: f"flatten({self.of(ArrayType(type_), depth)})",
            lambda: f"map_values({self.of(MapType(random.choice(KEYS), element), depth)})",
            lambda: self._zipped(of, element, depth),
        ]
        if element in KEYS:
            forms.append(lambda: f"map_keys({self.of(MapType(element, of), depth)})")
        if _orderly(element):
            forms += [
                lambda: f"array_distinct({given})",
                lambda: f"array_union({given}, {self.of(type_, depth)})",
                lambda: f"array_intersect({given}, {self.of(type_, depth)})",
                lambda: f"array_except({given}, {self.of(type_, depth)})",
                lambda: f"array_remove({given}, {self.of(element, depth)})",
                lambda: f"sort_array({given}, {random.choice(('true', 'false'))})",
                lambda: f"array_sort({given})",
            ]
        made = random.choice(forms)
        return made(of, element, depth) if made == self._transformed else made()

    def _transformed(self, of: DataType, into: DataType, depth: int) -> str:
        kinds = self.random.choice(((of,), (of, INT)))
        return f"transform({self.of(ArrayType(of), depth)}, {self._over(kinds, into, depth)})"

    def _zipped(self, of: DataType, into: DataType, depth: int) -> str:
        left, right = self.of(ArrayType(of), depth), self.of(ArrayType(INT), depth)
        return f"zip_with({left}, {right}, {self._over((of, INT), into, depth)})"

    def _map(self, type_: MapType, depth: int) -> str:
        key, value = type_.keyType, type_.valueType
        given = self.of(type_, depth)
        entry = (key, value)
        match self.random.randrange(7):
            case 0:
                return f"map_filter({given}, {self._over(entry, TRUTH, depth)})"
            case 1:
                other = self.some_type()
                from_ = self.of(MapType(key, other), depth)
                return f"transform_values({from_}, {self._over((key, other), value, depth)})"
            case 2:
                other = self.of(MapType(key, INT), depth)
                merged = self._over((key, value, INT), value, depth)
                return f"map_zip_with({given}, {other}, {merged})"
            case 3:
                (k, v), _ = self._lambda(entry, INT, 0)
                apart = f"map_filter({self.of(type_, depth)}, ({k}, {v}) -> "
                return f"map_concat({given}, {apart}NOT map_contains_key({given}, {k})))"
            case 4:
                return f"map_from_entries(map_entries({given}))"
            case 5:
                return f"map_from_arrays(map_keys({given}), map_values({given}))"
            case _:
                (k, v), _ = self._lambda(entry, INT, 0)
                return f"transform_keys({given}, ({k}, {v}) -> {k})"

    def _struct(self, type_: StructType, depth: int) -> str:
        if self.random.random() < 0.3:
            arrays = (self.of(ArrayType(f.dataType), depth) for f in type_.fields)
            zipped = f"try_element_at(arrays_zip({', '.join(arrays)}), 1)"
            return f"CAST({zipped} AS {type_.simpleString()})"
        fields = (f"'{f.name}', {self.of(f.dataType, depth)}" for f in type_.fields)
        return f"named_struct({', '.join(fields)})"

    def _truth(self, _type: DataType, depth: int) -> str:
        random = self.random
        of = self.some_type()
        array = self.of(ArrayType(of), depth)
        one, other = self.of(of, depth), self.of(of, depth)
        forms = [
            f"exists({array}, {self._over((of,), TRUTH, depth)})",
            f"forall({array}, {self._over((of,), TRUTH, depth)})",
            f"({one} IS NULL)",
            f"({one} IS NOT NULL)",
            f"({self.of(TRUTH, depth)} AND {self.of(TRUTH, depth)})",
            f"({self.of(TRUTH, depth)} OR {self.of(TRUTH, depth)})",
            f"(NOT {self.of(TRUTH, depth)})",
        ]
        if _orderly(of):
            forms += [
                f"({one} {random.choice(('=', '<>', '<', '<=', '<=>'))} {other})",
                f"({one} IN ({other}, {self.of(of, depth)}))",
                f"array_contains({array}, {one})",
                f"arrays_overlap({array}, {self.of(ArrayType(of), depth)})",
            ]
        key = random.choice(KEYS)
        forms.append(f"map_contains_key({self.of(MapType(key, of), depth)}, {self.of(key, depth)})")
        return random.choice(forms)

    def _number(self, _type: DataType, depth: int) -> str:
        of = self.some_type()
        array = self.of(ArrayType(of), depth)
        forms = [
            f"size({array})",
            f"size({self.of(MapType(TEXT, of), depth)})",
            f"length({self.of(TEXT, depth)})",
            f"try_add({self.of(INT, depth)}, {self.of(INT, depth)})",
        ]
        if _orderly(of):
            forms.append(f"hash({array})")
            forms.append(f"CAST(array_position({array}, {self.of(of, depth)}) AS INT)")
        return self.random.choice(forms)

    def _text(self, _type: DataType, depth: int) -> str:
        of = self.some_type()
        texts = self.of(ArrayType(TEXT), depth)
        pair = StructType([StructField("a", of), StructField("b", TEXT)])
        return self.random.choice(
            (
                f"array_join({texts}, '-')",
                f"array_join({texts}, '-', 'none')",
                f"concat_ws('/', {texts}, {self.of(TEXT, depth)})",
                f"concat({self.of(TEXT, depth)}, {self.of(TEXT, depth)})",
                f"CAST({self.of(of, depth)} AS STRING)",
                f"to_json({self.of(pair, depth)})",
                f"from_json(to_json({self.of(pair, depth)}), 'b STRING').b",
            )
        )

    def _over(self, kinds: tuple[DataType, ...], type_: DataType, depth: int) -> str:
        """Return a function of some types with results of a type."""
        names, body = self._lambda(kinds, type_, depth)
        given = f"({', '.join(names)})" if len(names) > 1 else names[0]
        return f"{given} -> {body}"

    def _lambda(
        self, kinds: tuple[DataType, ...], type_: DataType, depth: int
    ) -> tuple[list[str], str]:
        names = [self._variable() for _ in kinds]
        outside = self._inside
        self._inside = {**outside, **dict(zip(names, kinds, strict=True))}
        body = self.of(type_, depth)
        self._inside = outside
        return names, body

    def _variable(self) -> str:
        self._names += 1
        return f"v{self._names}"
