"""Row schemas: column names with Spark SQL types, and the corresponding Arrow types.

Which types hold all values of another one, unchanged: what the type of a column may become.

These are Spark's up-casts without those that may lose digits (BIGINT to DOUBLE) or depend on the
time zone of a session (DATE to TIMESTAMP).
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    CalendarIntervalType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    GeographyType,
    GeometryType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimeType,
    VariantType,
    YearMonthIntervalType,
)

from headrace.errors import Code, HeadraceError
from headrace.types.earlier import EARLIER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_NOT_KEPT = (
    CalendarIntervalType,
    GeographyType,
    GeometryType,
    YearMonthIntervalType,
)
"""Types that Arrow does not support, or whose equality does not identify values."""

_STORED = "headrace.stored"
"""The key in the metadata of a field of a schema's JSON under which its stored name is."""

_SINCE = "headrace.since"
"""The key under which the epoch is in which a column was added."""

_MICROSECONDS = 6
"""The largest precision of a TIME: Python, and most other systems, have no nanoseconds."""


@lru_cache(maxsize=1024)
def to_arrow(type_: DataType) -> pa.DataType:
    """Return the Arrow type in which values of a Spark type are exchanged with Spark.

    All its parts are nullable: Spark infers different nullability in different plans of one query,
    and in Arrow, the fields of a NULL struct are NULL too.

    Raises:
        HeadraceError: ``unsupported`` for types whose values cannot be stored.
    """
    require_kept(type_)
    return exchanged(StructType([StructField("one", type_)])).field(0).type


def constants(type_: DataType, given: Iterable[Any]) -> pa.Array | None:
    """Return constants of a type as an Arrow array; None if Arrow compares them differently.

    Integers, dates and times are given as Catalyst's numbers; decimals may be given as text.
    """
    if is_collated(type_):
        return None
    arrow = to_arrow(type_)
    if pa.types.is_string(arrow):
        return pa.array([None if v is None else str(v) for v in given], arrow)
    if pa.types.is_decimal(arrow):
        return pa.array([None if v is None else Decimal(str(v)) for v in given], arrow)
    if pa.types.is_integer(arrow) or pa.types.is_boolean(arrow):
        return pa.array(list(given), arrow)
    if pa.types.is_date32(arrow):
        return pa.array(list(given), pa.int32()).cast(arrow)
    if pa.types.is_timestamp(arrow) or pa.types.is_time(arrow):
        return pa.array(list(given), pa.int64()).cast(arrow)
    return None


def exchanged(rows: StructType) -> pa.Schema:
    """Return the Arrow schema in which rows come from Spark, with nullable parts throughout.

    Spark's own has variants whose parts are never NULL; those of a NULL are.
    """
    found = to_arrow_schema(rows.toNullable(), timezone="UTC")
    if not holds(rows, (VariantType,)):
        return found
    return pa.schema([field.with_type(_nullable(field.type)) for field in found])


def _nullable(kind: pa.DataType) -> pa.DataType:
    """Return an Arrow type whose parts may be NULL, except the keys of maps."""
    if pa.types.is_struct(kind):
        parts = [kind.field(at) for at in range(kind.num_fields)]
        return pa.struct(
            [f.with_type(_nullable(f.type)).with_nullable(nullable=True) for f in parts]
        )
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_nullable(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_nullable(kind.item_type)))
    return kind


def of_task(schema: StructType) -> StructType:
    """Return the schema of the rows of a Python task: VOID is made nullable, as Arrow requires."""
    if any(holds(field.dataType, (NullType,)) for field in schema.fields):
        return schema.toNullable()
    return StructType([StructField(f.name, f.dataType) for f in schema.fields])


def require_rows_kept(rows: StructType) -> None:
    """Raise ``unsupported`` for rows with a column whose values cannot be stored."""
    for field in rows.fields:
        require_kept(field.dataType)


