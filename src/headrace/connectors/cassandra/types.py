"""Cassandra's types for each type of column, and the conversion of values in both directions.

Collections are frozen: in others, elements are written one by one, and a repeated write of a list
would duplicate them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from headrace.connectors.text_values import values_of
from headrace.serving.text_columns import text_column
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.types import Column

_DAYS: Final = 1 << 31
"""1970-01-01 as a DATE of Cassandra."""
_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint", "varint")
_PLAIN: Final[Mapping[type[t.DataType], tuple[str, ...]]] = {
    t.BooleanType: ("boolean",),
    t.ByteType: _INTEGERS,
    t.ShortType: _INTEGERS[1:],
    t.IntegerType: _INTEGERS[2:],
    t.LongType: _INTEGERS[3:],
    t.FloatType: ("float", "double"),
    t.DoubleType: ("double",),
    t.DecimalType: ("decimal",),
    t.StringType: (),
    t.BinaryType: ("blob",),
}
"""The types that take values of scalars unchanged; new tables have the first."""
_TIMES: Final[Mapping[type[t.DataType], tuple[str, ...]]] = {
    t.DateType: ("date",),
    t.TimeType: ("time",),
    t.TimestampType: ("timestamp", "bigint"),
    t.TimestampNTZType: (),
}

MAPPING: Final = {
    "BOOLEAN": "`boolean`",
    "TINYINT": "`tinyint`, `smallint`, `int`, `bigint`, `varint`",
    "SMALLINT": "`smallint`, `int`, `bigint`, `varint`",
    "INT": "`int`, `bigint`, `varint`",
    "BIGINT": "`bigint`, `varint`",
    "FLOAT": "`float`, `double`",
    "DOUBLE": "`double`",
    "DECIMAL": "`decimal`",
    "STRING": "`text`",
    "BINARY": "`blob`",
    "DATE": "`date`",
    "TIME": "`time`",
    "TIMESTAMP": "`timestamp`, whole milliseconds; `bigint`, microseconds since 1970",
    "TIMESTAMP_NTZ": "`text`",
    "ARRAY of these up to BINARY": "`frozen<list<...>>`",
    "MAP of these up to BINARY": "`frozen<map<..., ...>>`",
    "other ARRAY and MAP, STRUCT": "`text`, JSON",
    "any": "`text`, as in JSON without quotes",
}
"""The documented types for each type of column; tables created by a sink have the first."""
_MICROS: Final = 1000
"""Microseconds in a unit of ``timestamp``."""


def targets(type_: t.DataType) -> tuple[str, ...]:
    """Return Cassandra's types for a type of column; new tables have the first."""
    match type_:
        case t.ArrayType() if type(type_.elementType) in _PLAIN:
            return (f"frozen<list<{targets(type_.elementType)[0]}>>", "text")
        case t.MapType() if type(type_.keyType) in _PLAIN and type(type_.valueType) in _PLAIN:
            key, value = targets(type_.keyType)[0], targets(type_.valueType)[0]
            return (f"frozen<map<{key}, {value}>>", "text")
    return (*_PLAIN.get(type(type_), ()), *_TIMES.get(type(type_), ()), "text")


@dataclass(frozen=True, slots=True)
class Cells:
    """A column of the rows, with the name and type of its column in Cassandra's table."""

    column: Column
    name: str
    target: str

    def written(self, values: Any) -> list[Any]:
        """Convert an Arrow column into the client's values."""
        match self.column.type:
            case _ if self.target == "text":
                return text_column(values).to_pylist()  # type: ignore[no-any-return]
            case t.TimestampType():
                each = _MICROS if self.target == "timestamp" else 1
                micros = values.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
                return [None if v is None else v // each for v in micros.to_pylist()]
            case t.DateType():
                days = values.cast(pa.int32()).to_pylist()
                return [None if day is None else day + _DAYS for day in days]
            case t.TimeType():
                return values.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
        return values.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]

    def refused(self, values: Any) -> tuple[str, list[int]] | None:
        """Return why some values cannot be written, and their indices; None if all can."""
        if self.target == "timestamp":
            micros = values.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            whole = pc.multiply(pc.divide(micros, _MICROS), _MICROS)
            places = pc.indices_nonzero(pc.not_equal(micros, whole)).to_pylist()
            why = f'column "{self.name}" has whole milliseconds, and this is finer'
            return (why, places) if places else None
        if self.target.startswith("frozen") and any(map(_has_null_inside, _chunks(values))):
            listed = values.to_pylist(maps_as_pydicts="strict")
            inner = [v.values() if isinstance(v, dict) else v or () for v in listed]
            why = f'column "{self.name}" has no NULL within a value'
            return why, [at for at, each in enumerate(inner) if None in each]
        return None

    def read(self, values: Sequence[Any]) -> pa.Array:
        """Convert values of the client into an Arrow array of the column's type."""
        target = to_arrow(self.column.type)
        match self.column.type:
            case _ if self.target == "text":
                return values_of(pa.array(values, pa.string()), self.column)
            case t.TimestampType() if self.target == "timestamp":
                return pa.array(values, pa.timestamp("us")).cast(target)
            case t.TimestampType():
                return pa.array(values, pa.int64()).cast(target)
            case t.DateType():
                days = [None if v is None else v.days_from_epoch for v in values]
                return pa.array(days, pa.int32()).cast(target)
            case t.TimeType():
                return pa.array([None if v is None else v.nanosecond_time for v in values], target)
            case t.ArrayType():
                return pa.array([None if v is None else list(v) for v in values], target)
            case t.MapType():
                return pa.array([None if v is None else list(v.items()) for v in values], target)
        return pa.array(values, target)


def _chunks(values: Any) -> list[pa.Array]:
    return values.chunks if isinstance(values, pa.ChunkedArray) else [values]


def _has_null_inside(values: pa.Array) -> bool:
    inner = values.items if pa.types.is_map(values.type) else values.flatten()
    return bool(inner.null_count)
