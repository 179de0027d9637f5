"""Requests that run a script for many rows, encoded from columns in Redis's protocol.

The Lua scripts of a sink; Redis runs each one atomically.

The *mark* of a sink is a hash: the sink (``owner``), the current session, and the last whole epoch.
Every script that changes something has the session as an argument, and fails unless it is the
mark's. So requests over an earlier connection that arrive after a later session has begun have no
effect, and deleted items need no tombstones.

Reads the items of a sink in Redis: their keys and rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from headrace.io.connectors.redis.access import answers, rows_of_cells, rows_of_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from headrace.io.connectors.redis.access import Pattern
    from headrace.types import Schema


CLAIM: Final = """
local owner = redis.call('HGET', KEYS[1], 'owner')
if owner and owner ~= ARGV[1] then return {owner, false} end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'session', ARGV[2])
return {ARGV[1], redis.call('HGET', KEYS[1], 'epoch')}
"""
"""Begin a session unless the mark has another owner. KEYS: the mark. ARGV: owner, session. Returns
the mark's owner, and its epoch if that is the given owner."""

_GUARD = """
if redis.call('HGET', KEYS[1], 'session') ~= ARGV[1] then
  return redis.error_reply('HEADRACE another session writes')
end
"""

FINISH: Final = (
    _GUARD
    + """
if (redis.call('HGET', KEYS[1], 'epoch') or '') ~= ARGV[4] then
  return redis.error_reply('HEADRACE the mark has another epoch')
end
redis.call('HSET', KEYS[1], 'epoch', ARGV[2], 'refused', ARGV[3])
return 1
"""
)
"""Record an epoch as whole. KEYS: the mark. ARGV: session, epoch, refused rows, and the epoch that
the mark should have, or an empty text: a server that was restored meanwhile has another one."""

_EACH = (
    _GUARD
    + """
local epoch, ttl, at, wrong = tonumber(ARGV[2]), tonumber(ARGV[3]), 4, {}
%(first)s
for i = 2, #KEYS do
  local key = KEYS[i]
  local kind = redis.call('TYPE', key).ok
  if kind == 'none' or kind == '%(kind)s' then
    %(one)s
  else
    wrong[#wrong + 1] = {i - 2, kind}
  end
  at = at + %(each)s
end
return wrong
"""
)
_OF_HASH = "(tonumber(redis.call('HGET', key, '__epoch') or '') or -1)"
"""The epoch of the hash at a key; -1 without one."""
_OF_TEXT = """(tonumber(string.match(redis.call('GET', key) or '', '"__epoch":(%d+)}$')) or -1)"""

HASHES: Final = _EACH % {
    "kind": "hash",
    "first": "local width = tonumber(ARGV[4]) at = 5 + width",
    "each": "1 + width",
    "one": f"""
    if {_OF_HASH} < epoch then
      local set, unset, missing = {{}}, {{}}, ARGV[at]
      for column = 1, width do
        local name = ARGV[4 + column]
        if string.byte(missing, column) == 49 then
          unset[#unset + 1] = name
        else
          set[#set + 1] = name
          set[#set + 1] = ARGV[at + column]
        end
      end
      redis.call('HSET', key, '__epoch', ARGV[2], unpack(set))
      if #unset > 0 then redis.call('HDEL', key, unpack(unset)) end
      if ttl > 0 then redis.call('PEXPIRE', key, ttl) end
    end
""",
}
"""Write hashes. KEYS: the mark, the hashes. ARGV: session, epoch, time to live in milliseconds or
0, the number of fields, their names; then for each hash its NULL mask, a text with ``1`` for each
missing field and ``0`` for others, and the values of all fields. Returns pairs of the index of a
key whose value has another type, and that type; so do the following scripts."""

TEXTS: Final = _EACH % {
    "kind": "string",
    "first": "",
    "each": "1",
    "one": f"""
    if {_OF_TEXT} < epoch then
      if ttl > 0 then
        redis.call('SET', key, ARGV[at], 'PX', ttl)
      else
        redis.call('SET', key, ARGV[at])
      end
    end
""",
}
"""Write strings, as :data:`HASHES`. ARGV: session, epoch, time to live; then each string."""

