"""Access to DynamoDB: options, clients, and the translation of errors.

DynamoDB's attribute type for each type of column, and the conversion of values both ways.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from headrace.errors import Code, HeadraceError
from headrace.execution.serving.values import csv_text, python_values, text_column
from headrace.io.connectors import aws
from headrace.io.connectors.sinks import values_of
from headrace.io.formats.values import cast_texts
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from headrace.types import Column


@dataclass(frozen=True, slots=True, kw_only=True)
class Access(aws.Access):
    """Options of a connection."""

    def client(self, secret: Callable[[str], str], connections: int = 10) -> Any:
        """Return a client without automatic retries; ``secret`` returns a secret's value.

        A request sent twice may be executed twice, the first one after requests sent later.
        """
        with errors("DynamoDB cannot be reached"):
            return aws.client(
                "dynamodb",
                "dynamodb",
                self.settings(secret),
                attempts=1,
                connections=connections,
            )


def check(access: Access, secret: Callable[[str], str]) -> None:
    """Raise if the service cannot be reached."""
    client = access.client(secret)
    with errors("DynamoDB cannot be reached"):
        client.list_tables(Limit=1)


def errors(primary: str) -> AbstractContextManager[None]:
    """Translate errors of the service and its client to a HeadraceError with this message."""
    return aws.errors(
        primary,
        {
            "ResourceNotFoundException": lambda detail: HeadraceError(
                Code.INVALID,
                primary,
                detail,
                "Create the table, or correct its name, the region or the endpoint.",
            ),
        },
    )


MAPPING: Final = {
    "BOOLEAN": "`BOOL`",
    "TINYINT, SMALLINT, INT, BIGINT": "`N`",
    "FLOAT, DOUBLE, DECIMAL": "`N`",
    "STRING": "`S`",
    "BINARY": "`B`",
    "DATE": "`S`, `2026-01-31`",
    "TIME": "`S`, `10:15:00.500000`",
    "TIMESTAMP": "`S`, `2026-01-31T10:15:00.500000Z`",
    "TIMESTAMP_NTZ": "`S`, `2026-01-31T10:15:00.500000`",
    "ARRAY": "`L`",
    "MAP, STRUCT": "`M`",
    "NULL": "no attribute; `NULL` within others",
}
"""The documented attribute type for each type of column."""
_NUMBERS: Final = (t.IntegralType, t.FractionalType)
_NESTED: Final = (t.ArrayType, t.MapType, t.StructType)

Attribute = dict[str, Any]
"""A value by the code of its attribute type, such as ``{"N": "7"}``."""


def kind_of(type_: t.DataType) -> str:
    """Return the code of the attribute type for a type of column."""
    match type_:
        case t.BooleanType():
            return "BOOL"
        case t.BinaryType():
            return "B"
        case t.ArrayType():
            return "L"
        case t.MapType() | t.StructType():
            return "M"
    return "N" if isinstance(type_, _NUMBERS) else "S"


def attributes(values: Any, type_: t.DataType) -> list[Attribute | None]:
    """Convert the values of a column into attributes; None for NULL."""
    kind = kind_of(type_)
    if isinstance(type_, _NESTED):
        nested = python_values(values, "strict")
        return [None if v is None else _nested(v, type_) for v in nested]
    plain = kind in ("BOOL", "B")
    listed = values.to_pylist() if plain else text_column(values).to_pylist()
    return [None if value is None else {kind: value} for value in listed]


def refused(values: Any, type_: t.DataType) -> list[int]:
    """Return the indices of values that DynamoDB cannot represent: NaN and infinities."""
    if not isinstance(type_, t.FloatType | t.DoubleType):
        return []
    strange = pc.invert(pc.is_finite(values))
    return pc.indices_nonzero(pc.fill_null(strange, False)).to_pylist()  # type: ignore[no-any-return]  # noqa: FBT003


def rows_of(items: Sequence[Mapping[str, Attribute]], columns: Sequence[Column]) -> list[pa.Array]:
    """Convert items into columns; a value that is not of its column's type becomes NULL."""
    return [_column([item.get(c.name) for item in items], c) for c in columns]


def _column(found: Sequence[Attribute | None], column: Column) -> pa.Array:
    kind, target = kind_of(column.type), to_arrow(column.type)
    values = [None if each is None else each.get(kind) for each in found]
    if kind == "BOOL":
        return pa.array(values, target)
    if kind == "B":
        return pa.array([None if v is None else bytes(v) for v in values], target)
    if kind in ("L", "M"):
        read = [None if v is None else _read({kind: v}, column.type) for v in values]
        return pa.array(read, target)
    return values_of(pa.array(values, pa.string()), column)


def _nested(value: Any, type_: t.DataType) -> Attribute:
    """Convert a value inside a nested one into an attribute."""
    if value is None:
        return {"NULL": True}
    match type_:
        case t.ArrayType():
            return {"L": [_nested(each, type_.elementType) for each in value]}
        case t.MapType():
            pairs = ((csv_text(key) or "", item) for key, item in value.items())
            return {"M": {key: _nested(item, type_.valueType) for key, item in pairs}}
        case t.StructType():
            return {"M": {f.name: _nested(value[f.name], f.dataType) for f in type_.fields}}
        case t.BooleanType() | t.BinaryType():
            return {kind_of(type_): value}
    return {kind_of(type_): csv_text(value) or ""}


def _read(attribute: Attribute, type_: t.DataType) -> Any:
    """Convert an attribute of :func:`_nested` back into a Python value for Arrow."""
    ((kind, value),) = attribute.items()
    if kind == "NULL":
        return None
    match type_:
        case t.ArrayType():
            return [_read(each, type_.elementType) for each in value]
        case t.MapType():
            keys = pa.array(list(value), pa.string())
            key = cast_texts(keys, type_.keyType, to_arrow(type_.keyType)).to_pylist()
            items = [_read(each, type_.valueType) for each in value.values()]
            return list(zip(key, items, strict=True))
        case t.StructType():
            return {f.name: _read(value[f.name], f.dataType) for f in type_.fields}
        case t.BooleanType():
            return value
        case t.BinaryType():
            return bytes(value)
    return cast_texts(pa.array([value], pa.string()), type_, to_arrow(type_))[0].as_py()
