"""What a sink has a Redis server do, each as one atomic script.

The *mark* of a sink is a hash: who writes (``owner``), by which session, and the last epoch that is
whole. Every script that changes something is given a session, and does nothing unless the mark has
it. So what was sent over an earlier connection, and arrives after a later one has begun, has no
effect, and a deleted item needs no trace of its epoch.
"""

from __future__ import annotations

from typing import Final

CLAIM: Final = """
local owner = redis.call('HGET', KEYS[1], 'owner')
if owner and owner ~= ARGV[1] then return {owner, false} end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'session', ARGV[2])
return {ARGV[1], redis.call('HGET', KEYS[1], 'epoch')}
"""
"""Begin a session. KEYS: the mark. ARGV: owner, session. Returns the owner, and the epoch if the
owner is the given one."""

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
"""Record an epoch as whole. KEYS: the mark. ARGV: session, epoch, rows refused in it, and the epoch
that the mark is known to have, or nothing: a server that was restored in a session has another."""

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
"""The epoch of the hash at a key; -1 if it has none."""
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
0, the number of fields, their names; then for each hash a text with ``1`` for each field that it
has not and ``0`` for others, and the values of all fields. Returns pairs of the place of a key of
another kind, and that kind; so do the following scripts."""

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
"""Write texts, as :data:`HASHES`. ARGV: session, epoch, time to live; then each text."""

MEMBERS: Final = _EACH % {
    "kind": "zset",
    "first": "",
    "each": "2",
    "one": """
    redis.call('ZADD', key, ARGV[at], ARGV[at + 1])
    if ttl > 0 then redis.call('PEXPIRE', key, ttl) end
""",
}
"""Write members of sorted sets, as :data:`TEXTS`. Then for each its score, and the member."""

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
"""Delete texts. ARGV: session, epoch, 0."""

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
