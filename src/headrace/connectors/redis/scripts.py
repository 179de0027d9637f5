"""The Lua scripts of a sink; Redis runs each one atomically.

The *mark* of a sink is a hash: the sink (``owner``), the current session, and the last whole epoch.
Every script that changes something has the session as an argument, and fails unless it is the
mark's. So requests over an earlier connection that arrive after a later session has begun have no
effect, and deleted items need no tombstones.
"""

from __future__ import annotations

from typing import Final

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
