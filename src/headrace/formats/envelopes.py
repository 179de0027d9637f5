"""Debezium's change envelopes, one JSON object per line, with a row before and after the change.

``{"op": "u", "before": {...}, "after": {...}}``, where ``op`` is ``c`` (created), ``r`` (read by a
snapshot), ``u`` (updated) or ``d`` (deleted); an envelope inside of ``payload`` is found there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.formats.blocks import Progress, after_mark, blocks, lines_of, size_of
from headrace.formats.json_lines import cut, object_of, require_lines
from headrace.formats.rows import Rows, together
from headrace.formats.values import Refused, from_json
from headrace.ledger import Reject

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.formats.blocks import Text
    from headrace.types import Schema

_NEEDED = {"c": ("after",), "r": ("after",), "u": ("after",), "d": ("before",)}
"""The images that each operation requires."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """One change of one row: its images as values by column, and its line in the file."""

    op: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    line: int
    raw: str

    def rejected(self, path: str, reason: str, column: str | None = None) -> Reject:
        """Return the envelope as a reject."""
        return Reject(path, self.line, column, reason, self.raw)


@dataclass(frozen=True, slots=True)
class Envelopes:
    """A part of a file: its envelopes in order, the rejected lines, and the position after it."""

    found: tuple[Envelope, ...]
    rejects: tuple[Reject, ...]
    progress: Progress
    bytes_done: int
    bytes_total: int


def read_envelopes(
    path: Path, image: Schema, resume: Progress | None = None
) -> Iterator[Envelopes]:
    """Yield the envelopes of a file whose rows have the columns of ``image``.

    Raises:
        HeadraceError: ``invalid`` if there is no such file or it is damaged.
    """
    total = size_of(path)
    with path.open("rb") as file:
        beginning = file.read(4096)
    require_lines(str(path), beginning)
    decoder = _Decoder(str(path), image)
    for block in blocks(path, resume or after_mark(beginning), cut):
        found, rejects = decoder.decode(block.data, block.line)
        yield Envelopes(tuple(found), tuple(rejects), block.progress, block.bytes_done, total)


class _Decoder:
    def __init__(self, path: str, image: Schema) -> None:
        self.path = path
        self.image = image
        self.arrow = pa.schema([pa.field(f.name, f.type) for f in image.arrow])
        self.converters = [(column.name, from_json(column)) for column in image.columns]

    def decode(self, data: Text, line: int) -> tuple[list[Envelope], list[Reject]]:
        before, after = Rows(self.arrow), Rows(self.arrow)
        heads: list[tuple[str, bool, bool, int, str]] = []
        rejects: list[Reject] = []
        for span in lines_of(data, line):
            raw = data[span.start : span.end]
            text = raw.decode("utf-8", "replace").rstrip("\r\n")
            try:
                op, images = self._images(raw)
            except _Wrong as wrong:
                rejects.append(Reject(self.path, span.line, wrong.column, wrong.reason, text))
                continue
            for rows, values in zip((before, after), images, strict=True):
                if values is not None:
                    rows.add(values)
            heads.append((op, images[0] is not None, images[1] is not None, span.line, text))
        befores, afters = iter(_listed(before)), iter(_listed(after))
        found = [
            Envelope(op, next(befores) if had else None, next(afters) if has else None, at, text)
            for op, had, has, at, text in heads
        ]
        return found, rejects

    def _images(self, raw: Text) -> tuple[str, tuple[list[Any] | None, list[Any] | None]]:
        try:
            parsed = object_of(raw)
        except Refused as refused:
            raise _Wrong(str(refused)) from refused
        if "op" not in parsed and isinstance(parsed.get("payload"), dict):
            parsed = parsed["payload"]
        op = parsed.get("op")
        if not isinstance(op, str) or op not in _NEEDED:
            found = f"op {op!r}" if op is not None else "no op"
            raise _Wrong(f"{found}: an envelope has op c, r, u or d", "op")
        for name in _NEEDED[op]:
            if not isinstance(parsed.get(name), dict):
                raise _Wrong(f"no {name} in an envelope with op {op}", name)
        return op, (self._values(parsed.get("before")), self._values(parsed.get("after")))

    def _values(self, given: Any) -> list[Any] | None:
        if not isinstance(given, dict):
            return None
        values: list[Any] = []
        wrong: list[tuple[str, str]] = []
        for name, convert in self.converters:
            value = given.get(name)
            try:
                values.append(None if value is None else convert(value))
            except Refused as refused:
                wrong.append((name, str(refused)))
        if wrong:
            columns, reason = together(wrong)
            raise _Wrong(reason, columns)
        return values


class _Wrong(Exception):  # noqa: N818 - it never leaves this module
    def __init__(self, reason: str, column: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.column = column


def _listed(rows: Rows) -> list[dict[str, Any]]:
    tables: list[pa.Table] = []
    rows.into(tables)
    return tables[0].to_pylist() if tables else []
