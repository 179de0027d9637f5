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
    exchanged,
    holds,
    is_collated,
    is_exact,
    of_task,
    require_kept,
    require_key,
    require_rows_kept,
    to_arrow,
    with_schema,
)
from headrace.types.variants import for_spark, is_variant, variant_of, variant_texts, variant_values

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
    "exchanged",
    "for_spark",
    "holds",
    "is_collated",
    "is_exact",
    "is_variant",
    "of_task",
    "require_kept",
    "require_key",
    "require_rows_kept",
    "rows_of",
    "to_arrow",
    "variant_of",
    "variant_texts",
    "variant_values",
    "with_schema",
]