def with_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows cast to a schema, whose names are not compared.

    Arrow's own cast makes lists of NULLs without a type too short, even to the same type.
    """
    columns = [_cast(column, of.type) for column, of in zip(rows.columns, schema, strict=True)]
    return pa.table(columns, schema=schema)


def _cast(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    if not _has_void(type_):
        return column.cast(type_)
    return pa.chunked_array([_with_nulls(chunk, type_) for chunk in column.chunks], type_)


def _has_void(type_: pa.DataType) -> bool:
    parts = (type_.field(i).type for i in range(type_.num_fields))
    return any(pa.types.is_null(part) or _has_void(part) for part in parts)


def _with_nulls(values: pa.Array, kind: pa.DataType) -> pa.Array:
    count = len(values)
    if not count or not _has_void(kind):
        return values.cast(kind) if count else pa.array([], kind)
    if values.offset:
        values = values.take(pa.array(range(count)))
    if pa.types.is_struct(kind):
        parts = [_with_nulls(values.field(i), kind.field(i).type) for i in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, count, values.buffers()[:1], children=parts)
    if pa.types.is_map(kind):
        keys, items = _with_nulls(values.keys, kind.key_type), values.items
        pairs = [keys, _with_nulls(items, kind.item_type)]
        fields = [kind.key_field, kind.item_field]
        children = [pa.StructArray.from_arrays(pairs, fields=fields)]
    else:
        children = [_with_nulls(values.values, kind.value_type)]
    return pa.Array.from_buffers(kind, count, values.buffers()[:2], children=children)


def require_kept(type_: DataType) -> None:
    """Raise ``unsupported`` for a type of a column, or a part of it, that cannot be stored."""
    match type_:
        case ArrayType():
            _require_part_kept(type_, type_.elementType)
        case MapType() if isinstance(type_.keyType, NullType):
            raise HeadraceError(
                Code.UNSUPPORTED,
                "a map whose keys have no type cannot be kept",
                hint="Give it a type, such as CAST(map() AS MAP<STRING, INT>).",
            )
        case MapType():
            _require_part_kept(type_, type_.keyType)
            _require_part_kept(type_, type_.valueType)
        case StructType():
            for field in type_.fields:
                _require_part_kept(type_, field.dataType)
        case TimeType() if type_.precision > _MICROSECONDS:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f"a column of type TIME({type_.precision}) is not supported",
                hint="Cast it to TIME(6), whose values have microseconds.",
            )
        case _ if isinstance(type_, _NOT_KEPT):
            raise HeadraceError(
                Code.UNSUPPORTED,
                f"a column of type {type_.simpleString().upper()} cannot be kept",
                hint="Keep it as STRING, and convert it where it is used.",
            )


def _require_part_kept(whole: DataType, part: DataType) -> None:
    """Raise ``unsupported`` for a part that cannot be stored: a VARIANT is a column of its own.

    Spark cannot compare variants, so rows are compared by their bytes, which can be reached in
    columns only.
    """
    if isinstance(part, VariantType):
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"a column of type {whole.simpleString().upper()} cannot be kept",
            hint="Keep one VARIANT: to_variant_object() makes it of arrays, maps and structs.",
        )
    require_kept(part)


def holds(type_: DataType, kinds: tuple[type[DataType], ...]) -> bool:
    """Whether a type is one of the kinds, or contains one."""
    match type_:
        case _ if isinstance(type_, kinds):
            return True
        case ArrayType():
            return holds(type_.elementType, kinds)
        case StructType():
            return any(holds(field.dataType, kinds) for field in type_.fields)
        case MapType():
            return any(holds(part, kinds) for part in (type_.keyType, type_.valueType))
        case _:
            return False


def is_collated(type_: DataType) -> bool:
    """Whether a type is or contains text that is not compared by bytes."""
    match type_:
        case StringType():
            return not type_.isUTF8BinaryCollation()
        case ArrayType():
            return is_collated(type_.elementType)
        case StructType():
            return any(is_collated(field.dataType) for field in type_.fields)
        case _:
            return False


def is_exact(type_: DataType) -> bool:
    """Whether values of a type that are equal in SQL are identical."""
    return not (holds(type_, (FloatType, DoubleType, MapType, VariantType)) or is_collated(type_))


def require_key(type_: DataType) -> None:
    """Raise ``unsupported`` for a key type in which different values can be equal in SQL."""
    if holds(type_, (FloatType, DoubleType, MapType, VariantType)) or is_collated(type_):
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"a primary key of type {type_.simpleString().upper()} is not supported",
            detail="Different values of this type can be equal in SQL, or have no equality at all.",
            hint="Use a key of an integer, DECIMAL, STRING, DATE, TIME or TIMESTAMP type.",
        )


@dataclass(frozen=True)
class Column:
    """A column: its name as declared, and its Spark type (``pyspark.sql.types``)."""

    name: str
    type: DataType
    nullable: bool = True
    stored: str | None = None
    """Its name in files, if it had another one when it was declared."""
    earlier: str | None = None
    """Its value in rows of files that lack it; see :mod:`headrace.types.earlier`. None is NULL."""
    since: int | None = None
    """The epoch in which it was added; None if its relation was created with it."""

    @property
    def stored_name(self) -> str:
        """Its name in the segments of a log and in a table's runs, which never changes."""
        return self.name if self.stored is None else self.stored

    @property
    def sql(self) -> str:
        """The type as Spark SQL writes it, such as ``decimal(10,2)``."""
        return str(self.type.simpleString())


