"""Options of message formats: how values of messages of any transport become rows.

Options of change formats: how messages of any transport change a table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark.sql import types as t

from headrace.errors import Code, HeadraceError
from headrace.io.connectors.options import Given, keys_of, option, read_options
from headrace.io.connectors.schema_registry import RegistryAccess
from headrace.io.formats.avro import AvroRecords
from headrace.io.formats.captured import (
    CANAL_ORIGINS,
    MAXWELL_ORIGINS,
    Canal,
    CapturedMessages,
    Maxwell,
    image_schema,
)
from headrace.io.formats.csv_text import CsvMessages, Dialect
from headrace.io.formats.debezium import ORIGINS, Debezium
from headrace.io.formats.debezium_values import PLACEHOLDER, Binaries, Decimals, Encoding, Times
from headrace.io.formats.messages import decoder_of
from headrace.io.formats.protobuf import ProtobufMessages, RegisteredMessages
from headrace.io.formats.upserts import Appended, KeyFormat, Keys, Upserts
from headrace.io.formats.values import RejectedValueError
from headrace.planning.catalog import Table
from headrace.types import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.io.formats.captured import Capture, Origin
    from headrace.io.formats.messages import MessageDecoder
    from headrace.io.formats.upserts import ChangeDecoder
    from headrace.planning.catalog import Stream
    from headrace.types import Column


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


DEBEZIUM: Final = "debezium-json"
MAXWELL: Final = "maxwell-json"
CANAL: Final = "canal-json"
CAPTURED: Final = (DEBEZIUM, MAXWELL, CANAL)
"""The formats of captured changes."""

OF_VALUES: Final = "value."
"""Prefix of the keys of METADATA columns whose value is part of a message's value."""
_ORIGINS: Final[dict[str, Mapping[str, Origin]]] = {
    DEBEZIUM: ORIGINS,
    MAXWELL: MAXWELL_ORIGINS,
    CANAL: CANAL_ORIGINS,
}
_GROUPS: Final = ("debezium.", *(f"{name}." for name in CAPTURED))
"""Prefixes reserved for these formats: an unknown option that begins with one is an error."""
_ALL, _EXCEPT_KEY = "all", "except_key"


