"""Connections: named options for reaching a system, used by streams, tables and sinks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
from headrace.ledger.named_settings import NamedSettings, named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.connectors.secrets import Secrets
    from headrace.errors import Span
    from headrace.ledger import Ledger

_SETTING = "connections"


@dataclass(frozen=True, slots=True)
class NamedConnection:
    """A stored connection: its kind, and options as pairs of key and text.

    The text of an option with a secret is the secret's name.
    """

    name: str
    kind: str
    stored: tuple[tuple[str, str], ...]

    @property
    def options(self) -> Any:
        """The options, as an instance of the kind's dataclass."""
        kind = connection_kind(self.kind)
        return restored_options(kind.options, self.stored, f"a {kind.name} connection")

    @property
    def connectors(self) -> tuple[str, ...]:
        """The names of the connectors whose sinks can use it."""
        return connectors_over(self.kind)

    @property
    def secrets(self) -> frozenset[str]:
        """The names of the secrets among the options."""
        return frozenset(used_secrets(self.options))

    @property
    def given(self) -> list[Given]:
        """The options, as a statement would give them."""
        return given_again(connection_kind(self.kind).options, self.stored)


@dataclass(frozen=True, slots=True)
class Connections:
    """The connections of one database."""

    ledger: Ledger
    secrets: Secrets

    @property
    def _kept(self) -> NamedSettings:
        return NamedSettings(self.ledger, _SETTING)

    def __iter__(self) -> Iterator[NamedConnection]:
        """Yield the connections by name."""
        for name, (kind, stored) in self._kept.all().items():
            yield NamedConnection(name, kind, tuple((key, value) for key, value in stored))

    def add(
        self, name: str, kind: str, given: Iterable[Given], span: Span | None
    ) -> NamedConnection:
        """Add or replace a connection after checking that the system can be reached.

        Raises:
            HeadraceError: ``unsupported`` for an unknown kind; ``invalid`` for unknown options or
                if the system refuses access; ``unavailable`` if it does not answer.
        """
        made = self.read(name, kind, given, span)
        connection_kind(made.kind).check(made.options, self.secrets.value)
        self.put(made)
        return made

    def read(
        self, name: str, kind: str, given: Iterable[Given], span: Span | None
    ) -> NamedConnection:
        """Return a connection of some options, without reaching its system.

        Raises:
            HeadraceError: ``unsupported`` for an unknown kind; ``invalid`` for unknown options and
                secrets.
        """
        known = connection_kind(kind, span)
        options = read_options(known.options, given, f"a {known.name} connection")
        for secret in used_secrets(options):
            self.secrets.find(secret, span)
        return NamedConnection(name, known.name, stored_options(options))

    def put(self, connection: NamedConnection) -> None:
        """Store a connection, replacing one of its name."""
        stored = [list(pair) for pair in connection.stored]
        self._kept.put(connection.name, [connection.kind, stored])

    def remove(self, name: str) -> None:
        """Remove a connection."""
        self._kept.remove(name)

    def find(self, name: str, kind: str | None = None, span: Span | None = None) -> NamedConnection:
        """Return the connection of a name; ``kind`` is the required kind, None for any.

        Raises:
            HeadraceError: ``invalid``, at the span, if it does not exist or has another kind.
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
