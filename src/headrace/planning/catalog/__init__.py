"""The relations of a database: their definitions, names and dependencies.

The walk of lineage:

1. ``planning/catalyst/lineage.py`` reads the plan of a view's query as Spark has resolved it,
   before it is optimised: for each column, the columns of the direct inputs and the kind of the
   influence (``planning/catalog/lineage.py``). ``lifecycle/facts/lineage.py`` does so when it
   is first asked, and keeps it until the view is replaced.
2. ``planning/catalog/lineage.py`` follows it through views, sinks and the tables that sinks
   write into, up or down.
3. ``lifecycle/facts/openlineage_events.py`` makes events of it; the ``Definer`` reports
   creations, fills and drops to ``lifecycle/facts/openlineage.py``, whose thread
   (``lifecycle/facts/openlineage.py``) sends them (decision 48).
"""

from headrace.planning.catalog.catalog import Catalog
from headrace.planning.catalog.objects import (
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
from headrace.planning.catalog.policies import CONTINUOUS, KeptHistory, RefreshKind, RefreshPolicy

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
