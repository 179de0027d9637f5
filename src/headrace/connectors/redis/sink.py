"""A sink into Redis: a hash, a text of JSON, or a member of a sorted set for each row.

Rows are written by scripts that check the session of the sink and, for hashes and JSON, the epoch
that is stored with the item (:mod:`headrace.connectors.redis.scripts`). Writing changes again has
no effect beyond that of the first time.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from headrace.connectors.marks import belongs_to_another, decoded, encoded, refused_rows
from headrace.connectors.options import option, seconds
from headrace.connectors.patterns import Pattern
from headrace.connectors.redis import scripts
from headrace.connectors.redis.access import Access, answers, connected, failure, library
from headrace.connectors.redis.stored import EPOCH, EXACT, Items
from headrace.connectors.redis.values import cells
from headrace.connectors.sinks import require_key
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

    pattern: str
    form: Form = Form.HASH
    member: str | None = None
    score: str | None = None
    ttl: float = option("ttl", default=0.0, convert=seconds)

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
    _require_columns(options, context)
    client = connected(options, context.secrets.value)
    with _failing(options):
        owner = client.hget(options.mark, "owner")
        client.close()
    if owner is not None and owner.decode() != context.identity:
        raise belongs_to_another(_what(options), f"DEL {options.mark}")


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


@dataclass(frozen=True, slots=True)
class _Item:
    """What one script is given for one row: a key, arguments, and the row, for messages."""

    key: bytes
    arguments: list[bytes]


@dataclass(slots=True)
class _Session:
    client: Any
    name: str


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
        self._session = _Session(client, name)
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
            refused += self._put(epoch, rows)
            self._remove(epoch, gone)
        if refused and self.stops:
            return refused
        with self._using() as session:
            arguments = (session.name, int(epoch), encoded(refused))
            session.client.eval(scripts.FINISH, 1, self.options.mark, *arguments)
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

    @property
    def _script(self) -> str:
        of_forms = {Form.HASH: scripts.HASHES, Form.JSON: scripts.TEXTS}
        return of_forms.get(self.options.form, scripts.MEMBERS)

    def _put(self, epoch: Epoch, rows: pa.Table) -> list[Refused]:
        """Write rows, one per key; return those that cannot be written."""
        if not rows.num_rows:
            return []
        keys, members = self._keys.of_rows(rows), self._members.of_rows(rows)
        wrong: dict[int, str] = {}
        missing = _places(pc.or_(keys.is_null(), members.is_null()))
        wrong.update(dict.fromkeys(missing, "a column of its key is NULL"))
        arguments = self._arguments(epoch, rows, members, wrong)
        listed = zip(keys.to_pylist(), arguments, strict=True)
        places = [at for at in range(rows.num_rows) if at not in wrong] if wrong else None
        items = [_Item(k.encode(), a) for at, (k, a) in enumerate(listed) if at not in wrong]
        for at, kind in self._run(epoch, items):
            place = at if places is None else places[at]
            wrong[place] = f"its key holds a value of another kind: {kind}"
        return refused_rows(epoch, rows, self.key, wrong)

    def _arguments(
        self, epoch: Epoch, rows: pa.Table, members: pa.Array, wrong: dict[int, str]
    ) -> Iterable[list[bytes]]:
        """Return the arguments of each row; those of ``wrong`` rows do not matter."""
        if self.options.form is Form.HASH:
            return self._hashes(epoch, rows)
        if self.options.form is Form.JSON:
            epochs = pa.repeat(pa.scalar(int(epoch)), rows.num_rows)
            fields = {**dict(zip(rows.schema.names, rows.columns, strict=True)), EPOCH: epochs}
            return ([value.encode()] for value in json_objects(fields, rows.num_rows).to_pylist())
        scores = rows[str(self.options.score)]
        wrong.update(dict.fromkeys(_places(scores.is_null()), "its score is NULL"))
        if pa.types.is_integer(scores.type):
            large = pc.or_(pc.greater(scores, EXACT), pc.less(scores, -EXACT))
            wrong.update(dict.fromkeys(_places(large), "its score is no 64-bit float"))
        else:
            wrong.update(dict.fromkeys(_places(pc.is_nan(scores)), "its score is NaN"))
        written = text_column(scores).to_pylist()
        return (
            [(score or "0").replace("Infinity", "inf").encode(), (member or "").encode()]
            for score, member in zip(written, members.to_pylist(), strict=True)
        )

    def _hashes(self, epoch: Epoch, rows: pa.Table) -> Iterator[list[bytes]]:
        """Yield for each row the fields that it has, and those that it has not."""
        names = [name.encode() for name in rows.schema.names]
        of_epoch = [EPOCH.encode(), b"%d" % epoch]
        for values in zip(*(cells(rows[name]) for name in rows.schema.names), strict=True):
            pairs = [(n, v) for n, v in zip(names, values, strict=True) if v is not None]
            missing = [n for n, v in zip(names, values, strict=True) if v is None]
            given = [*chain.from_iterable(pairs), *of_epoch]
            yield [b"%d" % len(given), b"%d" % len(missing), *given, *missing]

    def _remove(self, epoch: Epoch, gone: pa.Table) -> None:
        """Delete the items of keys. Those with NULL have none."""
        keys, members = self._keys.of_rows(gone), self._members.of_rows(gone)
        nothing = {Form.HASH: [b"0", b"0"], Form.JSON: [b""]}.get(self.options.form)
        items = [
            _Item(key.encode(), nothing or [b"", member.encode()])
            for key, member in zip(keys.to_pylist(), members.to_pylist(), strict=True)
            if key is not None and member is not None
        ]
        self._run(epoch, items)

    def _run(self, epoch: Epoch, items: Sequence[_Item]) -> list[tuple[int, str]]:
        """Run the script for items; return the places of those it refuses, with the kind there."""
        refused: list[tuple[int, str]] = []
        step = _AT_ONCE * _UNANSWERED
        for begin in range(0, len(items), step):
            starts = range(begin, min(begin + step, len(items)), _AT_ONCE)
            with self._using() as session, session.client.pipeline(transaction=False) as line:
                given = (session.name, int(epoch), int(self.options.ttl * 1000))
                for start in starts:
                    some = items[start : start + _AT_ONCE]
                    keys = [item.key for item in some]
                    arguments = chain.from_iterable(item.arguments for item in some)
                    line.eval(
                        self._script, 1 + len(keys), self.options.mark, *keys, *given, *arguments
                    )
                found = answers(line)
            for start, answer in zip(starts, found, strict=True):
                refused += [(start + at, kind.decode()) for at, kind in answer]
        return refused


def _places(which: Any) -> list[int]:
    found: list[int] = pc.indices_nonzero(pc.fill_null(which, False)).to_pylist()  # noqa: FBT003
    return found
