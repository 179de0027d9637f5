"""A sink into a table of DynamoDB: an item for each row, conditional on the epoch stored with it.

A request without an answer may be executed late: its condition then finds a later epoch in the
item, and it has no effect. A deleted item has no epoch, so while such a request may be in flight, a
*tombstone* replaces the item: its key, its epoch, and the time when it may be deleted.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final
from uuid import uuid4

import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.io.connectors import stores
from headrace.io.connectors.dynamodb.access import (
    Access,
    attributes,
    errors,
    kind_of,
    refused,
    rows_of,
)
from headrace.io.connectors.options import Alters, option
from headrace.io.connectors.sinks import at_once, pieces
from headrace.io.connectors.stores import StoreSink, another_session
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from headrace.io.connectors.dynamodb.access import Attribute
    from headrace.io.connectors.sinks import SinkContext


EPOCH: Final = "__epoch"
"""The attribute of an item with the epoch of its row."""
DELETED: Final = "__deleted"
"""The attribute that marks tombstones."""
EXPIRES: Final = "__expires"
"""The attribute of a tombstone with its time to live: seconds since 1970."""
DOUBT_SECONDS: Final = 900
"""How long an unanswered request may take effect: its signature expires earlier."""
_MARKS: Final = "headrace_sinks"
"""The table with the marks of sinks."""
_CONCURRENCY: Final = 32
_TOMBSTONES: Final = 100_000
"""The most tombstones that a store deletes itself; others are left to the table's time to live."""
_THROTTLED: Final = frozenset(
    {"ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"}
)
_PATIENCE: Final = 8
"""The most attempts of a request that the service throttles."""
_PIECE: Final = 90_000
"""The most characters of refused rows in one item, whose size is at most 400 KB."""
_NAMES: Final = {"#e": EPOCH}
_IS_EARLIER: Final = "attribute_not_exists(#e) OR #e < :e"
_IS_NOT_LATER: Final = "attribute_not_exists(#e) OR #e <= :e"
_IS_MINE: Final = "#o = :o AND #s = :s"

