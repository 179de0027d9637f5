"""Columns as plain text, column-wise, with the values of :func:`csv_text`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.serving.json_columns import json_column


def text_column(column: Any) -> pa.StringArray:
    """Return the values of an Arrow array or chunked array as text, NULL where it is NULL.

    A value is written as in JSON, but without quotes.
    """
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        return array.cast(pa.string())
    texts = json_column(column)
    if not pa.types.is_nested(kind):
        texts = pc.utf8_trim(texts, '"')
    return pc.if_else(pc.is_valid(texts if column.null_count == 0 else column), texts, None)
