"""A sink into a table of DynamoDB: an item for each row, conditional on the epoch stored with it.

Requests of which no answer came may be done late: a put of an earlier epoch finds that the item is
of a later one, and has no effect. A deleted item has no epoch, so while such a request may be on
its way, a *tombstone* takes the place of the item: its key and epoch, and when it may go.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connectors.dynamodb.access import Access, errors
from headrace.connectors.dynamodb.types import attributes, kind_of, refused, rows_of
from headrace.connectors.marks import (
    belongs_to_another,
    decoded,
    encoded,
    pieces,
    refused_rows,
    require_own,
)
from headrace.connectors.options import Alters, option
from headrace.connectors.sinks import at_once, require_key
from headrace.connectors.text_values import require_readable
from headrace.errors import Code, HeadraceError
from headrace.serving import by_key
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from headrace.connectors.dynamodb.types import Attribute
    from headrace.connectors.sinks import SinkContext
    from headrace.runtime.ports import Refused

EPOCH: Final = "__epoch"
"""The attribute of an item with the epoch of its row."""
DELETED: Final = "__deleted"
"""The attribute that tombstones have."""
EXPIRES: Final = "__expires"
"""The attribute of a tombstone with the time in seconds from which on it is not needed."""
DOUBT_SECONDS: Final = 900
"""How long a request without an answer may be on its way: a signature is valid for less."""
_MARKS: Final = "headrace_sinks"
"""The table with the epochs of sinks."""
_CONCURRENCY: Final = 32
_TOMBSTONES: Final = 100_000
"""How many tombstones are remembered; others are left to the table's time to live."""
_THROTTLED: Final = frozenset(
    {"ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"}
)
_PATIENCE: Final = 8
"""How often a request is sent that the service throttles."""
_PIECE: Final = 90_000
"""How many characters of a text with refused rows an item has: of at most 400 KB."""
_NAMES: Final = {"#e": EPOCH}
_IS_EARLIER: Final = "attribute_not_exists(#e) OR #e < :e"
_IS_NOT_LATER: Final = "attribute_not_exists(#e) OR #e <= :e"
_IS_MINE: Final = "#o = :o AND #s = :s"

