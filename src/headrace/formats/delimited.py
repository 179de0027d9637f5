"""Messages as CSV: each value is one record, with its fields in the order of the columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.formats.blocks import FilePosition, RecordBlock
from headrace.formats.csv_text import CsvDecoder, CsvReader
from headrace.formats.messages import Messages, payload
from headrace.ledger import Reject

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.formats.csv_text import Dialect
    from headrace.types import Schema


class CsvMessages:
    """Decodes messages of one CSV record each, by the rules for CSV files."""

    def __init__(self, schema: Schema, dialect: Dialect) -> None:
        self._schema = schema
        self._reader = CsvReader(dialect)
        self._decoder = CsvDecoder("", schema, dialect, range(len(schema.columns)))
        self._quote = dialect.quote.encode()

    def decode(self, values: Sequence[bytes]) -> Messages:
        """Return the rows of values; one that is not one record, or does not fit, is a reject."""
        lines = [value.rstrip(b"\r\n") for value in values]
        reasons = {at: reason for at, line in enumerate(lines) if (reason := self._wrong(line))}
        whole = [at for at in range(len(lines)) if at not in reasons]
        data = b"\n".join([*(lines[at] for at in whole), b""])
        decoded = self._decoder.decode(RecordBlock(data, 0, FilePosition(), len(data)))
        kept = np.ones(len(values), bool)
        kept[list(reasons)] = False
        rejects = [Reject("", at, None, why, payload(values[at])) for at, why in reasons.items()]
        line_of = self._lines([lines[at] for at in whole])
        for reject in decoded.rejects:
            at = whole[line_of[reject.line]]
            kept[at] = False
            rejects.append(Reject("", at, reject.column, reject.reason, reject.raw))
        rows = pa.concat_tables([self._schema.arrow.empty_table(), *decoded.tables])
        ordered = tuple(sorted(rejects, key=lambda each: each.line))
        return Messages(rows, np.flatnonzero(kept), ordered)

    def _lines(self, lines: Sequence[bytes]) -> dict[int, int]:
        """Return the index of each record by the line of their text that it begins at."""
        found, line = {}, 0
        for at, record in enumerate(lines):
            found[line] = at
            line += record.count(b"\n") + 1
        return found

    def _wrong(self, line: bytes) -> str | None:
        """Return why a value is not a single record, or None."""
        if not line:
            return "an empty value"
        if self._quote not in line:
            return "more than one record" if b"\n" in line else None
        record = self._reader.record(line, 0)
        if not record.closed:
            return "a quote is never closed"
        return "more than one record" if record.end < len(line) else None
