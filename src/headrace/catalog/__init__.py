"""The relations of a database: their definitions, names and dependencies."""

from headrace.catalog.catalog import Catalog
from headrace.catalog.kept_history import KeptHistory
from headrace.catalog.objects import (
    FUNCTION_VIEW,
    ROWTIME,
    SHARED_SOURCE,
    Declaration,
    Defined,
    Index,
    PlainView,
    Relation,
    Sink,
    Stream,
    Table,
    View,
    inserted_into,
    is_ksqldb,
    key_of,
    logged,
    relation_of_json,
    title,
    with_rowtime,
)
from headrace.catalog.refreshing import CONTINUOUS, RefreshKind, RefreshPolicy

__all__ = [
    "CONTINUOUS",
    "FUNCTION_VIEW",
    "ROWTIME",
    "SHARED_SOURCE",
    "Catalog",
    "Declaration",
    "Defined",
    "Index",
    "KeptHistory",
    "PlainView",
    "RefreshKind",
    "RefreshPolicy",
    "Relation",
    "Sink",
    "Stream",
    "Table",
    "View",
    "inserted_into",
    "is_ksqldb",
    "key_of",
    "logged",
    "relation_of_json",
    "title",
    "with_rowtime",
]
