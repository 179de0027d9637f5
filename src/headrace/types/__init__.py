"""Small shared value types: identifiers and row schemas."""

from headrace.types.identifiers import ArrangementId, Epoch, Offset, RelationId
from headrace.types.schema import Column, Schema

__all__ = ["ArrangementId", "Column", "Epoch", "Offset", "RelationId", "Schema"]