def _pattern(text: str) -> str:
    """Return the text, which must be a regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise HeadraceError(
            Code.INVALID, f"'{text}' is not a regular expression", f"{error}."
        ) from error
    return text


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    return None if pattern is None else re.compile(pattern)


def _origin(column: Column, key: str, name: str) -> Origin:
    """Return where messages of a format contain the value of a METADATA column.

    Raises:
        HeadraceError: ``invalid`` if they do not contain it, or the column has another type.
    """
    found = _ORIGINS[name].get(key)
    if found is None:
        raise HeadraceError(
            Code.INVALID,
            f"messages of format '{name}' have no metadata \"{key}\"",
            hint=f"There are: {', '.join(_ORIGINS[name])}.",
        )
    timed = isinstance(column.type, t.TimestampType | t.TimestampNTZType)
    if not (isinstance(column.type, t.StringType) if found.micros is None else timed):
        wanted = "STRING" if found.micros is None else "TIMESTAMP"
        raise HeadraceError(
            Code.INVALID,
            f'column "{column.name}" of type {column.sql} cannot have the metadata "{key}"',
            hint=f"Declare it as {wanted}.",
        )
    return found


def _value_fields(text: str) -> str:
    if text.lower() not in (_ALL, _EXCEPT_KEY):
        raise HeadraceError(
            Code.INVALID,
            f"'{text}' is not a value of option \"value.fields-include\"",
            hint="Use ALL or EXCEPT_KEY.",
        )
    return text.lower()


_OTHER_ROWS: Final = {
    ("json.fail-on-missing-field", "true"): (
        "A field that is missing is NULL.",
        "Declare the column as NOT NULL: a message without it is a reject.",
    ),
    ("wrap_single_value", "false"): (
        "A value of JSON is an object with the columns as fields.",
        "Leave the option out, or read the text of values by value_format = 'raw'.",
    ),
}
"""Unsupported values of options, each with what happens instead (the detail) and a hint."""

_PLAIN_KEYS: Final = frozenset({KeyFormat.STRING, KeyFormat.RAW, KeyFormat.KAFKA})
"""Key formats in which a key is plain text or bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFormat:
    """Options of change formats and of message keys."""

    decimals: Decimals | None = option("debezium.decimal-handling-mode", default=None)
    times: Times | None = option("debezium.time-precision-mode", default=None)
    binaries: Binaries = option("debezium.binary-handling-mode", default=Binaries.BYTES)
    placeholder: str = option("debezium.unavailable-value-placeholder", default=PLACEHOLDER)
    database: str | None = option("canal-json.database.include", default=None, convert=_pattern)
    table: str | None = option("canal-json.table.include", default=None, convert=_pattern)
    key_format: KeyFormat | None = option("key.format", "key_format", default=None)
    key_fields: str | None = option("key.fields", default=None)
    value_fields: str | None = option("value.fields-include", default=None, convert=_value_fields)
    key_prefix: str = option("key.fields-prefix", default="")
    schemas: bool | None = option("debezium-json.schema-include", default=None)
    ignored: bool | None = option(
        "debezium-json.ignore-parse-errors",
        "maxwell-json.ignore-parse-errors",
        "canal-json.ignore-parse-errors",
        default=None,
    )

    @classmethod
    def of(cls, relation: Stream | Table) -> ChangeFormat:
        """Return the options of a relation.

        Raises:
            HeadraceError: ``invalid`` for an unknown option of these formats, or an invalid value.
        """
        known = keys_of(cls)
        options = relation.declaration.options
        given = [
            Given(key, value) for key, value in options if key in known or key.startswith(_GROUPS)
        ]
        return read_options(cls, given, f'{relation.kind} "{relation.name}"')

    def decoder(
        self, table: Table, value: Schema, decoder_of: Callable[[Schema], MessageDecoder]
    ) -> ChangeDecoder:
        """Return the decoder of a table's messages.

        ``value`` are the columns contained in values of messages; ``decoder_of`` returns the
        decoder of values in a format without change semantics.

        Raises:
            HeadraceError: ``invalid`` if the format needs other options or columns.
        """
        name = format_of(table)
        if name in CAPTURED:
            return self.captured(table, value)
        if not table.primary_key:
            return Appended(decoder_of(value))
        keys = self._key_format(table)
        if keys is None:
            return Upserts(value, table.primary_key, decoder_of(value), None)
        decoded = Keys(self._key_columns(table), keys)
        return Upserts(
            value, table.primary_key, decoder_of(self._without_key(table, value)), decoded
        )

    def captured(self, table: Table, value: Schema) -> CapturedMessages:
        """Return the decoder of a table's captured changes."""
        columns = image_schema(value).columns
        name = format_of(table)
        captures: Mapping[str, Callable[[], Capture]] = {
            DEBEZIUM: lambda: Debezium(columns, table.primary_key, self._encoding(table)),
            MAXWELL: lambda: Maxwell(columns),
            CANAL: lambda: Canal(columns, _compiled(self.database), _compiled(self.table)),
        }
        by_name = {column.name: column for column in table.schema.columns}
        origins = {
            column: _origin(by_name[column], key, name)
            for column, key in table.declaration.metadata
            if key.startswith(OF_VALUES)
        }
        schema = Schema((*value.columns, *(by_name[column] for column in origins)))
        return CapturedMessages(schema, table.primary_key, captures[name](), origins)

    def _encoding(self, table: Table) -> Encoding:
        precisions = dict(table.declaration.precisions)
        return Encoding(self.decimals, self.times, self.binaries, self.placeholder, precisions)

    def _key_format(self, table: Table) -> KeyFormat | None:
        """Return the format of message keys; None if rows are identified by columns of values."""
        if table.effective_from is not None:
            return None
        if self.key_format is not None:
            return self.key_format
        if _is_ksqldb(table):
            return _of_both(table)
        if table.declaration.connector == "upsert-kafka":
            raise HeadraceError(
                Code.INVALID,
                f'table "{table.name}" has no key.format',
                "The last message of each key counts, and one without a value deletes its row.",
                "Add 'key.format' = 'json', 'string', 'raw' or 'kafka' to its options.",
            )
        return None

    def _key_columns(self, table: Table) -> list[Column]:
        """Return the columns of the primary key in the order of a message key's fields."""
        if self.key_prefix:
            raise HeadraceError(
                Code.UNSUPPORTED,
                'option "key.fields-prefix" is not supported',
                hint="Name the columns of the primary key as the fields of the key.",
            )
        named = table.primary_key
        if self.key_fields is not None:
            named = tuple(each.strip() for each in self.key_fields.split(";"))
        by_name = {column.name.lower(): column for column in table.schema.columns}
        if {name.lower() for name in named} != {name.lower() for name in table.primary_key}:
            raise HeadraceError(
                Code.INVALID,
                f'key.fields of table "{table.name}" are not its primary key',
                "A message without a value deletes the row that its key names.",
                f"Use key.fields = '{';'.join(table.primary_key)}', or leave it out.",
            )
        return [by_name[name.lower()] for name in named]

    def _without_key(self, table: Table, value: Schema) -> Schema:
        """Return the columns of values: those of the key are left out, or made nullable."""
        default = _EXCEPT_KEY if _is_ksqldb(table) else _ALL
        key = set(table.primary_key)
        if (self.value_fields or default) == _EXCEPT_KEY:
            return Schema(tuple(c for c in value.columns if c.name not in key))
        return Schema(
            tuple(replace(c, nullable=True) if c.name in key else c for c in value.columns)
        )


