"""Opening a database: its catalog is loaded from the ledger and declared to Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.catalog import Catalog, Sink, Stream, Table, View, relation_of_json
from headrace.circuit import rows_of
from headrace.parts.definer import Relations
from headrace.parts.functions import Functions
from headrace.parts.information_schema import system_relations
from headrace.parts.naming import HIDDEN
from headrace.runtime.deliveries import position
from headrace.zset import Layout

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.functions import Function
    from headrace.parts.instance import Instance


def restore(instance: Instance, functions: Iterable[Function] = ()) -> None:
    """Load the catalog from the ledger into Spark, and drop temporary views.

    Views that lack a function wait for it; views whose function is now given resume.
    """
    relations = Relations(instance)
    records = instance.ledger.objects()
    stored = {record.id: dict(record.layout) for record in instance.ledger.arrangements()}
    catalog = Catalog.of(relation_of_json(dict(record.definition)) for record in records)
    for described in system_relations():
        instance.engine.declare(described)
    for relation in catalog:
        if isinstance(relation, Stream | Table):
            relations.announce(relation)
    registry = Functions(instance)
    registry.restore(catalog, functions)
    lacking = registry.lacking(catalog)
    for view in catalog.defined_in_order():
        if view.id in lacking:
            relations.announce_waiting(view)
            continue
        relations.announce(view)
        if isinstance(view, View):
            relations.check_stored(view, stored)
    kept = [r for r in catalog if isinstance(r, Table | View)]
    layouts = {rows_of(r.id): Layout.of_json(stored[rows_of(r.id)]) for r in kept}
    instance.loop.published.publish(catalog, layouts)
    for record in records:  # before an epoch is made: their history is released step by step
        if isinstance(catalog.by_id[record.relation], Sink):
            at = position(instance.ledger, record.relation)
            instance.loop.held[record.relation] = record.created_epoch if at is None else at
    registry.wait(lacking)
    fed = {relation.source for relation in catalog if isinstance(relation, Sink)}
    hidden = [
        view.id
        for view in catalog.views_in_order()
        if view.name.startswith(HIDDEN) and view.id not in fed
    ]
    if hidden:
        relations.drop(hidden)
    registry.resume()
