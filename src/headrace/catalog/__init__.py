"""The relations of a database: their definitions, names and dependencies."""

from headrace.catalog.catalog import Catalog
from headrace.catalog.objects import (
    ROWTIME,
    SHARED_SOURCE,
    Declaration,
    Defined,
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
    with_rowtime,
)

__all__ = [
    "ROWTIME",
    "SHARED_SOURCE",
    "Catalog",
    "Declaration",
    "Defined",
    "PlainView",
    "Relation",
    "Sink",
    "Stream",
    "Table",
    "View",
    "inserted_into",
    "key_of",
    "logged",
    "relation_of_json",
    "with_rowtime",
]
