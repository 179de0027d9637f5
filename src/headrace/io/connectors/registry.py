"""Connectors and kinds of connections by name, of all external systems.

Connections: named options for reaching a system, used by streams, tables and sinks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Code, HeadraceError, meant, nearest
from headrace.io.connectors.options import (
    Given,
    given_again,
    read_options,
    required_keys,
    restored_options,
    stored_options,
    used_secrets,
)
from headrace.io.connectors.systems import CONNECTOR
from headrace.storage.ledger.named_settings import NamedSettings, named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from headrace.errors import Span
    from headrace.io.connectors.secrets import Secrets
    from headrace.io.connectors.systems import (
        ConnectionKind,
        Connector,
        SinkConnector,
        SourceConnector,
    )
    from headrace.storage.ledger import Ledger


REFERENCE: Final = "reference"
"""The stored option with the name of a table in another database."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The connectors and kinds of connections by name."""

    sources: Mapping[str, SourceConnector[Any]]
    sinks: Mapping[str, SinkConnector[Any]]
    kinds: Mapping[str, ConnectionKind]


@cache
def _known() -> _Known:
    """Return what there is: a database that has nothing to do with other systems imports none."""
    from headrace.io.connectors.every import SYSTEMS  # noqa: PLC0415

    return _Known(
        {name: source for each in SYSTEMS if (source := each.source) for name in source.names},
        {name: sink for each in SYSTEMS if (sink := each.sink) for name in sink.names},
        {
            name: kind
            for each in SYSTEMS
            if (kind := each.connection)
            for name in (kind.name, *kind.also)
        },
    )


def source_connector(name: str, span: Span | None = None) -> SourceConnector[Any]:
    """Return the source connector of a name.

    Raises:
        HeadraceError: ``unsupported``, at the span, if the name is unknown.
    """
    found = _known().sources.get(name.lower())
    if found is None:
        raise _unsupported(
            f'connector "{name}" is not supported in a source', name, _known().sources, span
        )
    return found


def feeding_connector(name: str) -> SourceConnector[Any] | None:
    """Return the source connector of a name; None if the name is unknown."""
    return _known().sources.get(name)


def is_misspelt(name: str) -> bool:
    """Whether a name is that of no connector, but similar to one.

    A name that contains that of a connector, such as ``postgres-cdc``, is one of another system.
    """
    known = {*_known().sources, *_known().sinks}
    near = None if name in known else nearest(name, known, 0.75)
    return near is not None and near not in name and name not in near


def outgoing_connector(name: str, keys: Iterable[str]) -> SinkConnector[Any] | None:
    """Return the connector of a name that has a sink and no source, if the keys give its target.

    None for another name, or if no required option of the sink is among ``keys``.
    """
    found = _known().sinks.get(name)
    if name in _known().sources or found is None:
        return None
    given = {key.lower() for key in keys}
    return None if required_keys(found.options).isdisjoint(given) else found


def sink_connector(name: str, span: Span | None = None) -> SinkConnector[Any]:
    """Return the sink connector of a name.

    Raises:
        HeadraceError: ``unsupported``, at the span, if the name is unknown.
    """
    found = _known().sinks.get(name.lower())
    if found is None:
        raise _unsupported(
            f'connector "{name}" is not supported in a sink',
            name,
            _known().sinks,
            span,
            " Or CREATE SINK name INTO table FROM view, with a table of that connector: with no"
            " broker it lives in the embedded log.",
        )
    return found


def connection_kind(name: str, span: Span | None = None) -> ConnectionKind:
    """Return the connection kind of a name.

    Raises:
        HeadraceError: ``unsupported``, at the span, if the name is unknown.
    """
    found = _known().kinds.get(name)
    if found is None:
        primary = f'connections of kind "{name}" are not supported'
        raise _unsupported(primary, name, _known().kinds, span)
    return found


def known_kind(name: str | None) -> str | None:
    """Return the stored name of a connection kind; an unknown name is returned unchanged."""
    found = None if name is None else _known().kinds.get(name)
    return name if found is None else found.name


def connectors_over(kind: str) -> tuple[str, ...]:
    """Return the names of the connectors whose sinks can use a kind of connection."""
    sinks = dict.fromkeys(
        each.name for each in _known().sinks.values() if kind in (each.over or (each.name,))
    )
    return tuple(sinks)


def secrets_of(stored: tuple[tuple[str, str], ...], *, sink: bool = False) -> frozenset[str]:
    """Return the names of secrets in the stored options of a source, or of a sink if ``sink``.

    A captured table has none: its connection has them.
    """
    name = dict(stored).get(CONNECTOR)
    if name is None:
        return frozenset()
    known: Mapping[str, Any] = _known().sinks if sink else _known().sources
    connector: Connector[Any] | None = known.get(name)
    return frozenset() if connector is None else frozenset(used_secrets(connector.restored(stored)))


def _unsupported(
    primary: str,
    name: str,
    known: Mapping[str, SourceConnector[Any] | SinkConnector[Any] | ConnectionKind],
    span: Span | None,
    instead: str = "",
) -> HeadraceError:
    """Return the error that a name is unknown, with a similar or all known names as the hint."""
    listed = ", ".join(dict.fromkeys(each.name for each in known.values()))
    hint = meant(name, known, f"There are: {listed}.{instead}")
    return HeadraceError(Code.UNSUPPORTED, primary, hint=hint, span=span)


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
