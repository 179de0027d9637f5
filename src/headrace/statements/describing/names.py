"""SHOW of named objects other than relations: schemas, secrets, connections and functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog import FUNCTION_VIEW, PlainView
from headrace.errors import unknown
from headrace.parts.functions import users
from headrace.sql import Listing
from headrace.sql.macros import function_of
from headrace.statements.describing.listed import is_shown, listed

if TYPE_CHECKING:
    from headrace.connectors import Connections, Secrets
    from headrace.parts.access import Principal
    from headrace.parts.functions import Functions
    from headrace.parts.reader import Reader
    from headrace.parts.schemas import Schemas
    from headrace.sql import Name, Show
    from headrace.statements.results import Listed


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
