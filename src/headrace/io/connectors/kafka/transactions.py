"""A Kafka producer that writes in transactions, and records an epoch in each of them.

The record is an offset of a consumer group that belongs to the sink: the brokers commit it together
with the messages, or neither. A later producer of the same transactional id fences the earlier one:
its transaction is either aborted or committed, and the record shows which.

Brokers delete the offsets of an inactive group. So the record is committed again from time to time,
and if it is missing, the epoch is read from headers of the last messages, which also name the sink.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace.errors import Code, HeadraceError
from headrace.io.connectors.kafka.client import Silent, library
from headrace.io.connectors.kafka.options import failure, unreachable
from headrace.io.connectors.kafka.sink_options import create_topics
from headrace.io.connectors.sinks import belongs_to_another
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.io.connectors.kafka.sink_options import OutgoingMessages


T = TypeVar("T")

_ANSWER_SECONDS: Final = 10.0
_PATIENCE_SECONDS: Final = 1.0
"""How long a request waits before the client's reports about its connections are read."""
_LONGEST_SECONDS: Final = 30.0
"""How long a call is retried whose failure is temporary."""
_PAUSE_SECONDS: Final = 0.05
_QUEUED_KILOBYTES: Final = 65_536
"""The size of the client's send queue, which bounds memory."""
_BATCH_BYTES: Final = 61
"""The size of the header of a batch of records."""
_RECORD_BYTES: Final = 24
"""The largest size of a record without its key, value and headers."""
_DEFAULT_RECORD_BYTES: Final = 1_000_000
_GROUP: Final = "headrace-sink-"
"""The prefix of the names of sinks' consumer groups."""
EPOCH_HEADER: Final = "headrace.epoch"
SINK_HEADER: Final = "headrace.sink"
_RENEWAL_SECONDS: Final = 86_400.0
"""The age at which a record is committed again: brokers keep it for days."""
_LAST_RECORDS: Final = 1_000
"""The number of last offsets of each partition that are read if the record is missing."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The last epoch that was committed to the topic, with the refused rows as JSON, or empty."""

    epoch: Epoch
    note: str = ""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic to write; ``size`` are the partitions and replicas to create it with, or None."""

    name: str
    size: tuple[int, int] | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


class KafkaTransactions:
    """The transactions of one sink, whose ``identity`` is unique among all databases.

    ``settings`` apply to every client, ``producing`` to producers. ``group`` is both the consumer
    group whose offset is the record, and the transactional id.
    """

    def __init__(
        self,
        topic: Topic,
        identity: str,
        settings: Mapping[str, Any],
        producing: Mapping[str, Any],
    ) -> None:
        self._kafka = library()
        self._topic = topic
        self.group = f"{_GROUP}{identity}"
        self._settings = {**settings, "error_cb": self._note, "logger": Silent()}
        self._producing = dict(producing)
        self._producer: Any = None
        self._marks: Any = None
        self._trouble: Any = None
        self._most_bytes = _DEFAULT_RECORD_BYTES
        self._committed_at = 0.0
        self._identity = identity.encode()

    @property
    def is_open(self) -> bool:
        """Whether a producer exists, and the outcome of each of its transactions is known."""
        return self._producer is not None

    def check(self, *, creates: bool, reads: bool, tries: bool = False) -> Mark | None:
        """Create a missing topic if ``creates``; return the recorded mark if ``reads``.

        If it only ``tries``, a topic that would be created is taken to be there.

        Raises:
            HeadraceError: ``conflict`` if another sink has written to the topic; ``unavailable`` or
                ``invalid`` if it cannot be written.
        """
        admin = self._admin()
        try:
            if tries and self._topic.size is not None and self._described(admin).error is not None:
                return None
            self._require_topic(admin, creates=creates and not tries)
            self._require_own(admin)
            if not reads:
                return None
            self._marks = self._group()
            return self._again(self._recorded, admin) or self._again(self._from_messages, admin)
        except self._kafka.KafkaException as error:
            raise self._failure(error.args[0], admin) from error
        finally:
            self.close()

    def open(self) -> Mark | None:
        """Create a producer, which fences earlier ones; return the mark recorded then.

        Raises:
            HeadraceError: ``unavailable`` or ``invalid`` if the topic cannot be written.
        """
        self.close()
        admin = self._admin()
        try:
            self._require_topic(admin)
            self._most_bytes = self._record_bytes(admin)
            self._producer = self._kafka.Producer(
                {
                    **self._settings,
                    "transactional.id": self.group,
                    "partitioner": "murmur2_random",  # the same partitions as Java's clients
                    "queue.buffering.max.kbytes": _QUEUED_KILOBYTES,
                    "message.max.bytes": max(1_000, self._most_bytes),
                    **self._producing,
                }
            )
            self._again(lambda: self._producer.init_transactions(_PATIENCE_SECONDS))
            self._marks = self._group()
            found = self._again(self._recorded)
            if found is None:
                self._require_own(admin)
                found = self._again(self._from_messages, admin)
            if found is not None:
                self.renew(found)
        except self._kafka.KafkaException as error:
            failed = self._failure(
                error.args[0], admin if self._producer is None else self._producer
            )
            self.close()
            raise failed from error
        except HeadraceError:
            self.close()
            raise
        return found

    def begin(self) -> None:
        """Begin a transaction."""
        self._tried(self._producer.begin_transaction)

    def send(self, epoch: Epoch, messages: OutgoingMessages) -> dict[int, str]:
        """Send messages within the transaction; return the indices of too large ones, and why.

        Raises:
            HeadraceError: ``unavailable`` if the brokers do not accept them.
        """
        headers = [(EPOCH_HEADER, str(epoch).encode()), (SINK_HEADER, self._identity)]
        named = len(EPOCH_HEADER) + 24 + len(SINK_HEADER) + len(self._identity) + 4
        spare = self._most_bytes - _BATCH_BYTES - _RECORD_BYTES - named
        values = messages.values.to_pylist()
        keys = [None] * len(values) if messages.keys is None else messages.keys.to_pylist()
        too_large: dict[int, str] = {}
        produce, name = self._producer.produce, self._topic.name
        for at, (key, value) in enumerate(zip(keys, values, strict=True)):
            size = len(key or b"") + len(value or b"")
            if size > spare:
                too_large[at] = (
                    f"a message of {size} bytes is too large for the topic, whose"
                    f" max.message.bytes is {self._most_bytes}"
                )
                continue
            while True:
                try:
                    produce(name, value, key, headers=headers)
                    break
                except BufferError:
                    self._drained()
                except self._kafka.KafkaException as error:
                    raise self._given_up(error) from error
        self._producer.poll(0)
        return too_large

    def commit(self, mark: Mark) -> None:
        """Commit the transaction with its mark.

        Raises:
            HeadraceError: ``unavailable`` or ``invalid`` if the commit failed or its outcome is
                unknown; :meth:`open` then returns what was committed.
        """
        kafka = self._kafka
        place = kafka.TopicPartition(self._topic.name, 0, mark.epoch, metadata=mark.note)
        group = self._marks.consumer_group_metadata()
        self._tried(
            lambda: self._producer.send_offsets_to_transaction([place], group, _PATIENCE_SECONDS)
        )
        self._tried(lambda: self._producer.commit_transaction(_PATIENCE_SECONDS))
        self._committed_at = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether the record is old enough to be committed again."""
        return self.is_open and time.monotonic() - self._committed_at >= _RENEWAL_SECONDS

    def renew(self, mark: Mark) -> None:
        """Commit a mark again in a transaction without messages, so that brokers keep it.

        Raises:
            HeadraceError: as :meth:`commit`, also if another producer has replaced this one.
        """
        self.begin()
        self.commit(mark)

    def abort(self) -> None:
        """Abort the transaction."""
        if self._producer is None:
            return
        try:
            self._again(lambda: self._producer.abort_transaction(_PATIENCE_SECONDS))
        except self._kafka.KafkaException:
            self.close()  # the next producer aborts the transaction

    def forget(self) -> None:
        """Delete all records of the topic, and the mark.

        Raises:
            HeadraceError: ``unavailable`` or ``invalid`` if the brokers refuse that.
        """
        self.close()
        admin, kafka = self._admin(), self._kafka
        try:
            described = self._require_topic(admin, creates=True)
            ends = [
                kafka.TopicPartition(self._topic.name, number, kafka.OFFSET_END)
                for number in described.partitions
            ]
            for done in admin.delete_records(ends).values():
                done.result(_ANSWER_SECONDS)
            for done in admin.delete_consumer_groups([self.group]).values():
                self._unless_missing(done)
        except kafka.KafkaException as error:
            if error.args[0].name() == "POLICY_VIOLATION":
                raise HeadraceError(
                    Code.INVALID,
                    f'the records of topic "{self._topic.name}" cannot be deleted',
                    f"The broker says: {error.args[0].str()}.",
                    "Set its cleanup.policy to 'compact,delete', or DROP the sink and CREATE it"
                    " with another topic.",
                ) from error
            raise self._failure(error.args[0], admin) from error

    def close(self) -> None:
        """Drop the producer; the brokers or the next producer abort an open transaction."""
        producer, self._producer = self._producer, None
        marks, self._marks = self._marks, None
        if marks is not None:
            marks.close()
        if producer is not None:
            producer.purge()  # the last reference to it ends it, without waiting
        self._trouble = None

    # -- pieces ----------------------------------------------------------------------------

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415

        try:
            return AdminClient(self._settings)
        except self._kafka.KafkaException as error:
            raise HeadraceError(
                Code.INVALID,
                f'the client for topic "{self._topic.name}" cannot be made',
                f"It says: {error.args[0].str()}.",
                "Correct the option.",
            ) from error

    def _require_topic(self, admin: Any, *, creates: bool = False) -> Any:
        """Return the brokers' metadata of the topic, creating a missing one if ``creates``."""
        name = self._topic.name
        found = self._described(admin)
        if found.error is None:
            return found
        if self._topic.size is None or not creates:
            raise failure(self._kafka, name, found.error, use="written")
        create_topics(self._kafka, admin, [name], self._topic.size, self._topic.settings)
        until = time.monotonic() + _ANSWER_SECONDS
        while found.error is not None and time.monotonic() < until:
            time.sleep(0.05)
            found = self._described(admin)
        return found

    def _require_own(self, admin: Any) -> None:
        """Refuse a topic for which the group of another sink has a record."""
        kafka = self._kafka
        listed = admin.list_consumer_groups(request_timeout=_ANSWER_SECONDS).result()
        names = [each.group_id for each in listed.valid if each.group_id.startswith(_GROUP)]
        topic = self._topic.name
        for name in sorted(set(names) - {self.group}):
            asked = kafka.ConsumerGroupTopicPartitions(name, [kafka.TopicPartition(topic, 0)])
            asking = admin.list_consumer_group_offsets([asked], request_timeout=_ANSWER_SECONDS)
            (answer,) = asking.values()
            (found,) = answer.result().topic_partitions
            if found.error is None and found.offset >= 0:
                what = f'topic "{topic}" of Kafka'
                raise belongs_to_another(what, f"consumer group {name}")

    def _described(self, admin: Any) -> Any:
        name = self._topic.name
        asked = self._again(lambda: admin.list_topics(name, timeout=_PATIENCE_SECONDS), admin)
        return asked.topics[name]

    def _record_bytes(self, admin: Any) -> int:
        """Return the largest batch that the topic accepts, in bytes."""
        from confluent_kafka.admin import ConfigResource, ResourceType  # noqa: PLC0415

        asked = ConfigResource(ResourceType.TOPIC, self._topic.name)
        (answer,) = admin.describe_configs([asked]).values()
        try:
            found = answer.result(_ANSWER_SECONDS).get("max.message.bytes")
        except self._kafka.KafkaException:  # the user may lack the permission
            return _DEFAULT_RECORD_BYTES
        return _DEFAULT_RECORD_BYTES if found is None else int(found.value)

    def _group(self) -> Any:
        """Return a consumer of the sink's group, which only :meth:`_from_messages` reads with."""
        return self._kafka.Consumer(
            {
                **self._settings,
                "group.id": self.group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )

    def _recorded(self) -> Mark | None:
        place = self._kafka.TopicPartition(self._topic.name, 0)
        (found,) = self._marks.committed([place], timeout=_PATIENCE_SECONDS)
        if found.error is not None:
            raise self._kafka.KafkaException(found.error)
        if found.offset < 0:
            return None
        return Mark(Epoch(found.offset), found.metadata or "")

    def _from_messages(self) -> Mark | None:
        """Return the epoch in the headers of the sink's newest committed messages, or None.

        An epoch is whole if one of its messages is committed.
        """
        kafka, client, name = self._kafka, self._marks, self._topic.name
        starts = []
        for number in client.list_topics(name, timeout=_PATIENCE_SECONDS).topics[name].partitions:
            place = kafka.TopicPartition(name, number)
            first, end = client.get_watermark_offsets(place, timeout=_PATIENCE_SECONDS)
            if end > first:
                starts.append(kafka.TopicPartition(name, number, max(first, end - _LAST_RECORDS)))
        client.assign(starts)
        until, last, left = time.monotonic() + _ANSWER_SECONDS, -1, len(starts)
        try:
            while left:
                for message in client.consume(_LAST_RECORDS, _PAUSE_SECONDS):
                    error = message.error()
                    if error is None:
                        last = max(last, self._epoch_of(message))
                    elif error.code() == kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001
                        left -= 1
                    else:
                        raise kafka.KafkaException(error)
                if left and time.monotonic() > until:
                    raise kafka.KafkaException(
                        kafka.KafkaError(kafka.KafkaError._TIMED_OUT)  # noqa: SLF001
                    )
        finally:
            client.unassign()
        return None if last < 0 else Mark(Epoch(last))

    def _epoch_of(self, message: Any) -> int:
        """Return the epoch of a message of this sink; -1 for any other message."""
        headers = dict(message.headers() or ())
        epoch = headers.get(EPOCH_HEADER) or b""
        return int(epoch) if headers.get(SINK_HEADER) == self._identity and epoch.isdigit() else -1

    def _unless_missing(self, done: Any) -> None:
        try:
            done.result(_ANSWER_SECONDS)
        except self._kafka.KafkaException as error:
            if error.args[0].name() != "GROUP_ID_NOT_FOUND":
                raise

    def _drained(self) -> None:
        """Wait until the client's queue has room for messages.

        Raises:
            HeadraceError: ``unavailable`` if it stays full.
        """
        until, waiting = time.monotonic() + _LONGEST_SECONDS, len(self._producer)
        while len(self._producer) >= waiting:
            self._producer.poll(0.1)
            if time.monotonic() > until:
                error = self._kafka.KafkaError(self._kafka.KafkaError._TIMED_OUT)  # noqa: SLF001
                raise self._given_up(self._kafka.KafkaException(error))

    def _tried(self, call: Callable[[], T]) -> T:
        """Return a call's result; drop the producer if it fails."""
        try:
            return self._again(call)
        except self._kafka.KafkaException as error:
            raise self._given_up(error) from error

    def _again(self, call: Callable[[], T], client: Any = None) -> T:
        """Return a call's result; retry temporary failures for ``_LONGEST_SECONDS``.

        ``client`` is the client that is called, by default the producer.
        """
        until = time.monotonic() + _LONGEST_SECONDS
        while True:
            try:
                return self._answered(call, client, until)
            except self._kafka.KafkaException as error:
                self._asked(client).poll(0)
                temporary = error.args[0].retriable() or error.args[0].code() in self._temporary
                if not temporary or self._is_unreachable or time.monotonic() > until:
                    raise
                time.sleep(_PAUSE_SECONDS)

    def _answered(self, call: Callable[[], T], client: Any, until: float) -> T:
        """Return a call's result; raise its error, or a timeout at the time ``until``.

        The client may ignore a call's timeout and wait for the brokers, as it does for offsets of a
        transaction. Such a call is abandoned in its thread: its producer is dropped and fenced by
        the next one.
        """
        done: Future[T] = Future()
        threading.Thread(target=_settle, args=(done, call), daemon=True).start()
        while True:
            try:
                return done.result(2 * _PATIENCE_SECONDS)
            except TimeoutError:
                self._asked(client).poll(0)
                if self._is_unreachable or time.monotonic() > until:
                    error = self._kafka.KafkaError(self._kafka.KafkaError._TIMED_OUT)  # noqa: SLF001
                    raise self._kafka.KafkaException(error) from None

    def _asked(self, client: Any) -> Any:
        """Return a client, by default the producer; a producer with an empty queue is falsy."""
        return self._producer if client is None else client

    @property
    def _is_unreachable(self) -> bool:
        """Whether the client reports that it cannot restore its connections by itself."""
        return self._trouble is not None and self._trouble.code() in unreachable(self._kafka)

    @property
    def _temporary(self) -> frozenset[int]:
        """Failures of starting brokers, which are temporary although not marked as retriable."""
        error = self._kafka.KafkaError
        return frozenset(
            {
                error._TIMED_OUT,  # noqa: SLF001
                error.NOT_COORDINATOR,
                error.COORDINATOR_NOT_AVAILABLE,
                error.COORDINATOR_LOAD_IN_PROGRESS,
            }
        )

    def _given_up(self, error: Any) -> HeadraceError:
        failed = self._failure(error.args[0], self._producer)
        self.close()
        return failed

    def _failure(self, error: Any, client: Any) -> HeadraceError:
        if client is not None:
            client.poll(0)
        return failure(self._kafka, self._topic.name, error, self._trouble, "written")

    def _note(self, error: Any) -> None:
        """Store an error that the client reports about its connections."""
        self._trouble = error


def _settle(done: Future[T], call: Callable[[], T]) -> None:
    """Set a future to the result or exception of a call."""
    try:
        done.set_result(call())
    except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
        done.set_exception(error)