Item = dict[str, "Attribute"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(Access):
    """Which table is written. ``concurrency`` is how many rows are written at once."""

    table: str = option(alters=Alters.NEVER)
    concurrency: int = option(
        "concurrency", default=_CONCURRENCY, convert=at_once, alters=Alters.FREELY
    )
    create_table: bool = option("create_table", "create table", default=False, alters=Alters.NEVER)

    @property
    def what(self) -> str:
        """The table, as messages name it."""
        return f'table "{self.table}" of DynamoDB'


def check(options: Options, context: SinkContext) -> None:
    """Refuse rows that the table cannot have, and a table that another sink writes.

    Creates what is missing: the table of marks, and with ``create_table`` the table.

    Raises:
        HeadraceError: ``invalid``, ``conflict`` if another sink writes there, or what the service
            says.
    """
    require_key(context, "a sink into DynamoDB")
    require_readable(context.schema, "DynamoDB")
    client = options.client(context.secrets.value)
    with _failing(options):
        if options.create_table and not context.exists and not _exists(client, options.table):
            _create(client, options, context)
        if not _exists(client, _MARKS):
            _make(client, _MARKS, {"target": "S"})
        key_of(options, context, client)
        mark = client.get_item(TableName=_MARKS, Key=_target(options), ConsistentRead=True)
    owner = mark.get("Item", {}).get("owner", {}).get("S")
    require_own(owner, context, options.what, _removed(options))


def opened(options: Options, context: SinkContext) -> DynamoSink:
    """Return the writer of a sink."""
    return DynamoSink(options, context)


def key_of(options: Options, context: SinkContext, client: Any) -> tuple[str, ...]:
    """Return the attributes of the table's primary key, which are columns of the rows.

    Raises:
        HeadraceError: ``invalid`` if the table does not exist, or is none for these rows.
    """
    with errors(f"{options.what} cannot be written"):
        found = client.describe_table(TableName=options.table)["Table"]
    kinds = {each["AttributeName"]: each["AttributeType"] for each in found["AttributeDefinitions"]}
    key = tuple(each["AttributeName"] for each in found["KeySchema"])
    columns = {column.name: column for column in context.schema.columns}
    for name in key:
        if name not in columns:
            raise HeadraceError(
                Code.INVALID,
                f'the rows have no column "{name}" of the primary key of {options.what}',
                hint="Add it to the query.",
            )
        if kind_of(columns[name].type) != kinds[name]:
            raise HeadraceError(
                Code.INVALID,
                f'column "{name}" of type {columns[name].sql.upper()} is no attribute of type'
                f" {kinds[name]}",
                f"The primary key of {options.what} has that.",
                "CAST it in the query.",
            )
    uncovered = [name for name in context.key if name not in key]
    if uncovered:
        raise HeadraceError(
            Code.INVALID,
            f'column "{uncovered[0]}" is not in the primary key of {options.what}',
            f"The rows are told apart by ({', '.join(context.key)}): several would be one item.",
            "Write into a table with these as its primary key; or GROUP BY the table's.",
        )
    return key


def _exists(client: Any, table: str) -> bool:
    try:
        client.describe_table(TableName=table)
    except client.exceptions.ResourceNotFoundException:
        return False
    return True


def _create(client: Any, options: Options, context: SinkContext) -> None:
    """Create the table of a sink, whose tombstones it removes by itself."""
    kinds = {c.name: kind_of(c.type) for c in context.schema.columns if c.name in context.key}
    if len(kinds) > 2 or not set(kinds.values()) <= {"S", "N", "B"}:  # noqa: PLR2004
        raise HeadraceError(
            Code.INVALID,
            f"{options.what} cannot have the primary key ({', '.join(context.key)})",
            "It has one or two attributes, each a number, text or binary.",
            "Make one column of several in the query, such as concat_ws(':', a, b) AS key.",
        )
    _make(client, options.table, {name: kinds[name] for name in context.key})
    client.update_time_to_live(
        TableName=options.table,
        TimeToLiveSpecification={"Enabled": True, "AttributeName": EXPIRES},
    )


def _make(client: Any, table: str, key: Mapping[str, str]) -> None:
    roles = zip(key, ("HASH", "RANGE"), strict=False)
    client.create_table(
        TableName=table,
        KeySchema=[{"AttributeName": name, "KeyType": role} for name, role in roles],
        AttributeDefinitions=[{"AttributeName": n, "AttributeType": k} for n, k in key.items()],
        BillingMode="PAY_PER_REQUEST",
    )
    client.get_waiter("table_exists").wait(TableName=table)


def _target(options: Options, piece: int | None = None) -> Item:
    """Return the key of a sink's mark, or of a piece of its refused rows."""
    return {"target": {"S": options.table if piece is None else f"{options.table}/{piece}"}}


def _removed(options: Options) -> str:
    """Return what is to be removed for the mark to be gone."""
    return f"the item '{options.table}' of table {_MARKS}"


def _failing(options: Options) -> Any:
    return errors(f"{options.what} cannot be written")


@dataclass(slots=True)
class _Open:
    """A client, the attributes of the table's primary key, and the name of the session."""

    client: Any
    key: tuple[str, ...]
    session: str
    pool: ThreadPoolExecutor
    epoch: Epoch | None
    """The epoch that the mark is known to have."""


@dataclass(slots=True)
class DynamoSink:
    """Writes rows by the table's primary key, which is a unique key of them."""

    options: Options
    context: SinkContext
    clock: Callable[[], float] = time.time
    """The time in seconds."""
    _open: _Open | None = None
    _doubt_until: float = 0.0
    """Until when a request of which no answer came may be done."""
    _tombstones: deque[tuple[float, Item, str]] = field(
        default_factory=lambda: deque(maxlen=_TOMBSTONES)
    )

    @property
    def guarantee(self) -> str:
        """The guarantee."""
        return "exact effect: conditional on the epoch that is stored with the item"

    @property
    def target(self) -> str:
        """The table, as messages name it."""
        return self.options.what

    # -- the port --------------------------------------------------------------------------

    def durable(self) -> Epoch | None:
        """Return the epoch in the mark, in a session that begins now.

        Raises:
            HeadraceError: ``conflict`` if another sink writes there; or what the service says.
        """
        self.close()
        client = self.options.client(self.context.secrets.value, self.options.concurrency)
        session = uuid4().hex
        with _failing(self.options):
            key = key_of(self.options, self.context, client)
            found = self._claim(client, session)
        epoch = found.get("epoch")
        there = None if epoch is None else Epoch(int(epoch["N"]))
        pool = ThreadPoolExecutor(self.options.concurrency, "dynamodb")
        self._open = _Open(client, key, session, pool, there)
        self._doubt_until = self.clock() + DOUBT_SECONDS
        return there

    def last_refused(self) -> Sequence[Refused]:
        """Return the rows that were refused in the epoch of the mark."""
        with self._using() as open_:
            count = int(self._mark(open_).get("refused", {}).get("N", "0"))
            found = [self._mark(open_, at)["refused"]["S"] for at in range(count)]
        return decoded("".join(found))

    def write(self, epoch: Epoch, parts: Iterable[pa.Table]) -> Sequence[Refused]:
        """Write the changes up to an epoch; see :class:`headrace.runtime.ports.SinkWriter`."""
        self._sweep()
        with self._using() as open_:
            key = open_.key
        refused: list[Refused] = []
        for part in parts:
            rows, gone = by_key(part, key)
            refused += self._put(epoch, part, rows, key)
            self._remove(epoch, gone, key)
        if refused and self.context.stops:
            return refused
        kept = pieces(encoded(refused), _PIECE) if refused else []
        with self._using() as open_:
            for at, piece in enumerate(kept):
                item = {**_target(self.options, at), "refused": {"S": piece}}
                open_.client.put_item(TableName=_MARKS, Item=item)
            count = {"N": str(len(kept))}
            self._finish(open_, epoch, count)
        return refused

    def stored(self) -> Iterator[pa.Table] | None:
        """Yield the rows of the items that have an epoch."""
        return self._rows()

    def clear(self) -> None:
        """Delete the items that have an epoch, and the mark."""
        self.durable()
        for items in self._items():
            epochs = [Epoch(int(item[EPOCH]["N"])) for item in items]
            with self._using() as open_:
                keys = [{name: item[name] for name in open_.key} for item in items]
            self._each(self._delete, list(zip(epochs, keys, strict=True)))
        with self._using() as open_:
            open_.client.delete_item(TableName=_MARKS, Key=_target(self.options))
        self.close()

    def close(self) -> None:
        """Release the connections; a later use begins another session."""
        if self._open is not None:
            self._open.pool.shutdown(cancel_futures=True)
            self._open.client.close()
            self._open = None

    # -- the mark --------------------------------------------------------------------------

    def _mark(self, open_: _Open, piece: int | None = None) -> Item:
        """Return the mark, or a piece of the refused rows."""
        key = _target(self.options, piece)
        found = open_.client.get_item(TableName=_MARKS, Key=key, ConsistentRead=True)
        return dict(found.get("Item", {}))

    def _claim(self, client: Any, session: str) -> Item:
        """Begin a session; return the mark."""
        try:
            found: Mapping[str, Any] = client.update_item(
                TableName=_MARKS,
                Key=_target(self.options),
                UpdateExpression="SET #o = :o, #s = :s",
                ConditionExpression="attribute_not_exists(#o) OR #o = :o",
                ExpressionAttributeNames={"#o": "owner", "#s": "session"},
                ExpressionAttributeValues={
                    ":o": {"S": self.context.identity},
                    ":s": {"S": session},
                },
                ReturnValues="ALL_NEW",
            )
        except client.exceptions.ConditionalCheckFailedException:
            raise belongs_to_another(self.options.what, _removed(self.options)) from None
        return dict(found["Attributes"])

    def _finish(self, open_: _Open, epoch: Epoch, refused: Attribute) -> None:
        """Record an epoch as whole, if no other session has begun, and the mark was not restored.

        ``refused`` is the number of pieces with refused rows.
        """
        known, condition = open_.epoch, "attribute_not_exists(epoch)"
        values: dict[str, Attribute] = {}
        if known is not None:
            values, condition = {":k": {"N": str(int(known))}}, "epoch = :k"
        try:
            open_.client.update_item(
                TableName=_MARKS,
                Key=_target(self.options),
                UpdateExpression="SET epoch = :e, refused = :r",
                ConditionExpression=f"{_IS_MINE} AND {condition}",
                ExpressionAttributeNames={"#o": "owner", "#s": "session"},
                ExpressionAttributeValues={
                    **values,
                    ":e": {"N": str(int(epoch))},
                    ":r": refused,
                    ":o": {"S": self.context.identity},
                    ":s": {"S": open_.session},
                },
            )
        except open_.client.exceptions.ConditionalCheckFailedException:
            raise HeadraceError(
                Code.UNAVAILABLE,
                f"another session writes into {self.options.what}, or its mark was restored",
                hint="It is tried again.",
            ) from None
        open_.epoch = epoch

    @contextmanager
    def _using(self) -> Iterator[_Open]:
        """Use the session, which is opened if there is none; after a failure it is closed."""
        if self._open is None:
            self.durable()
        open_ = self._open
        if open_ is None:
            raise HeadraceError(Code.INTERNAL, "a sink has no session")
        try:
            with _failing(self.options):
                yield open_
        except BaseException:
            self.close()
            raise

    # -- items -----------------------------------------------------------------------------

    def _put(
        self, epoch: Epoch, part: pa.Table, rows: pa.Table, key: Sequence[str]
    ) -> list[Refused]:
        """Write rows of a part, one per key; return those that cannot be written."""
        wrong: dict[int, str] = {}
        columns: list[list[Attribute | None]] = []
        for column in self.context.schema.columns:
            values = rows[column.name]
            if column.name in key:
                missing = pc.indices_nonzero(values.is_null()).to_pylist()
                wrong.update(dict.fromkeys(missing, "a column of its key is NULL"))
            why = f'column "{column.name}" is NaN or infinite, which is no number there'
            wrong.update(dict.fromkeys(refused(values, column.type), why))
            columns.append(attributes(values, column.type))
        names = rows.schema.names
        mark = {EPOCH: {"N": str(int(epoch))}}
        items = [
            {n: v for n, v in zip(names, row, strict=True) if v is not None} | mark
            for row in zip(*columns, strict=True)
        ]
        places = [at for at in range(rows.num_rows) if at not in wrong]
        found = self._each(self._put_item, [(epoch, items[at]) for at in places])
        wrong.update({places[at]: why for at, why in found.items()})
        return refused_rows(epoch, part, rows, key, wrong)

    def _remove(self, epoch: Epoch, gone: pa.Table, key: Sequence[str]) -> None:
        """Delete the items of keys; those that cannot be written are not there."""
        types = {column.name: column.type for column in self.context.schema.columns}
        columns = [attributes(gone[name], types[name]) for name in key]
        keys = [
            {name: value for name, value in zip(key, row, strict=True) if value}
            for row in zip(*columns, strict=True)
        ]
        self._each(self._delete, [(epoch, each) for each in keys if len(each) == len(key)])

    def _put_item(self, open_: _Open, given: tuple[Epoch, Item]) -> str | None:
        """Put an item, unless there is one of the same or a later epoch.

        Returns why it is refused, or None.
        """
        epoch, item = given
        return self._sent(
            open_,
            open_.client.put_item,
            Item=item,
            ConditionExpression=_IS_EARLIER,
            ExpressionAttributeNames=_NAMES,
            ExpressionAttributeValues={":e": {"N": str(int(epoch))}},
        )

    def _delete(self, open_: _Open, given: tuple[Epoch, Item]) -> str | None:
        """Delete the item of a key, or put a tombstone in its place; as :meth:`_put_item`."""
        epoch, key = given
        number = {"N": str(int(epoch))}
        if self.clock() < self._doubt_until:
            until = int(self._doubt_until) + 1
            kept: Item = {EPOCH: number, DELETED: {"BOOL": True}, EXPIRES: {"N": str(until)}}
            self._tombstones.append((until, key, str(int(epoch))))
            request, what = open_.client.put_item, {"Item": {**key, **kept}}
        else:
            request, what = open_.client.delete_item, {"Key": key}
        return self._sent(
            open_,
            request,
            **what,
            ConditionExpression=_IS_NOT_LATER,
            ExpressionAttributeNames=_NAMES,
            ExpressionAttributeValues={":e": number},
        )

    def _sweep(self) -> None:
        """Delete the tombstones that are not needed any more."""
        due: list[tuple[Epoch, Item]] = []
        while self._tombstones and self._tombstones[0][0] < self.clock():
            _, key, epoch = self._tombstones.popleft()
            due.append((Epoch(int(epoch)), key))
        self._each(self._bury, due)

    def _bury(self, open_: _Open, given: tuple[Epoch, Item]) -> str | None:
        """Delete a tombstone, unless there is a row again."""
        epoch, key = given
        return self._sent(
            open_,
            open_.client.delete_item,
            Key=key,
            ConditionExpression="#e = :e AND attribute_exists(#d)",
            ExpressionAttributeNames={**_NAMES, "#d": DELETED},
            ExpressionAttributeValues={":e": {"N": str(int(epoch))}},
        )

    def _sent(self, open_: _Open, request: Callable[..., Any], **given: Any) -> str | None:
        """Send a request, again while the service throttles it; return why it is refused, or None.

        A condition that does not hold is no refusal: what is there is of a later epoch.
        """
        for attempt in range(_PATIENCE):
            try:
                request(TableName=self.options.table, **given)
            except open_.client.exceptions.ClientError as error:
                code = error.response["Error"]["Code"]
                if code == "ConditionalCheckFailedException":
                    return None
                if code == "ValidationException":
                    return str(error.response["Error"].get("Message", code))
                if code not in _THROTTLED or attempt == _PATIENCE - 1:
                    raise
                time.sleep(0.05 * 2**attempt)
            else:
                return None
        return None

    def _each(
        self,
        send: Callable[[_Open, tuple[Epoch, Item]], str | None],
        given: Sequence[tuple[Epoch, Item]],
    ) -> dict[int, str]:
        """Send a request for each of some items, many at once; return why some are refused.

        Raises:
            Exception: the client's, for the first that failed. What was being sent is answered, or
                is in doubt.
        """
        if not given:
            return {}
        with self._using() as open_:
            answers = enumerate(open_.pool.map(partial(send, open_), given))
            found = {at: why for at, why in answers if why is not None}
        if found and key_of(self.options, self.context, open_.client) != open_.key:
            raise HeadraceError(
                Code.UNAVAILABLE,
                f"{self.options.what} was changed",
                hint="It is tried again, with the table as it is now.",
            )
        return found

    # -- reading back ----------------------------------------------------------------------

    def _items(self) -> Iterator[list[Item]]:
        """Yield the items of rows, by page."""
        start: dict[str, Any] = {}
        while True:
            with self._using() as open_:
                page = open_.client.scan(
                    TableName=self.options.table,
                    ConsistentRead=True,
                    FilterExpression="attribute_exists(#e) AND attribute_not_exists(#d)",
                    ExpressionAttributeNames={**_NAMES, "#d": DELETED},
                    **start,
                )
            if page["Items"]:
                yield page["Items"]
            if "LastEvaluatedKey" not in page:
                return
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    def _rows(self) -> Iterator[pa.Table]:
        schema = self.context.schema
        for items in self._items():
            yield pa.Table.from_arrays(rows_of(items, schema.columns), schema=schema.arrow)
