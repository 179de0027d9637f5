"""Server-sent events: snapshots, changes of whole epochs, and progress, each with its token.

The token of an event is its id, so a browser that reconnects resumes after it. A snapshot, and the
changes of an epoch, may be sent in several events, with ``"part"`` counting from 0; only the one
with ``"last": true`` has a token. Part 0 begins the epoch again if it was not complete.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from headrace.catalog import key_of
from headrace.connectors.lines import json_lines
from headrace.errors import Code, HeadraceError
from headrace.server.answers import AnswerFormat, ipc, type_name
from headrace.serving import with_operations
from headrace.serving.texts import json_rows, rows
from headrace.serving.values import json_text
from headrace.types import Epoch, RelationId
from headrace.zset import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from headrace.catalog import Table, View
    from headrace.serving import History

_TOGETHER: Final = 1000
"""The maximum number of rows in an event."""
_TOGETHER_IN_ARROW: Final = 10_000
_EPOCHS: Final = 16
"""The number of epochs that are read together."""
_TOKEN: Final = re.compile(r"(?P<epoch>\d{1,18})(~(?P<relation>\d{1,18})|@[\d:,]+)?")


@dataclass(frozen=True, slots=True)
class ChangelogPosition:
    """A position in a relation's changelog: after an epoch.

    Its text is ``7~3``, the epoch and the relation's id. Without the relation, as in the token of a
    read, it fits whichever relation is followed.
    """

    epoch: Epoch
    relation: RelationId | None = None

    @classmethod
    def of(cls, text: str) -> ChangelogPosition:
        """Parse a position, the token of a read, or the number of an epoch.

        Raises:
            HeadraceError: ``invalid`` for any other text.
        """
        found = _TOKEN.fullmatch(text)
        if found is None:
            raise HeadraceError(
                Code.INVALID,
                "this is not a token",
                hint="Give the id of an event, the token of a read, or the number of an epoch.",
            )
        relation = found["relation"]
        return cls(Epoch(int(found["epoch"])), None if relation is None else _relation(relation))

    def __str__(self) -> str:
        """Return the text that :meth:`of` reads."""
        return str(self.epoch) if self.relation is None else f"{self.epoch}~{self.relation}"


def _relation(text: str) -> RelationId:
    return RelationId(int(text))


@dataclass(frozen=True, slots=True)
class SentEvent:
    """An encoded event, its epoch, and whether it is the last event of that epoch."""

    epoch: Epoch
    data: bytes
    last: bool
    is_progress: bool = False


def beginning(
    history: History, place: ChangelogPosition | None, form: AnswerFormat
) -> bytes | None:
    """Return the first event, for Arrow only: the columns, and where changes begin.

    ``place`` is None if a snapshot follows. Returns None for JSON.
    """
    if form is not AnswerFormat.ARROW:
        return None
    token = "null" if place is None else json_text(str(place))
    columns = _arrow_text(history.layout.columns.empty_table())
    return f'event: columns\ndata: {{"token":{token},"arrow":"{columns}"}}\n\n'.encode()


def snapshot(
    relation: Table | View, history: History, epoch: Epoch, form: AnswerFormat = AnswerFormat.JSON
) -> Iterator[SentEvent]:
    """Yield the contents of a relation at an epoch."""
    schema, parts = history.layout.columns, history.at(epoch).parts()
    if form is AnswerFormat.ARROW:
        contents = _arrow_pieces(parts, schema)
    else:
        columns = json_text([{"name": f.name, "type": type_name(f.type)} for f in schema])
        lines = (
            line.rstrip("\n") for part in parts for line in json_rows(schema.names, rows(part))
        )
        contents = (f'"columns":{columns},"rows":[{piece}]' for piece in _joined(lines))
    yield from _events("snapshot", ChangelogPosition(epoch, relation.id), contents)


def changes(
    relation: Table | View,
    history: History,
    after: Epoch,
    upto: Epoch,
    form: AnswerFormat = AnswerFormat.JSON,
) -> Iterator[SentEvent]:
    """Yield the changes of the epochs in (after, upto]; epochs without changes are skipped."""
    key = key_of(relation)
    for first in range(after, upto, _EPOCHS):
        end = Epoch(min(first + _EPOCHS, upto))
        for epoch, delta in history.changes(Epoch(first), end):
            written = delta.table.select([*history.layout.columns.names, WEIGHT])
            if not written.num_rows:
                continue
            if form is AnswerFormat.ARROW:
                ordered = with_operations(written, key)
                contents = _arrow_pieces(iter([ordered]), ordered.schema)
            else:
                pieces = _joined(json_lines(epoch, written, key))
                contents = (f'"changes":[{piece}]' for piece in pieces)
            yield from _events("changes", ChangelogPosition(epoch, relation.id), contents)


def _joined(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines joined by commas, in pieces; at least one piece."""
    left = iter(lines)
    piece = list(islice(left, _TOGETHER))
    while True:
        yield ",".join(piece)
        piece = list(islice(left, _TOGETHER))
        if not piece:
            return


def _arrow_pieces(parts: Iterator[pa.Table], schema: pa.Schema) -> Iterator[str]:
    """Yield rows as Arrow, in pieces; at least one piece."""
    pieces = (
        part.slice(at, _TOGETHER_IN_ARROW)
        for part in parts
        for at in range(0, part.num_rows, _TOGETHER_IN_ARROW)
    )
    first = next(pieces, schema.empty_table())
    return (f'"arrow":"{_arrow_text(piece)}"' for piece in chain([first], pieces))


def _arrow_text(table: pa.Table) -> str:
    return base64.b64encode(b"".join(ipc(table))).decode()


def _events(kind: str, place: ChangelogPosition, contents: Iterator[str]) -> Iterator[SentEvent]:
    """Yield the events of a snapshot or of one epoch's changes; the last one is marked."""
    part, content = 0, next(contents)
    for following in contents:
        yield _event(kind, place, f'"part":{part},{content}', last=False)
        part, content = part + 1, following
    yield _event(kind, place, f'"part":{part},{content}', last=True)


def progress(place: ChangelogPosition, committed_at: float, pending: int) -> SentEvent:
    """Return a progress event: all changes up to a position were sent."""
    body = f'"committed_at":{committed_at!r},"pending":{pending}'
    return _event("progress", place, body, last=True, is_progress=True)


def goodbye(place: ChangelogPosition, error: HeadraceError) -> bytes:
    """Return the last event of a subscription that fails: the error, and where to resume."""
    body = json_text({"token": str(place), "error": error.to_json()})
    return f"event: error\ndata: {body}\n\n".encode()


def _event(
    kind: str, place: ChangelogPosition, body: str, *, last: bool, is_progress: bool = False
) -> SentEvent:
    token = f'"token":{json_text(str(place))},' if last else ""
    mark = "" if is_progress else f'"last":{"true" if last else "false"},'
    id_ = f"id: {place}\n" if last else ""
    text = f'event: {kind}\n{id_}data: {{"epoch":{place.epoch},{token}{mark}{body}}}\n\n'
    return SentEvent(place.epoch, text.encode(), last, is_progress)
