"""What an external system offers: how it is read from, written to, and reached over a connection.

Each system declares a :class:`System` in its own folder; :mod:`headrace.connectors.registry` lists
them. A declaration imports no client library: a system's own module imports it when it is opened.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from headrace.connectors.options import (
    Alters,
    Given,
    keys_of,
    prefixes_of,
    read_options,
    restored_options,
    stored_options,
)
from headrace.connectors.sinks import SinkOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import PurePath

    from headrace.catalog import Stream, Table
    from headrace.connectors.secrets import Secrets
    from headrace.connectors.sinks import SinkContext
    from headrace.runtime.ports import LiveSource, SinkWriter
    from headrace.types import Schema

CONNECTOR: Final = "connector"
"""The option that names a connector."""

Options = TypeVar("Options")


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What a source is opened with.

    Its rows have ``schema``. Of these, the columns ``value`` come from what the source has, in a
    ``format``; ``metadata`` are pairs of another column and what it has of where a row is from.
    ``relation`` is the one whose rows they become.
    ``notes`` returns the notes that parts of the source of an identity have left.
    """

    schema: Schema
    value: Schema
    metadata: tuple[tuple[str, str], ...]
    format: str
    secrets: Secrets
    relation: Stream | Table
    notes: Callable[[str], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Connector(Generic[Options]):
    """One way to use a system, with a dataclass of its options.

    Statements call it by its ``name``, under which it is stored, or by one in ``also``. The keys
    of its options may also begin with one of ``groups``.
    """

    name: str
    options: type[Options]
    also: tuple[str, ...] = field(default=(), kw_only=True)
    groups: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def names(self) -> tuple[str, ...]:
        """All names."""
        return (self.name, *self.also)

    def accepts(self, key: str) -> bool:
        """Whether a relation's option of a key is one of the connector's."""
        folded = key.lower()
        groups = (*self.groups, *prefixes_of(self.options))
        return folded in keys_of(self.options) or folded.startswith(groups)

    def stored(self, options: Options) -> tuple[tuple[str, str], ...]:
        """Return options for the catalog, with the connector's name."""
        return ((CONNECTOR, self.name), *stored_options(options))

    def restored(self, stored: Iterable[tuple[str, str]]) -> Options:
        """Return the options that :meth:`stored` returned."""
        rest = [(key, value) for key, value in stored if key != CONNECTOR]
        return restored_options(self.options, rest, f"a {self.name} connector")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConnector(Connector[Options]):
    """How a system is read from.

    ``open`` returns a source, and ``check`` raises if it cannot be read, when a relation is
    created. A relation is fed by the connector if its options have one of ``addresses``, or if
    there are none to give; otherwise it lives in the embedded log. ``metadata`` are the keys of
    METADATA columns that the source has values for; a key that ends in a dot stands for all that
    begin with it.
    """

    open: Callable[[Options, SourceContext], LiveSource]
    check: Callable[[Options, SourceContext], None] = lambda _options, _context: None
    addresses: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()

    def has(self, key: str) -> bool:
        """Whether the source has values for METADATA columns of a key."""
        return any(
            key.startswith(each) if each.endswith(".") else key == each for each in self.metadata
        )

    def read(self, given: Iterable[Given]) -> Options:
        """Return the options, of all that are given but the connector's name."""
        return read_options(self.options, _without_name(given), f"a {self.name} source")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkConnector(Connector[Options]):
    """How a system is written to.

    ``open`` returns a writer, and ``check`` raises if rows cannot be written there, when a sink is
    created. ``place`` is the path that a sink into files writes: two sinks of one directory, or of
    one prefix in S3, are refused, unless the connector ``shares`` it. ``target`` are the options
    that, with the address, say where it writes; without any, many sinks may write there. ``joins``:
    whether epochs that wait may be joined in any case: the target only keeps the newest state.
    ``over`` are the kinds of connections over which it writes: by default, the one of its name.
    """

    open: Callable[[Options, SinkContext], SinkWriter]
    check: Callable[[Options, SinkContext], None] = lambda _options, _context: None
    place: Callable[[Options, SinkContext], PurePath | None] = lambda _options, _context: None
    shares: bool = False
    target: tuple[str, ...] = ()
    joins: Callable[[Options], bool] = lambda _options: False
    over: tuple[str, ...] = ()

    def target_of(self, options: Options) -> tuple[object, ...] | None:
        """Return what identifies the place where a sink writes; None if nothing does."""
        if not self.target:
            return None
        addresses = [
            getattr(options, each.name)
            for each in fields(options)  # type: ignore[arg-type]
            if each.metadata.get("alters") is Alters.ADDRESS
        ]
        return (self.name, *addresses, *(getattr(options, name) for name in self.target))

    def read(self, given: Iterable[Given]) -> Options:
        """Return the options, of all that are given but the connector's name."""
        own = _without_name(given)
        return read_options(self.options, own, f"a {self.name} sink", keys_of(SinkOptions))


@dataclass(frozen=True, slots=True)
class ConnectionKind:
    """Connections to a system: their options, and a check that raises if it is out of reach.

    Statements call the kind by its ``name``, under which it is stored, or by one in ``also``.
    ``check`` is given the options, and a function that returns the value of a secret.
    """

    name: str
    options: type[Any]
    check: Callable[[Any, Callable[[str], str]], None] = lambda _options, _secret: None
    also: tuple[str, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """An external system: what it can be used as."""

    source: SourceConnector[Any] | None = None
    sink: SinkConnector[Any] | None = None
    connection: ConnectionKind | None = None


def _without_name(given: Iterable[Given]) -> list[Given]:
    return [each for each in given if each.key.lower() != CONNECTOR]
