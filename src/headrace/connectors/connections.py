"""Connections: how a system is reached, named once and used by streams, tables and sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.connectors.kept import Kept, named
from headrace.connectors.options import (
    Given,
    given_again,
    read_options,
    restored_options,
    stored_options,
    used_secrets,
)
from headrace.connectors.registry import connection_kind, connectors_over
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.connectors.secrets import Secrets
    from headrace.errors import Span
    from headrace.ledger import Ledger

_SETTING = "connections"


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection as it is stored: options by key; of secrets, the names."""

    name: str
    kind: str
    stored: tuple[tuple[str, str], ...]

    @property
    def options(self) -> Any:
        """The options, as the dataclass of its kind."""
        kind = connection_kind(self.kind)
        return restored_options(kind.options, self.stored, f"a {kind.name} connection")

    @property
    def connectors(self) -> tuple[str, ...]:
        """The names of the connectors by which sinks write over it."""
        return connectors_over(self.kind)

    @property
    def secrets(self) -> frozenset[str]:
        """The names of the secrets among the options."""
        return frozenset(used_secrets(self.options))

    @property
    def given(self) -> list[Given]:
        """The options, as if they were written in a statement."""
        return given_again(connection_kind(self.kind).options, self.stored)


@dataclass(frozen=True, slots=True)
class Connections:
    """The connections of one database."""

    ledger: Ledger
    secrets: Secrets

    @property
    def _kept(self) -> Kept:
        return Kept(self.ledger, _SETTING)

    def __iter__(self) -> Iterator[Connection]:
        """Yield the connections by name."""
        for name, (kind, stored) in self._kept.all().items():
            yield Connection(name, kind, tuple((key, value) for key, value in stored))

    def add(self, name: str, kind: str, given: Iterable[Given], span: Span | None) -> Connection:
        """Add a connection, or replace the one of its name, if the system can be reached.

        Raises:
            HeadraceError: ``unsupported`` for another kind; ``invalid`` for options that it does
                not have, or what the system refuses; ``unavailable`` if it does not answer.
        """
        known = connection_kind(kind, span)
        options = read_options(known.options, given, f"a {known.name} connection")
        for secret in used_secrets(options):
            self.secrets.find(secret, span)
        known.check(options, self.secrets.value)
        made = Connection(name, known.name, stored_options(options))
        self._kept.put(name, [known.name, [list(pair) for pair in made.stored]])
        return made

    def remove(self, name: str) -> None:
        """Remove a connection."""
        self._kept.remove(name)

    def find(self, name: str, kind: str | None = None, span: Span | None = None) -> Connection:
        """Return the connection of a name, which has to be of a kind.

        Raises:
            HeadraceError: ``invalid``, at the span, if there is none, or it is of another kind.
        """
        known = {connection.name: connection for connection in self}
        created = f"CREATE CONNECTION {name} TO KAFKA (...), or another kind."
        found = named("connection", name, known, created, span)
        if kind not in (None, found.kind):
            raise HeadraceError(
                Code.INVALID,
                f'connection "{name}" is of kind {found.kind}, not {kind}',
                hint="SHOW CONNECTIONS lists what exists.",
                span=span,
            )
        return found