MEMBERS: Final = _EACH % {
    "kind": "zset",
    "first": "",
    "each": "2",
    "one": """
    redis.call('ZADD', key, ARGV[at], ARGV[at + 1])
    if ttl > 0 then redis.call('PEXPIRE', key, ttl) end
""",
}
"""Write members of sorted sets. ARGV: as :data:`TEXTS`; then the score and member for each key."""

NO_HASHES: Final = _EACH % {
    "kind": "hash",
    "first": "",
    "each": "0",
    "one": f"if {_OF_HASH} <= epoch then redis.call('DEL', key) end",
}
"""Delete hashes. ARGV: session, epoch, 0."""

NO_TEXTS: Final = _EACH % {
    "kind": "string",
    "first": "",
    "each": "0",
    "one": f"if {_OF_TEXT} <= epoch then redis.call('DEL', key) end",
}
"""Delete strings. ARGV: session, epoch, 0."""

NO_MEMBERS: Final = _EACH % {
    "kind": "zset",
    "first": "",
    "each": "1",
    "one": "redis.call('ZREM', key, ARGV[at])",
}
"""Remove members of sorted sets. ARGV: session, epoch, 0; then each member."""

REMOVE: Final = (
    _GUARD
    + """
for i = 2, #KEYS do redis.call('DEL', KEYS[i]) end
return #KEYS - 1
"""
)
"""Delete keys. KEYS: the mark, keys. ARGV: session."""

RELEASE: Final = (
    _GUARD
    + """
return redis.call('DEL', KEYS[1])
"""
)
"""Remove the mark. KEYS: the mark. ARGV: session."""


_END = b"\r\n"


@dataclass(frozen=True, slots=True)
class Arguments:
    """Encoded arguments of rows: ``each`` is the number of arguments per row."""

    each: int
    ends: Any
    """The offset in ``sent`` of the first row's arguments, then the end of each row's."""
    sent: memoryview

    @classmethod
    def of(cls, columns: Sequence[Any]) -> Arguments:
        """Encode columns of text or binary: a row's arguments are its values in each of them."""
        if not columns:
            return cls(0, None, memoryview(b""))
        pieces: list[Any] = []
        for column in columns:
            values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            values = values.cast(pa.large_binary())
            lengths = pc.binary_length(values).cast(pa.string()).cast(pa.large_binary())
            pieces += [_constant(b"$"), lengths, _constant(_END), values, _constant(_END)]
        joined = pc.binary_join_element_wise(*pieces, _constant(b""))
        _, offsets, data = joined.buffers()
        ends = np.frombuffer(offsets, np.int64)[joined.offset : joined.offset + len(joined) + 1]
        return cls(len(columns), ends, memoryview(data or b""))

    def part(self, start: int, stop: int) -> memoryview:
        """Return the encoded arguments of the rows in ``[start, stop)``."""
        if not self.each:
            return self.sent
        return self.sent[self.ends[start] : self.ends[stop]]


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of a script for ranges of rows, which have keys and arguments.

    ``mark`` is the first key of each call, ``given`` are its first arguments.
    """

    script: str
    mark: str
    given: Sequence[bytes]
    keys: Arguments
    arguments: Arguments

    def part(self, start: int, stop: int) -> list[bytes | memoryview]:
        """Return the request for the rows in ``[start, stop)``."""
        rows = stop - start
        total = 4 + rows + len(self.given) + rows * self.arguments.each
        beginning = (b"EVAL", self.script.encode(), b"%d" % (1 + rows), self.mark.encode())
        return [
            b"*%d\r\n" % total + b"".join(map(_bulk, beginning)),
            self.keys.part(start, stop),
            b"".join(map(_bulk, self.given)),
            self.arguments.part(start, stop),
        ]


def _bulk(value: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(value), value)


def _constant(value: bytes) -> pa.Scalar:
    return pa.scalar(value, pa.large_binary())


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
