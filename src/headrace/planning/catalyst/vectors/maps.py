"""Maps: the value of a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import MapType

from headrace.planning.catalyst.resolved import type_of
from headrace.planning.catalyst.scala import node_name
from headrace.planning.catalyst.vectors.reader import (
    column_of_type,
    is_comparable,
    is_constant,
    is_known,
    require,
)
from headrace.types import constants, to_arrow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.planning.catalyst.vectors.reader import ExpressionReader, Known
    from headrace.planning.catalyst.vectors.vector import Value, Vector


def _value(reader: ExpressionReader, handle: Any) -> Vector:
    """Read ``map[key]``: a key that is a constant, in a column of maps. What is missing is NULL."""
    map_, key = handle.child(), handle.key()
    type_ = type_of(map_)
    require(handle, when=node_name(map_) == "AttributeReference" and isinstance(type_, MapType))
    require(handle, when=is_constant(key) and is_comparable(type_.keyType), of=type_.keyType)
    require(handle, when=is_known(type_.valueType), of=type_.valueType)
    found = constants(type_.keyType, [key.value()])
    require(handle, when=found is not None, of=type_.keyType)
    asked = found[0] if found is not None else None
    column = column_of_type(reader, map_, type_)
    return reader.call(_looked_up, to_arrow(type_.valueType), column, key=asked)


def _looked_up(maps: Value, key: pa.Scalar) -> Value:
    return pc.map_lookup(maps, key, "first")


KNOWN: Final[Mapping[str, Known]] = {"GetMapValue": _value}
