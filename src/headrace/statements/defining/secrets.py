"""CREATE SECRET and DROP SECRET."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.catalog import Sink, Stream, Table
from headrace.connectors import Secret, Secrets, secrets_of
from headrace.errors import Code, HeadraceError
from headrace.sql import CreateSecret, DropSecret, SecretSource

if TYPE_CHECKING:
    from headrace.catalog import Relation
    from headrace.connectors import Connections
    from headrace.errors import Span
    from headrace.parts.reader import Reader
    from headrace.sql import Rename


@dataclass(frozen=True, slots=True)
class SecretChanges:
    """Creates and drops references to secret values, which are never stored."""

    reader: Reader
    secrets: Secrets
    connections: Connections

    def create(self, statement: CreateSecret) -> str:
        """Create a reference to a value, which must be readable now."""
        name, secrets = statement.name.dotted, self.secrets
        if name in {secret.name for secret in secrets} and not statement.or_replace:
            if statement.if_not_exists:
                return f'"{name}" exists already'
            raise HeadraceError(
                Code.CONFLICT,
                f'secret "{name}" exists already',
                hint="Use CREATE OR REPLACE SECRET, or IF NOT EXISTS.",
                span=statement.name.span,
            )
        where = statement.where
        if statement.source is SecretSource.FILE:
            where = str(Path(where).expanduser().resolve())
        try:
            secrets.add(Secret(name, statement.source, where))
        except HeadraceError as error:
            raise error.at(statement.span) from error
        return f"created secret {name}; its value is read when it is needed, and not stored"

    def drop(self, statement: DropSecret) -> str:
        """Drop an unused secret."""
        name, secrets = statement.name.dotted, self.secrets
        if statement.if_exists and name not in {secret.name for secret in secrets}:
            return f'"{name}" does not exist'
        secrets.find(name, statement.name.span)
        self._require_unused(name, statement.name.span)
        secrets.remove(name)
        return f"dropped secret {name}"

    def rename(self, statement: Rename) -> str:
        """Rename an unused secret."""
        name, to, secrets = statement.name.dotted, statement.to.dotted, self.secrets
        if statement.if_exists and name not in {secret.name for secret in secrets}:
            return f'"{name}" does not exist'
        secret = secrets.find(name, statement.name.span)
        if to in {secret.name for secret in secrets}:
            raise HeadraceError(
                Code.CONFLICT, f'secret "{to}" exists already', span=statement.to.span
            )
        self._require_unused(name, statement.name.span)
        secrets.add(replace(secret, name=to))
        secrets.remove(name)
        return f"renamed secret {name} to {to}"

    def _require_unused(self, name: str, span: Span) -> None:
        using = [
            relation.name
            for relation in self.reader.catalog
            if name in secrets_of(_connector_options(relation), sink=isinstance(relation, Sink))
        ]
        using += [f"connection {c.name}" for c in self.connections if name in c.secrets]
        if using:
            raise HeadraceError(
                Code.CONFLICT,
                f'secret "{name}" is used by {", ".join(using)}',
                hint="Drop these first, or CREATE OR REPLACE the secret.",
                span=span,
            )


def _connector_options(relation: Relation) -> tuple[tuple[str, str], ...]:
    """Return the stored options of a relation's connector; empty if it has none."""
    match relation:
        case Sink():
            return relation.options if relation.target is None else ()
        case Stream() | Table():
            return relation.declaration.source
    return ()
