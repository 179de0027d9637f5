"""SHOW of named objects other than relations: schemas, secrets, connections, functions, tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import unknown
from headrace.interfaces.statements.defining.tokens import second_of
from headrace.interfaces.statements.describing.relations import is_shown, listed
from headrace.interfaces.statements.results import Listed
from headrace.lifecycle.definitions.functions import users
from headrace.planning.catalog import FUNCTION_VIEW, PlainView
from headrace.planning.sql import Listing, Role
from headrace.planning.sql.rewritten import function_of

if TYPE_CHECKING:
    from headrace.io.connectors import Connections, Secrets
    from headrace.lifecycle.definitions.functions import Functions
    from headrace.lifecycle.states.access import Access, Principal
    from headrace.lifecycle.states.declarations import Schemas
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.sql import Name, Show


@dataclass(frozen=True, slots=True)
class NameListings:
    """Lists named objects of the ledger that the client may see."""

    reader: Reader
    schemas: Schemas
    secrets: Secrets
    connections: Connections
    functions: Functions
    principal: Principal

    def show(self, statement: Show) -> Listed:
        """Return the objects of one kind, each with its definition."""
        match statement.listing:
            case Listing.SCHEMAS:
                return listed(("name",), [(name,) for name in self._seen_schemas()])
            case Listing.SECRETS:
                secrets = self.secrets
                rows = [(s.name, s.source, s.where, secrets.problem(s)) for s in secrets]
                return listed(("name", "source", "where", "problem"), rows)
            case Listing.CONNECTIONS:
                shown = [(c.name, c.kind, _options(c.stored)) for c in self.connections]
                return listed(("name", "kind", "options"), shown)
            case _:
                return self._functions()

    def require_schema(self, schema: Name) -> None:
        """Raise if a schema does not exist, or the client may not see it.

        Raises:
            HeadraceError: ``invalid``, at the name.
        """
        known = self._seen_schemas()
        if schema.dotted not in known:
            raise unknown("schema", schema, known, "SHOW SCHEMAS lists what exists.", schema.span)

    def _seen_schemas(self) -> tuple[str, ...]:
        known = self.schemas.names(self.reader.catalog)
        return tuple(name for name in known if self.principal.sees(f"{name}."))

    def _functions(self) -> Listed:
        functions, catalog = self.functions, self.reader.catalog
        rows = [
            (
                record.name,
                record.signature,
                record.kind.value,
                record.deterministic,
                record.digest,
                "registered" if name in functions.registered else "missing",
                ", ".join(
                    sorted(v.name for v in users(catalog, name) if is_shown(v, self.principal))
                ),
            )
            for name, record in sorted(functions.records.items())
        ]
        rows += [
            (
                relation.name.removeprefix(FUNCTION_VIEW),
                function_of(relation.created_sql).signature,
                "sql",
                True,
                "",
                "registered",
                ", ".join(
                    sorted(
                        v.name
                        for v in catalog.dependants(relation.id)
                        if is_shown(v, self.principal)
                    )
                ),
            )
            for relation in catalog
            if isinstance(relation, PlainView) and relation.name.startswith(FUNCTION_VIEW)
        ]
        names = ("name", "signature", "kind", "deterministic", "digest", "state", "views")
        return listed(names, rows)


def _options(stored: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in stored)


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
