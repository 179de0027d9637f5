"""The Kafka consumer of a source: requests to brokers, and arriving messages."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace.errors import Code, HeadraceError
from headrace.io.connectors.kafka.arrivals import Arrived, Batch
from headrace.io.connectors.kafka.options import (
    Bounded,
    KafkaStartup,
    failure,
    offsets_of,
    unreachable,
)
from headrace.io.connectors.kafka.sink_options import create_topics
from headrace.io.formats.libraries import library as optional

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Future
    from typing import TypeAlias

    from headrace.io.connectors.kafka.options import Options


if TYPE_CHECKING:
    Place: TypeAlias = tuple[str, int]
    """A topic, and the number of one of its partitions."""

_POLL_SECONDS: Final = 0.1
_AT_ONCE: Final = 5_000
"""About how many messages one poll returns, if as many have arrived."""
_MADE_AT_ONCE: Final = 500
"""The objects of so many messages are gone before Python's garbage collector begins to look."""
_PATIENCE_SECONDS: Final = 1.0
"""How long a request waits before the client's reports about its connections are read."""
_ANSWER_SECONDS: Final = 10.0
_FETCHING: Final = {
    "queued.min.messages": 1_000_000,
    "fetch.queue.backoff.ms": 10,
    "max.partition.fetch.bytes": 4 << 20,
    "fetch.max.bytes": 16 << 20,
}
"""Settings for a backlog. By default, the client pauses for a second once it has queued 100,000
messages; here it is its limit of 64 MiB that makes it pause, briefly."""

T = TypeVar("T")


def place_of(place: Place) -> str:
    """Return a partition as ``topic/number``, its name in positions."""
    return f"{place[0]}/{place[1]}"


