"""SHOW TOKENS and SHOW GRANTS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.sql import Listing, Role
from headrace.statements.defining.tokens import second_of
from headrace.statements.results import Listed

if TYPE_CHECKING:
    from headrace.parts.access import Access, Principal
    from headrace.sql import Show


@dataclass(frozen=True, slots=True)
class TokenListings:
    """Lists access tokens, and the roles that they have."""

    access: Access
    principal: Principal

    def show(self, statement: Show) -> Listed:
        """List the tokens, or the roles of one or all; only an owner sees those of others."""
        if statement.listing is Listing.TOKENS:
            return self._tokens()
        return self._grants(statement)

    def _tokens(self) -> Listed:
        now = self.access.clock()
        rows = [
            (
                token.name,
                second_of(token.created),
                second_of(token.expires),
                "expired" if token.expires is not None and token.expires <= now else "valid",
            )
            for token in self.access
        ]
        return Listed(("name", "created", "expires", "state"), rows)

    def _grants(self, statement: Show) -> Listed:
        wanted = None if self.principal.may(Role.OWNER) else self.principal.name
        if statement.token is not None:
            self.access.find(statement.token.dotted, statement.token.span)
            wanted = statement.token.dotted
        rows = [
            (token.name, str(role), "schema" if place else "database", place or None)
            for token in self.access
            if wanted in (None, token.name)
            for place, roles in sorted(token.roles.items())
            for role in sorted(roles)
        ]
        return Listed(("token", "role", "on", "schema"), rows)
