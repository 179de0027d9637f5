"""The destination that a CREATE SINK names in its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.connectors import CONNECTOR, Given, SinkConnector, SinkOptions, sink_connector
from headrace.connectors.options import keys_of, read_options
from headrace.errors import Code, HeadraceError, Span

if TYPE_CHECKING:
    from pathlib import PurePath

    from headrace.connectors import NamedConnection, SinkContext
    from headrace.sql import Option


@dataclass(frozen=True, slots=True)
class Destination:
    """The connector, its options, and the delivery options of a CREATE SINK."""

    connector: SinkConnector[Any]
    options: Any
    delivery: SinkOptions
    connection: str | None = None

    @classmethod
    def over(
        cls, connection: NamedConnection, options: tuple[Option, ...], span: Span
    ) -> Destination:
        """Read the options of a statement that writes over a connection.

        Raises:
            HeadraceError: ``invalid`` or ``unsupported``, at the option or connection.
        """
        delivery, own = delivery_options(options)
        connector = _connector_over(connection, own, span)
        try:
            read = connector.read([*connection.given, *own])
        except HeadraceError as error:
            raise error.at(span) from error
        return cls(connector, read, delivery, connection.name)

    @classmethod
    def of(cls, options: tuple[Option, ...]) -> Destination:
        """Read the options of a statement.

        Raises:
            HeadraceError: ``invalid`` or ``unsupported``, at the wrong option.
        """
        delivery, given = delivery_options(options)
        named = next((each for each in given if each.key.lower() == CONNECTOR), None)
        name, span = ("file", None) if named is None else (named.value, named.span)
        connector = sink_connector(name, span)
        try:
            return cls(connector, connector.read(given), delivery)
        except HeadraceError as error:
            place = given[0].span if given else None
            raise error.at(place) if place is not None else error from error

    def place(self, context: SinkContext) -> PurePath | None:
        """Return the path of the destination, if only one sink may write there."""
        return self.connector.place(self.options, context)

    def check(self, context: SinkContext, span: Span) -> None:
        """Raise if the destination cannot hold the rows; offline, only a directory is asked."""
        if context.offline and self.place(context) is None:
            return
        try:
            self.connector.check(self.options, context)
        except HeadraceError as error:
            raise error.at(span) from error


def _connector_over(
    connection: NamedConnection, given: list[Given], span: Span
) -> SinkConnector[Any]:
    """Return the connector that writes over a connection: the given one, or the only one.

    Raises:
        HeadraceError: ``invalid``, at its place, if it is of another system, or ambiguous.
    """
    listed = " or ".join(f"CONNECTOR {each}" for each in connection.connectors)
    named = next((each for each in given if each.key.lower() == CONNECTOR), None)
    if named is None:
        if len(connection.connectors) > 1:
            raise HeadraceError(
                Code.INVALID,
                f'a sink over connection "{connection.name}" needs the name of its connector',
                hint=f"Add {listed} to its options.",
                span=span,
            )
        return sink_connector(connection.connectors[0], span)
    found = sink_connector(named.value, named.span)
    if found.name not in connection.connectors:
        raise HeadraceError(
            Code.INVALID,
            f'connector "{named.value}" does not write over connection "{connection.name}" of kind'
            f" {connection.kind}",
            hint=f"Use {listed}.",
            span=named.span or span,
        )
    return found


def delivery_options(options: tuple[Option, ...]) -> tuple[SinkOptions, list[Given]]:
    """Return the options common to all sinks, and the other given options."""
    every = keys_of(SinkOptions)
    mine = [each for each in Given.of(options) if each.key.lower() in every]
    rest = [each for each in Given.of(options) if each.key.lower() not in every]
    return read_options(SinkOptions, mine, "a sink"), rest