@dataclass(frozen=True)
class Schema:
    """The columns of a relation, in order. Names are unique regardless of case."""

    columns: tuple[Column, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The column names, in order."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def by_lower_name(self) -> Mapping[str, Column]:
        """The columns by their names in lower case."""
        return {column.name.lower(): column for column in self.columns}

    @cached_property
    def spark(self) -> StructType:
        """The schema as Spark's ``StructType``."""
        return StructType([StructField(c.name, c.type, c.nullable) for c in self.columns])

    @cached_property
    def arrow(self) -> pa.Schema:
        """The schema in which rows are exchanged with Spark; all fields are nullable.

        Timestamps are microseconds, in UTC; a TIME is in nanoseconds, whatever its precision;
        strings have 32-bit offsets.
        """
        require_rows_kept(self.spark)
        return exchanged(self.spark)

    @cached_property
    def filled(self) -> pa.Schema:
        """As ``arrow``, with the values of earlier rows; see :mod:`headrace.types.earlier`."""
        if all(column.earlier is None for column in self.columns):
            return self.arrow
        pairs = zip(self.arrow, self.columns, strict=True)
        return pa.schema(
            field if column.earlier is None else field.with_metadata({EARLIER: column.earlier})
            for field, column in pairs
        )

    @cached_property
    def stored_names(self) -> tuple[str, ...]:
        """The names of the columns in the segments of a log and in a table's runs, in order."""
        return tuple(column.stored_name for column in self.columns)

    @cached_property
    def stored(self) -> pa.Schema:
        """The schema in which rows are in a log: as ``filled``, with the stored names.

        Earlier segments lack columns that were added later, may have some that were dropped since,
        and narrower types of columns that were altered.
        """
        if self.stored_names == self.names:
            return self.filled
        pairs = zip(self.filled, self.stored_names, strict=True)
        return pa.schema([field.with_name(name) for field, name in pairs])

    def in_log(self, rows: pa.Table) -> pa.Table:
        """Return rows with the stored names of these columns; other columns stay as they are."""
        others = {c.name: c.stored for c in self.columns if c.stored is not None}
        if not others:
            return rows
        return rows.rename_columns([others.get(name, name) for name in rows.column_names])

    def of_log(self, rows: pa.Table) -> pa.Table:
        """Return rows of a log with the present names of these columns."""
        present = {c.stored: c.name for c in self.columns if c.stored is not None}
        if not present:
            return rows
        return rows.rename_columns([present.get(name, name) for name in rows.column_names])

    def renamed(self, names: tuple[str, ...], stored: tuple[str, ...] = ()) -> Schema:
        """Return the same columns under other names; in files, they have those ``stored``."""
        found = zip(self.columns, names, stored or names, strict=True)
        return Schema(
            tuple(
                Column(name, c.type, c.nullable, None if kept == name else kept)
                for c, name, kept in found
            )
        )

    @classmethod
    def of_spark(cls, spark: StructType) -> Schema:
        """Return the schema of a ``StructType``."""
        return cls(tuple(Column(f.name, f.dataType, f.nullable) for f in spark.fields))

    def to_json(self) -> Any:
        """Return a JSON value that :meth:`of_json` reads."""
        found = self.spark.jsonValue()
        for column, field in zip(self.columns, found["fields"], strict=True):
            kept = {_STORED: column.stored, EARLIER: column.earlier, _SINCE: column.since}
            if given := {key: value for key, value in kept.items() if value is not None}:
                field["metadata"] = given
        return found

    @classmethod
    def of_json(cls, value: Any) -> Schema:
        """Return the schema that :meth:`to_json` wrote."""
        spark = StructType.fromJson(value)
        return cls(
            tuple(
                Column(f.name, f.dataType, f.nullable, *map(known.get, (_STORED, EARLIER, _SINCE)))
                for f in spark.fields
                for known in (f.metadata or {},)
            )
        )


_INTEGERS: Final = (ByteType, ShortType, IntegerType, LongType)
_DIGITS: Final = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 20}
"""The digits of a DECIMAL that holds each integer type, as Spark counts them."""
_EXACT_IN: Final = {
    FloatType: (ByteType, ShortType),
    DoubleType: (ByteType, ShortType, IntegerType, FloatType),
}
_WIDER: Final = {
    ByteType: "SMALLINT, INT, BIGINT, FLOAT, DOUBLE, or DECIMAL with 3 digits before the point",
    ShortType: "INT, BIGINT, FLOAT, DOUBLE, or DECIMAL with 5 digits before the point",
    IntegerType: "BIGINT, DOUBLE, or DECIMAL with 10 digits before the point",
    LongType: "DECIMAL with 20 digits before the point",
    FloatType: "DOUBLE",
}