class KafkaClient:
    """The consumer of one source; its methods translate errors of the client library.

    Partitions are assigned explicitly: progress is kept in positions, not in a consumer group.
    ``wanted`` says what messages are returned with; see :meth:`Batch.add`.
    Once ``is_closed``, requests that brokers do not answer are given up. Only one thread may use it
    at a time: while one polls, the client library may never answer another.
    """

    def __init__(
        self,
        options: Options,
        secret: Callable[[str], str],
        is_closed: Callable[[], bool] = lambda: False,
        wanted: frozenset[str] = frozenset(),
    ) -> None:
        self._kafka = library()
        self._options = options
        self._is_closed = is_closed
        self._wanted = wanted
        self._access = {**options.client(secret), "logger": Silent()}
        self._trouble: Any = None
        self._highs: dict[str, int] = {}
        """The ends of partitions; -1 if unknown."""
        self._learned = 0.0
        self._closing = False
        settings = {
            **_FETCHING,
            **self._access,
            "group.id": options.group or "headrace",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": options.isolation,
            "enable.partition.eof": True,
            "error_cb": self._note,
        }
        try:
            self._consumer = self._kafka.Consumer(settings)
        except self._kafka.KafkaException as error:
            raise HeadraceError(
                Code.INVALID,
                f'the client for topic "{options.named}" cannot be made',
                f"It says: {error.args[0].str()}.",
                "Correct the option.",
            ) from error

    def close(self) -> None:
        """Close the connections."""
        self._closing = True
        self._consumer.close()

    def _note(self, error: Any) -> None:
        """Store an error that the client reports about its connections; raise if it is fatal.

        The client itself would retry forever, and wait again after each report.
        """
        if error.code() in unreachable(self._kafka) and not self._closing:
            raise self._kafka.KafkaException(error)
        self._trouble = error

    def failure(self, error: Any) -> HeadraceError:
        """Translate an error of the client."""
        return failure(self._kafka, self._options.named, error, self._trouble)

    def _asked(self, question: Callable[[float], T]) -> T:
        """Return the answer to a request, a function of its timeout in seconds; retry timeouts."""
        ends = time.monotonic() + _ANSWER_SECONDS
        while True:
            try:
                return question(_PATIENCE_SECONDS)
            except self._kafka.KafkaException as error:
                self._hear()
                passing = error.args[0].code() in (
                    self._kafka.KafkaError._TIMED_OUT,  # noqa: SLF001
                    self._kafka.KafkaError._TRANSPORT,  # noqa: SLF001
                )
                if not passing or self._is_closed() or time.monotonic() > ends:
                    raise self.failure(error.args[0]) from error

    def _hear(self) -> None:
        """Let the client report errors about its connections; raise if one is fatal."""
        if self.reads:  # a message could be returned, and be lost
            return
        try:
            self._consumer.poll(0)
        except self._kafka.KafkaException as error:
            raise self.failure(error.args[0]) from error

    # -- topics ----------------------------------------------------------------------------

    def topics(self) -> tuple[str, ...]:
        """Return the names of the given topics, or of those that currently match the pattern."""
        if self._options.pattern is None:
            return self._options.topics
        return tuple(sorted(filter(re.compile(self._options.pattern).fullmatch, self._existing())))

    def _existing(self) -> list[str]:
        """Return the names of existing topics, except internal ones."""
        found = self._asked(lambda wait: self._consumer.list_topics(timeout=wait)).topics
        return [name for name in found if not name.startswith("__")]

    def create_missing(self) -> None:
        """Create the topics that do not exist, if the options give a number of partitions."""
        partitions, replicas = self._options.partitions, self._options.replicas or -1
        if partitions is None:
            return
        existing = self._existing()
        missing = [name for name in self._options.topics if name not in existing]
        if not missing:
            return
        create_topics(self._kafka, self._admin(), missing, (partitions, replicas), {})
        while not set(missing) <= set(self._existing()):
            time.sleep(_POLL_SECONDS)

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the ids of topics, which differ if one is deleted and created again."""
        admin = self._admin()  # referenced until the answers have arrived
        asked = admin.describe_topics(
            self._kafka.TopicCollection(list(topics)), request_timeout=_ANSWER_SECONDS
        )
        found = {}
        for name, described in asked.items():
            try:
                found[name] = str(self._result(described).topic_id)
            except self._kafka.KafkaException:
                continue  # reading the topic reports the error
            except TimeoutError as error:
                raise HeadraceError(
                    Code.UNAVAILABLE,
                    f'topic "{name}" cannot be read',
                    "No broker returned the topic's id.",
                    "It is tried again; look into the brokers' logs if it stays.",
                ) from error
        return found

    def _result(self, asked: Future[T]) -> T:
        """Return the answer to a request for which no thread waits otherwise.

        Raises:
            TimeoutError: there is none in time.
        """
        ends = time.monotonic() + _ANSWER_SECONDS
        while True:
            try:
                return asked.result(_POLL_SECONDS)
            except TimeoutError:
                if self._is_closed() or time.monotonic() > ends:
                    raise

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415

        return AdminClient(self._access)

    def places(self, topics: Iterable[str]) -> list[Place]:
        """Return the partitions of topics.

        Raises:
            HeadraceError: ``unavailable`` if one does not exist.
        """
        return [(topic, number) for topic in topics for number in self._numbers(topic)]

    def _numbers(self, topic: str) -> list[int]:
        listed = self._asked(lambda wait: self._consumer.list_topics(topic, timeout=wait))
        described = listed.topics[topic]
        if described.error is not None:
            raise failure(self._kafka, topic, described.error)
        return sorted(described.partitions)

    # -- offsets ---------------------------------------------------------------------------

    def starts(self, places: Sequence[Place], startup: KafkaStartup) -> dict[str, int]:
        """Return the first offset to read of each partition."""
        match startup:
            case KafkaStartup.EARLIEST:
                return {place_of(place): self._edges(place)[0] for place in places}
            case KafkaStartup.LATEST:
                return {place_of(place): self._edges(place)[1] for place in places}
            case KafkaStartup.GROUP:
                return self._committed(places)
            case KafkaStartup.TIMESTAMP:
                return self._at_time(places, self._options.startup_timestamp or 0)
            case KafkaStartup.OFFSETS:
                given = offsets_of(self._options.startup_offsets)
                return {
                    place_of(place): given.get(place[1], self._edges(place)[0]) for place in places
                }

    def bounds(self, places: Sequence[Place]) -> dict[str, int]:
        """Return the offset before which reading ends, by partition; empty for no end."""
        match self._options.bounded:
            case Bounded.NEVER:
                return {}
            case Bounded.LATEST:
                return {place_of(place): self._edges(place)[1] for place in places}
            case Bounded.TIMESTAMP:
                return self._at_time(places, self._options.bounded_timestamp or 0)
            case Bounded.OFFSETS:
                given = offsets_of(self._options.bounded_offsets)
                return {place_of(place): given.get(place[1], 0) for place in places}

    def _edges(self, place: Place) -> tuple[int, int]:
        """Return a partition's first offset, and the offset after its last message."""
        asked = self._kafka.TopicPartition(*place)
        low, high = self._asked(
            lambda wait: self._consumer.get_watermark_offsets(asked, timeout=wait)
        )
        return low, high

    def _at_time(self, places: Sequence[Place], milliseconds: int) -> dict[str, int]:
        """Return the first offset at or after a time; the end of a partition without one."""
        asked = [self._kafka.TopicPartition(*place, milliseconds) for place in places]
        found = self._asked(lambda wait: self._consumer.offsets_for_times(asked, timeout=wait))
        return {
            place_of((each.topic, each.partition)): each.offset
            if each.offset >= 0
            else self._edges((each.topic, each.partition))[1]
            for each in found
        }

    def _committed(self, places: Sequence[Place]) -> dict[str, int]:
        """Return the group's committed offsets; the beginning of a partition without one."""
        asked = [self._kafka.TopicPartition(*place) for place in places]
        found = self._asked(lambda wait: self._consumer.committed(asked, timeout=wait))
        return {
            place_of((each.topic, each.partition)): each.offset
            if each.offset >= 0
            else self._edges((each.topic, each.partition))[0]
            for each in found
        }

    # -- messages --------------------------------------------------------------------------

    @property
    def reads(self) -> bool:
        """Whether any partition is assigned."""
        return bool(self._consumer.assignment())

    def read_from(self, places: Iterable[Place], at: Mapping[str, int]) -> None:
        """Read these partitions too, each from its offset in ``at``."""
        assigned = [self._kafka.TopicPartition(*place, at[place_of(place)]) for place in places]
        self._consumer.incremental_assign(assigned)

    def consume(self) -> Arrived:
        """Return messages as soon as any arrives, with the others that are here by then.

        Nothing if none arrives for a while, or if no broker answers. The end of a partition is an
        offset after its last message and after transaction markers.
        """
        batch = Batch()
        ends: dict[str, int] = {}
        failed = None
        try:
            # A call waits for as many messages as it asks for.
            polled = self._consumer.consume(1, _POLL_SECONDS)
            while polled:
                if any(map(self._kafka.Message.error, polled)):
                    failed = self._ended([each for each in polled if each.error()], ends)
                    polled = [each for each in polled if not each.error()]
                batch.add(polled, self._wanted)
                if failed is not None or len(batch) >= _AT_ONCE:
                    break
                polled = self._consumer.consume(_MADE_AT_ONCE, 0)
            self._learn_highs()
        except self._kafka.KafkaException as raised:
            return Arrived(batch, ends, raised.args[0])
        if failed is None and (len(batch) or ends):
            self._trouble = None
        return Arrived(batch, ends, failed)

    def _ended(self, said: Iterable[Any], ends: dict[str, int]) -> Any:
        """Add the ends of partitions that the client says; return an error, or None."""
        failed = None
        for each in said:
            if each.error().code() == self._kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001
                ends[place_of((each.topic(), each.partition()))] = each.offset()
            else:
                failed = each.error()
        return failed

    def _learn_highs(self) -> None:
        """Store the ends of the assigned partitions, as brokers last said.

        Once all are known, a few times a second.
        """
        now, known = time.monotonic(), min(self._highs.values(), default=-1) >= 0
        if known and now - self._learned < _POLL_SECONDS:
            return
        self._learned, assigned = now, self._consumer.assignment()
        ends = [self._consumer.get_watermark_offsets(each, cached=True) for each in assigned]
        places = [place_of((each.topic, each.partition)) for each in assigned]
        self._highs = {place: end for place, (_, end) in zip(places, ends, strict=True)}

    def behind(self, at: Mapping[str, int]) -> int | None:
        """Return the number of unread messages, by what the last poll said; None if unknown.

        Other than all else, this may be called while another thread polls.
        """
        highs = self._highs
        if min(highs.values(), default=-1) < 0:
            return None
        return sum(max(0, high - at[place]) for place, high in highs.items() if place in at)

    def acknowledge(self, ends: Mapping[str, int]) -> None:
        """Commit offsets of the consumer group, only for tools that show its lag."""
        offsets = []
        for place, end in ends.items():
            topic, _, number = place.rpartition("/")
            offsets.append(self._kafka.TopicPartition(topic, int(number), end))
        self._consumer.commit(offsets=offsets, asynchronous=True)


class Silent:
    """A logger that discards the client's log: relevant failures are reported as errors."""

    def log(self, *_: object) -> None:
        """Discard a line."""


def library() -> Any:
    """Return the client library.

    Raises:
        HeadraceError: ``invalid`` if it is not installed.
    """
    return optional("confluent_kafka", "client for Kafka", "kafka")