def _is_ksqldb(table: Table) -> bool:
    """Return whether a table is declared as in ksqlDB: values then do not repeat the key."""
    return table.declaration.option("kafka_topic") is not None


def _of_both(table: Table) -> KeyFormat:
    """Return the key format of a ksqlDB table: option ``format`` is for both keys and values."""
    given = (table.declaration.option("format") or KeyFormat.KAFKA).lower()
    if given not in list(KeyFormat):
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"keys of format '{given}' are not supported",
            hint=f"Give value_format = '{given}', and one of these as key_format:"
            f" {', '.join(KeyFormat)}.",
        )
    return KeyFormat(given)


def format_of(relation: Stream | Table) -> str:
    """Return the format of a relation's messages, in lower case."""
    given = relation.declaration.option("format", "value.format", "value_format")
    return (given or "json").lower()


def is_captured(relation: Stream | Table) -> bool:
    """Return whether the rows of a relation arrive as captured changes."""
    return format_of(relation) in CAPTURED


def change_decoder(
    relation: Stream | Table, value: Schema, decoder_of: Callable[[Schema], MessageDecoder]
) -> ChangeDecoder:
    """Return the decoder of the messages of a stream or table; see :meth:`ChangeFormat.decoder`.

    Raises:
        HeadraceError: ``unsupported`` for a stream of captured changes.
    """
    captured = is_captured(relation)
    _refuse_other_rows(relation)
    of_values = [key for _, key in relation.declaration.metadata if key.startswith(OF_VALUES)]
    if of_values and not captured:
        raise HeadraceError(
            Code.INVALID,
            f"messages of format '{format_of(relation)}' have no metadata \"{of_values[0]}\"",
            hint="Declare it as an ordinary column, if it is a field of the value.",
        )
    keyed = isinstance(relation, Table) and relation.primary_key
    if relation.declaration.connector == "upsert-kafka" and not keyed:
        raise HeadraceError(
            Code.INVALID,
            f'{relation.kind} "{relation.name}" over upsert-kafka has no primary key',
            "The last message of each key counts.",
            "CREATE TABLE with a PRIMARY KEY, or use connector = 'kafka'.",
        )
    if not keyed and not captured:
        _require_plain_keys(relation)
    if isinstance(relation, Table):
        return ChangeFormat.of(relation).decoder(relation, value, decoder_of)
    if captured:
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"stream \"{relation.name}\" cannot be of format '{format_of(relation)}'",
            "The rows of a stream are never changed or deleted.",
            "CREATE TABLE instead.",
        )
    return Appended(decoder_of(value))


def _refuse_other_rows(relation: Stream | Table) -> None:
    """Refuse options of other systems that would produce different rows here.

    Raises:
        HeadraceError: ``unsupported``.
    """
    for (key, value), (detail, hint) in _OTHER_ROWS.items():
        if (relation.declaration.option(key) or "").lower() == value:
            raise HeadraceError(
                Code.UNSUPPORTED, f"option \"{key}\" = '{value}' is not supported", detail, hint
            )


def _require_plain_keys(relation: Stream | Table) -> None:
    """Refuse encoded keys for relations without a primary key: columns cannot be read from them.

    Raises:
        HeadraceError: ``unsupported``.
    """
    declaration = relation.declaration
    given = declaration.option("key.format", "key_format")
    if given is None and declaration.option("kafka_topic") is not None:
        given = declaration.option("format")  # in ksqlDB, it is for both keys and values
    if declaration.message_key and given is not None and given.lower() not in _PLAIN_KEYS:
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"keys of format '{given}' are not supported in {relation.kind} \"{relation.name}\"",
            f'Column "{declaration.message_key[0]}" would have their text as it is encoded.',
            "Give the format of values alone, as value_format = '...': the column then has the text"
            " or the bytes of the key.",
        )
    fields = (declaration.option("value.fields-include") or _ALL).lower()
    if fields == _EXCEPT_KEY or declaration.option("key.fields-prefix"):
        raise HeadraceError(
            Code.UNSUPPORTED,
            f'columns of {relation.kind} "{relation.name}" cannot be fields of a key',
            "They would be NULL.",
            "Leave these options out, and declare one column as k STRING KEY, which has the text of"
            " the key.",
        )