_STORED_ALIKE: Final = {
    ByteType: "SMALLINT, INT or BIGINT",
    ShortType: "INT or BIGINT",
    IntegerType: "BIGINT",
    FloatType: "DOUBLE",
}


def widens(former: DataType, present: DataType) -> bool:
    """Whether a type holds all values of another one as they are."""
    match present:
        case DecimalType() if isinstance(former, DecimalType):
            whole = former.precision - former.scale
            return bool(
                present.scale >= former.scale and present.precision - present.scale >= whole
            )
        case DecimalType():
            digits = _DIGITS.get(type(former))
            return digits is not None and bool(present.precision - present.scale >= digits)
        case FloatType() | DoubleType():
            return isinstance(former, _EXACT_IN[type(present)])
        case _ if isinstance(former, _INTEGERS) and isinstance(present, _INTEGERS):
            return _INTEGERS.index(type(present)) > _INTEGERS.index(type(former))
        case _:
            return False


def wider_than(type_: DataType, *, stored_alike: bool) -> str:
    """Return the types that a column of a type may get, for messages; "" if there are none.

    ``stored_alike``: without those whose values a table stores in another form.
    """
    if stored_alike and not isinstance(type_, DecimalType):
        return _STORED_ALIKE.get(type(type_), "")
    if isinstance(type_, DecimalType):
        whole, scale = type_.precision - type_.scale, type_.scale
        if stored_alike:
            return (
                f"DECIMAL with at least {whole} digits before the point and just {scale} after it"
            )
        return f"DECIMAL with at least {whole} digits before the point and {scale} after it"
    return _WIDER.get(type(type_), "")
