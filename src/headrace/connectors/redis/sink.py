"""A sink into Redis: a hash, a text of JSON, or a member of a sorted set for each row.

Rows are written by scripts that check the session of the sink and, for hashes and JSON, the epoch
that is stored with the item (:mod:`headrace.connectors.redis.scripts`). Writing changes again has
no effect beyond that of the first time.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from headrace.connectors.marks import (
    belongs_to_another,
    decoded,
    encoded,
    refused_rows,
    require_own,
)
from headrace.connectors.options import Alters, option, seconds
from headrace.connectors.redis import scripts
from headrace.connectors.redis.access import Access, connected, failure, library
from headrace.connectors.redis.patterns import Pattern
from headrace.connectors.redis.requests import Arguments, Calls
from headrace.connectors.redis.stored import EPOCH, EXACT, Items
from headrace.connectors.redis.values import cells
from headrace.connectors.sinks import require_key
from headrace.connectors.text_values import require_readable
from headrace.errors import Code, HeadraceError
from headrace.serving import by_key
from headrace.serving.json_columns import json_objects
from headrace.serving.text_columns import text_column
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headrace.connectors.sinks import SinkContext
    from headrace.runtime.ports import Refused
    from headrace.types import Schema

_AT_ONCE: Final = 500
"""How many items a script writes: the server does nothing else meanwhile."""
_CALL_BYTES: Final = 8 << 20
"""How large the arguments of a script are, if its items are of one size."""
_UNANSWERED: Final = 10
"""How many scripts are sent before their answers are read."""
_SCORES: Final = (
    t.ByteType,
    t.ShortType,
    t.IntegerType,
    t.LongType,
    t.FloatType,
    t.DoubleType,
)


class Form(StrEnum):
    """What a row becomes."""

    HASH = "hash"
    """A hash with a field for each column that is not NULL."""
    JSON = "json"
    """A text: the row as a JSON object."""
    SORTED_SET = "sorted_set"
    """A member of a sorted set, with a score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(Access):
    """Where rows are written. ``pattern`` is that of keys, ``member`` that of members."""

    pattern: str = option(alters=Alters.NEVER)
    form: Form = option(default=Form.HASH, alters=Alters.NEVER)
    member: str | None = option(default=None, alters=Alters.NEVER)
    score: str | None = option(default=None, alters=Alters.NEVER)
    ttl: float = option("ttl", default=0.0, convert=seconds, alters=Alters.FREELY)

    def __post_init__(self) -> None:
        """Refuse options that contradict each other, and patterns that are none.

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
        columns = [*self.keys.columns, *self.members.columns]
        if len(set(columns)) < len(columns):
            raise HeadraceError(
                Code.INVALID,
                'options "pattern" and "member" have a column in common',
                hint="Write each column in one of them.",
            )

    @property
    def keys(self) -> Pattern:
        """What the keys of items are."""
        return Pattern.of(self.pattern)

    @property
    def members(self) -> Pattern:
        """What the members of sorted sets are."""
        return Pattern.of(self.member or "")

    @property
    def mark(self) -> str:
        """The key at which the sink records its epochs."""
        return f"headrace:sink:{self.pattern}"


def check(options: Options, context: SinkContext) -> None:
    """Refuse rows that cannot be written with these options, and keys that another sink writes.

    Raises:
        HeadraceError: ``invalid``, ``conflict`` if another sink writes there, or what the server
            says.
    """
    require_key(context, "a sink into Redis")
    require_readable(context.schema, "Redis")
    _require_columns(options, context)
    client = connected(options, context.secrets.value)
    with _failing(options):
        owner = client.hget(options.mark, "owner")
        client.close()
    found = None if owner is None else owner.decode()
    require_own(found, context, _what(options), f"DEL {options.mark}")


def opened(options: Options, context: SinkContext) -> RedisSink:
    """Return the writer of a sink."""
    return RedisSink(
        options, context.schema, context.identity, context.secrets.value, context.stops
    )


def _require_columns(options: Options, context: SinkContext) -> None:
    """Refuse patterns whose columns are not those that tell rows apart."""
    known = {column.name: column.type for column in context.schema.columns}
    placed = (*options.keys.columns, *options.members.columns)
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
            f'the pattern has not column "{missing[0]}" of the key',
            f"The rows are told apart by ({', '.join(context.key)}): several would be one item.",
            f"Write it into the pattern, as in '{options.pattern}:{{{missing[0]}}}'.",
        )
    if options.score is None:
        return
    if not isinstance(known[options.score], _SCORES):
        raise HeadraceError(
            Code.INVALID,
            f'column "{options.score}" of type {known[options.score].simpleString().upper()} is no'
            " score",
            hint="A score is a 64-bit float: CAST(... AS DOUBLE) in the query.",
        )
    unwritten = [name for name in known if name not in given]
    if unwritten:
        raise HeadraceError(
            Code.INVALID,
            f'column "{unwritten[0]}" is neither in a pattern nor the score',
            "A sorted set has nothing but members and scores.",
            "Leave it out: CREATE SINK ... AS SELECT the columns that are written.",
        )


def _what(options: Options) -> str:
    return f"what has keys '{options.pattern}' in Redis at \"{options.place}\""


@contextmanager
def _failing(options: Access) -> Iterator[None]:
    redis = library()
    try:
        yield
    except (redis.RedisError, OSError) as error:
        raise failure(error, options) from error


@dataclass(slots=True)
class _Session:
    client: Any
    name: str
    epoch: Epoch | None
    """The epoch that the mark is known to have."""


@dataclass(slots=True)
class RedisSink:
    """Writes rows by the columns of the patterns, which are a unique key of them.

    ``identity`` tells the sink from all others. ``secret`` returns the value of a secret.
    """

    options: Options
    schema: Schema
    identity: str
    secret: Callable[[str], str]
    stops: bool = False
    _session: _Session | None = None
    _keys: Pattern = field(init=False)
    _members: Pattern = field(init=False)

    def __post_init__(self) -> None:
        self._keys, self._members = self.options.keys, self.options.members

    @property
    def guarantee(self) -> str:
        """The guarantee."""
        return "exact effect: scripts check the session and the epoch; as durable as the server"

    @property
    def target(self) -> str:
        """The keys, as messages name them."""
        return _what(self.options)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns by which rows are written."""
        return (*self._keys.columns, *self._members.columns)

    # -- the port --------------------------------------------------------------------------

    def durable(self) -> Epoch | None:
        """Return the epoch in the mark, in a session that begins now.

        Raises:
            HeadraceError: ``conflict`` if another sink writes there; or what the server says.
        """
        self._close()
        client = connected(self.options, self.secret)
        name = uuid4().hex
        with _failing(self.options):
            found = client.eval(scripts.CLAIM, 1, self.options.mark, self.identity, name)
        owner, epoch = found
        if owner.decode() != self.identity:
            client.close()
            raise belongs_to_another(_what(self.options), f"DEL {self.options.mark}")
        there = None if epoch is None else Epoch(int(epoch))
        self._session = _Session(client, name, there)
        return there

    def last_refused(self) -> Sequence[Refused]:
        """Return the rows that were refused in the epoch of the mark."""
        with self._using() as session:
            found = session.client.hget(self.options.mark, "refused")
        return decoded(None if found is None else found.decode())

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[Refused]:
        """Write the changes up to an epoch; see :class:`headrace.runtime.ports.SinkWriter`."""
        refused: list[Refused] = []
        for part in parts:
            rows, gone = by_key(part, self.key)
            refused += self._put(epoch, part, rows)
            self._remove(epoch, gone)
        if refused and self.stops:
            return refused
        with self._using() as session:
            known = "" if session.epoch is None else int(session.epoch)
            arguments = (session.name, int(epoch), encoded(refused), known)
            session.client.eval(scripts.FINISH, 1, self.options.mark, *arguments)
            session.epoch = epoch
        return refused

    def stored(self) -> Iterator[pa.Table] | None:
        """Yield the rows of the items whose keys are of the pattern."""
        return self._items().rows()

    def clear(self) -> None:
        """Delete the items whose keys are of the pattern, and the mark."""
        self.durable()
        for keys in self._items().own():
            with self._using() as session:
                arguments = (self.options.mark, *keys, session.name)
                session.client.eval(scripts.REMOVE, 1 + len(keys), *arguments)
        with self._using() as session:
            session.client.eval(scripts.RELEASE, 1, self.options.mark, session.name)
        self._close()

    def close(self) -> None:
        """Close the connection; a later use begins another session."""
        self._close()

    # -- sessions --------------------------------------------------------------------------

    @contextmanager
    def _using(self) -> Iterator[_Session]:
        """Use the session; after a failure it is over, since what was sent may still arrive."""
        if self._session is None:
            self.durable()
        session = self._session
        if session is None:
            raise HeadraceError(Code.INTERNAL, "a sink has no session")
        try:
            with _failing(self.options):
                yield session
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        if self._session is not None:
            self._session.client.close()
            self._session = None

    @contextmanager
    def _client(self) -> Iterator[Any]:
        with self._using() as session:
            yield session.client

    def _items(self) -> Items:
        """Return what reads the items back."""
        kind = {Form.HASH: "hash", Form.JSON: "string"}.get(self.options.form, "zset")
        score = self.options.score
        return Items(kind, self._keys, self._members, score, self.schema, self._client)

    # -- writing ---------------------------------------------------------------------------

    def _put(self, epoch: Epoch, part: pa.Table, rows: pa.Table) -> list[Refused]:
        """Write rows of a part, one per key; return those that cannot be written."""
        wrong = self._unfit(rows)
        places = [at for at in range(rows.num_rows) if at not in wrong] if wrong else None
        fit = rows if places is None else rows.take(pa.array(places, pa.int64()))
        ttl = b"%d" % int(self.options.ttl * 1000)
        match self.options.form:
            case Form.HASH:
                names = [name.encode() for name in rows.schema.names]
                given = [ttl, b"%d" % len(names), *names]
                script, columns = scripts.HASHES, _cells(fit)
            case Form.JSON:
                epochs = pa.repeat(pa.scalar(int(epoch)), fit.num_rows)
                fields = {**dict(zip(fit.schema.names, fit.columns, strict=True)), EPOCH: epochs}
                script, given = scripts.TEXTS, [ttl]
                columns = [json_objects(fields, fit.num_rows)]
            case Form.SORTED_SET:
                scores = text_column(fit[str(self.options.score)])
                script, given = scripts.MEMBERS, [ttl]
                columns = [pc.replace_substring(scores, "Infinity", "inf"), self._member(fit)]
        for at, kind in self._run(script, epoch, given, fit, columns):
            place = at if places is None else places[at]
            wrong[place] = f"its key holds a value of another kind: {kind}"
        return refused_rows(epoch, part, rows, self.key, wrong)

    def _unfit(self, rows: pa.Table) -> dict[int, str]:
        """Return the places of the rows that no item can be made of, with the reasons."""
        wrong: dict[int, str] = {}
        for name in self.key:
            missing = _places(rows[name].is_null())
            wrong.update(dict.fromkeys(missing, "a column of its key is NULL"))
        if self.options.score is None:
            return wrong
        scores = rows[self.options.score]
        wrong.update(dict.fromkeys(_places(scores.is_null()), "its score is NULL"))
        if pa.types.is_integer(scores.type):
            large = pc.or_(pc.greater(scores, EXACT), pc.less(scores, -EXACT))
            wrong.update(
                dict.fromkeys(
                    _places(large),
                    "its score is a whole number beyond 2^53, which no score is exactly",
                )
            )
        else:
            wrong.update(dict.fromkeys(_places(pc.is_nan(scores)), "its score is NaN"))
        return wrong

    def _remove(self, epoch: Epoch, gone: pa.Table) -> None:
        """Delete the items of keys. Those with NULL have none."""
        whole = gone.drop_null()
        script, columns = {
            Form.HASH: (scripts.NO_HASHES, []),
            Form.JSON: (scripts.NO_TEXTS, []),
            Form.SORTED_SET: (scripts.NO_MEMBERS, [self._member(whole)]),
        }[self.options.form]
        self._run(script, epoch, [b"0"], whole, columns)

    def _member(self, rows: pa.Table) -> pa.Array:
        return self._members.of_rows(rows)

    def _run(
        self,
        script: str,
        epoch: Epoch,
        given: Sequence[bytes],
        rows: pa.Table,
        columns: Sequence[pa.Array],
    ) -> list[tuple[int, str]]:
        """Run a script for rows, with arguments that are given once, and those in columns.

        Returns the places of the rows that it refuses, each with the kind of what is there.
        """
        if not rows.num_rows:
            return []
        keys, arguments = Arguments.of([self._keys.of_rows(rows)]), Arguments.of(columns)
        refused: list[tuple[int, str]] = []
        each = len(arguments.sent) // rows.num_rows
        at_once = max(1, min(_AT_ONCE, _CALL_BYTES // max(1, each)))
        step = at_once * _UNANSWERED
        for begin in range(0, rows.num_rows, step):
            end = min(begin + step, rows.num_rows)
            starts = range(begin, end, at_once)
            with self._using() as session:
                first = [session.name.encode(), b"%d" % epoch, *given]
                calls = Calls(script, self.options.mark, first, keys, arguments)
                line = session.client.connection
                for start in starts:
                    line.send_packed_command(calls.part(start, min(start + at_once, end)))
                found = [line.read_response() for _ in starts]
            for start, answer in zip(starts, found, strict=True):
                refused += [(start + at, kind.decode()) for at, kind in answer]
        return refused


def _cells(rows: pa.Table) -> list[pa.Array]:
    """Return what hashes are made of: which fields each has not, and all fields."""
    nulls = [pc.if_else(column.is_null(), "1", "0") for column in rows.columns]
    missing = pc.binary_join_element_wise(*nulls, "")
    return [missing, *(pc.fill_null(cells(column), b"") for column in rows.columns)]


def _places(which: Any) -> list[int]:
    found: list[int] = pc.indices_nonzero(pc.fill_null(which, False)).to_pylist()  # noqa: FBT003
    return found
