"""A sink into Redis: a hash, a string of JSON, or a member of a sorted set for each row.

Rows are written by scripts that check the session of the sink and, for hashes and JSON, the epoch
stored in the item (:mod:`headrace.io.connectors.redis.requests`). Writing changes again has no
further effect.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from headrace.errors import Code, HeadraceError
from headrace.execution.serving.values import json_objects, text_column
from headrace.io.connectors import stores
from headrace.io.connectors.options import Alters, option, seconds
from headrace.io.connectors.redis import requests
from headrace.io.connectors.redis.access import Access, Pattern, cells, connected, failure, library
from headrace.io.connectors.redis.requests import EPOCH, EXACT, Arguments, Calls, Items
from headrace.io.connectors.stores import StoreSink, places
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.io.connectors.sinks import SinkContext


_AT_ONCE: Final = 500
"""The most items that a script writes: the server runs nothing else at that time."""
_CALL_BYTES: Final = 8 << 20
"""The size of a script's arguments, if all items have the average size."""
_UNANSWERED: Final = 10
"""The number of scripts that are sent before their answers are read."""
_SCORES: Final = (
    t.ByteType,
    t.ShortType,
    t.IntegerType,
    t.LongType,
    t.FloatType,
    t.DoubleType,
)


class Form(StrEnum):
    """The form in which rows are stored."""

    HASH = "hash"
    """A hash with a field for each column that is not NULL."""
    JSON = "json"
    """A string: the row as a JSON object."""
    SORTED_SET = "sorted_set"
    """A member of a sorted set, with a score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(Access):
    """Options of a sink; ``pattern`` is that of keys, ``member`` that of sorted sets' members.

    ``ttl`` is the time to live of items in seconds, 0 for no limit.
    """

    pattern: str = option(alters=Alters.NEVER)
    form: Form = option(default=Form.HASH, alters=Alters.NEVER)
    member: str | None = option(default=None, alters=Alters.NEVER)
    score: str | None = option(default=None, alters=Alters.NEVER)
    ttl: float = option("ttl", default=0.0, convert=seconds, alters=Alters.FREELY)

    def __post_init__(self) -> None:
        """Refuse options that contradict each other, and invalid patterns.

        Raises:
            HeadraceError: ``invalid``.
        """
        sorted_ = self.form is Form.SORTED_SET
        if sorted_ != (self.member is not None) or sorted_ != (self.score is not None):
            raise HeadraceError(
                Code.INVALID,
                'options "form" = \'sorted_set\', "member" and "score" need each other',
                hint="Give all three, as in form = 'sorted_set', member = '{user_id}',"
                " score = 'points'; or none.",
            )
        if len(set(self.key)) < len(self.key):
            raise HeadraceError(
                Code.INVALID,
                'options "pattern" and "member" have a column in common',
                hint="Write each column in one of them.",
            )

    @property
    def keys(self) -> Pattern:
        """The pattern of keys."""
        return Pattern.of(self.pattern)

    @property
    def members(self) -> Pattern:
        """The pattern of members of sorted sets."""
        return Pattern.of(self.member or "")

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify an item or member."""
        return (*self.keys.columns, *self.members.columns)

    @property
    def mark(self) -> str:
        """The key of the sink's mark."""
        return f"headrace:sink:{self.pattern}"


def check(options: Options, context: SinkContext) -> None:
    """Refuse rows or patterns that do not fit; see :func:`headrace.io.connectors.stores.check`."""
    stores.check(RedisStore(options, context))


def opened(options: Options, context: SinkContext) -> StoreSink[RedisSession]:
    """Return the writer of a sink."""
    return StoreSink(RedisStore(options, context))


