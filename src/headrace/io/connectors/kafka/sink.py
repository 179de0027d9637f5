"""A sink that writes a view's changes to a topic of Kafka, one transaction per epoch.

Readers at read_committed see an epoch's messages once it is complete, and never those of a failed
attempt. The form of messages is one of the envelopes of
:mod:`headrace.io.connectors.kafka.sink_options`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.errors import Code, HeadraceError, shortened
from headrace.execution.runtime.ports import RefusedRow
from headrace.execution.serving.values import json_objects, text_column
from headrace.io.connectors.kafka.sink_options import (
    Envelope,
    EnvelopeEncoder,
    Options,
    SinkKeyFormat,
    ValueFormat,
    changes_of,
)
from headrace.io.connectors.kafka.transactions import KafkaTransactions, Mark, Topic
from headrace.io.connectors.sinks import declare_key, json_lines, require_own
from headrace.io.formats.avro_encoding import AVRO_TYPES, AvroEncoder, record_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headrace.io.connectors.kafka.sink_options import Encode
    from headrace.io.connectors.sinks import SinkContext
    from headrace.types import Epoch


_JSON_TYPES: Final = {
    "BOOLEAN": "`true`, `false`",
    "TINYINT, SMALLINT, INT": "number",
    "BIGINT": "number",
    "FLOAT": "number; `NaN`, `Infinity`, `-Infinity` as text",
    "DOUBLE": "number; `NaN`, `Infinity`, `-Infinity` as text",
    "DECIMAL": "text of its digits",
    "STRING": "text",
    "BINARY": "base64",
    "DATE": "`2026-01-31`",
    "TIME": "`10:15:00.500000`",
    "TIMESTAMP": "`2026-01-31T10:15:00.500000Z`",
    "TIMESTAMP_NTZ": "`2026-01-31T10:15:00.500000`",
    "ARRAY, MAP, STRUCT": "array, object, object",
}
MAPPING: Final = {kind: f"{json_}. Avro: {AVRO_TYPES[kind]}" for kind, json_ in _JSON_TYPES.items()}
"""The documented form of each type in messages."""
_NOTE: Final = 3_500
"""The most characters of refused rows in a mark: brokers accept 4,096 bytes."""
_SHOWN: Final = 200
"""The most characters of one refused row in a mark."""
_UNSAID: Final = "the row was deleted or changed, and envelope = 'append' has no message for that"


def check(options: Options, context: SinkContext) -> None:
    """Refuse rows that cannot be written, and a topic that does not exist.

    Raises:
        HeadraceError: ``invalid``, ``unsupported`` or ``unavailable``.
    """
    envelope = options.envelope_of(context.key)
    if envelope is Envelope.UPSERT and not context.key:
        raise HeadraceError(
            Code.INVALID,
            "envelope = 'upsert' needs rows with a unique key",
            "A message replaces the one of its key before it.",
            f"{declare_key()} Or use envelope = 'changelog'.",
        )
    if options.key_format is SinkKeyFormat.STRING and len(context.key) > 1:
        raise HeadraceError(
            Code.INVALID,
            f"a key of format 'string' is one column, not {', '.join(context.key)}",
            hint="Use key.format = 'json' for several.",
        )
    if options.format is ValueFormat.AVRO:
        AvroEncoder("row", changes_of(context.schema.arrow, envelope))
    if options.key_format is SinkKeyFormat.AVRO:
        AvroEncoder("key", _of_key(context))
    transactions = _transactions(options, context)
    reads = context.moved is not None
    mark = transactions.check(creates=not context.exists, reads=reads, tries=context.tries)
    there = None if mark is None else mark.epoch
    require_own(None, context, f'topic "{options.topic}"', transactions.group, there)


def opened(options: Options, context: SinkContext) -> KafkaSink:
    """Return the writer of a sink; it connects at its first use."""
    envelope = options.envelope_of(context.key)

    def encoder() -> EnvelopeEncoder:
        encode = _encoder(
            options,
            context,
            options.format.value,
            changes_of(context.schema.arrow, envelope),
            "value",
        )
        key = _encoder(options, context, options.key_format.value, _of_key(context), "key")
        return EnvelopeEncoder(envelope, context.key, context.identity, encode, key)

    return KafkaSink(_transactions(options, context), encoder, context.stops)


def _transactions(options: Options, context: SinkContext) -> KafkaTransactions:
    size = None if options.partitions is None else (options.partitions, options.replicas or -1)
    settings = {key.removeprefix("topic."): value for key, value in options.settings}
    if options.envelope_of(context.key) is Envelope.UPSERT:
        settings.setdefault("cleanup.policy", "compact,delete")
        settings.setdefault("retention.ms", "-1")
    return KafkaTransactions(
        Topic(options.topic, size, settings),
        context.identity,
        options.client(context.secrets.value),
        {
            "compression.type": options.compression.value,
            "transaction.timeout.ms": int(options.transaction_timeout * 1000),
        },
    )


def _of_key(context: SinkContext) -> pa.Schema:
    return pa.schema([context.schema.arrow.field(name) for name in context.key])


def _encoder(
    options: Options, context: SinkContext, form: str, schema: pa.Schema, part: str
) -> Encode:
    """Return the encoder of message values or keys; ``part`` is ``value`` or ``key``."""
    if form == ValueFormat.AVRO and schema.names:
        encoder = AvroEncoder(f"{record_name(options.topic)}_{part}", schema)
        registry = options.registry_client(context.secrets.value)
        id_ = registry.register(f"{options.topic}-{part}", encoder.text)
        before = b"\x00" + id_.to_bytes(4, "big")
        return lambda rows: encoder.encode(rows, before)
    if form == SinkKeyFormat.STRING:
        return lambda rows: text_column(rows.column(0))
    return lambda rows: json_objects(
        dict(zip(rows.column_names, rows.columns, strict=True)), rows.num_rows
    )


@dataclass(slots=True)
class KafkaSink:
    """Writes an epoch's messages and its number in one transaction.

    ``encoder`` returns the encoder of parts, and is called at the first write after a close, since
    it may need the schema registry. With ``stops``, an epoch that has a refused row is not written.
    """

    transactions: KafkaTransactions
    encoder: Callable[[], EnvelopeEncoder]
    stops: bool
    guarantee: str = "exactly once: one transaction per epoch, with its number"
    _encoder: EnvelopeEncoder | None = None
    _mark: Mark | None = None

    def durable(self) -> Epoch | None:
        """Connect; return the last epoch that was committed to the topic."""
        self._mark = self.transactions.open()
        return None if self._mark is None else self._mark.epoch

    def last_refused(self) -> Sequence[RefusedRow]:
        """Return the refused rows in the mark of that epoch, which may be shortened."""
        noted = json.loads(self._mark.note) if self._mark is not None and self._mark.note else []
        return [RefusedRow(row, why) for row, why in noted]

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[RefusedRow]:
        """Write the messages of an epoch in one transaction, and return the rows refused.

        Raises:
            HeadraceError: ``unavailable`` or ``invalid`` if the topic cannot be written.
        """
        if not self.transactions.is_open:
            before = self._mark
            self.durable()
            if self._mark is not None and self._mark != before:
                raise HeadraceError(
                    Code.UNAVAILABLE,
                    f"epoch {self._mark.epoch} was committed, although its commit seemed to fail",
                    hint="The delivery goes on after it by itself.",
                )
        if self._encoder is None:
            self._encoder = self.encoder()
        self.transactions.begin()
        try:
            refused = list(self._sent(self._encoder, epoch, parts))
        except BaseException:
            self.transactions.abort()
            raise
        if refused and self.stops:
            self.transactions.abort()
            return refused
        mark = Mark(epoch, _note(refused))
        self.transactions.commit(mark)
        self._mark = mark
        return refused

    def _sent(
        self, encoder: EnvelopeEncoder, epoch: Epoch, parts: Iterable[pa.Table]
    ) -> Iterator[RefusedRow]:
        """Send the messages of parts; yield the refused rows."""
        for part in parts:
            messages = encoder.messages(epoch, part)
            too_large = self.transactions.send(epoch, messages)
            why = {int(row): _UNSAID for row in messages.unsaid}
            why |= {int(messages.rows[at]): each for at, each in too_large.items()}
            for row, reason in why.items():
                (line,) = json_lines(epoch, part.slice(row, 1), ())
                yield RefusedRow(line, reason)

    def idle(self) -> None:
        """Commit the epoch again before the brokers' retention of offsets removes it.

        Raises:
            HeadraceError: ``unavailable`` or ``invalid`` if the topic cannot be written.
        """
        if self._mark is not None and self.transactions.is_due:
            self.transactions.renew(self._mark)

    def stored(self) -> None:
        """Return None: a topic contains changes, not rows."""
        return

    def clear(self) -> None:
        """Delete the records of the topic, and the recorded epoch."""
        self.transactions.forget()
        self._mark = None

    def close(self) -> None:
        """Close the connections to the brokers."""
        self.transactions.close()
        self._encoder = None


def _note(refused: Sequence[RefusedRow]) -> str:
    """Return the refused rows as JSON, shortened to fit into a mark."""
    noted: list[tuple[str, str]] = []
    for each in refused:
        noted.append((shortened(each.row, _SHOWN), each.why))
        if len(json.dumps(noted)) > _NOTE:
            noted[-1] = ("", f"{len(refused) - len(noted) + 1} more rows were refused")
            break
    return json.dumps(noted) if noted else ""
