"""Rows as text in the formats for programs: lines of JSON, and CSV."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from headrace.errors import Code, HeadraceError
from headrace.serving.values import column_values, csv_text, json_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

_BATCH_ROWS = 10_000


def rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Yield the table's rows with the values of :func:`column_values`; maps are dictionaries."""
    for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
        if batch.num_columns:
            yield from zip(*map(column_values, batch.columns), strict=True)


def json_rows(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield one JSON object per row.

    Raises:
        HeadraceError: ``invalid`` if two columns have the same name: one would hide the other.
    """
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise HeadraceError(
            Code.INVALID,
            f'column "{twice[0]}" appears twice, which a JSON object cannot show',
            hint="Give the columns different names with AS, or choose CSV.",
        )
    keys = [json_text(name) for name in names]
    for row in rows:
        fields = ",".join(f"{key}:{json_text(v)}" for key, v in zip(keys, row, strict=True))
        yield "{" + fields + "}\n"


def csv_line(values: Iterable[Any]) -> str:
    """Return one record of RFC 4180; NULL is an empty field, empty text is ``""``."""
    return ",".join(map(_csv_field, values)) + "\r\n"


def _csv_field(value: Any) -> str:
    text = csv_text(value)
    if text is None:
        return ""
    if not text or any(c in text for c in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text
