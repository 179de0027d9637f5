"""Reads the items of a sink in Redis: their keys and rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import xxhash

from headrace.connectors.redis.access import answers
from headrace.connectors.redis.values import rows_of_cells, rows_of_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from headrace.connectors.redis.patterns import Pattern
    from headrace.types import Schema

EPOCH: Final = "__epoch"
"""The field of an item with the epoch of its row."""
EXACT: Final = 1 << 53
"""The bound up to which a score, a 64-bit float, represents all whole numbers exactly."""
_SCANNED: Final = 1000


class SeenItems:
    """A set of items that were read, since SCAN may return one several times; 8 bytes per item.

    It contains 64-bit hashes. An item with the hash of another one is taken for it, once in 10^19
    pairs of items; a comparison of rows then finds it missing, and it is written again.
    """

    def __init__(self) -> None:
        self._levels: list[NDArray[np.uint64]] = []

    def new(self, names: Sequence[bytes]) -> list[int]:
        """Add names; return the ascending indices of those that are new."""
        hashes = np.array([xxhash.xxh3_64_intdigest(name) for name in names], np.uint64)
        found, first = np.unique(hashes, return_index=True)
        known = np.zeros(len(found), bool)
        for level in self._levels:
            at = np.minimum(np.searchsorted(level, found), len(level) - 1)
            known |= level[at] == found
        added, places = found[~known], np.sort(first[~known])
        while self._levels and len(self._levels[-1]) <= 2 * len(added):
            added = np.concatenate([self._levels.pop(), added])
            added.sort()
        if len(added):
            self._levels.append(added)
        return places.tolist()  # type: ignore[no-any-return]


@dataclass(slots=True)
class Items:
    """The items of a sink: hashes, strings of JSON, or sorted sets with the column ``score``.

    ``kind`` is Redis's name of their type. Each item is returned once.
    """

    kind: str
    keys: Pattern
    members: Pattern
    score: str | None
    schema: Schema
    client: Any
    _seen: SeenItems = field(default_factory=SeenItems)

    def rows(self) -> Iterator[pa.Table]:
        """Yield the rows of the items."""
        for keys in self._found():
            for rows in self._members(keys) if self.kind == "zset" else [self._read(keys)[1]]:
                if rows.num_rows:
                    yield rows

    def own(self) -> Iterator[list[bytes]]:
        """Yield the keys of the items, in batches."""
        for keys in self._found():
            if self.kind == "zset":
                own = [key for key in keys if self.keys.values(_text(key)) is not None]
            else:
                own, _ = self._read(keys)
            if own:
                yield own

    def _found(self) -> Iterator[list[bytes]]:
        """Yield batches of new keys that match the pattern's glob; some may not be the sink's."""
        cursor = 0
        while True:
            cursor, keys = self.client.scan(
                cursor, match=self.keys.glob, count=_SCANNED, _type=self.kind
            )
            keys = [keys[at] for at in self._seen.new(keys)]
            if keys:
                yield keys
            if not cursor:
                return

    def _read(self, keys: Sequence[bytes]) -> tuple[list[bytes], pa.Table]:
        """Return the keys of items that belong to the sink, and their rows."""
        with self.client.pipeline(transaction=False) as line:
            for key in keys:
                (line.hgetall if self.kind == "hash" else line.get)(key)
            values = answers(line)
        read = rows_of_cells if self.kind == "hash" else rows_of_json
        rows, kept = read(values, self.schema, EPOCH)
        own = [keys[at] for at in kept]
        made = self.keys.of_rows(rows).to_pylist()
        mine = [
            at
            for at, (key, text) in enumerate(zip(own, made, strict=True))
            if text is not None and text.encode() == key
        ]
        return [own[at] for at in mine], rows.take(pa.array(mine, pa.int64()))

    def _members(self, keys: Sequence[bytes]) -> Iterator[pa.Table]:
        for key in keys:
            of_key = self.keys.values(_text(key))
            if of_key is None:
                continue
            cursor, seen = 0, SeenItems()
            while True:
                cursor, pairs = self.client.zscan(key, cursor, count=_SCANNED)
                new = [pairs[at] for at in seen.new([member for member, _ in pairs])]
                yield self._of_members(of_key, new)
                if not cursor:
                    break

    def _of_members(self, of_key: Sequence[str], scores: Sequence[tuple[bytes, float]]) -> pa.Table:
        """Return the rows of members of a sorted set; ``of_key`` are the values in its key."""
        names = [name.encode() for name in (*self.keys.columns, *self.members.columns)]
        found: list[dict[bytes, bytes]] = []
        for member, score in scores:
            of_member = self.members.values(_text(member))
            if of_member is None:
                continue
            texts = [text.encode() for text in (*of_key, *of_member)]
            whole = float(score).is_integer() and abs(score) <= EXACT
            number = str(int(score)) if whole else repr(score).replace("inf", "Infinity")
            values = dict(zip(names, texts, strict=True))
            found.append({**values, str(self.score).encode(): number.encode()})
        rows, _ = rows_of_cells(found, self.schema, None)
        return rows


def _text(key: bytes) -> str:
    return key.decode("utf-8", "replace")