def _require_columns(options: Options, context: SinkContext) -> None:
    """Refuse patterns that lack columns of the key, or name columns that the rows do not have."""
    known = {column.name: column.type for column in context.schema.columns}
    placed = options.key
    given = (*placed, *(() if options.score is None else (options.score,)))
    unknown = [name for name in given if name not in known]
    if unknown:
        raise HeadraceError(
            Code.INVALID,
            f'the rows have no column "{unknown[0]}"',
            hint=f"There are: {', '.join(known)}.",
        )
    missing = [name for name in context.key if name not in placed]
    if missing:
        raise HeadraceError(
            Code.INVALID,
            f'the pattern does not contain column "{missing[0]}" of the key',
            f"The rows are identified by ({', '.join(context.key)}), so several share one item.",
            f"Write it into the pattern, as in '{options.pattern}:{{{missing[0]}}}'.",
        )
    if options.score is None:
        return
    if not isinstance(known[options.score], _SCORES):
        raise HeadraceError(
            Code.INVALID,
            f'column "{options.score}" of type {known[options.score].simpleString().upper()} cannot'
            " be a score",
            hint="A score is a 64-bit float: CAST(... AS DOUBLE) in the query.",
        )
    unwritten = [name for name in known if name not in given]
    if unwritten:
        raise HeadraceError(
            Code.INVALID,
            f'column "{unwritten[0]}" is neither in a pattern nor the score',
            "A sorted set only has members and scores.",
            "Leave it out: CREATE SINK ... AS SELECT the columns that are written.",
        )


