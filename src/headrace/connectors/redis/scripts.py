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
redis.call('HSET', KEYS[1], 'epoch', ARGV[2], 'refused', ARGV[3])
return 1
"""
)
"""Record an epoch as whole. KEYS: the mark. ARGV: session, epoch, rows refused in it."""

_EACH = (
    _GUARD
    + """
local epoch, ttl, at, wrong = tonumber(ARGV[2]), tonumber(ARGV[3]), 4, {}
for i = 2, #KEYS do
  local key = KEYS[i]
  local kind = redis.call('TYPE', key).ok
  local mine = kind == 'none' or kind == '%(kind)s'
  %(one)s
  if not mine then wrong[#wrong + 1] = {i - 2, kind} end
end
return wrong
"""
)

HASHES: Final = _EACH % {
    "kind": "hash",
    "one": """
  local set, unset = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local first, last = at + 2, at + 1 + set + unset
  at = last + 1
  if mine and (tonumber(redis.call('HGET', key, '__epoch') or '0') or 0) <= epoch then
    if set == 0 then
      redis.call('DEL', key)
    else
      redis.call('HSET', key, unpack(ARGV, first, first + set - 1))
      if unset > 0 then redis.call('HDEL', key, unpack(ARGV, first + set, last)) end
      if ttl > 0 then redis.call('PEXPIRE', key, ttl) end
    end
  end
""",
}
"""Write or delete hashes. KEYS: the mark, the hashes. ARGV: session, epoch, time to live in
milliseconds or 0; then for each hash two counts, fields with values, and fields that it has not;
none of either deletes it. Returns pairs of the place of a key of another kind, and that kind."""

TEXTS: Final = _EACH % {
    "kind": "string",
    "one": """
  local value = ARGV[at]
  at = at + 1
  if mine then
    local stored = redis.call('GET', key)
    if (stored and tonumber(string.match(stored, '"__epoch":(%d+)}$')) or 0) <= epoch then
      if value == '' then
        redis.call('DEL', key)
      elseif ttl > 0 then
        redis.call('SET', key, value, 'PX', ttl)
      else
        redis.call('SET', key, value)
      end
    end
  end
""",
}
"""Write or delete texts, as :data:`HASHES`, each with one argument: JSON, or nothing to delete."""

MEMBERS: Final = _EACH % {
    "kind": "zset",
    "one": """
  local score, member = ARGV[at], ARGV[at + 1]
  at = at + 2
  if mine then
    if score == '' then
      redis.call('ZREM', key, member)
    else
      redis.call('ZADD', key, score, member)
      if ttl > 0 then redis.call('PEXPIRE', key, ttl) end
    end
  end
""",
}
"""Write or remove members of sorted sets, as :data:`HASHES`, each with a score and the member;
without a score it is removed."""

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
