"""Options of message formats: how values of messages of any transport become rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.connectors.options import option
from headrace.connectors.schema_registry import RegistryAccess
from headrace.errors import Code, HeadraceError
from headrace.formats.avro import AvroRecords
from headrace.formats.csv_text import Dialect
from headrace.formats.delimited import CsvMessages
from headrace.formats.messages import decoder_of
from headrace.formats.protobuf import ProtobufMessages
from headrace.formats.registered import RegisteredMessages
from headrace.formats.values import RejectedValueError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.formats.messages import MessageDecoder
    from headrace.types import Schema

_AVRO: Final = frozenset({"avro", "avro-confluent"})
_PROTOBUF: Final = frozenset({"protobuf", "protobuf-confluent"})
_CSV: Final = frozenset({"csv", "delimited"})
_WORDS: Final = {"space": " ", "tab": "\t", r"\t": "\t"}


def _character(text: str) -> str:
    """Return a delimiter or quote: one ASCII character, or the word ``SPACE`` or ``TAB``."""
    found = _WORDS.get(text.lower(), text)
    if len(found) != 1 or not found.isascii() or found in "\r\n":
        raise HeadraceError(
            Code.INVALID,
            f"'{text}' is not one ASCII character",
            hint="Write one character, SPACE or TAB.",
        )
    return found


@dataclass(frozen=True, kw_only=True)  # without slots, which only one base of a class may have
class MessageFormat(RegistryAccess):
    """Options of formats, which connectors of messages have besides their own."""

    avro_schema: str | None = option("avro.schema", default=None)
    delimiter: str = option(
        "value_delimiter",
        "csv.field-delimiter",
        "value.csv.field-delimiter",
        default=",",
        convert=_character,
    )
    quote: str = option(
        "csv.quote-character", "value.csv.quote-character", default='"', convert=_character
    )
    null: str = option("csv.null-literal", "value.csv.null-literal", default="")

    def decoder(self, name: str, schema: Schema, secret: Callable[[str], str]) -> MessageDecoder:
        """Return the decoder of a format, for rows of a schema.

        Raises:
            HeadraceError: ``unsupported`` for a format that cannot be read; ``invalid`` if it
                needs other options or columns.
        """
        if name.lower() in _AVRO:
            return self._avro(name, schema, secret)
        if name.lower() in _PROTOBUF:
            return self._protobuf(name, schema, secret)
        if name.lower() in _CSV:
            return CsvMessages(schema, Dialect(self.delimiter, self.quote, self.null))
        return decoder_of(name, schema)

    def _avro(self, name: str, schema: Schema, secret: Callable[[str], str]) -> MessageDecoder:
        if self.registry is not None:
            return RegisteredMessages(
                schema,
                self.registry_client(secret),
                "AVRO",
                lambda found: AvroRecords(
                    found.text, schema, [text for _, text in found.references]
                ),
            )
        if self.avro_schema is None:
            raise HeadraceError(
                Code.INVALID,
                f"messages of format '{name}' need the schema that they were written by",
                hint="Give the registry, as 'schema.registry.url' = 'http://...', or the text of"
                " the schema, as 'avro.schema' = '{...}'.",
            )
        try:
            return AvroRecords(self.avro_schema, schema)
        except RejectedValueError as refused:
            raise HeadraceError(
                Code.INVALID,
                'option "avro.schema" does not describe these messages',
                f"The reason: {refused}.",
                "Write the schema of a record that has the columns as fields.",
            ) from refused

    def _protobuf(self, name: str, schema: Schema, secret: Callable[[str], str]) -> MessageDecoder:
        if self.registry is None:
            raise HeadraceError(
                Code.INVALID,
                f"messages of format '{name}' need a schema registry",
                hint="Give it, as 'schema.registry.url' = 'http://...'.",
            )
        return RegisteredMessages(
            schema,
            self.registry_client(secret, "serialized"),
            "PROTOBUF",
            lambda found: ProtobufMessages(found, schema),
        )
