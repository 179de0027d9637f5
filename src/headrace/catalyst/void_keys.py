"""Gives map keys that Spark leaves without a type a type that Arrow supports.

``map()`` without arguments is a ``MAP<VOID, VOID>``. Such a map has no entries, since a key is
never NULL, so any other type of key describes the same value.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StringType, StructType

from headrace.catalyst.resolved import type_of
from headrace.catalyst.scala import Scala, items

_VOID_KEY = '"keyType":"void"'


def with_keys_typed(scala: Scala, plan: Any) -> Any:
    """Return an analysed plan whose columns have maps of STRING keys instead of VOID ones.

    Returns the plan itself if nothing changes.
    """
    if _VOID_KEY not in str(plan.schema().json()):
        return plan
    named = []
    for column in items(plan.output()):
        given = type_of(column)
        type_ = _typed(given)
        cast = column if type_ == given else scala.cast(column, scala.type(type_.json()))
        named.append(column if cast is column else scala.alias(cast, str(column.name())))
    return scala.logical("Project", scala.seq(named), plan)


def _typed(type_: DataType) -> DataType:
    match type_:
        case ArrayType():
            return ArrayType(_typed(type_.elementType), type_.containsNull)
        case MapType():
            void = isinstance(type_.keyType, NullType)
            key = StringType() if void else _typed(type_.keyType)
            return MapType(key, _typed(type_.valueType), type_.valueContainsNull)
        case StructType():
            fields = [(f, _typed(f.dataType)) for f in type_.fields]
            return StructType([type(f)(f.name, t, f.nullable, f.metadata) for f, t in fields])
        case _:
            return type_
