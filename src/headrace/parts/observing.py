"""The published state as a process sees it that only reads the ledger, which another one writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog import Catalog, relation_of_json
from headrace.parts.access import Access
from headrace.runtime.published import published_at, stored_layouts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.ledger import Ledger
    from headrace.parts.access import AccessToken
    from headrace.runtime.published import Published
    from headrace.types import Offset, RelationId


@dataclass(frozen=True, slots=True)
class Observed:
    """A published state, with the ends of logs and the access tokens at that time."""

    published: Published
    ends: Mapping[RelationId, Offset]
    tokens: Mapping[str, AccessToken]


def observed(ledger: Ledger, before: Observed | None = None) -> Observed:
    """Return the last state that a ledger has; what did not change is taken from the one before."""
    while True:
        epoch = ledger.epochs.last()
        records, head = ledger.relations.existing(), ledger.head
        if head.epoch == epoch:  # the relations are those of this epoch
            break
    catalog = Catalog.of(relation_of_json(dict(record.definition)) for record in records)
    known = None if before is None else before.published
    if known is not None and known.catalog == catalog:
        catalog = known.catalog
    layouts = stored_layouts(head, (each.id for each in catalog))
    state = published_at(head, catalog, layouts, known)
    return Observed(state, dict(head.ends), Access(ledger).tokens)
