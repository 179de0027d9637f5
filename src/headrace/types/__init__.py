"""Small shared value types: identifiers, row schemas, and Spark's names for types."""

from pyspark.sql.types import DataType, DecimalType, LongType

from headrace.types.identifiers import ArrangementId, Epoch, Offset, RelationId
from headrace.types.schema import (
    Column,
    Schema,
    holds,
    is_collated,
    require_kept,
    require_key,
    to_arrow,
)

__all__ = [
    "ArrangementId",
    "Column",
    "DataType",
    "DecimalType",
    "Epoch",
    "LongType",
    "Offset",
    "RelationId",
    "Schema",
    "holds",
    "is_collated",
    "require_kept",
    "require_key",
    "to_arrow",
]