Item = dict[str, "Attribute"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(Access):
    """Options of a sink; ``concurrency`` is how many requests are sent concurrently."""

    table: str = option(alters=Alters.NEVER)
    concurrency: int = option(
        "concurrency", default=_CONCURRENCY, convert=at_once, alters=Alters.FREELY
    )
    create_table: bool = option("create_table", "create table", default=False, alters=Alters.NEVER)

    @property
    def what(self) -> str:
        """The table, for messages."""
        return f'table "{self.table}" of DynamoDB'


def check(options: Options, context: SinkContext) -> None:
    """Refuse rows or a table that cannot be used; see ``check``."""
    stores.check(DynamoStore(options, context))


def opened(options: Options, context: SinkContext) -> StoreSink[DynamoSession]:
    """Return the writer of a sink."""
    return StoreSink(DynamoStore(options, context))


def key_of(options: Options, context: SinkContext, client: Any) -> tuple[str, ...]:
    """Return the attributes of the table's primary key.

    Raises:
        HeadraceError: ``invalid`` if the table does not exist, or its key does not fit the rows.
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
                f'column "{name}" of type {columns[name].sql.upper()} cannot be an attribute of'
                f" type {kinds[name]}",
                f"The primary key of {options.what} has that type.",
                "CAST it in the query.",
            )
    uncovered = [name for name in context.key if name not in key]
    if uncovered:
        raise HeadraceError(
            Code.INVALID,
            f'column "{uncovered[0]}" is not in the primary key of {options.what}',
            f"The rows are identified by ({', '.join(context.key)}), so several share one item.",
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
    """Create the table of a sink, with a time to live for tombstones."""
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


@dataclass(frozen=True, slots=True)
class DynamoStore:
    """The table of a sink, and the tombstones that sessions of this process have written to it."""

    options: Options
    context: SinkContext
    clock: Callable[[], float] = time.time
    """Returns the time in seconds since 1970."""
    tombstones: deque[tuple[float, Item, Epoch]] = field(
        default_factory=lambda: deque(maxlen=_TOMBSTONES)
    )
    """The expiry, key and epoch of each, by ascending expiry."""
    system: ClassVar[str] = "DynamoDB"
    guarantee: ClassVar[str] = "exact effect: conditional on the epoch that is stored with the item"

    @property
    def target(self) -> str:
        """The table, for messages."""
        return self.options.what

    @property
    def removal(self) -> str:
        """The item to delete that is the mark."""
        return f"the item '{self.options.table}' of table {_MARKS}"

    def prepare(self) -> str | None:
        """Create the table of marks, and with ``create_table`` the table; return the mark's owner.

        Raises:
            HeadraceError: ``invalid`` if the table is missing or does not fit, or an error of the
                service.
        """
        options, context = self.options, self.context
        client = options.client(context.secrets.value)
        if options.create_table and not context.exists and not _exists(client, options.table):
            if context.tries:
                return None
            _create(client, options, context)
        marked = _exists(client, _MARKS)
        if not marked and not context.tries:
            _make(client, _MARKS, {"target": "S"})
        key_of(options, context, client)
        if not marked and context.tries:
            return None
        mark = client.get_item(TableName=_MARKS, Key=_target(options), ConsistentRead=True)
        owner: str | None = mark.get("Item", {}).get("owner", {}).get("S")
        return owner

    def begin(self) -> DynamoSession | None:
        """Record a new session in the mark, creating it if necessary."""
        client = self.options.client(self.context.secrets.value, self.options.concurrency)
        name = uuid4().hex
        try:
            key = key_of(self.options, self.context, client)
            found: Mapping[str, Any] = client.update_item(
                TableName=_MARKS,
                Key=_target(self.options),
                UpdateExpression="SET #o = :o, #s = :s",
                ConditionExpression="attribute_not_exists(#o) OR #o = :o",
                ExpressionAttributeNames={"#o": "owner", "#s": "session"},
                ExpressionAttributeValues={":o": {"S": self.context.identity}, ":s": {"S": name}},
                ReturnValues="ALL_NEW",
            )
        except client.exceptions.ConditionalCheckFailedException:
            client.close()
            return None
        except BaseException:
            client.close()
            raise
        epoch = found["Attributes"].get("epoch")
        known = None if epoch is None else Epoch(int(epoch["N"]))
        pool = ThreadPoolExecutor(self.options.concurrency, "dynamodb")
        return DynamoSession(self, client, key, name, pool, self.clock() + DOUBT_SECONDS, known)

    def failing(self) -> AbstractContextManager[None]:
        """Translate errors of the client to HeadraceError."""
        return errors(f"{self.options.what} cannot be written")


@dataclass(slots=True)
class DynamoSession:
    """A client, the attributes of the table's primary key, and the session's name in the mark."""

    store: DynamoStore
    client: Any
    key: tuple[str, ...]
    name: str
    pool: ThreadPoolExecutor
    doubt_until: float
    """The time until which requests of earlier sessions may still take effect."""
    epoch: Epoch | None

    def begin(self) -> None:
        """Delete expired tombstones."""
        tombstones, now = self.store.tombstones, self.store.clock()
        due: list[tuple[Epoch, Item]] = []
        while tombstones and tombstones[0][0] < now:
            _, key, epoch = tombstones.popleft()
            due.append((epoch, key))
        self._each(self._bury, due)

    def unfit(self, rows: pa.Table) -> dict[int, str]:
        """Return the indices of rows with numbers that DynamoDB cannot represent, and why."""
        wrong: dict[int, str] = {}
        for column in self.store.context.schema.columns:
            why = f'column "{column.name}" is NaN or infinite, which is not a number there'
            wrong.update(dict.fromkeys(refused(rows[column.name], column.type), why))
        return wrong

    def put(self, epoch: Epoch, rows: pa.Table) -> dict[int, str]:
        """Put an item for each row."""
        columns = [attributes(rows[c.name], c.type) for c in self.store.context.schema.columns]
        mark = {EPOCH: {"N": str(int(epoch))}}
        items = [
            {n: v for n, v in zip(rows.schema.names, row, strict=True) if v is not None} | mark
            for row in zip(*columns, strict=True)
        ]
        return self._each(self._put_item, [(epoch, item) for item in items])

    def remove(self, epoch: Epoch, keys: pa.Table) -> dict[int, str]:
        """Delete the items of keys; keys that cannot be written are skipped: they have no item."""
        types = {column.name: column.type for column in self.store.context.schema.columns}
        columns = [attributes(keys[name], types[name]) for name in self.key]
        items = [
            {name: value for name, value in zip(self.key, row, strict=True) if value}
            for row in zip(*columns, strict=True)
        ]
        whole = [(epoch, item) for item in items if len(item) == len(self.key)]
        return self._each(self._delete, whole)

    def changed(self) -> bool:
        """Whether the table's primary key has changed since the session began."""
        return key_of(self.store.options, self.store.context, self.client) != self.key

    def finish(self, epoch: Epoch, refused: str) -> None:
        """Write the text in pieces, then the epoch and the number of pieces into the mark."""
        kept = pieces(refused, _PIECE)
        for at, piece in enumerate(kept):
            item = {**_target(self.store.options, at), "refused": {"S": piece}}
            self.client.put_item(TableName=_MARKS, Item=item)
        condition = "attribute_not_exists(epoch)"
        values: dict[str, Attribute] = {}
        if self.epoch is not None:
            values, condition = {":k": {"N": str(int(self.epoch))}}, "epoch = :k"
        try:
            self.client.update_item(
                TableName=_MARKS,
                Key=_target(self.store.options),
                UpdateExpression="SET epoch = :e, refused = :r",
                ConditionExpression=f"{_IS_MINE} AND {condition}",
                ExpressionAttributeNames={"#o": "owner", "#s": "session"},
                ExpressionAttributeValues={
                    **values,
                    ":e": {"N": str(int(epoch))},
                    ":r": {"N": str(len(kept))},
                    ":o": {"S": self.store.context.identity},
                    ":s": {"S": self.name},
                },
            )
        except self.client.exceptions.ConditionalCheckFailedException:
            raise another_session(self.store) from None

    def refused(self) -> str:
        """Return the text, joined from its pieces."""
        count = int(self._mark().get("refused", {}).get("N", "0"))
        return "".join(self._mark(at)["refused"]["S"] for at in range(count))

    def rows(self) -> Iterator[pa.Table]:
        """Yield the rows of the sink's items, which are those with an epoch."""
        schema = self.store.context.schema
        for items in self._items():
            yield pa.Table.from_arrays(rows_of(items, schema.columns), schema=schema.arrow)

    def clear(self) -> None:
        """Delete the sink's items, which are those with an epoch, and the mark."""
        for items in self._items():
            epochs = [Epoch(int(item[EPOCH]["N"])) for item in items]
            keys = [{name: item[name] for name in self.key} for item in items]
            self._each(self._delete, list(zip(epochs, keys, strict=True)))
        self.client.delete_item(TableName=_MARKS, Key=_target(self.store.options))

    def close(self) -> None:
        """Wait for requests in flight, and release the connections."""
        self.pool.shutdown(cancel_futures=True)
        self.client.close()

    def _mark(self, piece: int | None = None) -> Item:
        """Return the mark, or a piece of the refused rows."""
        key = _target(self.store.options, piece)
        found = self.client.get_item(TableName=_MARKS, Key=key, ConsistentRead=True)
        return dict(found.get("Item", {}))

    def _put_item(self, given: tuple[Epoch, Item]) -> str | None:
        """Put an item unless the stored one has the same or a later epoch.

        Returns why it is refused, or None.
        """
        epoch, item = given
        return self._sent(
            self.client.put_item,
            Item=item,
            ConditionExpression=_IS_EARLIER,
            ExpressionAttributeNames=_NAMES,
            ExpressionAttributeValues={":e": {"N": str(int(epoch))}},
        )

    def _delete(self, given: tuple[Epoch, Item]) -> str | None:
        """Delete an item by its key, or replace it by a tombstone; returns as :meth:`_put_item`."""
        epoch, key = given
        number = {"N": str(int(epoch))}
        if self.store.clock() < self.doubt_until:
            until = int(self.doubt_until) + 1
            kept: Item = {EPOCH: number, DELETED: {"BOOL": True}, EXPIRES: {"N": str(until)}}
            self.store.tombstones.append((until, key, epoch))
            request, what = self.client.put_item, {"Item": {**key, **kept}}
        else:
            request, what = self.client.delete_item, {"Key": key}
        return self._sent(
            request,
            **what,
            ConditionExpression=_IS_NOT_LATER,
            ExpressionAttributeNames=_NAMES,
            ExpressionAttributeValues={":e": number},
        )

    def _bury(self, given: tuple[Epoch, Item]) -> str | None:
        """Delete a tombstone, unless the key has a row again."""
        epoch, key = given
        return self._sent(
            self.client.delete_item,
            Key=key,
            ConditionExpression="#e = :e AND attribute_exists(#d)",
            ExpressionAttributeNames={**_NAMES, "#d": DELETED},
            ExpressionAttributeValues={":e": {"N": str(int(epoch))}},
        )

    def _sent(self, request: Callable[..., Any], **given: Any) -> str | None:
        """Send a request, with retries if it is throttled; return why it is refused, or None.

        A failed condition is not a refusal: the stored item has a later epoch.
        """
        for attempt in range(_PATIENCE):
            try:
                request(TableName=self.store.options.table, **given)
            except self.client.exceptions.ClientError as error:
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
        send: Callable[[tuple[Epoch, Item]], str | None],
        given: Sequence[tuple[Epoch, Item]],
    ) -> dict[int, str]:
        """Send a request for each item concurrently; return the indices of refused ones, and why.

        Raises:
            Exception: the first error of the client. Other requests in flight may take effect.
        """
        answers = enumerate(self.pool.map(send, given))
        return {at: why for at, why in answers if why is not None}

    def _items(self) -> Iterator[list[Item]]:
        """Yield the items of rows by page, without tombstones."""
        start: dict[str, Any] = {}
        while True:
            page = self.client.scan(
                TableName=self.store.options.table,
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
