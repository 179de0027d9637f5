"""The destination that a CREATE SINK names in its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.connectors import CONNECTOR, Connector, Given, sink_connector
from headrace.errors import HeadraceError, Span
from headrace.types import Schema

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.parts.destinations import Destinations
    from headrace.sql import Option


@dataclass(frozen=True, slots=True)
class Destination:
    """A connector and its options, as a CREATE SINK gives them."""

    connector: Connector[Any]
    options: Any

    @classmethod
    def of(cls, options: tuple[Option, ...]) -> Destination:
        """Read the options of a statement.

        Raises:
            HeadraceError: ``invalid`` or ``unsupported``, at the option that is wrong.
        """
        given = Given.of(options)
        named = next((each for each in given if each.key.lower() == CONNECTOR), None)
        name, span = ("file", None) if named is None else (named.value, named.span)
        connector = sink_connector(name, span)
        try:
            return cls(connector, connector.read(given, "sink"))
        except HeadraceError as error:
            raise error.at(given[0].span) if given[0].span is not None else error from error

    def place(self, among: Destinations) -> Path | None:
        """Return where it writes, if only one sink may write there."""
        return self.connector.place(self.options, among.context(Schema(())))

    def check(self, among: Destinations, schema: Schema, span: Span) -> None:
        """Refuse rows that cannot be written there."""
        try:
            self.connector.check_sink(self.options, among.context(schema))
        except HeadraceError as error:
            raise error.at(span) from error
