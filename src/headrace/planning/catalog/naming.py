"""Names that are reserved for Headrace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.planning.catalog import Sink, View

if TYPE_CHECKING:
    from headrace.planning.catalog import Catalog, Defined, Relation


SYSTEM_SCHEMA: Final = "information_schema"
"""The schema of relations that describe the database itself."""

HIDDEN: Final = "__"
"""The prefix of the names of hidden views."""

DEFAULT_SCHEMA: Final = "default"
"""The schema of relations with unqualified names."""


def schema_of(name: str) -> str:
    """Return the schema of a relation's dotted name."""
    return name.rpartition(".")[0].lower() or DEFAULT_SCHEMA


def is_candidate(relation: Relation) -> bool:
    """Return whether a relation is a candidate, or what served before, and so has no name."""
    return isinstance(relation, View) and relation.candidate_of is not None


def is_hidden(relation: Defined) -> bool:
    """Whether a view or sink has no name that users know."""
    return relation.name.startswith(HIDDEN)


def shown_name(relation: Relation, catalog: Catalog) -> str:
    """Return the public name of a relation; a hidden view is named after its index or sink."""
    if isinstance(relation, View) and relation.candidate_of is not None:
        of = catalog.by_id.get(relation.candidate_of)
        return "a candidate" if of is None else f"the candidate of {shown_name(of, catalog)}"
    if isinstance(relation, View) and relation.index is not None:
        return f"index {relation.index.name}"
    if not relation.name.startswith(HIDDEN):
        return relation.name
    fed = [s.name for s in catalog if isinstance(s, Sink) and s.source == relation.id]
    return f"query of {', '.join(fed)}" if fed else "a query that is followed"
