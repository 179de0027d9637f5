"""Small shared value types: identifiers, row schemas, and Spark's names for types."""

from pyspark.sql.types import DataType, DecimalType, LongType, TimestampType

from headrace.types.identifiers import (
    ArrangementId,
    BuildId,
    DirtyId,
    Epoch,
    EvidenceId,
    FrontierId,
    Offset,
    RelationId,
    rows_of,
)
from headrace.types.schema import (
    Column,
    Schema,
    holds,
    is_collated,
    is_exact,
    of_task,
    require_kept,
    require_key,
    to_arrow,
)

__all__ = [
    "ArrangementId",
    "BuildId",
    "Column",
    "DataType",
    "DecimalType",
    "DirtyId",
    "Epoch",
    "EvidenceId",
    "FrontierId",
    "LongType",
    "Offset",
    "RelationId",
    "Schema",
    "TimestampType",
    "holds",
    "is_collated",
    "is_exact",
    "of_task",
    "require_kept",
    "require_key",
    "rows_of",
    "to_arrow",
]
