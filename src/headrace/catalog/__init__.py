"""The relations of a database: their definitions, names and dependencies."""

from headrace.catalog.catalog import Catalog
from headrace.catalog.objects import (
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
    key_of,
    logged,
    relation_of_json,
    title,
    with_rowtime,
)
from headrace.catalog.refreshing import CONTINUOUS, RefreshKind, RefreshPolicy

__all__ = [
    "CONTINUOUS",
    "ROWTIME",
    "SHARED_SOURCE",
    "Catalog",
    "Declaration",
    "Defined",
    "Index",
    "PlainView",
    "RefreshKind",
    "RefreshPolicy",
    "Relation",
    "Sink",
    "Stream",
    "Table",
    "View",
    "inserted_into",
    "key_of",
    "logged",
    "relation_of_json",
    "title",
    "with_rowtime",
]
