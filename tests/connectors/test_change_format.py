"""What a relation's options say of its messages and their keys, and what they cannot say."""

from __future__ import annotations

import pytest
from pyspark.sql import types as t

from headrace.errors import Code, HeadraceError
from headrace.io.connectors.message_formats import change_decoder
from headrace.io.formats.messages import decoder_of
from headrace.planning.catalog import Declaration, Stream
from headrace.types import Column, RelationId, Schema

V = Schema((Column("v", t.LongType()),))


def decoder(options: dict[str, str], *, keyed: bool) -> object:
    """The decoder of a stream, maybe with a column that has the message's key."""
    declaration = Declaration(options=tuple(options.items()), message_key=("k",) if keyed else ())
    columns = (Column("k", t.StringType()), *V.columns) if keyed else V.columns
    stream = Stream(RelationId(1), "s", Schema(columns), declaration)
    return change_decoder(stream, V, lambda value: decoder_of("json", value))


@pytest.mark.parametrize(
    "options",
    [
        {"kafka_topic": "t", "key_format": "json", "value_format": "json"},
        {"kafka_topic": "t", "format": "json"},
        {"topic": "t", "key.format": "avro"},
    ],
)
def test_a_column_of_a_stream_never_has_the_encoded_text_of_a_key(options) -> None:
    with pytest.raises(HeadraceError, match="keys of format") as caught:
        decoder(options, keyed=True)
    assert caught.value.code is Code.UNSUPPORTED
    assert decoder(options, keyed=False)


@pytest.mark.parametrize(
    "options",
    [
        {"kafka_topic": "t", "key_format": "KAFKA", "value_format": "json"},
        {"kafka_topic": "t", "value_format": "json"},
        {"topic": "t", "format": "json"},
        {"topic": "t", "key.format": "raw", "key.fields": "v", "value.fields-include": "ALL"},
    ],
)
def test_keys_that_are_text_or_bytes_are_taken(options) -> None:
    assert decoder(options, keyed=True)


@pytest.mark.parametrize(
    "options", [{"value.fields-include": "EXCEPT_KEY"}, {"key.fields-prefix": "k_"}]
)
def test_columns_of_a_stream_are_not_fields_of_keys(options) -> None:
    with pytest.raises(HeadraceError, match="cannot be fields of a key"):
        decoder({"topic": "t", "key.format": "json", "key.fields": "v", **options}, keyed=False)


@pytest.mark.parametrize("key", ["json.fail-on-missing-field", "wrap_single_value"])
def test_options_that_would_change_rows_are_refused(key) -> None:
    refused = "true" if key.startswith("json") else "FALSE"
    with pytest.raises(HeadraceError, match=key) as caught:
        decoder({"topic": "t", key: refused}, keyed=False)
    assert caught.value.code is Code.UNSUPPORTED
    assert decoder({"topic": "t", key: "false" if refused == "true" else "true"}, keyed=False)
