"""Files of captured changes: each line is a message as in a topic."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.formats.blocks import FilePosition, after_mark, blocks, lines_of, size_of
from headrace.formats.json_lines import cut, require_lines
from headrace.formats.messages import payload
from headrace.runtime.ports import Part
from headrace.zset import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from headrace.formats.blocks import RecordBlock
    from headrace.formats.changes import ChangeDecoder


def read_changes(
    path: Path, decoder: ChangeDecoder, resume: FilePosition | None = None
) -> Iterator[tuple[Part, int]]:
    """Yield the changes in a file after a position, in parts.

    Each part is yielded with the number of its lines that contain a change.

    Raises:
        HeadraceError: ``invalid`` if the file does not exist or is damaged.
    """
    total = size_of(path)
    with path.open("rb") as file:
        beginning = file.read(4096)
    require_lines(f'file "{path}"', beginning)
    for block in blocks(path, resume or after_mark(beginning), cut):
        part, taken = _part(str(path), block, decoder)
        yield replace(part, done=block.bytes_done, total=total), taken


def _part(path: str, block: RecordBlock, decoder: ChangeDecoder) -> tuple[Part, int]:
    spans = lines_of(block.data, block.line)
    lines = [bytes(block.data[span.start : span.end]) for span in spans]
    found = decoder.changes([None] * len(lines), lines)
    rejects = (replace(r, file=path, line=spans[r.line].line) for r in found.rejects)
    messages: Sequence[int] = found.messages.tolist()
    part = Part(
        found.rows.append_column(WEIGHT, pa.array(found.weights)),
        tuple(rejects),
        block.progress.to_json(),
        origin=lambda row: (path, spans[messages[row]].line),
        unchanged=found.unchanged,
        emptied=found.emptied,
        payload=lambda row: payload(lines[messages[row]]),
    )
    return part, len(set(messages)) + len(found.emptied)