@dataclass(frozen=True, slots=True)
class RedisStore:
    """The keys of a sink in a server, and its mark."""

    options: Options
    context: SinkContext
    system: ClassVar[str] = "Redis"
    guarantee: ClassVar[str] = (
        "exact effect: scripts check the session and the epoch; as durable as the server"
    )

    @property
    def target(self) -> str:
        """The keys, for messages."""
        return f"keys '{self.options.pattern}' of Redis at \"{self.options.place}\""

    @property
    def removal(self) -> str:
        """The command that removes the mark."""
        return f"DEL {self.options.mark}"

    def prepare(self) -> str | None:
        """Return the owner of the mark.

        Raises:
            HeadraceError: ``invalid`` if the patterns lack columns of the key, or an error of the
                server.
        """
        _require_columns(self.options, self.context)
        client = connected(self.options, self.context.secrets.value)
        owner = client.hget(self.options.mark, "owner")
        client.close()
        return None if owner is None else owner.decode()

    def begin(self) -> RedisSession | None:
        """Record a new session in the mark, creating it if necessary."""
        client = connected(self.options, self.context.secrets.value)
        name = uuid4().hex
        try:
            given = (self.options.mark, self.context.identity, name)
            owner, epoch = client.eval(requests.CLAIM, 1, *given)
        except BaseException:
            client.close()
            raise
        if owner.decode() != self.context.identity:
            client.close()
            return None
        known = None if epoch is None else Epoch(int(epoch))
        return RedisSession(self, client, name, known, self.options.keys, self.options.members)

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Translate errors of the client to HeadraceError."""
        try:
            yield
        except (library().RedisError, OSError) as error:
            raise failure(error, self.options) from error


@dataclass(slots=True)
class RedisSession:
    """A client with one connection, and the name of the session in the mark."""

    store: RedisStore
    client: Any
    name: str
    epoch: Epoch | None
    _keys: Pattern
    _members: Pattern

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the patterns."""
        return (*self._keys.columns, *self._members.columns)

    def begin(self) -> None:
        """Do nothing: a write needs no preparation."""

    def unfit(self, rows: pa.Table) -> dict[int, str]:
        """Return the indices of rows whose score a sorted set cannot represent, and why."""
        name = self.store.options.score
        if name is None:
            return {}
        scores = rows[name]
        wrong = dict.fromkeys(places(scores.is_null()), "its score is NULL")
        if pa.types.is_integer(scores.type):
            large = pc.or_(pc.greater(scores, EXACT), pc.less(scores, -EXACT))
            why = "its score is a whole number beyond 2^53, which a score cannot represent exactly"
            return wrong | dict.fromkeys(places(large), why)
        return wrong | dict.fromkeys(places(pc.is_nan(scores)), "its score is NaN")

    def put(self, epoch: Epoch, rows: pa.Table) -> dict[int, str]:
        """Write an item or member for each row."""
        options = self.store.options
        ttl = b"%d" % int(options.ttl * 1000)
        match options.form:
            case Form.HASH:
                names = [name.encode() for name in rows.schema.names]
                given = [ttl, b"%d" % len(names), *names]
                script, columns = requests.HASHES, _cells(rows)
            case Form.JSON:
                epochs = pa.repeat(pa.scalar(int(epoch)), rows.num_rows)
                fields = {**dict(zip(rows.schema.names, rows.columns, strict=True)), EPOCH: epochs}
                script, given = requests.TEXTS, [ttl]
                columns = [json_objects(fields, rows.num_rows)]
            case Form.SORTED_SET:
                scores = text_column(rows[str(options.score)])
                script, given = requests.MEMBERS, [ttl]
                members = self._members.of_rows(rows)
                columns = [pc.replace_substring(scores, "Infinity", "inf"), members]
        refused = self._run(script, epoch, given, rows, columns)
        return {at: f"its key holds a value of another kind: {kind}" for at, kind in refused}

    def remove(self, epoch: Epoch, keys: pa.Table) -> dict[int, str]:
        """Delete the items of keys; a value of another type is not the sink's, and is left."""
        match self.store.options.form:
            case Form.HASH:
                self._run(requests.NO_HASHES, epoch, [b"0"], keys, [])
            case Form.JSON:
                self._run(requests.NO_TEXTS, epoch, [b"0"], keys, [])
            case Form.SORTED_SET:
                members = self._members.of_rows(keys)
                self._run(requests.NO_MEMBERS, epoch, [b"0"], keys, [members])
        return {}

    def changed(self) -> bool:
        """Return False: keys of Redis have no schema."""
        return False

    def finish(self, epoch: Epoch, refused: str) -> None:
        """Write the epoch and the refused rows into the mark."""
        known = "" if self.epoch is None else int(self.epoch)
        given = (self.name, int(epoch), refused, known)
        self.client.eval(requests.FINISH, 1, self.store.options.mark, *given)

    def refused(self) -> str | None:
        """Return the refused rows in the mark."""
        found = self.client.hget(self.store.options.mark, "refused")
        return None if found is None else found.decode()

    def rows(self) -> Iterator[pa.Table]:
        """Yield the rows of the sink's items."""
        return self._items().rows()

    def clear(self) -> None:
        """Delete the sink's items, and the mark."""
        mark = self.store.options.mark
        for keys in self._items().own():
            self.client.eval(requests.REMOVE, 1 + len(keys), mark, *keys, self.name)
        self.client.eval(requests.RELEASE, 1, mark, self.name)

    def close(self) -> None:
        """Close the connection."""
        self.client.close()

    def _items(self) -> Items:
        """Return the reader of the sink's items."""
        options = self.store.options
        kind = {Form.HASH: "hash", Form.JSON: "string"}.get(options.form, "zset")
        schema = self.store.context.schema
        return Items(kind, self._keys, self._members, options.score, schema, self.client)

    def _run(
        self,
        script: str,
        epoch: Epoch,
        given: Sequence[bytes],
        rows: pa.Table,
        columns: Sequence[pa.Array],
    ) -> list[tuple[int, str]]:
        """Run a script for rows; ``given`` are arguments of each call, ``columns`` those of rows.

        Returns the indices of rows whose key has a value of another type, each with that type.
        """
        keys, arguments = Arguments.of([self._keys.of_rows(rows)]), Arguments.of(columns)
        first = [self.name.encode(), b"%d" % epoch, *given]
        calls = Calls(script, self.store.options.mark, first, keys, arguments)
        line, refused = self.client.connection, list[tuple[int, str]]()
        each = len(arguments.sent) // rows.num_rows
        at_once = max(1, min(_AT_ONCE, _CALL_BYTES // max(1, each)))
        step = at_once * _UNANSWERED
        for begin in range(0, rows.num_rows, step):
            end = min(begin + step, rows.num_rows)
            starts = range(begin, end, at_once)
            for start in starts:
                line.send_packed_command(calls.part(start, min(start + at_once, end)))
            found = [line.read_response() for _ in starts]
            for start, answer in zip(starts, found, strict=True):
                refused += [(start + at, kind.decode()) for at, kind in answer]
        return refused


def _cells(rows: pa.Table) -> list[pa.Array]:
    """Return the NULL mask of each row as text, then the values of each field."""
    nulls = [pc.if_else(column.is_null(), "1", "0") for column in rows.columns]
    missing = pc.binary_join_element_wise(*nulls, "")
    return [missing, *(pc.fill_null(cells(column), b"") for column in rows.columns)]
