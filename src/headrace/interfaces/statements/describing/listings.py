"""SHOW: calls the class of a listing, and filters its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.interfaces.statements.describing.relations import filtered
from headrace.planning.sql import Listing

if TYPE_CHECKING:
    from headrace.interfaces.statements.checking.reconciliations import Reconciliations
    from headrace.interfaces.statements.describing.descriptions import Errors
    from headrace.interfaces.statements.describing.names import NameListings, TokenListings
    from headrace.interfaces.statements.describing.relations import RelationListings
    from headrace.interfaces.statements.describing.states import StateListings
    from headrace.interfaces.statements.results import Listed, Result
    from headrace.planning.sql import Show


@dataclass(frozen=True, slots=True)
class Listings:
    """Lists the contents of a database."""

    relation_listings: RelationListings
    name_listings: NameListings
    state_listings: StateListings
    token_listings: TokenListings
    reconciliations: Reconciliations
    errors: Errors

    def show(self, statement: Show) -> Listed | Result:
        """Return the listing of a statement, filtered by its pattern and schema."""
        match statement.listing:
            case Listing.RECONCILIATION | Listing.EVIDENCE:
                return self.reconciliations.show(statement)
            case Listing.ERRORS:
                return self.errors.show(statement)
            case _:
                found = self._listed(statement)
        if statement.schema is not None:
            self.name_listings.require_schema(statement.schema)
        return filtered(found, statement.like, statement.schema)

    def _listed(self, statement: Show) -> Listed:
        match statement.listing:
            case Listing.TOKENS | Listing.GRANTS:
                return self.token_listings.show(statement)
            case Listing.SCHEMAS | Listing.SECRETS | Listing.CONNECTIONS | Listing.FUNCTIONS:
                return self.name_listings.show(statement)
            case (
                Listing.STREAMS
                | Listing.INDEXES
                | Listing.TABLES
                | Listing.VIEWS
                | Listing.MATERIALIZED_VIEWS
            ):
                return self.relation_listings.show(statement)
            case _:
                return self.state_listings.show(statement)
