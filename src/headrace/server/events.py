"""Server-sent events: snapshots, changes of whole epochs, and progress, each with its token.

The token of an event is its id, so a browser that reconnects resumes after it. A snapshot, and the
changes of an epoch, may be sent in several events, with ``"part"`` counting from 0; only the one
with ``"last": true`` has a token. Part 0 begins anew what was not complete.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from headrace.catalog import key_of
from headrace.connectors.lines import json_lines
from headrace.errors import Code, HeadraceError
from headrace.server.answers import type_name
from headrace.serving.texts import json_rows, rows
from headrace.serving.values import json_text
from headrace.types import Epoch, RelationId
from headrace.zset import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Protocol

    import pyarrow as pa

    from headrace.catalog import Table, View
    from headrace.serving import History

    class _MakeEvent(Protocol):
        def __call__(self, lines: Sequence[str], part: int, *, last: bool) -> Event: ...


_TOGETHER: Final = 1000
"""How many rows one event has at most."""
_EPOCHS: Final = 16
"""How many epochs are read at a time."""
_TOKEN: Final = re.compile(r"(?P<epoch>\d{1,18})(~(?P<relation>\d{1,18})|@[\d:,]+)?")


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the changelog of a relation: after an epoch. Its text is ``7~3``.

    Without the relation, as in the token of a read, it stands for whatever is followed.
    """

    epoch: Epoch
    relation: RelationId | None = None

    @classmethod
    def of(cls, text: str) -> Place:
        """Parse a place, the token of a read, or the number of an epoch.

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
class Event:
    """One event as it is sent; its epoch, and whether that epoch is complete with it."""

    epoch: Epoch
    data: bytes
    last: bool
    is_progress: bool = False


def snapshot(relation: Table | View, history: History, epoch: Epoch) -> Iterator[Event]:
    """Yield the contents of a relation at an epoch."""
    schema = history.layout.columns
    columns = json_text([{"name": f.name, "type": type_name(f.type)} for f in schema])

    def event(lines: Sequence[str], part: int, *, last: bool) -> Event:
        body = f'"part":{part},"columns":{columns},"rows":[{",".join(lines)}]'
        return _event("snapshot", Place(epoch, relation.id), body, last=last)

    lines = (
        line.rstrip("\n")
        for part in history.at(epoch).parts()
        for line in json_rows(schema.names, rows(part))
    )
    yield from _pieces(lines, event)


def changes(relation: Table | View, history: History, after: Epoch, upto: Epoch) -> Iterator[Event]:
    """Yield the changes of the epochs after one up to another; those without any are left out."""
    for first in range(after, upto, _EPOCHS):
        end = Epoch(min(first + _EPOCHS, upto))
        for epoch, delta in history.changes(Epoch(first), end):
            written = delta.table.select([*history.layout.columns.names, WEIGHT])
            yield from _epoch(relation, epoch, written)


def _epoch(relation: Table | View, epoch: Epoch, delta: pa.Table) -> Iterator[Event]:
    def event(lines: Sequence[str], part: int, *, last: bool) -> Event:
        body = f'"part":{part},"changes":[{",".join(lines)}]'
        return _event("changes", Place(epoch, relation.id), body, last=last)

    if delta.num_rows:
        yield from _pieces(json_lines(epoch, delta, key_of(relation)), event)


def _pieces(lines: Iterable[str], event: _MakeEvent) -> Iterator[Event]:
    """Yield lines in events of some lines each; there is one event if there are no lines."""
    left, part = iter(lines), 0
    piece = list(islice(left, _TOGETHER))
    while following := list(islice(left, _TOGETHER)):
        yield event(piece, part, last=False)
        piece, part = following, part + 1
    yield event(piece, part, last=True)


def progress(place: Place, committed_at: float, pending: int) -> Event:
    """Return the event that all changes up to a place were sent."""
    body = f'"committed_at":{committed_at!r},"pending":{pending}'
    return _event("progress", place, body, last=True, is_progress=True)


def goodbye(place: Place, error: HeadraceError) -> bytes:
    """Return the last event of a subscription that ends with an error, and where to resume."""
    body = json_text({"token": str(place), "error": error.to_json()})
    return f"event: error\ndata: {body}\n\n".encode()


def _event(kind: str, place: Place, body: str, *, last: bool, is_progress: bool = False) -> Event:
    token = f'"token":{json_text(str(place))},' if last else ""
    mark = "" if is_progress else f'"last":{"true" if last else "false"},'
    id_ = f"id: {place}\n" if last else ""
    text = f'event: {kind}\n{id_}data: {{"epoch":{place.epoch},{token}{mark}{body}}}\n\n'
    return Event(place.epoch, text.encode(), last, is_progress)
